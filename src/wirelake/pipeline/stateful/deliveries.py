"""Track the delivery of notifications: sent, sent again, acked, expired.

A delivery is one notification for one identity, whichever of its sessions received it. An ack ends it. So does an
expiry, but for some time an ack may still correct that. Acked positions are stored as ranges: a lagging session may
be sent what another session of the same identity has acked, and that is no new delivery.
"""

from bisect import bisect_right
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Raw, Struct, field, msgpack
from msgspec.json import Decoder
from msgspec.structs import astuple

from wirelake.lake.tables import DELIVERIES
from wirelake.limits import (
    PIPELINE_ACKED_IDENTITIES_MAX,
    PIPELINE_ACKED_KEEP_S,
    PIPELINE_ACKED_RUNS_MAX,
    PIPELINE_DELIVERIES_OPEN_MAX,
    PIPELINE_DELIVERY_AGE_S,
    PIPELINE_EXPIRED_KEEP_S,
)
from wirelake.pipeline.stateful.bucket_state import (
    OPEN_DELIVERY,
    KindState,
    PackedStates,
    Reduction,
    column_state,
    unpack_states,
    with_partition_columns,
)
from wirelake.pipeline.stateful.events import DELIVERY, EVERY, event_table, from_json, rows_of

PENDING: Final = "pending"
ACKED: Final = "acked"
EXPIRED: Final = "expired"
DELIVER: Final = "deliver"
ACK: Final = "ack"
THROUGH: Final = "through"
EXPIRE: Final = "expire"

_AGE_US: Final = int(PIPELINE_DELIVERY_AGE_S * 1_000_000)
_ACKED_US: Final = int(PIPELINE_ACKED_KEEP_S * 1_000_000)
_KEEP_US: Final = int(PIPELINE_EXPIRED_KEEP_S * 1_000_000)
_COLUMNS: Final = ("key", "seq", "at", "node", "session", "name", "service", "correlation", "number", "until", "note")
_recipients: Final = Decoder(list[list[str]]).decode


class _SendNote(Struct, frozen=True, gc=False):
    """Hold the note of a record of a send."""

    topic: str
    ids: str
    first: int
    last: int


class _AckNote(Struct, frozen=True, gc=False):
    """Hold the note of a record of acks: the ids, or the position of a topic up to which all are acked."""

    identity: str
    acked: Raw = Raw(b"null")
    through: int | None = None
    topic: str | None = None
    ids: str | None = None


class _ExpiryNote(Struct, frozen=True, gc=False):
    """Hold the note of a record of an expiry."""

    topic: str
    first: int
    last: int


_send_note: Final = Decoder(_SendNote).decode
_ack_note: Final = Decoder(_AckNote).decode
_expiry_note: Final = Decoder(_ExpiryNote).decode


def delivery_events(batch: pa.RecordBatch) -> pa.Table:
    """Return sends by recipient and acks by sender; an expiry goes to every bucket."""
    events = batch["event"]
    parts = ((DELIVER, _send_events), (ACK, _ack_events), (EXPIRE, _expiry_events))
    return pa.concat_tables([make(batch.filter(pc.equal(events, event))) for event, make in parts])


def _send_events(sends: pa.RecordBatch) -> pa.Table:
    """Return an event for each recipient of each send. Several sessions of one identity in one record are one send."""
    notes = [_send_note(text) for text in sends["note"].to_pylist()]
    counts: list[int] = []
    identities: list[str] = []
    sessions: list[str] = []
    protocols: list[str] = []
    for frame in sends["frame"].to_pylist():
        first: dict[str, tuple[str, str]] = {}
        for session, identity, *protocol in _recipients(frame):  # older logs have no protocol
            first.setdefault(identity, (session, protocol[0] if protocol else ""))
        counts.append(len(first))
        identities += first.keys()
        sessions += [session for session, _ in first.values()]
        protocols += [protocol for _, protocol in first.values()]
    own = pa.array(np.repeat(np.arange(len(notes)), counts))
    columns: dict[str, Any] = {name: sends[name].take(own) for name in ("seq", "at", "node")}
    columns |= {"key": identities, "session": sessions, "note": protocols, "name": [DELIVER] * len(own)}
    columns["service"] = pa.array([note.topic for note in notes], pa.string()).take(own)
    columns["correlation"] = pa.array([note.ids for note in notes], pa.string()).take(own)
    columns["number"] = pa.array([note.first for note in notes], pa.int64()).take(own)
    columns["until"] = pa.array([note.last for note in notes], pa.int64()).take(own)
    return event_table(DELIVERY, columns)


def _ack_events(acks: pa.RecordBatch) -> pa.Table:
    notes = [_ack_note(text) for text in acks["note"].to_pylist()]
    columns: dict[str, Any] = {name: acks[name] for name in ("seq", "at", "node")}
    columns["key"] = [note.identity for note in notes]
    columns["name"] = [ACK if note.through is None else THROUGH for note in notes]
    columns["note"] = [bytes(note.acked).decode() if note.through is None else None for note in notes]
    columns["until"] = [note.through for note in notes]
    for column, name in (("service", "topic"), ("correlation", "ids")):
        columns[column] = [None if note.through is None else getattr(note, name) for note in notes]
    return event_table(DELIVERY, columns)


def _expiry_events(expiries: pa.RecordBatch) -> pa.Table:
    notes = [_expiry_note(text) for text in expiries["note"].to_pylist()]
    columns: dict[str, Any] = {name: expiries[name] for name in ("seq", "at", "node")}
    columns |= {"key": [EVERY] * len(notes), "name": [EXPIRE] * len(notes)}
    columns["service"] = [note.topic for note in notes]
    columns["number"], columns["until"] = [note.first for note in notes], [note.last for note in notes]
    return event_table(DELIVERY, columns)


class _Expiry(Struct):
    seq: int
    at: int
    topic: str
    first: int
    last: int


class OpenDelivery(Struct, gc=False):
    """Hold a delivery that may still change: the columns of OPEN_DELIVERY, in order. Times are microseconds."""

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


class AckedPositions(Struct, array_like=True):
    """Hold the positions of one topic that one identity acked, as ranges in order."""

    runs: list[list[int]] = field(default_factory=list)  # first, last
    at: int = 0  # of the last ack

    def __contains__(self, position: int) -> bool:
        index = bisect_right(self.runs, position, key=_first) - 1
        return index >= 0 and position <= self.runs[index][1]

    def add(self, position: int, at: int) -> None:
        runs = self.runs
        self.at = max(self.at, at)
        if runs and runs[-1][1] == position - 1:  # mostly they are acked in order
            runs[-1][1] = position
            return
        index = bisect_right(runs, position, key=_first)
        if index and runs[index - 1][1] >= position - 1:
            index -= 1
            runs[index][1] = max(runs[index][1], position)
        else:
            runs.insert(index, [position, position])
        if index + 1 < len(runs) and runs[index + 1][0] == runs[index][1] + 1:
            runs[index][1] = runs.pop(index + 1)[1]
        del runs[: len(runs) - PIPELINE_ACKED_RUNS_MAX]


def _first(run: list[int]) -> int:
    return run[0]


_unpack: Final = msgpack.Decoder(dict[str, AckedPositions]).decode
_pack: Final = msgpack.Encoder().encode


class _Identity:
    """Hold the open deliveries of an identity, by prefix of ids and position, and what it acked."""

    __slots__ = ("acked", "topics")

    def __init__(self) -> None:
        self.topics: dict[str, dict[int, OpenDelivery]] = {}
        self.acked: dict[str, AckedPositions] = {}

    def find(self, id: str) -> OpenDelivery | None:  # noqa: A002 the field's name
        ids, dash, position = id.rpartition("-")
        of_topic = self.topics.get(ids + dash)
        try:
            return None if of_topic is None else of_topic.get(int(position, 16))
        except ValueError:
            return None

    def acked_of(self, ids: str, at: int) -> AckedPositions | None:
        """Return what it acked of a topic, unless that was too long ago."""
        acked = self.acked.get(ids)
        if acked is not None and acked.at + _ACKED_US <= at:
            del self.acked[ids]
            return None
        return acked

    def has_acked(self, id: str, at: int) -> bool:  # noqa: A002 the field's name
        ids, dash, position = id.rpartition("-")
        acked = self.acked_of(ids + dash, at)
        try:
            return acked is not None and int(position, 16) in acked
        except ValueError:
            return False

    def drop(self, delivery: OpenDelivery) -> None:
        of_topic = self.topics[delivery.ids]
        del of_topic[delivery.position]
        if not of_topic:
            del self.topics[delivery.ids]


class _DeliveryReducer:
    def __init__(self, expiries: list[_Expiry], out: Reduction) -> None:
        self.final: list[OpenDelivery] = []
        self._expiries = expiries
        self._out = out

    def apply(self, identity: _Identity, name: str, events: list[tuple[Any, ...]]) -> None:
        """Apply the events of one identity in order, with the expiries in between."""
        expiries, index = self._expiries, 0
        for seq, at, node, session, event, topic, ids, first, last, note in events:
            while index < len(expiries) and expiries[index].seq < seq:
                self.expire(identity, expiries[index])
                index += 1
            if event == DELIVER:
                self._send(identity, name, seq, at, node, note, session, topic, ids, first, last)
            elif event == THROUGH:
                of_topic = identity.topics.get(ids, {})
                for delivery in [each for position, each in of_topic.items() if position <= last]:
                    self._ack(identity, delivery, at)
            else:
                for id_ in from_json(note):
                    found = identity.find(id_)
                    if found is None and identity.has_acked(id_, at):
                        self._out.counts["acks_repeated"] += 1
                    elif found is None or not self._ack(identity, found, at):
                        self._out.counts["acks_without_delivery"] += 1
        for expiry in expiries[index:]:
            self.expire(identity, expiry)

    def _send(
        self,
        identity: _Identity,
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
        of_topic = identity.topics.setdefault(ids, {})
        acked = identity.acked_of(ids, at) or ()
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
            of_topic[position] = OpenDelivery(
                seq, at, node, protocol, id_, topic, position, name, session, at, None, 1, PENDING, None, ids, None
            )

    def _ack(self, identity: _Identity, delivery: OpenDelivery, at: int) -> bool:
        """Mark a delivery as acked. Return False if the ack arrived too late to matter."""
        identity.drop(delivery)
        self.final.append(delivery)
        if _is_over(delivery, at, self._out):
            return False
        if delivery.expired_at is not None:
            self._out.counts["acks_after_expiry"] += 1
        acked = identity.acked_of(delivery.ids, at)
        if acked is None:
            acked = identity.acked[delivery.ids] = AckedPositions()
        acked.add(delivery.position, at)
        delivery.state = ACKED
        delivery.acked_at = at
        delivery.latency_ms = max(0, at - delivery.first_sent_at) / 1000
        return True

    def expire(self, identity: _Identity, expiry: _Expiry) -> None:
        for of_topic in identity.topics.values():
            for position, delivery in of_topic.items():
                if delivery.topic == expiry.topic and expiry.first <= position <= expiry.last:
                    _expire(delivery, expiry)


def _expire(delivery: OpenDelivery, expiry: _Expiry) -> None:
    is_old = delivery.first_sent_at + _AGE_US <= expiry.at  # it was over before
    if delivery.state == PENDING and delivery.seq < expiry.seq and not is_old:
        delivery.state = EXPIRED
        delivery.expired_at = expiry.at


def open_deliveries(state: pa.Table) -> pa.Table:
    """Return the open rows of a state."""
    opened = _deliveries_of(state.filter(pc.is_null(state["state"])))
    return _delivery_rows(opened)


def _deliveries_of(state: pa.Table) -> pa.Table:
    return pa.Table.from_struct_array(state["delivery"]) if len(state) else OPEN_DELIVERY.empty_table()


def reduce_deliveries(events: pa.Table, state: KindState, sure_us: int) -> Reduction:
    out = Reduction()
    columns = rows_of(events, _COLUMNS)
    expiries = [
        _Expiry(seq, at, topic, first, last)
        for key, seq, at, _node, _session, name, topic, _ids, first, last, _note in zip(*columns, strict=True)
        if key == EVERY and name == EXPIRE
    ]
    is_acks = pc.is_valid(state.rows["state"])  # the acked positions of an identity; otherwise an open delivery
    touched = _touched(_deliveries_of(state.rows), events, expiries, sure_us)
    taken = state.take(pc.and_not(touched, is_acks))
    identities = _by_identity(_deliveries_of(taken))
    touched_acks = state.take_keys(pc.unique(events["key"]), sure_us)  # its open deliveries are taken already
    for name, of_topics in unpack_states(touched_acks, _unpack).items():
        identities.setdefault(name, _Identity()).acked = of_topics
    reducer = _DeliveryReducer(expiries, out)
    events_by_identity: dict[str, list[tuple[Any, ...]]] = {name: [] for name in identities}
    for key, *event in zip(*columns, strict=True):
        if key != EVERY:
            events_by_identity.setdefault(key, []).append(tuple(event))
    for name, of_identity in events_by_identity.items():
        reducer.apply(identities.setdefault(name, _Identity()), name, of_identity)
    opened = []
    for identity in identities.values():
        for of_topic in identity.topics.values():
            for delivery in of_topic.values():
                if _is_over(delivery, sure_us, out):
                    reducer.final.append(delivery)
                else:
                    opened.append(delivery)
    over = len(opened) + state.count(pc.invert(is_acks)) - PIPELINE_DELIVERIES_OPEN_MAX
    if over > 0:
        rest = state.take(pc.invert(is_acks))
        taken = pa.concat_tables([taken, rest])
        opened = _drop_oldest(opened, _deliveries_of(rest), over, reducer.final, out)
    still_open = _table(opened)
    acks = _acked_states(identities, sure_us)
    over = len(acks) + state.count(is_acks) - PIPELINE_ACKED_IDENTITIES_MAX
    if over > 0:
        out.counts["acks_forgotten"] += over
        acks = pa.concat_tables([acks, state.take(is_acks)]).sort_by("due_us").slice(over)
    out.state = [column_state(DELIVERY, still_open["identity"], "delivery", still_open), acks]
    out.final = {DELIVERIES.name: _delivery_rows(_table(reducer.final))}
    out.open = {DELIVERIES.name: _delivery_rows(still_open)}
    out.replaced = {DELIVERIES.name: open_deliveries(taken)}
    return out


def _acked_states(identities: dict[str, _Identity], sure_us: int) -> pa.Table:
    states = PackedStates()
    for name, identity in identities.items():
        fresh = {ids: acked for ids, acked in identity.acked.items() if acked.at + _ACKED_US > sure_us}
        if fresh:
            states.put(name, min(acked.at for acked in fresh.values()) + _ACKED_US, 0, _pack(fresh))
    return states.table(DELIVERY)


def _touched(before: pa.Table, events: pa.Table, expiries: list[_Expiry], sure_us: int) -> Any:
    """Select the deliveries of identities that this batch mentions, those that expire, and those that are due."""
    mentioned = pc.is_in(before["identity"], value_set=pc.unique(events["key"]))
    old = pc.less_equal(before["first_sent_at"].cast(pa.int64()), sure_us - _AGE_US)
    ended = pc.fill_null(pc.less_equal(before["expired_at"].cast(pa.int64()), sure_us - _KEEP_US), fill_value=False)
    touched = pc.or_(mentioned, pc.or_(pc.fill_null(old, fill_value=False), ended))
    if expiries:
        topics = pa.array(sorted({expiry.topic for expiry in expiries}), pa.string())
        touched = pc.or_(touched, pc.is_in(before["topic"], value_set=topics))
    return touched


def _by_identity(rows: pa.Table) -> dict[str, _Identity]:
    identities: dict[str, _Identity] = {}
    columns = [
        (rows[field.name].cast(pa.int64()) if pa.types.is_timestamp(field.type) else rows[field.name]).to_pylist()
        for field in OPEN_DELIVERY
    ]
    for values in zip(*columns, strict=True):
        delivery = OpenDelivery(*values)
        identity = identities.get(delivery.identity)
        if identity is None:
            identity = identities[delivery.identity] = _Identity()
        identity.topics.setdefault(delivery.ids, {})[delivery.position] = delivery
    return identities


def _is_over(delivery: OpenDelivery, sure_us: int, out: Reduction) -> bool:
    """Return whether a delivery is final. One that is too old counts as given up."""
    if delivery.expired_at is not None:
        return delivery.expired_at + _KEEP_US <= sure_us
    if delivery.first_sent_at + _AGE_US <= sure_us:
        delivery.state = EXPIRED
        out.counts["deliveries_given_up"] += 1
        return True
    return False


def _drop_oldest(
    opened: list[OpenDelivery], rest: pa.Table, over: int, final: list[OpenDelivery], out: Reduction
) -> list[OpenDelivery]:
    """Count the oldest of too many open deliveries as expired. Return those that stay."""
    for identity in _by_identity(rest).values():
        opened += [delivery for of_topic in identity.topics.values() for delivery in of_topic.values()]
    opened.sort(key=lambda each: (each.seq, each.identity, each.position))
    for delivery in opened[:over]:
        delivery.state = EXPIRED
        final.append(delivery)
    out.counts["deliveries_given_up"] += over
    return opened[over:]


def _table(rows: list[OpenDelivery]) -> pa.Table:
    values = zip(*map(astuple, rows), strict=True) if rows else [()] * len(OPEN_DELIVERY)
    columns = [pa.array(column, field.type) for column, field in zip(values, OPEN_DELIVERY, strict=True)]
    return pa.Table.from_arrays(columns, schema=OPEN_DELIVERY)


def _delivery_rows(rows: pa.Table) -> pa.Table:
    return with_partition_columns(DELIVERIES, rows.drop_columns(["ids", "expired_at"]))
