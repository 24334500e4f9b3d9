"""Find the rows of the tables that concern a message."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from wirelake.lake.query import is_written, run_queries
from wirelake.lake.sql_quoting import quoted
from wirelake.lake.tables import (
    CALLS,
    DELIVERIES,
    DEVICE_COMMANDS,
    FRAMES,
    MESSAGES,
    NOTIFICATIONS,
    QUARANTINE,
    SESSIONS,
    LakeTable,
)
from wirelake.limits import TRACE_ROWS_MAX, TRACE_TABLES_S, TRACE_VALUE_CHARS_MAX

Rows = dict[str, list[dict[str, Any]]]  # table → rows

_OF_RECORD: Final = (MESSAGES, CALLS, DEVICE_COMMANDS, QUARANTINE)
_HIDDEN: Final = {"day", "settled"}  # they only partition files


def notification_rows(lake: Path, id: str) -> Rows:  # noqa: A002 the field's name
    return _select(lake, (NOTIFICATIONS, DELIVERIES), f"id = {quoted(id)}")


def session_rows(lake: Path, session: str) -> Rows:
    return _select(lake, (SESSIONS, MESSAGES), f"session = {quoted(session)}")


def record_rows(lake: Path, seqs: Iterable[int]) -> Rows:
    wanted = ", ".join(str(seq) for seq in sorted(set(seqs))[:TRACE_ROWS_MAX])
    return _select(lake, _OF_RECORD, f"seq IN ({wanted})") if wanted else {}


def frame_row(lake: Path, seq: int) -> dict[str, Any] | None:
    """Return a record that the log may no longer have."""
    rows = _select(lake, (FRAMES,), f"seq = {seq}")
    return rows[FRAMES.name][0] if rows else None


def shorten(rows: Rows) -> Rows:
    """Return the rows with long values cut: a payload may have megabytes."""
    return {name: [{key: _short(value) for key, value in row.items()} for row in found] for name, found in rows.items()}


def _short(value: Any) -> Any:
    is_long = isinstance(value, str) and len(value) > TRACE_VALUE_CHARS_MAX
    return f"{value[:TRACE_VALUE_CHARS_MAX]}…" if is_long else value


def _select(lake: Path, tables: Iterable[LakeTable], where: str) -> Rows:
    written = [table for table in tables if is_written(lake, table)]
    if not written:
        return {}
    sql = [f"SELECT * FROM {table.name} WHERE {where} ORDER BY seq" for table in written]  # noqa: S608 quoted above
    results = run_queries(lake, sql, TRACE_ROWS_MAX, TRACE_TABLES_S)
    found: Rows = {}
    for table, result in zip(written, results, strict=True):
        names = [column.name for column in result.columns]
        rows = [dict(zip(names, row, strict=True)) for row in result.rows]
        if rows:
            found[table.name] = [{name: row[name] for name in names if name not in _HIDDEN} for row in rows]
    return found
