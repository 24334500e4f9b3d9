"""sisnet messages: a name, a colon, and one of five forms, which its first byte selects.

├───────────┼───┼───┬───────────────
│ name      │ : │ { │ …                 { [   JSON
└───────────┴───┴───┴───────────────    B     binary
  0…128 bytes,                          H R   HTTP, RESP
  no { } ( ) :                          else  a data line

`forms` has the forms. On WebSocket, each message is a WebSocket message; on TCP, its size precedes it (see `envelope`).
"""

from collections.abc import Callable, Mapping

from wirelake.errors import ProtocolError
from wirelake.protocols.frame import Sender
from wirelake.protocols.sisnet.binary import find_relayed_binary, read_binary
from wirelake.protocols.sisnet.constants import SISNET_MESSAGE_BYTES_MAX, Form
from wirelake.protocols.sisnet.envelope import (
    NAME,
    ONE_BYTE_MAX,
    RELAYED_NAME,
    SisnetFrame,
    read_size,
    size_width,
    sized,
)
from wirelake.protocols.sisnet.forms import Http, Json, Redis, read_data_line
from wirelake.protocols.sisnet.tree import dissect
from wirelake.protocols.splitter import DatagramSplitter, Splitter


class SisnetTcpSplitter(Splitter):
    """Cut a stream of `size | message`. The limit applies to the message."""

    __slots__ = ()

    def __init__(self, frame_bytes_max: int = SISNET_MESSAGE_BYTES_MAX) -> None:
        super().__init__(frame_bytes_max)

    plain = False

    def bare(self, frame: bytes) -> bytes:
        return frame[size_width(frame[0]) :]

    def wrap(self, frame: bytes) -> bytes:
        return sized(frame)

    def _ends(self, buffer: bytes | bytearray, ends: list[int]) -> int:
        have, start, append = len(buffer), 0, ends.append
        limit = min(ONE_BYTE_MAX, self.frame_bytes_max)
        while start < have:
            size = buffer[start]
            end = start + 1
            if size > limit:
                width = size_width(size)
                if start + width > have:
                    return width
                size, end = read_size(buffer, start)
                self._check_size(size, start, "sisnet_message_bytes_max")
            end += size
            if end > have:
                return end - start
            append(end)
            start = end
        return 1


class SisnetMessageSplitter(DatagramSplitter):
    """For WebSocket, where each message is one frame."""

    __slots__ = ()

    def __init__(self, frame_bytes_max: int = SISNET_MESSAGE_BYTES_MAX) -> None:
        super().__init__(frame_bytes_max)


def decode(frame: bytes, sender: Sender) -> SisnetFrame:
    """Decode one message, without its size on TCP. Raise ProtocolError. Both ends send the same forms."""
    try:
        found = _read(frame)
    except (IndexError, UnicodeDecodeError, ProtocolError):
        found = None
    if found is not None:
        return found
    raise dissect(frame, sender).error or AssertionError("the tree takes what decode refuses")


def _read(message: bytes) -> SisnetFrame | None:
    head = NAME.match(message)
    if head is None:
        return None
    start = head.end()
    return _READ.get(message[start], _read_other)(message[: start - 1].decode(), message, start)


def _read_other(name: str, message: bytes, start: int) -> SisnetFrame | None:
    binary = find_relayed_binary(message, start)
    if binary is not None:
        return binary[0]
    relayed = RELAYED_NAME.match(message, start)
    if relayed is not None:
        start = relayed.end()
        return Json.read(message[: start - 1].decode(), message[start:], start)
    return read_data_line(name, message, start)


# A reader takes the name, the message and the position of its form; for a bad message it returns None or raises.
_READ: Mapping[int, Callable[[str, bytes, int], SisnetFrame | None]] = {
    Form.OBJECT.value: lambda name, message, start: Json.read(name, message[start:], start),
    Form.ARRAY.value: lambda name, message, start: Json.read(name, message[start:], start),
    Form.BINARY.value: lambda name, message, start: read_binary(name, message, start + 1),
    Form.HTTP.value: lambda name, message, start: Http(name, message[start + 1 :]),
    Form.REDIS.value: lambda name, message, start: Redis(name, message[start + 1 :]),
}
