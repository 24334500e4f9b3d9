"""`at` is a column of every table, and a word of DuckDB's own SQL: people may write it without quotes all the same."""

import re
from typing import Final

_AT: Final = re.compile(r"\bat\b", re.IGNORECASE)
# What SQL itself means by the word: `x AT TIME ZONE 'UTC'`, `FROM t AT (VERSION => 3)`.
_OWN: Final = re.compile(r"at\s*(\(|time\s+zone\b)", re.IGNORECASE)


def with_quotes(sql: str) -> str:
    """The same question with every bare `at` that can only be the column in quotes."""
    import duckdb  # noqa: PLC0415 an extra, and slow to import

    raw = sql.encode()  # the tokens' places are counted in bytes
    places = [offset for offset, kind in duckdb.tokenize(sql) if kind == duckdb.token_type.keyword]
    parts: list[bytes] = []
    done = 0
    for place in places:
        rest = raw[place:].decode(errors="replace")
        if _AT.match(rest) and not _OWN.match(rest):
            parts += [raw[done:place], b'"', raw[place : place + 2], b'"']
            done = place + 2
    return b"".join([*parts, raw[done:]]).decode()
