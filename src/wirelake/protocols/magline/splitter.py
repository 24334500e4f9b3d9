"""Where magline frames end. The first frame fixes the byte order of its side; a later change is refused."""

from struct import Struct as Layout
from typing import Final

from wirelake.errors import LimitError, ProtocolError
from wirelake.protocols.frame import Sender
from wirelake.protocols.magline.frames import HEAD_BYTES, prefix
from wirelake.protocols.magline.limits import MAGLINE_HEADER_BYTES_MAX, MAGLINE_MESSAGE_BYTES_MAX
from wirelake.protocols.magline.opcodes import Cmd
from wirelake.protocols.magline.tree import dissect
from wirelake.protocols.splitter import Splitter

_PREFIX_BYTES: Final = 4
# By `little`: the first four bytes as one number, head length and message length.
_LENGTHS = (Layout(">I2xH4xI"), Layout("<I2xH4xI"))
_PREFIXES = tuple(
    frozenset(int.from_bytes(prefix(cmd, little), "little" if little else "big") for cmd in Cmd)
    for little in (False, True)
)


class MaglineSplitter(Splitter):
    __slots__ = ("_little", "header_bytes_max", "message_bytes_max")

    def __init__(
        self,
        message_bytes_max: int = MAGLINE_MESSAGE_BYTES_MAX,
        header_bytes_max: int = MAGLINE_HEADER_BYTES_MAX,
    ) -> None:
        super().__init__(HEAD_BYTES + header_bytes_max + message_bytes_max)
        self.message_bytes_max = message_bytes_max
        self.header_bytes_max = header_bytes_max
        self._little: bool | None = None

    def _ends(self, buffer: bytes | bytearray, ends: list[int]) -> int:
        size, start, append = len(buffer), 0, ends.append
        if self._little is None:
            if size < _PREFIX_BYTES:
                return _PREFIX_BYTES
            self._little = buffer[3] == 0
        lengths, prefixes = _LENGTHS[self._little], _PREFIXES[self._little]
        header_max, message_max, limit = self.header_bytes_max, self.message_bytes_max, self.frame_bytes_max
        while start + HEAD_BYTES <= size:
            first, header, message = lengths.unpack_from(buffer, start)
            if first not in prefixes:
                raise self._bad_prefix(buffer, start)
            whole: int = HEAD_BYTES + header + message
            if header > header_max or message > message_max or whole > limit:
                raise self._over_limit(header, message, start)
            start += whole
            if start > size:
                return whole
            append(start)
        if start + _PREFIX_BYTES > size:
            return _PREFIX_BYTES
        # Bytes of something else entirely are refused now, rather than when sixteen of them have come.
        if int.from_bytes(buffer[start : start + 4], "little" if self._little else "big") not in prefixes:
            raise self._bad_prefix(buffer, start)
        return HEAD_BYTES

    def _bad_prefix(self, buffer: bytes | bytearray, start: int) -> ProtocolError:
        begins = bytes(buffer[start : start + _PREFIX_BYTES])
        error = dissect(begins, Sender.CLIENT).error
        if error is None or error.code == "short":  # nothing wrong with these four, taken alone
            error = ProtocolError("byte_order", "the byte order changed within the stream", 2)
        return error.shift(start)

    def _over_limit(self, header: int, message: int, start: int) -> LimitError:
        if header > self.header_bytes_max:
            text = f"a message header of {header} bytes is over the limit of {self.header_bytes_max}"
            return LimitError("magline_header_bytes_max", text, start + 6)
        most = min(self.message_bytes_max, self.frame_bytes_max - HEAD_BYTES - header)
        text = f"a body of {message} bytes is over the limit of {most}"
        return LimitError("magline_message_bytes_max", text, start + 12)
