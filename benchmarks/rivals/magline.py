"""A magline REQ: head, business command, hmac and 32 bytes of sealed data."""

from typing import Any

import construct as c
from kaitaistruct import KaitaiStream, KaitaiStruct

from rivals.rival import Case, PlainReader
from wirelake.protocols.frame import Sender
from wirelake.protocols.magline.frames import Req

HMAC, DATA = bytes(range(16)), bytes(range(32))
VALUE = {
    "magic": 0x7E,
    "version": 1,
    "cmd": 6,
    "head_optional": 0,
    "head_length": 0,
    "seq": 77,
    "message_length": 52,
    "header": b"",
    "business_cmd": 16,
    "hmac": HMAC,
    "data": DATA,
}

LAYOUT = c.Struct(
    "magic" / c.Int8ub,
    "version" / c.Int8ub,
    "cmd" / c.Int16ub,
    "head_optional" / c.Int16ub,
    "head_length" / c.Int16ub,
    "seq" / c.Int32ub,
    "message_length" / c.Int32ub,
    "header" / c.Bytes(c.this.head_length),
    "business_cmd" / c.Int32ub,
    "hmac" / c.Bytes(16),
    "data" / c.Bytes(c.this.message_length - 20),
)


def plain(stream: bytes) -> int:
    reader, found = PlainReader(stream), []
    while reader.more:
        frame: dict[str, Any] = {"magic": reader.unpack(">B"), "version": reader.unpack(">B")}
        frame["cmd"] = reader.unpack(">H")
        frame["head_optional"] = reader.unpack(">H")
        head_length = reader.unpack(">H")
        frame["seq"] = reader.unpack(">I")
        message_length = reader.unpack(">I")
        frame["header"] = reader.take(head_length)
        frame["business_cmd"] = reader.unpack(">I")
        frame["hmac"] = reader.take(16)
        frame["data"] = reader.take(message_length - 20)
        found.append(frame)
    return len(found)


class KaitaiReq(KaitaiStruct):
    def __init__(self, _io: KaitaiStream) -> None:
        self._io = _io
        self.magic = self._io.read_u1()
        self.version = self._io.read_u1()
        self.cmd = self._io.read_u2be()
        self.head_optional = self._io.read_u2be()
        self.head_length = self._io.read_u2be()
        self.seq = self._io.read_u4be()
        self.message_length = self._io.read_u4be()
        self.header = self._io.read_bytes(self.head_length)
        self.business_cmd = self._io.read_u4be()
        self.hmac = self._io.read_bytes(16)
        self.data = self._io.read_bytes(self.message_length - 20)


CASE = Case(
    protocol="magline",
    sender=Sender.CLIENT,
    frame=Req(seq=77, business_cmd=16, hmac=HMAC, data=DATA),
    fields=VALUE,
    plain=plain,
    layout=LAYOUT,
    layout_value=VALUE,
    kaitai=KaitaiReq,
)
