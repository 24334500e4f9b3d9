"""The syntax of RESP: lengths and counts in decimal, and the quoting of inline commands.

Lengths are canonical and bounded. Errors have the wording of redis.

White space separates the words of an inline command. A word, or the end of one, may be quoted; the closing quote ends
the word. "…" knows \\n \\r \\t \\b \\a \\xHH, and any other \\c is c; in '…' only \\' is special.
"""

import re
from collections.abc import Iterator
from typing import Final

from wirelake.errors import LimitError, ProtocolError
from wirelake.protocols.redis.constants import AGGREGATES, REDIS_BULK_BYTES_MAX, REDIS_ITEMS_MAX, Marker

# ── lengths

LENGTH_CHARS_MAX: Final = 20  # no canonical 64-bit number is longer
NULL: Final = -1  # the length of the null of RESP 2

_NULLABLE = frozenset({Marker.BULK_STRING, Marker.ARRAY})


def is_canonical(text: bytes) -> bool:
    """Return whether a text is a canonical number: digits without sign or leading zero."""
    return text.isdigit() and (text[0] != 0x30 or len(text) == 1)


def read_length(
    text: bytes, marker: int, offset: int, *, nullable: bool = True, items_max: int = REDIS_ITEMS_MAX
) -> int:
    """Return the length or count after `marker`, whose digits begin at `offset`. Raise ProtocolError."""
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


# ── inline commands

# Always matches: a quote that is not closed is `unbalanced`.
_WORD = re.compile(
    rb"""
    \s*+ (?P<word> (?P<plain>[^\s"']*+) (?:
        "(?P<double>(?:\\.|[^"\\])*+)" (?=\s|\Z)
      | '(?P<single>(?:\\'|[^'])*+)' (?=\s|\Z)
      | (?P<unbalanced>["'])
    )?+ )
    """,
    re.DOTALL | re.VERBOSE,
)
_ESCAPE = re.compile(rb"\\(x[0-9a-fA-F]{2}|.)", re.DOTALL)
_CONTROL = {b"n": b"\n", b"r": b"\r", b"t": b"\t", b"b": b"\b", b"a": b"\a"}


def words(line: bytes) -> Iterator[tuple[int, int, bytes]]:
    """Yield start, end and value of each word. Raise ProtocolError for unbalanced quotes."""
    for word in _WORD.finditer(line):
        if word["unbalanced"] is not None:
            raise ProtocolError("quotes", "unbalanced quotes in request", word.start("unbalanced"))
        if word["word"]:
            yield word.start("word"), word.end(), _value(word)


def split_words(line: bytes) -> tuple[bytes, ...]:
    """Return the words of an inline command."""
    if b'"' in line or b"'" in line:
        return tuple([value for _start, _end, value in words(line)])
    return tuple(line.split())


def _value(word: re.Match[bytes]) -> bytes:
    plain, double, single = word.group("plain", "double", "single")
    if double is not None:
        return plain + _ESCAPE.sub(_unescaped, double)
    if single is not None:
        return plain + single.replace(b"\\'", b"'")
    return plain


def _unescaped(escape: re.Match[bytes]) -> bytes:
    code = escape[1]
    if len(code) == 3:
        return bytes.fromhex(code[1:].decode())
    return _CONTROL.get(code, code)
