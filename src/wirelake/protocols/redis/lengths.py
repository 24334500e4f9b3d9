"""The decimal lengths and counts of RESP: canonical, bounded, and refused in the words of redis."""

from typing import Final

from wirelake.errors import LimitError, ProtocolError
from wirelake.protocols.redis.limits import REDIS_BULK_BYTES_MAX, REDIS_ITEMS_MAX
from wirelake.protocols.redis.opcodes import AGGREGATES, Marker

LENGTH_CHARS_MAX: Final = 20  # no canonical 64-bit number is longer
NULL: Final = -1  # the length of RESP 2's null

_NULLABLE = frozenset({Marker.BULK_STRING, Marker.ARRAY})


def is_canonical(text: bytes) -> bool:
    """Digits as every writer gives them: no sign, no leading zero, nothing around them."""
    return text.isdigit() and (text[0] != 0x30 or len(text) == 1)


def read_length(
    text: bytes, marker: int, offset: int, *, nullable: bool = True, items_max: int = REDIS_ITEMS_MAX
) -> int:
    """The length or count that stands after `marker`; `offset` is where its digits begin."""
    if nullable and text == b"-1" and marker in _NULLABLE:
        return NULL
    if text == b"?":
        raise ProtocolError("streamed", "streamed types of unknown length are not read", offset)
    if len(text) > LENGTH_CHARS_MAX or not is_canonical(text):
        raise bad_length(marker, offset)
    length = int(text)
    if marker in AGGREGATES:
        if length > items_max:
            raise too_many_items(length, offset, items_max)
    elif length > REDIS_BULK_BYTES_MAX:
        text_ = f"invalid bulk length: {length} is over the limit of {REDIS_BULK_BYTES_MAX}"
        raise LimitError("resp_bulk_bytes_max", text_, offset)
    return length


def bad_length(marker: int, offset: int) -> ProtocolError:
    what = "multibulk" if marker in AGGREGATES else "bulk"
    return ProtocolError("number_form", f"invalid {what} length", offset)


def too_many_items(count: int, offset: int, items_max: int = REDIS_ITEMS_MAX) -> LimitError:
    text = f"invalid multibulk length: {count} is over the limit of {items_max}"
    return LimitError("resp_items_max", text, offset)
