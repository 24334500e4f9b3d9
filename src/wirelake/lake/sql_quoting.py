"""Quote text for SQL, and the column `at`, which is also a keyword of DuckDB, so that users need not."""

import re
from typing import Final

_AT: Final = re.compile(r"\bat\b", re.IGNORECASE)
# The keyword: `x AT TIME ZONE 'UTC'`, `FROM t AT (VERSION => 3)`.
_KEYWORD: Final = re.compile(r"at\s*(\(|time\s+zone\b)", re.IGNORECASE)


def quoted(text: str) -> str:
    """Return text as an SQL literal."""
    return "'" + text.replace("'", "''") + "'"


def quote_at(sql: str) -> str:
    """Return the statement with quotes around each `at` that can only be the column."""
    import duckdb  # noqa: PLC0415 an extra, and slow to import

    raw = sql.encode()  # the offsets of tokens count bytes
    offsets = [offset for offset, kind in duckdb.tokenize(sql) if kind == duckdb.token_type.keyword]
    parts: list[bytes] = []
    done = 0
    for start in offsets:
        rest = raw[start:].decode(errors="replace")
        if _AT.match(rest) and not _KEYWORD.match(rest):
            parts += [raw[done:start], b'"', raw[start : start + 2], b'"']
            done = start + 2
    return b"".join([*parts, raw[done:]]).decode()
