"""Track connections from open through login to close. A gateway's start closes what its node had open before."""

from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from wirelake.lake.tables import SESSIONS
from wirelake.limits import PIPELINE_SESSION_AGE_S, PIPELINE_SESSIONS_OPEN_MAX
from wirelake.log.imported import aged_from_us
from wirelake.pipeline.stateful.bucket_state import (
    OPEN_SESSION,
    KindState,
    Reduction,
    column_state,
    with_partition_columns,
)
from wirelake.pipeline.stateful.events import EVERY, SESSION, START, event_table, from_json, rows_of

GATEWAY_RESTARTED: Final = "gateway_restarted"
OVER_LIMIT: Final = "sessions_open_max"  # too many were open
END_NOT_SEEN: Final = "end_not_seen"
_AGE_US: Final = int(PIPELINE_SESSION_AGE_S * 1_000_000)
_EVENTS: Final = pa.array(["open", "login", "close"])
_COUNTS: Final = ("frames_in", "frames_out", "bytes_in", "bytes_out")


def session_events(batch: pa.RecordBatch) -> pa.Table:
    found = batch.filter(pc.and_(pc.is_in(batch["event"], value_set=_EVENTS), pc.not_equal(batch["session"], "")))
    columns = {name: found[name] for name in ("seq", "at", "node", "protocol", "session", "identity", "note")}
    return event_table(SESSION, {**columns, "key": found["session"], "name": found["event"], "status": found["peer"]})


def start_events(kind: str, starts: pa.RecordBatch) -> pa.Table:
    """Return an event for each record with which a gateway started."""
    columns = {name: starts[name] for name in ("seq", "at", "node")}
    return event_table(kind, {**columns, "key": [EVERY] * len(starts), "name": [START] * len(starts)})


class GatewayStarts:
    """Hold when gateways started: (seq, at) by node, in order."""

    def __init__(self, events: pa.Table) -> None:
        found = events.filter(pc.equal(events["name"], START))
        self._of_node: dict[str, list[tuple[int, int]]] = {}
        for seq, at, node in zip(*rows_of(found, ("seq", "at", "node")), strict=True):
            self._of_node.setdefault(node, []).append((seq, at))

    def __bool__(self) -> bool:
        return bool(self._of_node)

    @property
    def nodes(self) -> list[str]:
        return list(self._of_node)

    def after(self, node: str, seq: int) -> tuple[int, int] | None:
        """Return the first start after this seq."""
        return next((start for start in self._of_node.get(node, ()) if start[0] > seq), None)


def open_sessions(state: pa.Table) -> pa.Table:
    """Return the open rows of a state."""
    return with_partition_columns(SESSIONS, _sessions_of(state))


def _sessions_of(state: pa.Table) -> pa.Table:
    return pa.Table.from_struct_array(state["session"]) if len(state) else OPEN_SESSION.empty_table()


def reduce_sessions(events: pa.Table, state: KindState, sure_us: int) -> Reduction:
    starts = GatewayStarts(events)
    before = _sessions_of(state.rows)
    touched = pc.or_(
        pc.is_in(before["session"], value_set=pc.unique(events["key"])),
        pc.or_(
            pc.is_in(before["node"], value_set=pa.array(starts.nodes, pa.string())),
            pc.less_equal(before["opened_at"].cast(pa.int64()), sure_us - _AGE_US),
        ),
    )
    taken = state.take(touched)
    opened: dict[str, dict[str, Any]] = {}
    for row in _rows_in_us(_sessions_of(taken)):
        opened[row["session"]] = row
    out = Reduction()
    closed = _ClosedSessions(out)
    columns = ("key", "seq", "at", "node", "protocol", "identity", "name", "status", "note")
    for key, seq, at, node, protocol, identity, event, peer, note in zip(*rows_of(events, columns), strict=True):
        if key == EVERY:
            continue
        found = opened.get(key)
        if found is not None and (event == "open" or _is_old(found, at)):  # its close was not recorded
            closed.give_up(opened.pop(key), END_NOT_SEEN)
            found = None
        if event == "open":
            opened[key] = _new_session(seq, at, node, protocol, key, identity, peer)
        elif found is None:
            out.counts[f"session_{event}_without_open"] += 1
        elif event == "login":
            found["identity"] = identity
        else:
            details = from_json(note) if note else {}
            found.update({name: details.get(name) for name in _COUNTS})
            found["identity"] = identity or found["identity"]
            closed.add(opened.pop(key), at, str(details.get("reason", "")))
    for key, row in list(opened.items()):
        start = starts.after(row["node"], row["seq"])
        now_us = sure_us if start is None else start[1]
        if aged_from_us(key, row["opened_at"]) + _AGE_US <= now_us:
            closed.give_up(opened.pop(key), END_NOT_SEEN)
        elif start is not None:
            closed.add(opened.pop(key), start[1], GATEWAY_RESTARTED)
    over = len(opened) + len(state) - PIPELINE_SESSIONS_OPEN_MAX
    if over > 0:
        rest = state.take()
        taken = pa.concat_tables([taken, rest])
        opened |= {row["session"]: row for row in _rows_in_us(_sessions_of(rest))}
        closed.drop_oldest(opened, over)
    still_open = _table(list(opened.values()))
    out.state = [column_state(SESSION, still_open["session"], "session", still_open)]
    out.final = {SESSIONS.name: with_partition_columns(SESSIONS, _table(closed.rows))}
    out.open = {SESSIONS.name: with_partition_columns(SESSIONS, still_open)}
    out.replaced = {SESSIONS.name: open_sessions(taken)}
    return out


def _new_session(seq: int, at: int, node: str, protocol: str, session: str, identity: str, peer: str) -> dict[str, Any]:
    row: dict[str, Any] = dict.fromkeys(OPEN_SESSION.names)
    row.update(seq=seq, at=at, node=node, protocol=protocol, session=session, identity=identity, peer=peer)
    row["opened_at"] = at
    return row


def _is_old(row: dict[str, Any], now_us: int) -> bool:
    return bool(row["opened_at"] + _AGE_US <= now_us)


class _ClosedSessions:
    def __init__(self, out: Reduction) -> None:
        self.rows: list[dict[str, Any]] = []
        self._out = out

    def add(self, row: dict[str, Any], at: int | None, reason: str) -> None:
        self.rows.append({**row, "closed_at": at, "reason": reason})

    def drop_oldest(self, opened: dict[str, dict[str, Any]], over: int) -> None:
        """Give up the oldest of too many open sessions."""
        for row in sorted(opened.values(), key=lambda each: (each["seq"], each["node"]))[:over]:
            self.give_up(opened.pop(row["session"]), OVER_LIMIT)

    def give_up(self, row: dict[str, Any], reason: str) -> None:
        self.add(row, None, reason)
        self._out.counts["sessions_given_up"] += 1


def _rows_in_us(rows: pa.Table) -> list[dict[str, Any]]:
    """Return rows with times as microseconds."""
    times = [name for name in rows.column_names if pa.types.is_timestamp(rows.schema.field(name).type)]
    for name in times:
        rows = rows.set_column(rows.column_names.index(name), name, rows[name].cast(pa.int64()))
    return list(rows.to_pylist())


def _table(rows: list[dict[str, Any]]) -> pa.Table:
    columns = [pa.array([row[field.name] for row in rows], field.type) for field in OPEN_SESSION]
    return pa.Table.from_arrays(columns, schema=OPEN_SESSION)
