"""Decode frames. `tree.py` finds out what is wrong with a malformed one."""

from collections.abc import Callable

from wirelake.protocols.frame import Sender
from wirelake.protocols.redis import frames
from wirelake.protocols.redis.constants import (
    CRLF,
    REDIS_BULK_BYTES_MAX,
    REDIS_DEPTH_MAX,
    REDIS_ITEMS_MAX,
    REDIS_LINE_BYTES_MAX,
    REDIS_NUMBER_CHARS_MAX,
    Marker,
)
from wirelake.protocols.redis.frames import BIG_NUMBER_FORM, DOUBLE_FORM, I64_MAX, I64_MIN, Pair, RespFrame, Value
from wirelake.protocols.redis.syntax import NULL, split_words
from wirelake.protocols.redis.tree import dissect

_SMALL_COMMAND_BYTES_MAX = 4096
_STAR = Marker.ARRAY.value

# The heads of small commands and strings.
_COUNTS = {b"*%d" % count: count for count in range(1, 33)}
_LENGTHS = tuple([b"$%d" % length for length in range(_SMALL_COMMAND_BYTES_MAX + 1)])
_SHORT = {b"%d" % length: length for length in range(1024)}


def decode(frame: bytes, sender: Sender) -> RespFrame:
    """Decode one complete value or command. Raise ProtocolError if it is malformed."""
    try:
        if sender is Sender.SERVER:
            value, end = _READ[frame[0]](frame, 1, 0)
            if end == len(frame):
                return value
        elif frame[0] == _STAR:
            return frames.Command(_small_arguments(frame) or _arguments(frame))
        else:
            return _inline(frame)
    except (IndexError, KeyError, ValueError):
        pass
    raise dissect(frame, sender).error or AssertionError("the tree takes what decode refuses")


def _small_arguments(frame: bytes) -> tuple[bytes, ...] | None:
    """Return the arguments of a small command without CR LF in any of them; None for another one.

    The lines of such a command are heads and arguments in turn. If every head is the one that belongs to the argument
    after it, no other reading is possible.
    """
    if len(frame) > _SMALL_COMMAND_BYTES_MAX:
        return None
    lines = frame.split(CRLF)
    args = lines[2:-1:2]
    heads = lines[1:-1:2]
    if lines.pop() or _COUNTS.get(lines[0]) != len(args):
        return None
    return tuple(args) if heads == [_LENGTHS[len(arg)] for arg in args] else None


def _arguments(frame: bytes) -> tuple[bytes, ...]:
    count, place = _length(frame, 1, REDIS_ITEMS_MAX)
    args = []
    for _ in range(count):
        if frame[place] != Marker.BULK_STRING:
            raise ValueError
        length, start = _length(frame, place + 1, REDIS_BULK_BYTES_MAX)
        end = start + length
        if frame[end : end + 2] != CRLF:
            raise ValueError
        args.append(frame[start:end])
        place = end + 2
    if place != len(frame) or count < 0:
        raise ValueError
    return tuple(args)


def _inline(frame: bytes) -> frames.Inline:
    end = frame.index(b"\n")
    if end != len(frame) - 1 or end > REDIS_LINE_BYTES_MAX or b"\x00" in frame:
        raise ValueError
    return frames.Inline(split_words(frame), frame)


# A reader takes the frame, the position after the value's first byte and the depth, and returns the value and its end.
# A malformed value raises ValueError, IndexError or KeyError, or has a wrong end.
Reader = Callable[[bytes, int, int], tuple[Value, int]]


def _length(frame: bytes, start: int, most: int) -> tuple[int, int]:
    """Return a length or count, and the position after its line."""
    end = frame.index(CRLF, start)
    text = frame[start:end]
    if text in _SHORT:
        return _SHORT[text], end + 2
    length = int(text)
    if not NULL <= length <= most or b"%d" % length != text:
        raise ValueError
    return length, end + 2


def _line(frame: bytes, start: int) -> tuple[bytes, int]:
    end = frame.index(CRLF, start)
    text = frame[start:end]
    if b"\n" in text or b"\r" in text or end - start > REDIS_LINE_BYTES_MAX:
        raise ValueError
    return text, end + 2


def _content(frame: bytes, start: int) -> tuple[bytes, int]:
    length, start = _length(frame, start, REDIS_BULK_BYTES_MAX)
    end = start + length
    if length < 0 or frame[end : end + 2] != CRLF:
        raise ValueError
    return frame[start:end], end + 2


def _read_simple_string(frame: bytes, start: int, _depth: int) -> tuple[Value, int]:
    text, end = _line(frame, start)
    return frames.SimpleString(text), end


def _read_simple_error(frame: bytes, start: int, _depth: int) -> tuple[Value, int]:
    text, end = _line(frame, start)
    return frames.SimpleError(text), end


def _read_integer(frame: bytes, start: int, _depth: int) -> tuple[Value, int]:
    end = frame.index(CRLF, start)
    text = frame[start:end]
    value = int(text)
    if not I64_MIN <= value <= I64_MAX or b"%d" % value != text:
        raise ValueError
    return frames.Integer(value), end + 2


def _read_bulk_string(frame: bytes, start: int, _depth: int) -> tuple[Value, int]:
    length, start = _length(frame, start, REDIS_BULK_BYTES_MAX)
    if length == NULL:
        return frames.NullBulkString(), start
    end = start + length
    if frame[end : end + 2] != CRLF:
        raise ValueError
    return frames.BulkString(frame[start:end]), end + 2


def _read_null(frame: bytes, start: int, _depth: int) -> tuple[Value, int]:
    if frame[start : start + 2] != CRLF:
        raise ValueError
    return frames.Null(), start + 2


def _read_boolean(frame: bytes, start: int, _depth: int) -> tuple[Value, int]:
    return frames.Boolean(_BOOLEANS[frame[start : start + 3]]), start + 3


def _read_double(frame: bytes, start: int, _depth: int) -> tuple[Value, int]:
    text, end = _line(frame, start)
    if len(text) > REDIS_NUMBER_CHARS_MAX or DOUBLE_FORM.fullmatch(text) is None:
        raise ValueError
    return frames.Double(text), end


def _read_big_number(frame: bytes, start: int, _depth: int) -> tuple[Value, int]:
    text, end = _line(frame, start)
    if len(text) > REDIS_NUMBER_CHARS_MAX or BIG_NUMBER_FORM.fullmatch(text) is None:
        raise ValueError
    return frames.BigNumber(text), end


def _read_bulk_error(frame: bytes, start: int, _depth: int) -> tuple[Value, int]:
    text, end = _content(frame, start)
    return frames.BulkError(text), end


def _read_verbatim_string(frame: bytes, start: int, _depth: int) -> tuple[Value, int]:
    content, end = _content(frame, start)
    if content[3:4] != b":":
        raise ValueError
    return frames.VerbatimString(content[:3], content[4:]), end


def _items(frame: bytes, place: int, count: int, depth: int) -> tuple[tuple[Value, ...], int]:
    if depth >= REDIS_DEPTH_MAX:
        raise ValueError
    depth += 1
    items = []
    for _ in range(count):
        item, place = _READ[frame[place]](frame, place + 1, depth)
        items.append(item)
    return tuple(items), place


def _read_array(frame: bytes, start: int, depth: int) -> tuple[Value, int]:
    count, start = _length(frame, start, REDIS_ITEMS_MAX)
    items, end = _items(frame, start, count, depth)
    return frames.NullArray() if count == NULL else frames.Array(items), end


def _read_set(frame: bytes, start: int, depth: int) -> tuple[Value, int]:
    items, end = _items(frame, *_count(frame, start), depth)
    return frames.Set(items), end


def _read_push(frame: bytes, start: int, depth: int) -> tuple[Value, int]:
    items, end = _items(frame, *_count(frame, start), depth)
    return frames.Push(items), end


def _read_map(frame: bytes, start: int, depth: int) -> tuple[Value, int]:
    start, count = _count(frame, start)
    items, end = _items(frame, start, 2 * count, depth)
    return frames.Map(_pairs(items)), end


def _read_attribute(frame: bytes, start: int, depth: int) -> tuple[Value, int]:
    start, count = _count(frame, start)
    items, end = _items(frame, start, 2 * count + 1, depth)
    return frames.Attribute(_pairs(items[:-1]), items[-1]), end


def _count(frame: bytes, start: int) -> tuple[int, int]:
    """Return where the items begin, and their number."""
    count, start = _length(frame, start, REDIS_ITEMS_MAX)
    if count == NULL:
        raise ValueError
    return start, count


def _pairs(items: tuple[Value, ...]) -> tuple[Pair, ...]:
    return tuple(map(Pair, items[::2], items[1::2]))


_BOOLEANS = {b"t\r\n": True, b"f\r\n": False}
_READ: dict[int, Reader] = {
    Marker.SIMPLE_STRING.value: _read_simple_string,
    Marker.SIMPLE_ERROR.value: _read_simple_error,
    Marker.INTEGER.value: _read_integer,
    Marker.BULK_STRING.value: _read_bulk_string,
    Marker.ARRAY.value: _read_array,
    Marker.NULL.value: _read_null,
    Marker.DOUBLE.value: _read_double,
    Marker.BOOLEAN.value: _read_boolean,
    Marker.BULK_ERROR.value: _read_bulk_error,
    Marker.VERBATIM_STRING.value: _read_verbatim_string,
    Marker.BIG_NUMBER.value: _read_big_number,
    Marker.MAP.value: _read_map,
    Marker.SET.value: _read_set,
    Marker.PUSH.value: _read_push,
    Marker.ATTRIBUTE.value: _read_attribute,
}
