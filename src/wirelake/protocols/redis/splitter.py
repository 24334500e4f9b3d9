"""Cut a stream into commands or values.

An incomplete frame is never examined again from its start: `_at` is where to continue, and counters hold what is still
missing there.
"""

import re
from functools import lru_cache
from struct import Struct as Layout
from typing import Final

from wirelake.errors import LimitError
from wirelake.protocols.redis.constants import (
    AGGREGATES,
    CRLF,
    LINES,
    MARKERS,
    REDIS_ARGUMENTS_MAX,
    REDIS_BULK_BYTES_MAX,
    REDIS_DEPTH_MAX,
    REDIS_FRAME_BYTES_MAX,
    REDIS_ITEMS_MAX,
    REDIS_LINE_BYTES_MAX,
    Marker,
    values_in,
)
from wirelake.protocols.redis.syntax import LENGTH_CHARS_MAX, NULL, bad_length, read_length, too_many_items
from wirelake.protocols.redis.tree import too_deep, unknown_type, wrong_argument
from wirelake.protocols.splitter import Splitter

# ── small commands and values, by regular expression
#
# One call of a regular expression finds the end of a small command or value. It cannot count, but it can contain every
# short length with as many bytes as belong to it:
#
#     $ (?: 0 \r\n | 1 (?: \r\n .{1} | 0 \r\n .{10} | 1 \r\n .{11} | … ) | 2 (?: … ) | … ) \r\n
#
# Most of what is on the wire is that small. What does not match may still be valid: the general way decides.

_LENGTH_MAX: Final = 63
_ARGUMENTS_MAX: Final = 5
_ITEMS_MAX: Final = 3  # a message of a subscription has three
_TEXT_BYTES_MAX: Final = 120


def _contents(length: int) -> bytes:
    """Return what may follow the digits of `length`: more digits, or the end of the line and as many bytes."""
    choices = [rb"\r\n.{%d}" % length]
    if length:
        choices += [b"%d%b" % (digit, _contents(10 * length + digit)) for digit in _digits(10 * length)]
    return b"(?:%b)" % b"|".join(choices)


def _digits(base: int) -> range:
    return range(max(0, min(10, _LENGTH_MAX + 1 - base)))


def _up_to(most: int, item: bytes) -> bytes:
    """Return an expression for a count and as many items."""
    return b"(?:%b)" % b"|".join([rb"%d\r\n(?:%b){%d}" % (count, item, count) for count in range(1, most + 1)])


_BULK: Final = rb"\$(?:%b)\r\n" % b"|".join([b"%d%b" % (digit, _contents(digit)) for digit in _digits(0)])
_LINE: Final = rb"[+\-:,\#_(][^\r\n]{0,%d}+\r\n" % _TEXT_BYTES_MAX
_ITEM: Final = b"(?:%b|%b)" % (_BULK, _LINE)

SMALL_COMMAND: Final = re.compile(rb"\*%b" % _up_to(_ARGUMENTS_MAX, _BULK), re.DOTALL)
SMALL_VALUE: Final = re.compile(rb"%b|[*>]%b" % (_ITEM, _up_to(_ITEMS_MAX, _ITEM)), re.DOTALL)
SMALL_BYTES_MAX: Final = 4 + _ARGUMENTS_MAX * (1 + _TEXT_BYTES_MAX + 2)  # no match is longer


# ── splitters

_STAR: Final = Marker.ARRAY.value
_DOLLAR: Final = Marker.BULK_STRING.value
_ZERO: Final = ord("0")
_LINES: Final = frozenset(marker.value for marker in LINES)
_LENGTH_LINE: Final = LENGTH_CHARS_MAX + 3  # from the marker to the latest end of the line of a length

_HEAD_BYTES_MAX: Final = 512  # a longer one is not compared

Buffer = bytes | bytearray


_TOGETHER: Final = 64  # frames that are compared with the previous one in one call


@lru_cache(maxsize=256)
def _heads(head_bytes: int, tail_bytes: int) -> Layout:
    return Layout(f"{head_bytes}s{tail_bytes}x" * _TOGETHER)


class RespSplitter(Splitter):
    """What the splitters of both directions share."""

    __slots__ = ("_at", "_searched")

    def __init__(self, frame_bytes_max: int = REDIS_FRAME_BYTES_MAX) -> None:
        super().__init__(frame_bytes_max)
        self._at = 0  # offset of the first byte that was not examined, from the start of the incomplete frame
        self._searched = 0  # from the same start: the open line does not end before this

    def _look_again(self) -> None:
        self._at = self._searched = 0

    def _want_length(self, buffer: Buffer, at: int) -> None:
        """Raise ProtocolError if the line of a length, which begins at `at` and has no end, is too long."""
        if len(buffer) >= at + _LENGTH_LINE:
            raise bad_length(buffer[at], at + 1)

    def _line_end(self, buffer: Buffer, start: int, at: int, text: int, end_mark: bytes) -> int:
        """Return the end of the line that begins at `at`, with its text at `text`; -1 if it is incomplete.

        Of two limits, the lower one is reported, however the bytes arrive.
        """
        found = buffer.find(end_mark, max(text, self._searched))
        line_room = REDIS_LINE_BYTES_MAX + len(end_mark)
        frame_room = self.frame_bytes_max - (text - start)
        size = found + len(end_mark) - text if found >= 0 else len(buffer) - text + 1
        if size > min(line_room, frame_room):
            if frame_room < line_room:
                raise self._too_long(at)
            text_ = "too big inline request" if text == at else f"a line is over the limit of {REDIS_LINE_BYTES_MAX}"
            raise LimitError("resp_line_bytes_max", text_, at)
        return found + len(end_mark) if found >= 0 else -1

    def _stop(self, size: int, start: int, at: int) -> None:
        """Remember that the frame at `start` was examined up to `at`."""
        self._at = at - start
        self._searched = size - start - 1  # the last byte may be the CR of a CR LF

    def _too_long(self, offset: int) -> LimitError:
        return LimitError("resp_frame_bytes_max", f"a frame is over the limit of {self.frame_bytes_max} bytes", offset)


def _no_match(_buffer: Buffer, _at: int) -> None:
    """Match nothing: used if the limit on frames is lower than the length of small ones."""


class CommandSplitter(RespSplitter):
    """Cut what clients send: arrays of bulk strings, and lines.

    A client often repeats a command with content of the same length. If the bytes before the last content are the same
    as in the previous frame, then so is the length.
    """

    __slots__ = ("_left", "_tail_bytes")

    def __init__(self, frame_bytes_max: int = REDIS_FRAME_BYTES_MAX) -> None:
        super().__init__(frame_bytes_max)
        self._left = 0  # bulk strings of the open array that have not begun
        self._tail_bytes = 0  # of the last content, with its CR LF

    def _look_again(self) -> None:
        super()._look_again()
        self._left = 0

    def _ends(self, buffer: Buffer, ends: list[int]) -> int:
        size, start, at, left, append = len(buffer), 0, self._at, self._left, ends.append
        small = SMALL_COMMAND.match if self.frame_bytes_max >= SMALL_BYTES_MAX else _no_match
        while True:
            if left == 0:
                if at > size:
                    break
                if at > start:
                    append(at)
                    at = self._repeats_end(buffer, start, at, ends)
                while (found := small(buffer, at)) is not None:
                    at = found.end()
                    append(at)
                start = at
                if at == size:
                    break
                if buffer[at] == _STAR:
                    end, left = self._head_end(buffer, at)
                else:
                    end = self._line_end(buffer, start, at, at, b"\n")
                if end < 0:
                    break
                at = end
            at, left = self._arguments_end(buffer, start, at, left)
            if left:
                break
        self._stop(size, start, at)
        self._left = left
        return (at if at > size and left == 0 else max(at, size) + 1) - start

    def _repeats_end(self, buffer: Buffer, start: int, at: int, ends: list[int]) -> int:
        """Append the ends of the frames that repeat the one from `start` to `at`; return the last one."""
        head = bytes(buffer[start : at - self._tail_bytes])
        size, last = at - start, len(buffer)
        if buffer[start] != _STAR or not self._tail_bytes or len(head) > _HEAD_BYTES_MAX:
            return at
        together = _heads(len(head), self._tail_bytes)
        while at + together.size <= last and together.unpack_from(buffer, at).count(head) == _TOGETHER:
            end = at + together.size
            ends.extend(range(at + size, end + 1, size))
            at = end
        startswith, append = buffer.startswith, ends.append
        end = at + size
        while end <= last and startswith(head, at):
            append(end)
            at = end
            end += size
        return at

    def _head_end(self, buffer: Buffer, at: int) -> tuple[int, int]:
        """Return the end of an array's count, and the count; -1 and 0 if the line is incomplete."""
        self._tail_bytes = 0
        end = buffer.find(CRLF, at + 1, at + _LENGTH_LINE)
        if end < 0:
            self._want_length(buffer, at)
            return -1, 0
        digits = bytes(buffer[at + 1 : end])
        count = read_length(digits, _STAR, at + 1, nullable=False, items_max=REDIS_ARGUMENTS_MAX)
        if end + 2 - at > self.frame_bytes_max:
            raise self._too_long(at + 1)
        return end + 2, count

    def _arguments_end(self, buffer: Buffer, start: int, at: int, left: int) -> tuple[int, int]:
        """Skip those of the `left` bulk strings that have begun; return the end, and how many are left."""
        size, find, limit = len(buffer), buffer.find, self.frame_bytes_max
        while left and at < size:
            if buffer[at] != _DOLLAR:
                raise wrong_argument(buffer[at], at)
            end = find(CRLF, at + 1, at + _LENGTH_LINE)
            if end < 0:
                self._want_length(buffer, at)
                break
            digits = buffer[at + 1 : end]
            if not (digits.isdigit() and digits[0] != _ZERO and (length := int(digits)) <= REDIS_BULK_BYTES_MAX):
                length = read_length(bytes(digits), _DOLLAR, at + 1, nullable=False)
            self._tail_bytes = length + 2
            end += length + 4
            if end - start > limit:
                raise self._too_long(at + 1)
            at = end
            left -= 1
        return at, left


class ValueSplitter(RespSplitter):
    """Cut what servers send. The stack has, for each open aggregate, the number of missing values."""

    __slots__ = ("_announced", "_stack")

    def __init__(self, frame_bytes_max: int = REDIS_FRAME_BYTES_MAX) -> None:
        super().__init__(frame_bytes_max)
        self._stack: list[int] = []
        self._announced = 0  # values in this frame, by the counts so far

    def _ends(self, buffer: Buffer, ends: list[int]) -> int:
        size, start, at, stack, append = len(buffer), 0, self._at, self._stack, ends.append
        small = SMALL_VALUE.match if self.frame_bytes_max >= SMALL_BYTES_MAX else _no_match
        while True:
            if not stack:
                if at > size:
                    break
                if at > start:
                    append(at)
                    self._announced = 0
                while (found := small(buffer, at)) is not None:
                    at = found.end()
                    append(at)
                start = at
            if at >= size:
                break
            marker = buffer[at]
            if marker in _LINES:
                end, inside = self._line_end(buffer, start, at, at + 1, CRLF), 0
            else:
                end, inside = self._counted_end(buffer, start, at)
            if end < 0:
                break
            at = end
            if stack:
                stack[-1] -= 1
            if inside:
                stack.append(inside)
            while stack and stack[-1] == 0:
                stack.pop()
        self._stop(size, start, at)
        return (at if at > size and not stack else max(at, size) + 1) - start

    def _counted_end(self, buffer: Buffer, start: int, at: int) -> tuple[int, int]:
        """Return where the own bytes of a bulk or an aggregate end, and how many values it contains."""
        marker = MARKERS.get(buffer[at])
        if marker is None:
            raise unknown_type(buffer[at], at)
        is_aggregate = marker in AGGREGATES
        if is_aggregate and len(self._stack) >= REDIS_DEPTH_MAX:
            raise too_deep(at)
        end = buffer.find(CRLF, at + 1, at + _LENGTH_LINE)
        if end < 0:
            self._want_length(buffer, at)
            return -1, 0
        length = read_length(bytes(buffer[at + 1 : end]), marker, at + 1)
        end, inside = end + 2, 0
        if is_aggregate and length != NULL:
            inside = values_in(marker, length)
            self._announced += inside
            if self._announced > REDIS_ITEMS_MAX:
                raise too_many_items(self._announced, at + 1)
        elif length != NULL:
            end += length + 2
        if end - start > self.frame_bytes_max:
            raise self._too_long(at + 1)
        return end, inside
