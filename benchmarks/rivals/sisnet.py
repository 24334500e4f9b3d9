"""A sisnet request in the binary form, on raw TCP. All sizes are below 251, so one byte holds each."""

from typing import Any

import construct as c
from kaitaistruct import KaitaiStream, KaitaiStruct

from rivals.rival import Case, PlainReader
from wirelake.protocols.frame import Sender
from wirelake.protocols.sisnet.binary import BinaryRequest

NAME, COMMAND, SERVICE, ASK = b"n17", b"get", b"sisdb", b'{"key":"sh600600","sdb":"info"}'

TEXT = c.Prefixed(c.Int8ub, c.GreedyBytes)
LAYOUT = c.Prefixed(
    c.Int8ub,
    c.Struct(
        "name" / c.NullTerminated(c.GreedyBytes, term=b":"),
        "form" / c.Const(b"B"),
        "flags" / c.Int8ub,
        "command" / c.If(c.this.flags & 2, TEXT),
        "service" / c.If(c.this.flags & 4, TEXT),
        "ask" / c.If(c.this.flags & 8, TEXT),
    ),
)


def plain(stream: bytes) -> int:
    reader, found = PlainReader(stream), []
    while reader.more:
        reader.unpack(">B")
        colon = stream.index(b":", reader.position)
        frame: dict[str, Any] = {"name": reader.take(colon - reader.position).decode()}
        reader.take(1)
        frame["form"] = reader.take(1)
        flags = frame["flags"] = reader.unpack(">B")
        for bit, field in ((2, "command"), (4, "service"), (8, "ask")):
            if flags & bit:
                frame[field] = reader.take(reader.unpack(">B"))
        found.append(frame)
    return len(found)


class KaitaiRequest(KaitaiStruct):
    def __init__(self, _io: KaitaiStream) -> None:
        self._io = _io
        self.size = self._io.read_u1()
        self.name = self._io.read_bytes_term(58, False, True, True).decode("UTF-8")
        self.form = self._io.read_bytes(1)
        self.flags = self._io.read_u1()
        if self.flags & 2:
            self.command = self._io.read_bytes(self._io.read_u1())
        if self.flags & 4:
            self.service = self._io.read_bytes(self._io.read_u1())
        if self.flags & 8:
            self.ask = self._io.read_bytes(self._io.read_u1())


CASE = Case(
    protocol="sisnet",
    sender=Sender.CLIENT,
    frame=BinaryRequest(message_name=NAME.decode(), command=COMMAND, service=SERVICE, ask=ASK),
    fields={"name": NAME, "command": COMMAND, "service": SERVICE, "ask": ASK},
    plain=plain,
    layout=LAYOUT,
    layout_value={"name": NAME, "flags": 14, "command": COMMAND, "service": SERVICE, "ask": ASK},
    kaitai=KaitaiRequest,
)
