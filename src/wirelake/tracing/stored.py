"""Find what the state and the tables have stored about a message."""

from collections.abc import Iterable
from itertools import islice
from typing import Any, Final, Literal

from msgspec import Struct

from wirelake.lake.query import is_written, run_queries
from wirelake.lake.statement import quoted
from wirelake.lake.store import Store
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
from wirelake.limits import HTTP_DELIVERIES_SHOWN_MAX, TRACE_ROWS_MAX, TRACE_TABLES_S, TRACE_VALUE_CHARS_MAX
from wirelake.state.topics import TopicStore

Rows = dict[str, list[dict[str, Any]]]  # table → rows

_RECORD_TABLES: Final = (MESSAGES, CALLS, DEVICE_COMMANDS, QUARANTINE)
_HIDDEN: Final = {"day", "settled"}  # they only partition the files


def notification_rows(lake: Store, id: str) -> Rows:  # noqa: A002 the field's name
    return _select(lake, (NOTIFICATIONS, DELIVERIES), f"id = {quoted(id)}")


def session_rows(lake: Store, session: str) -> Rows:
    return _select(lake, (SESSIONS, MESSAGES), f"session = {quoted(session)}")


def record_rows(lake: Store, seqs: Iterable[int]) -> Rows:
    wanted = ", ".join(str(seq) for seq in sorted(set(seqs))[:TRACE_ROWS_MAX])
    return _select(lake, _RECORD_TABLES, f"seq IN ({wanted})") if wanted else {}


def frame_row(lake: Store, seq: int) -> dict[str, Any] | None:
    """Return a record that the log may no longer have."""
    rows = _select(lake, (FRAMES,), f"seq = {seq}")
    return rows[FRAMES.name][0] if rows else None


def shorten(rows: Rows) -> Rows:
    """Return the rows with long values cut: a payload may have megabytes."""
    return {name: [{key: _short(value) for key, value in row.items()} for row in found] for name, found in rows.items()}


def _short(value: Any) -> Any:
    is_long = isinstance(value, str) and len(value) > TRACE_VALUE_CHARS_MAX
    return f"{value[:TRACE_VALUE_CHARS_MAX]}…" if is_long else value


def _select(lake: Store, tables: Iterable[LakeTable], where: str) -> Rows:
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


class DeliveryState(Struct, frozen=True):
    identity: str
    state: Literal["acked", "pending", "expired"]


class NotificationTrace(Struct, frozen=True):
    """Hold a notification that is still stored in its topic, and its deliveries."""

    topic: str
    type: int
    publisher: str
    content: bytes
    at_us: int
    subscribers: int
    deliveries: list[DeliveryState]


def find_notification(topics: TopicStore, id: str, only: str = "") -> NotificationTrace | None:  # noqa: A002 the field's name
    """Return a notification by its id. `only` restricts the deliveries to one identity."""
    found = topics.find(id)
    if found is None:
        return None
    subscribers = topics.subscribers(found.topic)
    deliveries = []
    for identity in [only] if only else islice(subscribers, HTTP_DELIVERIES_SHOWN_MAX):
        acked = topics.is_acked(identity, found.topic, found.position)
        if acked is not None:
            deliveries.append(DeliveryState(identity, "acked" if acked else "pending"))
    return NotificationTrace(
        topic=found.topic,
        type=found.type,
        publisher=found.publisher,
        content=found.content,
        at_us=found.at_ms * 1000,
        subscribers=len(deliveries) if only else len(subscribers),
        deliveries=deliveries,
    )
