"""Dissect RESP values and commands into a tree with offsets. All errors about malformed frames come from here."""

from wirelake.errors import LimitError, ProtocolError
from wirelake.protocols.frame import Sender
from wirelake.protocols.redis.constants import (
    AGGREGATES,
    BULKS,
    CRLF,
    MARKERS,
    REDIS_DEPTH_MAX,
    REDIS_LINE_BYTES_MAX,
    REDIS_NUMBER_CHARS_MAX,
    Marker,
    values_in,
)
from wirelake.protocols.redis.frames import BIG_NUMBER_FORM, DOUBLE_FORM, I64_MAX, I64_MIN
from wirelake.protocols.redis.syntax import LENGTH_CHARS_MAX, NULL, bad_length, is_canonical, read_length, words
from wirelake.protocols.tree import Dissector, Tree

_TEXT_SHOWN_CHARS_MAX = 60


def dissect(frame: bytes, sender: Sender) -> Tree:
    """Return the fields of a frame, up to the first error."""
    dissector = Dissector(frame, "redis")
    try:
        dissector.need(1, "a value")
        if sender is Sender.SERVER:
            _value(dissector, 0)
        elif frame[0] == Marker.ARRAY:
            _command(dissector)
        else:
            _inline(dissector)
        dissector.finish()
    except ProtocolError as error:
        return Tree(dissector.root, error)
    return Tree(dissector.root)


def _command(d: Dissector) -> None:
    d.root.name = "resp command"
    count = _length(d, Marker.ARRAY, nullable=False)
    for index in range(count):
        with d.group("command" if index == 0 else f"argument {index}"):
            d.need(1, "a bulk string")
            marker = d.data[d.position]
            if marker != Marker.BULK_STRING:
                raise wrong_argument(marker, d.position)
            _bulk(d, Marker.BULK_STRING, _length(d, Marker.BULK_STRING, nullable=False))


def wrong_argument(marker: int, offset: int) -> ProtocolError:
    """Return the error of redis for an argument that is not a bulk string."""
    shown = chr(marker) if 0x20 <= marker < 0x7F else f"\\x{marker:02x}"
    return ProtocolError("expected_bulk", f"expected '$', got '{shown}'", offset)


def _inline(d: Dissector) -> None:
    d.root.name = "resp inline"
    end = d.data.find(b"\n")
    if (d.left if end < 0 else end) > REDIS_LINE_BYTES_MAX:
        raise LimitError("resp_line_bytes_max", "too big inline request", 0)
    if end < 0:
        raise ProtocolError("short", "the line has no end yet", d.end)
    nul = d.data.find(b"\x00", 0, end)
    if nul >= 0:
        raise ProtocolError("nul", "a zero byte in an inline request", nul)
    text_end = end - 1 if d.data[:end].endswith(b"\r") else end
    for index, (start, stop, word) in enumerate(words(d.data[:text_end])):
        if start > d.position:
            d.raw("space", start - d.position)
        d.add("command" if index == 0 else f"argument {index}", stop - start, word, _readable(word))
    if text_end > d.position:
        d.raw("space", text_end - d.position)
    d.raw("end of line", end + 1 - text_end)


def _value(d: Dissector, depth: int) -> None:
    """Add a value. Aggregates call this for their items, at most REDIS_DEPTH_MAX deep."""
    d.need(1, "a value")
    marker = MARKERS.get(d.data[d.position])
    if marker is None:
        raise unknown_type(d.data[d.position], d.position)
    if depth == 0:
        d.root.name = f"resp {marker.name.lower()}"
    if marker in AGGREGATES:
        _aggregate(d, marker, depth)
    elif marker in BULKS:
        length = _length(d, marker, nullable=True)
        if length == NULL:
            d.root.name = "resp null_bulk_string" if depth == 0 else d.root.name
        else:
            _bulk(d, marker, length)
    else:
        _line(d, marker)


def unknown_type(marker: int, offset: int) -> ProtocolError:
    return ProtocolError("unknown_type", f"no value begins with the byte 0x{marker:02x}", offset)


def too_deep(offset: int) -> LimitError:
    return LimitError("resp_depth_max", f"values nest deeper than {REDIS_DEPTH_MAX}", offset)


def _aggregate(d: Dissector, marker: Marker, depth: int) -> None:
    if depth >= REDIS_DEPTH_MAX:
        raise too_deep(d.position)
    count = _length(d, marker, nullable=True)
    if count == NULL:
        d.root.name = "resp null_array" if depth == 0 else d.root.name
        return
    for index in range(values_in(marker, count)):
        with d.group(_place(marker, count, index)):
            _value(d, depth + 1)


def _place(marker: Marker, count: int, index: int) -> str:
    if marker not in (Marker.MAP, Marker.ATTRIBUTE):
        return f"item {index}"
    if index == 2 * count:
        return "value"
    return f"{'value' if index % 2 else 'key'} {index // 2}"


def _length(d: Dissector, marker: Marker, *, nullable: bool) -> int:
    """Add a marker, the length after it, and the end of the line."""
    start = d.position + 1
    end = d.data.find(CRLF, start, start + LENGTH_CHARS_MAX + 2)
    if end < 0:
        if d.end - start >= LENGTH_CHARS_MAX + 2:
            raise bad_length(marker, start)
        raise ProtocolError("short", "the line has no end yet", d.end)
    length = read_length(d.data[start:end], marker, start, nullable=nullable)
    d.add("type", 1, chr(marker), marker.name.lower().replace("_", " "))
    d.add("count" if marker in AGGREGATES else "length", end - start, length, "null" if length == NULL else "")
    d.raw("end of line", 2)
    return length


def _bulk(d: Dissector, marker: Marker, length: int) -> None:
    start = d.position
    d.need(length, "the content")
    content = d.data[start : start + length]
    if marker is Marker.VERBATIM_STRING:
        if content[3:4] != b":":
            raise ProtocolError("verbatim_form", "three bytes of format and a colon come first", start)
        d.raw("format", 3)
        d.raw("colon", 1)
        d.raw("content", length - 4, _readable(content[4:]))
    else:
        d.raw("content", length, _readable(content))
    d.need(2, "the end of the content")
    if d.data[d.position : d.position + 2] != CRLF:
        raise ProtocolError("bulk_end", "no CR LF where the length says that the content ends", d.position)
    d.raw("end of line", 2)


def _line(d: Dissector, marker: Marker) -> None:
    start = d.position + 1
    end = d.data.find(CRLF, start)
    if end - start > REDIS_LINE_BYTES_MAX or (end < 0 and d.end - start >= REDIS_LINE_BYTES_MAX + 2):
        raise LimitError("resp_line_bytes_max", f"a line is over the limit of {REDIS_LINE_BYTES_MAX}", start - 1)
    if end < 0:
        raise ProtocolError("short", "the line has no end yet", d.end)
    text = d.data[start:end]
    value, note = _line_value(text, marker, start)
    d.add("type", 1, chr(marker), marker.name.lower().replace("_", " "))
    if text:
        d.add("text" if isinstance(value, bytes) else "value", len(text), value, note)
    d.raw("end of line", 2)


def _line_value(text: bytes, marker: Marker, start: int) -> tuple[object, str]:
    """Return the value of a line, and a note. Raise ProtocolError."""
    match marker:
        case Marker.INTEGER:
            return _integer(text, start), ""
        case Marker.BOOLEAN:
            if text not in (b"t", b"f"):
                raise ProtocolError("boolean_form", "a boolean is t or f", start)
            return text == b"t", "true" if text == b"t" else "false"
        case Marker.NULL:
            if text:
                raise ProtocolError("null_form", "null has nothing after its type", start)
            return None, ""
        case Marker.DOUBLE | Marker.BIG_NUMBER:
            form = DOUBLE_FORM if marker is Marker.DOUBLE else BIG_NUMBER_FORM
            if len(text) > REDIS_NUMBER_CHARS_MAX:
                raise LimitError("resp_number_chars_max", f"{len(text)} characters in one number", start)
            if form.fullmatch(text) is None:
                raise ProtocolError("number_form", f"not a {marker.name.lower().replace('_', ' ')}", start)
            return text.decode(), ""
    bad = min((place for place in (text.find(b"\r"), text.find(b"\n")) if place >= 0), default=None)
    if bad is not None:
        raise ProtocolError("line_form", "a CR or LF inside a line", start + bad)
    return text, _readable(text)


def _integer(text: bytes, start: int) -> int:
    digits = text.removeprefix(b"-")
    if len(text) > LENGTH_CHARS_MAX or not is_canonical(digits) or text == b"-0":
        raise ProtocolError("number_form", "not an integer as every writer gives it", start)
    value = int(text)
    if not I64_MIN <= value <= I64_MAX:
        raise ProtocolError("number_range", f"{value} does not fit 64 bits", start)
    return value


def _readable(content: bytes) -> str:
    """Return the content as a note, if it is text and not too long."""
    if not content or len(content) > 4 * _TEXT_SHOWN_CHARS_MAX:
        return ""
    try:
        text = content.decode()
    except UnicodeDecodeError:
        return ""
    return text if text.isprintable() and len(text) <= _TEXT_SHOWN_CHARS_MAX else ""
