"""Write everything that happens to the event log, in the order in which it happens.

| event | direction | bytes | note |
| --- | --- | --- | --- |
| open, close | | | the reason of a close; open: file, time and server of an imported capture |
| frame | in, out | as on the wire, opened if sealed, secrets blanked; HTTP: JSON | HTTP: method, path, status |
| quarantine | in, out | bytes that could not be split into frames; out: of a capture | code, offset, text |
| gap | in, out | | of an imported capture: offset and number of the bytes that it lacks |
| fault | in | the frame before it, which could not be decoded | code, offset, text |
| refuse | in | | which login or packet was refused, and why |
| login, logout, deny, audit | | | who did what, from where: see `gateway/auth/audit.py` |
| publish | | content | topic, id, position, type, publisher; `retain` if it is kept as the topic's last value |
| subscribe, unsubscribe | | | topic, identity; the position it starts behind, and the prefix of the topic's ids |
| deliver | out | JSON: [[session, identity, protocol], …] | topic, first, last, attempt, the prefix of their ids |
| unsayable | | the same, of one | the same, and why its protocol cannot encode it: nothing was written |
| ack | | | identity, and the ids acked, or topic and position up to which all are acked |
| expire | | | topic, first and last position |
| state | | | number and tables of a durable batch of the state that the log cannot restore; or what was lost |
| counters | | | how many frames were recorded since the last counters, by hour and protocol; `start` in the first |

Counters also contain what was not recorded since the last ones, by protocol and event: `dropped` and `dropped_bytes`
(caused by peers without a login, beyond their quota) and `unrecorded` (refused by the log).
"""

import logging
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import groupby
from operator import attrgetter
from typing import Any, Final, Protocol

from wirelake.commit import Commit
from wirelake.errors import StorageError
from wirelake.log.interface import EventLog, FixedSizeFrames, Texts
from wirelake.protocols.text import write_json
from wirelake.state.notifications import StoredNotification

_log = logging.getLogger(__name__)
_HOUR_US: Final = 3_600_000_000
_RETAIN: Final[dict[bool, dict[str, bool]]] = {False: {}, True: {"retain": True}}
_COUNTED_EVENTS: Final = {("frame", "in"): "in", ("frame", "out"): "out", ("quarantine", "in"): "quarantined"}


class Recorded(Protocol):
    """The session that a record belongs to."""

    id: str
    protocol: str
    identity: str
    address: str


class Recorder:
    """Append records to the log, and count them, so that the tables can be compared with the counts: see `counters`.

    Every method raises StorageError if the log refuses the record, and counts it in `unrecorded`.
    """

    def __init__(self, log: EventLog, now_us: Callable[[], int]) -> None:
        self.unrecorded: Counter[tuple[str, str]] = Counter()  # records that the log refused, by protocol and event
        self.dropped: Counter[tuple[str, str]] = Counter()  # records that were omitted on purpose, likewise
        self.dropped_bytes: Counter[tuple[str, str]] = Counter()  # of their frames
        self._log = log
        self._now_us = now_us
        self._last_totals: dict[
            str, Counter[tuple[str, str]]
        ] = {}  # the three above, when the last counters were written
        self.counts: dict[tuple[int, str, str], int] = {}  # since the last counters: (hour, protocol, what) → records
        self._started = False
        self._unlogged_tables: set[str] = set()  # of batches that the log could not record yet
        self._batch = 0  # the newest of them

    def frames(self, of: Recorded, direction: str, frames: Sequence[bytes]) -> Commit:
        """Record frames as they were, or will be, on the wire."""
        at_us = self._now_us()
        try:
            commit = self._log.append_many(
                at_us, of.protocol, "frame", direction, of.id, of.identity, of.address, frames
            )
        except StorageError:
            self.unrecorded[of.protocol, "frame"] += len(frames)
            raise
        self._count(at_us, of.protocol, direction, len(frames))
        return commit

    def rows(
        self,
        protocol: str,
        direction: str,
        sessions: Texts,
        identities: Texts,
        addresses: Texts,
        frames: FixedSizeFrames,
    ) -> Commit:
        """Record frames of several sessions, in their order."""
        at_us = self._now_us()
        try:
            commit = self._log.append_rows(at_us, protocol, "frame", direction, sessions, identities, addresses, frames)
        except StorageError:
            self.unrecorded[protocol, "frame"] += len(frames)
            raise
        self._count(at_us, protocol, direction, len(frames))
        return commit

    def event(self, of: Recorded, event: str, note: dict[str, Any], direction: str = "", data: bytes = b"") -> Commit:
        """Record an event of a session, with bytes if it has any."""
        text = write_json(note).decode() if note else ""
        at_us = self._now_us()
        try:
            commit = self._log.append(at_us, of.protocol, event, direction, of.id, of.identity, of.address, data, text)
        except StorageError:
            self.unrecorded[of.protocol, event] += 1
            raise
        what = _COUNTED_EVENTS.get((event, direction))
        if what is not None:
            self._count(at_us, of.protocol, what, 1)
        return commit

    def published(self, notifications: Sequence[StoredNotification], retain: bool = False) -> None:
        """Record notifications of durable topics, in their order. With `retain`, each is its topic's last value."""
        notes: list[str] = []
        for (topic, kind, publisher), run in groupby(notifications, attrgetter("topic", "type", "publisher")):
            head = write_json({"topic": topic}).decode()[:-1] + ',"id":"'
            end = f',"type":{kind},' + write_json({"by": publisher} | _RETAIN[retain]).decode()[1:]
            notes += [f'{head}{each.id}","position":{each.position}{end}' for each in run]
        contents = tuple([each.content for each in notifications])
        try:
            self._log.append_rows(self._now_us(), "", "publish", "", "", "", "", contents, tuple(notes))
        except StorageError:
            self.unrecorded["", "publish"] += len(notes)
            raise

    def topic(self, event: str, topic: str, data: bytes, note: dict[str, Any]) -> None:
        """Record an event of a topic, whoever caused it."""
        text = write_json({"topic": topic, **note} if topic else note).decode()
        direction = "out" if event == "deliver" else ""
        try:
            self._log.append(self._now_us(), "", event, direction, "", "", "", data, text)
        except StorageError:
            self.unrecorded["", event] += 1
            raise

    def state(self, batch: int, tables: Sequence[str]) -> None:
        """Record that a batch that changed these tables is durable in the state.

        The log cannot restore it, but if the state loses it, the next start finds out. If the log refuses the record,
        the next batch or the next counters try again.
        """
        self._batch = batch
        self._unlogged_tables |= set(tables)
        note = write_json({"batch": batch, "tables": sorted(self._unlogged_tables)}).decode()
        try:
            self._log.append(self._now_us(), "", "state", "", "", "", "", b"", note)
        except StorageError as error:
            _log.warning("cannot record in the log that the state has batch %d: %s", batch, error)
        else:
            self._unlogged_tables.clear()

    def counters(self) -> Commit:
        """Record what was counted since the last time.

        What the last run recorded after its last counters is counted by nobody; so the first ones contain `start`.
        """
        if self._unlogged_tables:
            self.state(self._batch, ())
        hours: dict[str, dict[str, dict[str, int]]] = {}
        for (hour, protocol, what), count in self.counts.items():
            hours.setdefault(str(hour * _HOUR_US // 1_000_000), {}).setdefault(protocol, {})[what] = count
        note: dict[str, Any] = {"hours": hours} if self._started else {"start": True, "hours": hours}
        totals = {"dropped": self.dropped, "dropped_bytes": self.dropped_bytes, "unrecorded": self.unrecorded}
        for name, total in totals.items():
            since = total - self._last_totals.get(name, Counter())
            if since:
                note[name] = _by_protocol(since)
        commit = self._log.append(self._now_us(), "", "counters", "", "", "", "", b"", write_json(note).decode())
        self._started = True
        self._last_totals = {name: Counter(total) for name, total in totals.items()}
        self.counts.clear()
        return commit

    def drop(self, protocol: str, event: str, size: int) -> None:
        """Count a record instead of writing it, for the next counters."""
        self.dropped[protocol, event] += 1
        self.dropped_bytes[protocol, event] += size

    def _count(self, at_us: int, protocol: str, what: str, count: int) -> None:
        key = (at_us // _HOUR_US, protocol, what)
        self.counts[key] = self.counts.get(key, 0) + count


def _by_protocol(counts: Counter[tuple[str, str]]) -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = {}
    for (protocol, event), count in counts.items():
        found.setdefault(protocol, {})[event] = count
    return found
