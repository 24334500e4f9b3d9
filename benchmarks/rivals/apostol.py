"""An apostol packet with a meter's status: the protocol's own sample. Every rival checks the CRC too."""

from typing import Any

import construct as c
from fastcrc.crc16 import modbus
from kaitaistruct import KaitaiStream, KaitaiStruct

from rivals.rival import Case, PlainReader
from wirelake.protocols.apostol.frames import decode
from wirelake.protocols.frame import Sender

WIRE = bytes.fromhex("1e0103060431323334f000a6530c5e010000000400000000029c530c5e3ec7")
DATA = WIRE[11:29]
VALUE = {
    "length": 30,
    "version": 1,
    "params": 3,
    "device_type": 6,
    "serial": "1234",
    "command_no": 0xF0,
    "packet_no": 0,
    "data": DATA,
}

LAYOUT = c.Struct(
    "checked"
    / c.RawCopy(
        c.Struct(
            "length" / c.Int8ul,
            "version" / c.Int8ul,
            "params" / c.Int8ul,
            "device_type" / c.Int8ul,
            "serial" / c.PascalString(c.Int8ul, "utf8"),
            "command_no" / c.Int8ul,
            "packet_no" / c.Int8ul,
            "data" / c.Bytes(c.this.length - c.len_(c.this.serial) - 8),
        )
    ),
    "crc" / c.Checksum(c.Int16ul, modbus, lambda this: this.checked.data),
)


def plain(stream: bytes) -> int:
    reader, found = PlainReader(stream), []
    while reader.more:
        start = reader.position
        frame: dict[str, Any] = {"length": reader.unpack("<B"), "version": reader.unpack("<B")}
        frame["params"] = reader.unpack("<B")
        frame["device_type"] = reader.unpack("<B")
        frame["serial"] = reader.take(reader.unpack("<B")).decode()
        frame["command_no"] = reader.unpack("<B")
        frame["packet_no"] = reader.unpack("<B")
        frame["data"] = reader.take(start + frame["length"] - 1 - reader.position)
        crc = modbus(stream[start : reader.position])
        if reader.unpack("<H") != crc:
            raise ValueError("crc")
        found.append(frame)
    return len(found)


class KaitaiPacket(KaitaiStruct):
    def __init__(self, _io: KaitaiStream) -> None:
        self._io = _io
        start = self._io.pos()
        self.length = self._io.read_u1()
        self.version = self._io.read_u1()
        self.params = self._io.read_u1()
        self.device_type = self._io.read_u1()
        self.serial_size = self._io.read_u1()
        self.serial = self._io.read_bytes(self.serial_size).decode("UTF-8")
        self.command_no = self._io.read_u1()
        self.packet_no = self._io.read_u1()
        self.data = self._io.read_bytes(self.length - self.serial_size - 8)
        end = self._io.pos()
        self._io.seek(start)
        crc = modbus(self._io.read_bytes(end - start))
        if self._io.read_u2le() != crc:
            raise ValueError("crc")


CASE = Case(
    protocol="apostol",
    sender=Sender.CLIENT,
    frame=decode(WIRE, Sender.CLIENT),
    fields=VALUE,
    plain=plain,
    layout=LAYOUT,
    layout_value={"checked": {"value": VALUE}},
    kaitai=KaitaiPacket,
)
