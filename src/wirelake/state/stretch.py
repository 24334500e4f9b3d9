"""Notifications that were published together on one topic: one row on disk for many.

The row has the first one's key; `content` is theirs one behind the other, `sizes` says how long each is (u32, little
endian). A row without sizes is one notification. Where a topic's floor lies inside a row, the row stays until the floor
has passed its end.
"""

from collections.abc import Generator, Sequence
from contextlib import closing
from itertools import accumulate, pairwise
from struct import pack, unpack
from typing import Any, Final

from wirelake.limits import STATE_CONTENT_BYTES_MAX, STATE_STRETCH_BYTES_MAX, STATE_STRETCH_MAX
from wirelake.state.batch import OneByOne, Statement
from wirelake.state.notification import key_of
from wirelake.state.reader import Reader

Row = tuple[int, int, int, str, bytes, bytes | None]  # key, at_ms, type, publisher, content, sizes

PUBLISH: Final = Statement(
    "notifications",
    "INSERT INTO notifications (key, at_ms, type, publisher, content, sizes) VALUES ",
    "(?,?,?,?,?,?)",
)
_END: Final = "key + coalesce(length(sizes) / 4, 1) - 1"  # the last one's key
REMOVE: Final = OneByOne("notifications", f"DELETE FROM notifications WHERE key BETWEEN ? AND ? AND {_END} <= ?")  # noqa: S608 all ours
LAST: Final = (
    f"SELECT {_END} FROM notifications"  # noqa: S608 all ours
    " WHERE key > number << 40 AND key < number + 1 << 40 ORDER BY key DESC LIMIT 1"
)
# From the row on in which the first key lies: it may begin before it.
_SPAN: Final = (
    "FROM notifications WHERE key <= ? AND key >="
    " coalesce((SELECT key FROM notifications WHERE key BETWEEN ? AND ? ORDER BY key DESC LIMIT 1), ?) ORDER BY key"
)
_SHORT: Final = "CASE WHEN sizes IS NOT NULL OR length(content) <= ? THEN content END"
_READ: Final = f"SELECT key, at_ms, type, publisher, {_SHORT}, length(content), sizes {_SPAN}"
_TIMES: Final = f"SELECT {_END}, at_ms {_SPAN}"


def stretches(first_key: int, at_ms: int, publisher: str, contents: Sequence[bytes]) -> list[Row]:
    """The rows of what is published together, each within the limits."""
    if not contents:
        return []
    rows: list[Row] = []
    start, size = 0, 0
    for place, content in enumerate(contents):
        size += len(content)
        if place > start and (size > STATE_STRETCH_BYTES_MAX or place - start >= STATE_STRETCH_MAX):
            rows.append(_row(first_key + start, at_ms, publisher, contents[start:place]))
            start, size = place, len(content)
    rows.append(_row(first_key + start, at_ms, publisher, contents[start:]))
    return rows


def read(
    reader: Reader, topic: int, after: int, last: int, content_bytes_max: int = STATE_CONTENT_BYTES_MAX
) -> Generator[tuple[int, int, int, str, Any, int], None, None]:
    """Each notification between the positions (`last` is one of them, `after` is not): key, at_ms, type, publisher,
    content, and the content's size. A content that is too long is None; where it has a row to itself it is not read.
    """
    after_key, last_key = key_of(topic, after), key_of(topic, last)
    with closing(reader.rows(_READ, (content_bytes_max, *_span(topic, after, last)))) as rows:
        for key, at_ms, kind, publisher, content, size, sizes in rows:
            if sizes is None:
                if after_key < key:
                    yield key, at_ms, kind, publisher, content, size
                continue
            for place, each in enumerate(_cut(content, sizes), key):
                if after_key < place <= last_key:
                    short = each if len(each) <= content_bytes_max else None
                    yield place, at_ms, kind, publisher, short, len(each)


def times(reader: Reader, topic: int, after: int, last: int) -> Generator[tuple[int, int], None, None]:
    """The key of the last notification of each row in which some between the positions lie, and the row's time."""
    return reader.rows(_TIMES, _span(topic, after, last))


def _span(topic: int, after: int, last: int) -> tuple[int, int, int, int]:
    first_key = key_of(topic, after + 1)
    return key_of(topic, last), key_of(topic, 1), first_key, first_key


def _row(key: int, at_ms: int, publisher: str, contents: Sequence[bytes]) -> Row:
    if len(contents) == 1:
        return key, at_ms, 0, publisher, contents[0], None
    return key, at_ms, 0, publisher, b"".join(contents), pack(f"<{len(contents)}I", *map(len, contents))


def _cut(content: bytes, sizes: bytes) -> list[bytes]:
    ends = accumulate(unpack(f"<{len(sizes) // 4}I", sizes), initial=0)
    return [content[start:end] for start, end in pairwise(ends)]
