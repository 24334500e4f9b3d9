"""An esnp request with seven lines. The rivals cut it into typed lines, as ours does; values are read lazily."""

from typing import Any

import construct as c
from kaitaistruct import KaitaiStream, KaitaiStruct

from rivals.rival import Case, PlainReader
from wirelake.protocols.esnp.frames import decode
from wirelake.protocols.frame import Sender

WIRE = bytes.fromhex(
    "1e00000108170000052806616464170000063c08746573741100000800000000054c56381500000402610502150000040262050300000000"
)

LAYOUT = c.RepeatUntil(
    c.obj_.type == 0,
    c.Struct("type" / c.Int8ub, "size" / c.Int24ub, "data" / c.Bytes(c.this.size)),
)


def plain(stream: bytes) -> int:
    reader, found = PlainReader(stream), []
    while reader.more:
        lines: list[dict[str, Any]] = []
        while True:
            line: dict[str, Any] = {"type": reader.unpack(">B")}
            size = reader.unpack(">B") << 16 | reader.unpack(">H")
            line["data"] = reader.take(size)
            if line["type"] == 0:
                break
            lines.append(line)
        found.append(lines)
    return len(found)


class KaitaiLine(KaitaiStruct):
    def __init__(self, _io: KaitaiStream) -> None:
        self._io = _io
        self.type = self._io.read_u1()
        self.size_high = self._io.read_u1()
        self.size_low = self._io.read_u2be()
        self.data = self._io.read_bytes(self.size_high << 16 | self.size_low)


class KaitaiMessage(KaitaiStruct):
    def __init__(self, _io: KaitaiStream) -> None:
        self._io = _io
        self.lines = []
        while True:
            line = KaitaiLine(self._io)
            self.lines.append(line)
            if line.type == 0:
                break


FRAME = decode(WIRE, Sender.CLIENT)
LINES = [{"type": line.type, "size": len(line.data), "data": line.data} for line in FRAME.lines]

CASE = Case(
    protocol="esnp",
    sender=Sender.CLIENT,
    frame=FRAME,
    fields={"flag": 4, "op": "add", "service": "test", "id": 88888888, "names": ["a", "b"], "values": [1, -2]},
    plain=plain,
    layout=LAYOUT,
    layout_value=[*LINES, {"type": 0, "size": 0, "data": b""}],
    kaitai=KaitaiMessage,
)
