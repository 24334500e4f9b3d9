"""Dissect esnp messages into a tree with offsets. All errors about malformed messages come from here.

A line whose structure is valid but whose value cannot be read does not make the message invalid: its data is shown raw,
with a note about the error.
"""

from datetime import UTC, datetime

from wirelake.errors import LimitError, ProtocolError
from wirelake.protocols.esnp.constants import (
    APPLICATION_TYPES,
    ESNP_LINES_MAX,
    FIXED_SIZES,
    WITHDRAWN,
    LineType,
    line_name,
    part_of,
)
from wirelake.protocols.esnp.lines import CODECS, READ_LINE, read_named
from wirelake.protocols.esnp.values import VarReader
from wirelake.protocols.frame import Sender
from wirelake.protocols.tree import Dissector, Tree

_SIZE_BYTES = 3
_TIMES = ("ts", "at_ms")  # DATA names of the gateway's timestamps, in milliseconds since 1970
_TIMESTAMP_MS_MAX = 253_402_300_799_999  # the last millisecond of the year 9999


def dissect(frame: bytes, _sender: Sender) -> Tree:
    """Return the fields of a message, up to the first error."""
    dissector = Dissector(frame, "esnp message")
    try:
        _walk(dissector)
    except ProtocolError as error:
        return Tree(dissector.root, error)
    return Tree(dissector.root)


def wrong_end(size: int, place: int) -> ProtocolError:
    return ProtocolError("end_size", f"the end line has no data, this one has {size} bytes", place + 1)


def too_many_lines(place: int) -> ProtocolError:
    return LimitError("esnp_lines_max", f"a message of more than {ESNP_LINES_MAX} lines", place)


def _walk(d: Dissector) -> None:
    values = VarReader()
    lines = 0
    while _line(d, values, lines):
        lines += 1
    d.finish()


def _line(d: Dissector, values: VarReader, before: int) -> bool:
    """Add a line. Return whether another one must follow."""
    place = d.position
    d.need(1 + _SIZE_BYTES, "a line")
    kind = d.data[place]
    size = int.from_bytes(d.data[place + 1 : place + 1 + _SIZE_BYTES], "big")
    if kind == LineType.END:
        if size:
            raise wrong_end(size, place)
        with d.group("END"):
            d.u8("type", "end")
            d.add("size", _SIZE_BYTES, size)
        return False
    if before >= ESNP_LINES_MAX:
        raise too_many_lines(place)
    with d.group(line_name(kind)):
        d.u8("type", _type_note(kind))
        d.add("size", _SIZE_BYTES, size)
        if FIXED_SIZES.get(kind, size) != size:
            text = f"{line_name(kind)} has {FIXED_SIZES[kind]} bytes, not {size}"
            raise ProtocolError("line_size", text, place + 1)
        d.need(size, line_name(kind))
        _data(d, kind, size, values)
    return True


def _type_note(kind: int) -> str:
    if kind in WITHDRAWN:
        return "withdrawn, ignored"
    if kind in APPLICATION_TYPES:
        return "the application's own"
    return part_of(kind).name.lower()


def _data(d: Dissector, kind: int, size: int, values: VarReader) -> None:
    data = d.data[d.position : d.position + size]
    read = READ_LINE.get(kind)
    if read is None:
        d.raw("data", size)
        return
    try:
        value = read(data, values)
    except ProtocolError as error:
        d.malformed("data", size, f"malformed: {error.shift(d.position)}", error)
        return
    with d.window(size):
        CODECS[kind].add_fields(d)
    if kind == LineType.SEQ_NO:
        d.note(f"{value.more} to follow" if value.last else "not known yet")
    elif read is read_named and value[0] in _TIMES:
        _note_time(d, value[1].value)


def _note_time(d: Dissector, value: object) -> None:
    if isinstance(value, int) and 0 < value <= _TIMESTAMP_MS_MAX:
        d.note(datetime.fromtimestamp(value / 1000, UTC).isoformat(timespec="milliseconds"))
