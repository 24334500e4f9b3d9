"""Notifications on their way to identities: sent, sent again, acked, expired.

A delivery is one notification for one identity, whichever of its sessions got it. An ack ends it. An expiry ends it
too, but for a while an ack may still correct that. What was acked is remembered as runs of positions: a session that
lags may be sent what another session of the same identity has acked, and that is no new delivery.
"""

from bisect import bisect_right
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct, field, msgpack
from msgspec.json import Decoder

from wirelake.lake.tables import DELIVERIES
from wirelake.limits import (
    PIPELINE_ACKED_IDENTITIES_MAX,
    PIPELINE_ACKED_KEEP_S,
    PIPELINE_ACKED_RUNS_MAX,
    PIPELINE_DELIVERIES_OPEN_MAX,
    PIPELINE_DELIVERY_AGE_S,
    PIPELINE_EXPIRED_KEEP_S,
)
from wirelake.pipeline.memory.carry import OPEN_DELIVERY, carried_rows, kept, split, states_of
from wirelake.pipeline.memory.item import DELIVERY, EVERY, from_json, items_table, rows_of, to_json
from wirelake.pipeline.memory.outcome import Outcome, grouped

PENDING: Final = "pending"
ACKED: Final = "acked"
EXPIRED: Final = "expired"
DELIVER: Final = "deliver"
ACK: Final = "ack"
THROUGH: Final = "through"
EXPIRE: Final = "expire"

_EVENTS: Final = pa.array([DELIVER, ACK, EXPIRE])
_AGE_US: Final = int(PIPELINE_DELIVERY_AGE_S * 1_000_000)
_ACKED_US: Final = int(PIPELINE_ACKED_KEEP_S * 1_000_000)
_KEEP_US: Final = int(PIPELINE_EXPIRED_KEEP_S * 1_000_000)
_EXPLODED: Final = ("key", "seq", "at", "node", "session", "name", "service", "correlation", "number", "until", "note")
_recipients: Final = Decoder(list[list[str]]).decode


def delivery_items(batch: pa.RecordBatch) -> pa.Table:
    """A sending by whom it went to, an ack by whose it is; an expiry concerns every bucket."""
    found = batch.filter(pc.is_in(batch["event"], value_set=_EVENTS))
    items = _Exploded()
    columns = [found[name].to_pylist() for name in ("seq", "node", "event", "frame", "note")]
    ats = found["at"].cast(pa.int64()).to_pylist()
    for seq, node, event, frame, text, at in zip(*columns, ats, strict=True):
        note = from_json(text)
        if event == DELIVER:
            items.deliver(seq, at, node, note, frame)
        elif event == EXPIRE:
            items.one(EVERY, seq, at, node, None, EXPIRE, note["topic"], None, note["first"], note["last"], None)
        elif "through" in note:
            whose, topic, ids = note["identity"], note.get("topic"), note["ids"]
            items.one(whose, seq, at, node, None, THROUGH, topic, ids, None, note["through"], None)
        else:
            acked = to_json(note["acked"]).decode()
            items.one(note["identity"], seq, at, node, None, ACK, None, None, None, None, acked)
    return items_table(DELIVERY, items.columns)


class _Exploded:
    def __init__(self) -> None:
        self.columns: dict[str, list[Any]] = {name: [] for name in _EXPLODED}

    def one(self, *values: Any) -> None:
        for column, value in zip(self.columns.values(), values, strict=True):
            column.append(value)

    def deliver(self, seq: int, at: int, node: str, note: dict[str, Any], frame: bytes) -> None:
        """Several sessions of one identity in one record are one sending."""
        first: dict[str, tuple[str, str]] = {}
        for session, identity, *protocol in _recipients(frame):  # a log may be older than the third
            first.setdefault(identity, (session, protocol[0] if protocol else ""))
        count = len(first)
        columns = self.columns
        columns["key"] += first.keys()
        columns["session"] += [session for session, _ in first.values()]
        columns["note"] += [protocol for _, protocol in first.values()]
        common = {"seq": seq, "at": at, "node": node, "name": DELIVER, "service": note["topic"]}
        common |= {"correlation": note["ids"], "number": note["first"], "until": note["last"]}
        for name, value in common.items():
            columns[name] += [value] * count


class _Expiry(Struct):
    seq: int
    at: int
    topic: str
    first: int
    last: int


class Open(Struct, gc=False):
    """A delivery that may still change: the fields of OPEN_DELIVERY, in order. Times are microseconds."""

    seq: int
    at: int
    node: str
    protocol: str
    id: str
    topic: str
    position: int
    identity: str
    session: str
    first_sent_at: int
    acked_at: int | None
    attempts: int
    state: str
    latency_ms: float | None
    ids: str
    expired_at: int | None


class Acked(Struct, array_like=True):
    """Positions of one topic that one identity acked: runs, in order."""

    runs: list[list[int]] = field(default_factory=list)  # first, last
    at: int = 0  # of the last ack

    def __contains__(self, position: int) -> bool:
        place = bisect_right(self.runs, position, key=_first) - 1
        return place >= 0 and position <= self.runs[place][1]

    def add(self, position: int, at: int) -> None:
        runs = self.runs
        self.at = max(self.at, at)
        place = bisect_right(runs, position, key=_first)
        if place and runs[place - 1][1] >= position - 1:
            place -= 1
            runs[place][1] = max(runs[place][1], position)
        else:
            runs.insert(place, [position, position])
        if place + 1 < len(runs) and runs[place + 1][0] == runs[place][1] + 1:
            runs[place][1] = runs.pop(place + 1)[1]
        del runs[: len(runs) - PIPELINE_ACKED_RUNS_MAX]


def _first(run: list[int]) -> int:
    return run[0]


_unpack: Final = msgpack.Decoder(dict[str, Acked]).decode
_pack: Final = msgpack.Encoder().encode


class _Identity:
    """Its open deliveries: what ids begin with → position →; and what it acked."""

    __slots__ = ("acked", "topics")

    def __init__(self) -> None:
        self.topics: dict[str, dict[int, Open]] = {}
        self.acked: dict[str, Acked] = {}

    def find(self, id: str) -> Open | None:  # noqa: A002 the field's name
        ids, dash, position = id.rpartition("-")
        of_topic = self.topics.get(ids + dash)
        try:
            return None if of_topic is None else of_topic.get(int(position, 16))
        except ValueError:
            return None

    def remembered(self, ids: str, at: int) -> "Acked | None":
        """What it acked of a topic, unless that was too long ago."""
        acked = self.acked.get(ids)
        if acked is not None and acked.at + _ACKED_US <= at:
            del self.acked[ids]
            return None
        return acked

    def has_acked(self, id: str, at: int) -> bool:  # noqa: A002 the field's name
        ids, dash, position = id.rpartition("-")
        acked = self.remembered(ids + dash, at)
        try:
            return acked is not None and int(position, 16) in acked
        except ValueError:
            return False

    def drop(self, delivery: Open) -> None:
        of_topic = self.topics[delivery.ids]
        del of_topic[delivery.position]
        if not of_topic:
            del self.topics[delivery.ids]


class _Settling:
    def __init__(self, expiries: list[_Expiry], out: Outcome) -> None:
        self.final: list[Open] = []
        self._expiries = expiries
        self._out = out

    def identity(self, whose: _Identity, name: str, events: list[tuple[Any, ...]]) -> None:
        """All that happened to one identity's deliveries, in order, with the expiries in between."""
        expiries, place = self._expiries, 0
        for seq, at, node, session, event, topic, ids, first, last, note in events:
            while place < len(expiries) and expiries[place].seq < seq:
                self.expire(whose, expiries[place])
                place += 1
            if event == DELIVER:
                self._sent(whose, name, seq, at, node, note, session, topic, ids, first, last)
            elif event == THROUGH:
                of_topic = whose.topics.get(ids, {})
                for delivery in [each for position, each in of_topic.items() if position <= last]:
                    self._acked(whose, delivery, at)
            else:
                for id_ in from_json(note):
                    found = whose.find(id_)
                    if found is None and whose.has_acked(id_, at):
                        self._out.counts["acks_repeated"] += 1
                    elif found is None or not self._acked(whose, found, at):
                        self._out.counts["acks_without_delivery"] += 1
        for expiry in expiries[place:]:
            self.expire(whose, expiry)

    def _sent(
        self,
        whose: _Identity,
        name: str,
        seq: int,
        at: int,
        node: str,
        protocol: str,
        session: str,
        topic: str,
        ids: str,
        first: int,
        last: int,
    ) -> None:
        of_topic = whose.topics.setdefault(ids, {})
        acked = whose.remembered(ids, at) or ()
        for position in range(first, last + 1):
            known = of_topic.get(position)
            if known is not None and not _is_over(known, at, self._out):
                known.attempts += 1
                continue
            if known is not None:
                self.final.append(known)
            if position in acked:
                self._out.counts["sent_after_ack"] += 1
                continue
            id_ = f"{ids}{position:x}"
            of_topic[position] = Open(
                seq, at, node, protocol, id_, topic, position, name, session, at, None, 1, PENDING, None, ids, None
            )

    def _acked(self, whose: _Identity, delivery: Open, at: int) -> bool:
        """False if that came too late to matter."""
        whose.drop(delivery)
        self.final.append(delivery)
        if _is_over(delivery, at, self._out):
            return False
        if delivery.expired_at is not None:
            self._out.counts["acks_after_expiry"] += 1
        acked = whose.remembered(delivery.ids, at)
        if acked is None:
            acked = whose.acked[delivery.ids] = Acked()
        acked.add(delivery.position, at)
        delivery.state = ACKED
        delivery.acked_at = at
        delivery.latency_ms = max(0, at - delivery.first_sent_at) / 1000
        return True

    def expire(self, whose: _Identity, expiry: _Expiry) -> None:
        for of_topic in whose.topics.values():
            for position, delivery in of_topic.items():
                if delivery.topic == expiry.topic and expiry.first <= position <= expiry.last:
                    _expire(delivery, expiry)


def _expire(delivery: Open, expiry: _Expiry) -> None:
    is_old = delivery.first_sent_at + _AGE_US <= expiry.at  # that was its end
    if delivery.state == PENDING and delivery.seq < expiry.seq and not is_old:
        delivery.state = EXPIRED
        delivery.expired_at = expiry.at


def settle_deliveries(items: pa.Table, carried: pa.Table, sure_us: int) -> Outcome:
    out = Outcome([])
    columns = rows_of(items, _EXPLODED)
    expiries = [
        _Expiry(seq, at, topic, first, last)
        for key, seq, at, _node, _session, name, topic, _ids, first, last, _note in zip(*columns, strict=True)
        if key == EVERY and name == EXPIRE
    ]
    acked, opened_before = _apart(carried)
    structs = opened_before["delivery"]
    before = pa.Table.from_struct_array(structs) if len(structs) else OPEN_DELIVERY.empty_table()
    touched = _touched(before, items, expiries, sure_us)
    rest = before.filter(pc.invert(touched))
    whose = _by_identity(before.filter(touched))
    spoken_of, not_spoken_of = split(acked, pc.unique(items["key"]), sure_us)
    for name, of_topics in states_of(spoken_of, _unpack).items():
        whose.setdefault(name, _Identity()).acked = of_topics
    settling = _Settling(expiries, out)
    events: dict[str, list[tuple[Any, ...]]] = {name: [] for name in whose}
    for key, *event in zip(*columns, strict=True):
        if key != EVERY:
            events.setdefault(key, []).append(tuple(event))
    for name, happened in events.items():
        settling.identity(whose.setdefault(name, _Identity()), name, happened)
    opened = []
    for identity in whose.values():
        for of_topic in identity.topics.values():
            for delivery in of_topic.values():
                if _is_over(delivery, sure_us, out):
                    settling.final.append(delivery)
                else:
                    opened.append(delivery)
    over = len(opened) + len(rest) - PIPELINE_DELIVERIES_OPEN_MAX
    if over > 0:
        opened, rest = _made_room(opened, rest, over, settling.final, out)
    here = _table(opened)
    still_open = pa.concat_tables([here, rest])
    out.carry = [carried_rows(DELIVERY, still_open["identity"], "delivery", still_open)]
    out.carry += [_remembered(whose, sure_us), not_spoken_of]
    _forget_oldest(out)
    out.final = {DELIVERIES.name: _grouped(_table(settling.final), settled=True)}
    out.open = {DELIVERIES.name: _grouped(here, settled=False)}
    out.still = {DELIVERIES.name: _grouped(rest, settled=False)}
    return out


def _apart(carried: pa.Table) -> tuple[pa.Table, pa.Table]:
    """What is remembered of identities, and the open deliveries."""
    remembered = pc.is_valid(carried["state"])
    return carried.filter(remembered), carried.filter(pc.invert(remembered))


def _remembered(whose: dict[str, _Identity], sure_us: int) -> pa.Table:
    carry = kept()
    for name, identity in whose.items():
        fresh = {ids: acked for ids, acked in identity.acked.items() if acked.at + _ACKED_US > sure_us}
        if fresh:
            carry.put(name, min(acked.at for acked in fresh.values()) + _ACKED_US, 0, _pack(fresh))
    return carry.table(DELIVERY)


def _forget_oldest(out: Outcome) -> None:
    opened, *remembered = out.carry
    together = pa.concat_tables(remembered)
    over = len(together) - PIPELINE_ACKED_IDENTITIES_MAX
    if over > 0:
        out.counts["acks_forgotten"] += over
        together = together.sort_by("due_us").slice(over)
        out.carry = [opened, together]


def _touched(before: pa.Table, items: pa.Table, expiries: list[_Expiry], sure_us: int) -> Any:
    """Those of identities that this batch speaks of, those that expire, and those whose time has come."""
    spoken_of = pc.is_in(before["identity"], value_set=pc.unique(items["key"]))
    old = pc.less_equal(before["first_sent_at"].cast(pa.int64()), sure_us - _AGE_US)
    ended = pc.fill_null(pc.less_equal(before["expired_at"].cast(pa.int64()), sure_us - _KEEP_US), fill_value=False)
    touched = pc.or_(spoken_of, pc.or_(old, ended))
    if expiries:
        topics = pa.array(sorted({expiry.topic for expiry in expiries}), pa.string())
        touched = pc.or_(touched, pc.is_in(before["topic"], value_set=topics))
    return touched


def _by_identity(rows: pa.Table) -> dict[str, _Identity]:
    whose: dict[str, _Identity] = {}
    columns = [
        (rows[field.name].cast(pa.int64()) if pa.types.is_timestamp(field.type) else rows[field.name]).to_pylist()
        for field in OPEN_DELIVERY
    ]
    for values in zip(*columns, strict=True):
        delivery = Open(*values)
        identity = whose.get(delivery.identity)
        if identity is None:
            identity = whose[delivery.identity] = _Identity()
        identity.topics.setdefault(delivery.ids, {})[delivery.position] = delivery
    return whose


def _is_over(delivery: Open, sure_us: int, out: Outcome) -> bool:
    if delivery.expired_at is not None:
        return delivery.expired_at + _KEEP_US <= sure_us
    if delivery.first_sent_at + _AGE_US <= sure_us:
        delivery.state = EXPIRED
        out.counts["deliveries_given_up"] += 1
        return True
    return False


def _made_room(
    opened: list[Open], rest: pa.Table, over: int, final: list[Open], out: Outcome
) -> tuple[list[Open], pa.Table]:
    """Too many are open: the oldest count as expired."""
    for identity in _by_identity(rest).values():
        opened += [delivery for of_topic in identity.topics.values() for delivery in of_topic.values()]
    opened.sort(key=lambda each: (each.seq, each.identity, each.position))
    for delivery in opened[:over]:
        delivery.state = EXPIRED
        final.append(delivery)
    out.counts["deliveries_given_up"] += over
    return opened[over:], rest.slice(0, 0)


def _table(rows: list[Open]) -> pa.Table:
    columns = [pa.array([getattr(row, field.name) for row in rows], field.type) for field in OPEN_DELIVERY]
    return pa.Table.from_arrays(columns, schema=OPEN_DELIVERY)


def _grouped(rows: pa.Table, *, settled: bool) -> pa.Table:
    return grouped(DELIVERIES, rows.drop_columns(["ids", "expired_at"]), settled=settled)
