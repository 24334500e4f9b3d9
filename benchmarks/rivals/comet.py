"""A comet `message`: the frame that every subscriber gets."""

from typing import Any

import construct as c
from kaitaistruct import KaitaiStream, KaitaiStruct

from rivals.rival import Case, PlainReader
from wirelake.protocols.comet import frames
from wirelake.protocols.frame import Sender

CONTENT = b'{"text":"your parcel is on its way"}'
ID, TS = "1-123456", 1_700_000_000_000

LAYOUT = c.Struct(
    "length" / c.Int16ub,
    "type" / c.Int8ub,
    "msg_type" / c.Int8ub,
    "msg_id" / c.PascalString(c.Int16ub, "utf8"),
    "content" / c.Prefixed(c.Int16ub, c.GreedyBytes),
    "ts" / c.Int64sb,
)


def plain(stream: bytes) -> int:
    reader, found = PlainReader(stream), []
    while reader.more:
        frame: dict[str, Any] = {"length": reader.unpack(">H"), "type": reader.unpack(">B")}
        frame["msg_type"] = reader.unpack(">B")
        frame["msg_id"] = reader.take(reader.unpack(">H")).decode()
        frame["content"] = reader.take(reader.unpack(">H"))
        frame["ts"] = reader.unpack(">q")
        found.append(frame)
    return len(found)


class KaitaiMessage(KaitaiStruct):
    def __init__(self, _io: KaitaiStream) -> None:
        self._io = _io
        self.length = self._io.read_u2be()
        self.type = self._io.read_u1()
        self.msg_type = self._io.read_u1()
        self.msg_id_size = self._io.read_u2be()
        self.msg_id = self._io.read_bytes(self.msg_id_size).decode("UTF-8")
        self.content_size = self._io.read_u2be()
        self.content = self._io.read_bytes(self.content_size)
        self.ts = self._io.read_s8be()


CASE = Case(
    protocol="comet",
    sender=Sender.SERVER,
    frame=frames.Message(1, ID, CONTENT, TS),
    fields={"type": 5, "msg_type": 1, "msg_id": ID, "content": CONTENT, "ts": TS},
    plain=plain,
    layout=LAYOUT,
    layout_value={
        "length": len(CONTENT) + len(ID) + 14,
        "type": 5,
        "msg_type": 1,
        "msg_id": ID,
        "content": CONTENT,
        "ts": TS,
    },
    kaitai=KaitaiMessage,
)
