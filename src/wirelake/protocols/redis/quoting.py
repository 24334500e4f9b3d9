"""The words of an inline command, by the quoting rules of redis.

Words stand apart by white space. A word, or its tail, may be quoted, and then ends with the quote:
"…" knows \\n \\r \\t \\b \\a \\xHH, and any other \\c is c; in '…' only \\' is special.
"""

import re
from collections.abc import Iterator

from wirelake.errors import ProtocolError

# Matches anywhere: a quote that opens and does not close as it should is `unbalanced`.
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
    """Each word: where it begins and ends in the line, and what it says."""
    for word in _WORD.finditer(line):
        if word["unbalanced"] is not None:
            raise ProtocolError("quotes", "unbalanced quotes in request", word.start("unbalanced"))
        if word["word"]:
            yield word.start("word"), word.end(), _value(word)


def split_words(line: bytes) -> tuple[bytes, ...]:
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
