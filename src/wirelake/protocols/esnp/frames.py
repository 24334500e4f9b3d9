"""esnp messages: lines, each with a type and a three-byte size, and an end line of four zero bytes.

 0       1       2       3       4
├───────┼───────┴───────┴───────┼───────────────
│ type  │  size, big-endian     │ data …            line, 0 to n times, head lines before body lines
├───────┼───────────────────────┼───────────────
│   0   │           0           │                   end
└───────┴───────────────────────┘

`decode` checks the structure: types, sizes, the end, and the sizes that are fixed. The data of a line is read on
access; a line that cannot be read then raises a ProtocolError with its offset in the message. A message with one
malformed value can therefore still be answered, shown, forwarded and logged.
"""

from collections.abc import Callable
from struct import Struct as Layout
from struct import error as struct_error
from typing import TypeVar

from wirelake.errors import EncodeError, LimitError, ProtocolError
from wirelake.protocols.esnp import lines as reading
from wirelake.protocols.esnp.constants import (
    ESNP_FRAME_BYTES_MAX,
    ESNP_LINES_MAX,
    FIXED_SIZES,
    LINE_NAMES,
    LineType,
    Part,
    line_name,
    part_of,
)
from wirelake.protocols.esnp.lines import Line, SeqNo
from wirelake.protocols.esnp.tree import dissect, too_many_lines, wrong_end
from wirelake.protocols.esnp.values import Var, VarReader
from wirelake.protocols.frame import Frame, Sender
from wirelake.protocols.splitter import Splitter

T = TypeVar("T")

HEAD_BYTES = 4
END = bytes(HEAD_BYTES)
_HEAD = Layout(">I")  # type and size in one number
_SIZE_MAX = 0xFFFFFF
_PARTS = tuple(part_of(number) for number in range(256))


class EsnpSplitter(Splitter):
    """Cut a stream at the end lines. Remember how much of an incomplete message was examined, to do so only once."""

    __slots__ = ("_lines", "_looked")

    def __init__(self, frame_bytes_max: int = ESNP_FRAME_BYTES_MAX) -> None:
        super().__init__(frame_bytes_max)
        self._looked = 0  # where the next line of the incomplete message begins, from its first byte
        self._lines = 0  # how many lines precede that

    def _look_again(self) -> None:
        self._looked = self._lines = 0

    def _ends(self, buffer: bytes | bytearray, ends: list[int]) -> int:
        start, place, lines = 0, self._looked, self._lines
        last, limit, head_at, append = len(buffer) - HEAD_BYTES, self.frame_bytes_max, _HEAD.unpack_from, ends.append
        while place <= last:
            (head,) = head_at(buffer, place)
            if head == 0:
                start = place = place + HEAD_BYTES
                lines = 0
                append(start)
                continue
            if head <= _SIZE_MAX:
                raise wrong_end(head, place)
            lines += 1
            if lines > ESNP_LINES_MAX:
                raise too_many_lines(place)
            line_end = place + HEAD_BYTES + (head & _SIZE_MAX)
            if line_end + HEAD_BYTES - start > limit:
                text = f"a message of at least {line_end + HEAD_BYTES - start} bytes is over the limit of {limit}"
                raise LimitError("esnp_frame_bytes_max", text, place)
            place = line_end
        self._looked, self._lines = place - start, lines
        return place - start + HEAD_BYTES


class EsnpMessage(Frame, frozen=True):
    """The lines of a message, without the end line. Properties raise ProtocolError for a malformed line."""

    name = "message"
    lines: tuple[Line, ...]

    def encode(self) -> bytes:
        if len(self.lines) > ESNP_LINES_MAX:
            raise EncodeError(f"a message of {len(self.lines)} lines: the limit is {ESNP_LINES_MAX}")
        parts: list[bytes] = []
        for line in self.lines:
            kind, size = line.type, len(line.data)
            if not 0 < kind <= 0xFF or size > _SIZE_MAX or FIXED_SIZES.get(kind, size) != size:
                raise EncodeError(f"a line {line_name(kind)} of {size} bytes")
            parts += (_HEAD.pack(kind << 24 | size), line.data)
        parts.append(END)
        wire = b"".join(parts)
        if len(wire) > ESNP_FRAME_BYTES_MAX:
            raise EncodeError(f"a message of {len(wire)} bytes: the limit is {ESNP_FRAME_BYTES_MAX}")
        return wire

    @property
    def head_after_body(self) -> int | None:
        """Return the offset of the first head line after a body line; None if there is none."""
        place, body = 0, False
        for line in self.lines:
            part = _PARTS[line.type]
            if part is Part.BODY:
                body = True
            elif body and part is Part.HEAD:
                return place
            place += HEAD_BYTES + len(line.data)
        return None

    @property
    def message_id(self) -> int | None:
        return self._first(LineType.MESSAGE_ID, reading.read_number)

    @property
    def source_message_id(self) -> int | None:
        return self._first(LineType.SOURCE_MESSAGE_ID, reading.read_number)

    @property
    def flags(self) -> tuple[int, ...]:
        return self._all(LineType.FLAG, reading.read_flag)

    @property
    def addresses(self) -> tuple[tuple[int, str], ...]:
        return self._all(LineType.ADDRESS, reading.read_address)

    @property
    def source_addresses(self) -> tuple[tuple[int, str], ...]:
        return self._all(LineType.SOURCE_ADDRESS, reading.read_address)

    @property
    def seq_no(self) -> SeqNo | None:
        return self._first(LineType.SEQ_NO, reading.read_seq_no)

    @property
    def error(self) -> str | None:
        return self._first(LineType.ERROR, reading.read_error)

    @property
    def version(self) -> tuple[int, ...] | None:
        return self._first(LineType.VERSION, reading.read_version)

    @property
    def session_infos(self) -> tuple[tuple[str, Var], ...]:
        return self._all(LineType.SESSION_INFO, reading.read_named)

    @property
    def headers(self) -> tuple[tuple[str, Var], ...]:
        return self._all(LineType.HEADER, reading.read_named)

    @property
    def data(self) -> tuple[tuple[str, Var], ...]:
        return self._all(LineType.DATA, reading.read_named)

    @property
    def payload(self) -> bytes:
        """Return all PAYLOAD lines, joined."""
        return b"".join([line.data for line in self.lines if line.type == LineType.PAYLOAD])

    @property
    def xdata(self) -> tuple[tuple[int, bytes], ...]:
        return self._all(LineType.XDATA, reading.read_xdata)

    @property
    def unknown(self) -> tuple[Line, ...]:
        """Return the lines of applications, and those of undefined types."""
        return tuple(line for line in self.lines if line.type not in LINE_NAMES)

    def place_of(self, index: int) -> int:
        """Return where the data of a line begins, from the message's first byte."""
        return sum(HEAD_BYTES + len(line.data) for line in self.lines[:index]) + HEAD_BYTES

    def _first(self, kind: LineType, read: Callable[[bytes, VarReader], T]) -> T | None:
        return next(iter(self._all(kind, read)), None)

    def _all(self, kind: LineType, read: Callable[[bytes, VarReader], T]) -> tuple[T, ...]:
        values = VarReader()
        found = []
        for index, line in enumerate(self.lines):
            if line.type == kind:
                try:
                    found.append(read(line.data, values))
                except ProtocolError as error:
                    raise error.shift(self.place_of(index)) from None
        return tuple(found)


def decode(frame: bytes, sender: Sender) -> EsnpMessage:
    """Decode one complete message, including its end line. Raise ProtocolError if it is malformed."""
    lines: list[Line] = []
    place, head_at, fixed, append = 0, _HEAD.unpack_from, FIXED_SIZES.get, lines.append
    try:
        while True:
            (head,) = head_at(frame, place)
            if head <= _SIZE_MAX:
                break
            kind, size, start = head >> 24, head & _SIZE_MAX, place + HEAD_BYTES
            place = start + size
            if fixed(kind, size) != size:
                break
            append(Line(kind, frame[start:place]))
        if head == 0 and place + HEAD_BYTES == len(frame) and len(lines) <= ESNP_LINES_MAX:
            return EsnpMessage(tuple(lines))
    except struct_error:
        pass
    raise dissect(frame, sender).error or AssertionError("the tree takes what decode refuses")
