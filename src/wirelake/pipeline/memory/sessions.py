"""Connections: opened, recognised, closed. A gateway's start closes whatever its node had open before."""

from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from wirelake.lake.tables import SESSIONS
from wirelake.limits import PIPELINE_SESSION_AGE_S, PIPELINE_SESSIONS_OPEN_MAX
from wirelake.pipeline.memory.carry import OPEN_SESSION, carried_rows
from wirelake.pipeline.memory.item import EVERY, SESSION, START, from_json, items_table, rows_of
from wirelake.pipeline.memory.outcome import Outcome, grouped

GATEWAY_RESTARTED: Final = "gateway_restarted"
FORGOTTEN: Final = "sessions_open_max"  # too many are open: the oldest is let go
TOO_OLD: Final = "end_not_seen"
_AGE_US: Final = int(PIPELINE_SESSION_AGE_S * 1_000_000)
_EVENTS: Final = pa.array(["open", "login", "close"])
_COUNTS: Final = ("frames_in", "frames_out", "bytes_in", "bytes_out")


def session_items(batch: pa.RecordBatch) -> pa.Table:
    found = batch.filter(pc.and_(pc.is_in(batch["event"], value_set=_EVENTS), pc.not_equal(batch["session"], "")))
    columns = {name: found[name] for name in ("seq", "at", "node", "protocol", "session", "identity", "note")}
    return items_table(SESSION, {**columns, "key": found["session"], "name": found["event"], "status": found["peer"]})


def start_items(kind: str, starts: pa.RecordBatch) -> pa.Table:
    """Of the records with which gateways began."""
    columns = {name: starts[name] for name in ("seq", "at", "node")}
    return items_table(kind, {**columns, "key": [EVERY] * len(starts), "name": [START] * len(starts)})


class Starts:
    """When gateways began: node → (seq, at), in order."""

    def __init__(self, items: pa.Table) -> None:
        found = items.filter(pc.equal(items["name"], START))
        self._of_node: dict[str, list[tuple[int, int]]] = {}
        for seq, at, node in zip(*rows_of(found, ("seq", "at", "node")), strict=True):
            self._of_node.setdefault(node, []).append((seq, at))

    def __bool__(self) -> bool:
        return bool(self._of_node)

    @property
    def nodes(self) -> list[str]:
        return list(self._of_node)

    def after(self, node: str, seq: int) -> tuple[int, int] | None:
        """The first one behind this place."""
        return next((start for start in self._of_node.get(node, ()) if start[0] > seq), None)


def settle_sessions(items: pa.Table, carried: pa.Table, sure_us: int) -> Outcome:
    starts = Starts(items)
    before = pa.Table.from_struct_array(carried["session"]) if len(carried) else OPEN_SESSION.empty_table()
    touched = pc.or_(
        pc.is_in(before["session"], value_set=pc.unique(items["key"])),
        pc.or_(
            pc.is_in(before["node"], value_set=pa.array(starts.nodes, pa.string())),
            pc.less_equal(before["opened_at"].cast(pa.int64()), sure_us - _AGE_US),
        ),
    )
    rest = before.filter(pc.invert(touched))
    opened: dict[str, dict[str, Any]] = {}
    for row in _plain(before.filter(touched)):
        opened[row["session"]] = row
    out = Outcome([])
    closing = _Closing(out)
    columns = ("key", "seq", "at", "node", "protocol", "identity", "name", "status", "note")
    for key, seq, at, node, protocol, identity, event, peer, note in zip(*rows_of(items, columns), strict=True):
        if key == EVERY:
            continue
        found = opened.get(key)
        if found is not None and (event == "open" or _is_old(found, at)):  # its end was never seen
            closing.give_up(opened.pop(key), TOO_OLD)
            found = None
        if event == "open":
            opened[key] = _opened(seq, at, node, protocol, key, identity, peer)
        elif found is None:
            out.counts[f"session_{event}_without_open"] += 1
        elif event == "login":
            found["identity"] = identity
        else:
            told = from_json(note) if note else {}
            found.update({name: told.get(name) for name in _COUNTS})
            found["identity"] = identity or found["identity"]
            closing.close(opened.pop(key), at, str(told.get("reason", "")))
    for key, row in list(opened.items()):
        start = starts.after(row["node"], row["seq"])
        if _is_old(row, sure_us if start is None else start[1]):
            closing.give_up(opened.pop(key), TOO_OLD)
        elif start is not None:
            closing.close(opened.pop(key), start[1], GATEWAY_RESTARTED)
    over = len(opened) + len(rest) - PIPELINE_SESSIONS_OPEN_MAX
    if over > 0:
        opened |= {row["session"]: row for row in _plain(rest)}
        rest = rest.slice(0, 0)
        closing.make_room(opened, over)
    here = _table(list(opened.values()))
    still_open = pa.concat_tables([here, rest])
    out.carry = [carried_rows(SESSION, still_open["session"], "session", still_open)]
    out.final = {SESSIONS.name: grouped(SESSIONS, _table(closing.rows))}
    out.open = {SESSIONS.name: grouped(SESSIONS, here, settled=False)}
    out.still = {SESSIONS.name: grouped(SESSIONS, rest, settled=False)}
    return out


def _opened(seq: int, at: int, node: str, protocol: str, session: str, identity: str, peer: str) -> dict[str, Any]:
    row: dict[str, Any] = dict.fromkeys(OPEN_SESSION.names)
    row.update(seq=seq, at=at, node=node, protocol=protocol, session=session, identity=identity, peer=peer)
    row["opened_at"] = at
    return row


def _is_old(row: dict[str, Any], now_us: int) -> bool:
    return bool(row["opened_at"] + _AGE_US <= now_us)


class _Closing:
    def __init__(self, out: Outcome) -> None:
        self.rows: list[dict[str, Any]] = []
        self._out = out

    def close(self, row: dict[str, Any], at: int | None, reason: str) -> None:
        self.rows.append({**row, "closed_at": at, "reason": reason})

    def make_room(self, opened: dict[str, dict[str, Any]], over: int) -> None:
        """Too many are open: the oldest go."""
        for row in sorted(opened.values(), key=lambda each: (each["seq"], each["node"]))[:over]:
            self.give_up(opened.pop(row["session"]), FORGOTTEN)

    def give_up(self, row: dict[str, Any], reason: str) -> None:
        self.close(row, None, reason)
        self._out.counts["sessions_given_up"] += 1


def _plain(rows: pa.Table) -> list[dict[str, Any]]:
    """Times as microseconds."""
    times = [name for name in rows.column_names if pa.types.is_timestamp(rows.schema.field(name).type)]
    for name in times:
        rows = rows.set_column(rows.column_names.index(name), name, rows[name].cast(pa.int64()))
    return list(rows.to_pylist())


def _table(rows: list[dict[str, Any]]) -> pa.Table:
    columns = [pa.array([row[field.name] for row in rows], field.type) for field in OPEN_SESSION]
    return pa.Table.from_arrays(columns, schema=OPEN_SESSION)
