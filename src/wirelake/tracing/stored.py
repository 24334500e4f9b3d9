"""Find what the state and the tables have stored about a message."""

from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Any, Final, Literal, NamedTuple

from msgspec import Struct

from wirelake.lake.query import run_queries
from wirelake.lake.statement import quoted
from wirelake.lake.store import Store
from wirelake.lake.tables import (
    CALLS,
    DELIVERIES,
    DEVICE_COMMANDS,
    FORMER_NAMES,
    FRAMES,
    MESSAGES,
    NOTIFICATIONS,
    QUARANTINE,
    SESSIONS,
    SETTLED,
    LakeTable,
)
from wirelake.lake.views import is_written
from wirelake.limits import HTTP_DELIVERIES_SHOWN_MAX, TRACE_ROWS_MAX, TRACE_TABLES_S, TRACE_VALUE_CHARS_MAX
from wirelake.state.topics import TopicStore

Rows = dict[str, list[dict[str, Any]]]  # table → rows

_RECORD_TABLES: Final = (MESSAGES, CALLS, DEVICE_COMMANDS, QUARANTINE)
_HIDDEN: Final = {"day", SETTLED, *FORMER_NAMES.values()}


class RowSelection(NamedTuple):
    """Say which rows of a table to read: those that meet one of the conditions."""

    table: LakeTable
    conditions: tuple[str, ...]


class LoggedRange(Struct, frozen=True):
    """Name the records that a log still has. What was searched there in vain, only rows of other records can have."""

    node: str
    first_seq: int


def notification_rows(id: str, published_seq: int, sent_seqs: Sequence[int]) -> list[RowSelection]:  # noqa: A002 the field's name
    """Select the rows of a notification whose records are known."""
    own = f"id = {quoted(id)}"
    selections = [RowSelection(NOTIFICATIONS, (f"{own} AND seq = {published_seq}",))]
    if sent_seqs:
        selections.append(RowSelection(DELIVERIES, (f"{own} AND {_among(sent_seqs)}",)))
    return selections


def unlogged_notification_rows(id: str, sent_seqs: Sequence[int], logged: LoggedRange | None) -> list[RowSelection]:  # noqa: A002 the field's name
    """Select the rows of a notification whose publish the log does not have; it may have deliveries."""
    own = f"id = {quoted(id)}"
    conditions = _unlogged(own, logged)
    sent = (f"{own} AND {_among(sent_seqs)}",) if sent_seqs and logged is not None else ()
    return [RowSelection(NOTIFICATIONS, conditions), RowSelection(DELIVERIES, conditions + sent)]


def session_rows(session: str, seqs: range) -> list[RowSelection]:
    """Select the rows of a session whose records are in this range."""
    where = f"session = {quoted(session)} AND seq BETWEEN {seqs.start} AND {seqs.stop - 1}"
    return [RowSelection(SESSIONS, (where,)), RowSelection(MESSAGES, (where,))]


def unlogged_session_rows(session: str, logged: LoggedRange | None) -> list[RowSelection]:
    """Select the rows of a session that the log does not have."""
    conditions = _unlogged(f"session = {quoted(session)}", logged)
    return [RowSelection(SESSIONS, conditions), RowSelection(MESSAGES, conditions)]


def record_rows(seqs: Iterable[int]) -> list[RowSelection]:
    wanted = sorted(set(seqs))[:TRACE_ROWS_MAX]
    return [RowSelection(table, (_among(wanted),)) for table in _RECORD_TABLES] if wanted else []


def frame_rows(seq: int) -> list[RowSelection]:
    """Select a record that the log may no longer have."""
    return [RowSelection(FRAMES, (f"seq = {seq}",))]


def _among(seqs: Sequence[int]) -> str:
    """Return a condition by which files are left out, because their statistics have the bounds of `seq`."""
    between = f"seq BETWEEN {min(seqs)} AND {max(seqs)}"
    return between if len(seqs) > TRACE_ROWS_MAX else f"{between} AND seq IN ({', '.join(map(str, seqs))})"


def _unlogged(where: str, logged: LoggedRange | None) -> tuple[str, ...]:
    if logged is None:
        return (where,)
    node = quoted(logged.node)
    return (f"{where} AND node = {node} AND seq < {logged.first_seq}", f"{where} AND node <> {node}")


def shorten(rows: Rows) -> Rows:
    """Return the rows with long values cut: a payload may have megabytes."""
    return {name: [{key: _short(value) for key, value in row.items()} for row in found] for name, found in rows.items()}


def _short(value: Any) -> Any:
    is_long = isinstance(value, str) and len(value) > TRACE_VALUE_CHARS_MAX
    return f"{value[:TRACE_VALUE_CHARS_MAX]}…" if is_long else value


def select_rows(lake: Store, selections: Iterable[RowSelection]) -> Rows:
    """Return the rows, within the limits on rows and time. Tables without any are left out."""
    written = [each for each in selections if is_written(lake, each.table)]
    if not written:
        return {}
    results = run_queries(lake, [_sql(each) for each in written], TRACE_ROWS_MAX, TRACE_TABLES_S)
    found: Rows = {}
    for (table, _), result in zip(written, results, strict=True):
        names = [column.name for column in result.columns]
        rows = [dict(zip(names, row, strict=True)) for row in result.rows]
        if rows:
            found[table.name] = [{name: row[name] for name in names if name not in _HIDDEN} for row in rows]
    return found


def _sql(selection: RowSelection) -> str:
    # One query for each condition: files are left out by statistics only where conditions are not combined by OR.
    parts = [f"SELECT * FROM {selection.table.name} WHERE {condition}" for condition in selection.conditions]  # noqa: S608 quoted above
    return f"SELECT * FROM ({' UNION ALL '.join(parts)}) ORDER BY seq"  # noqa: S608


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
