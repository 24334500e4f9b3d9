"""Everything that happens goes to the event log, in the order in which it happens.

| event | direction | bytes | note |
| --- | --- | --- | --- |
| open, close | | | the reason of a close |
| frame | in, out | as on the wire, opened if sealed, secrets blanked; HTTP: JSON | HTTP: method, path, status |
| quarantine | in | what could not even be cut into a frame | code, offset, text |
| fault | in | the frame before it, which could not be read | code, offset, text |
| refuse | in | | who was not let in, and why |
| login | | | whether it resumed |
| publish | | content | topic, id, position, type, by whom; `retain` where it is kept as the topic's last value |
| subscribe, unsubscribe | | | topic, identity; the position it starts behind, and what the topic's ids begin with |
| deliver | out | JSON: [[session, identity, protocol], …] | topic, first, last, attempt, what their ids begin with |
| unsayable | | the same, of one | the same, and why its protocol has no words for it: nothing was written |
| ack | | | identity, and the ids acked, or topic and position up to which all are |
| expire | | | topic, first and last position |
| state | | | a batch of the state is durable that the log cannot restore: its number, its tables; or what was lost |
| counters | | | what was recorded since the counters before, by hour and protocol; `start` for a gateway's first |

Counters also say what was not recorded since those before, by protocol and event: `dropped` and `dropped_bytes` (caused
by peers without a login, beyond their quota) and `unrecorded` (refused by the log).
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
from wirelake.protocols.jsontext import write_json
from wirelake.state.notifications import StoredNotification

_log = logging.getLogger(__name__)
_HOUR_US: Final = 3_600_000_000
_RETAIN: Final[dict[bool, dict[str, bool]]] = {False: {}, True: {"retain": True}}
_COUNTED: Final = {("frame", "in"): "in", ("frame", "out"): "out", ("quarantine", "in"): "quarantined"}


class Recorded(Protocol):
    """Who a record is about."""

    id: str
    protocol: str
    identity: str
    address: str


class Recorder:
    """Counts what it hands to the log, so that the tables can be held against it: see `counters`.

    Every method raises StorageError when the log refuses; what was refused is counted in `unrecorded`.
    """

    def __init__(self, log: EventLog, now_us: Callable[[], int]) -> None:
        self.unrecorded: Counter[tuple[str, str]] = Counter()  # records that the log refused, by protocol and event
        self.dropped: Counter[tuple[str, str]] = Counter()  # records that were not written on purpose, likewise
        self.dropped_bytes: Counter[tuple[str, str]] = Counter()  # of their frames
        self._log = log
        self._now_us = now_us
        self._told: dict[str, Counter[tuple[str, str]]] = {}  # what the last counters said of these
        self._counted: dict[tuple[int, str, str], int] = {}  # (hour, protocol, what) → records
        self._started = False
        self._unrestorable: set[str] = set()  # tables of batches that the log had no room to note
        self._batch = 0  # the newest of them

    def frames(self, of: Recorded, direction: str, frames: Sequence[bytes]) -> Commit:
        """As they were, or will be, on the wire."""
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
        """Frames of several sessions, in their order."""
        at_us = self._now_us()
        try:
            commit = self._log.append_rows(at_us, protocol, "frame", direction, sessions, identities, addresses, frames)
        except StorageError:
            self.unrecorded[protocol, "frame"] += len(frames)
            raise
        self._count(at_us, protocol, direction, len(frames))
        return commit

    def event(self, of: Recorded, event: str, note: dict[str, Any], direction: str = "", data: bytes = b"") -> Commit:
        text = write_json(note).decode() if note else ""
        at_us = self._now_us()
        try:
            commit = self._log.append(at_us, of.protocol, event, direction, of.id, of.identity, of.address, data, text)
        except StorageError:
            self.unrecorded[of.protocol, event] += 1
            raise
        what = _COUNTED.get((event, direction))
        if what is not None:
            self._count(at_us, of.protocol, what, 1)
        return commit

    def published(self, notifications: Sequence[StoredNotification], retain: bool = False) -> None:
        """Notifications of durable topics, in their order. `retain`: each is kept as its topic's last value."""
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
        """Something about a topic, whoever caused it."""
        text = write_json({"topic": topic, **note} if topic else note).decode()
        direction = "out" if event == "deliver" else ""
        try:
            self._log.append(self._now_us(), "", event, direction, "", "", "", data, text)
        except StorageError:
            self.unrecorded["", event] += 1
            raise

    def state(self, batch: int, tables: Sequence[str]) -> None:
        """A batch is durable that changed these tables: should the state lose it, the log tells, and cannot mend it.

        What the log has no room for is told with the next batch or the next counters.
        """
        self._batch = batch
        self._unrestorable |= set(tables)
        note = write_json({"batch": batch, "tables": sorted(self._unrestorable)}).decode()
        try:
            self._log.append(self._now_us(), "", "state", "", "", "", "", b"", note)
        except StorageError as error:
            _log.warning("cannot record in the log that the state has batch %d: %s", batch, error)
        else:
            self._unrestorable.clear()

    def counters(self) -> Commit:
        """What was recorded since the last time. Between a gateway's first and the one before it, nobody counted."""
        if self._unrestorable:
            self.state(self._batch, ())
        hours: dict[str, dict[str, dict[str, int]]] = {}
        for (hour, protocol, what), count in self._counted.items():
            hours.setdefault(str(hour * _HOUR_US // 1_000_000), {}).setdefault(protocol, {})[what] = count
        note: dict[str, Any] = {"hours": hours} if self._started else {"start": True, "hours": hours}
        totals = {"dropped": self.dropped, "dropped_bytes": self.dropped_bytes, "unrecorded": self.unrecorded}
        for name, total in totals.items():
            since = total - self._told.get(name, Counter())
            if since:
                note[name] = _by_protocol(since)
        commit = self._log.append(self._now_us(), "", "counters", "", "", "", "", b"", write_json(note).decode())
        self._started = True
        self._told = {name: Counter(total) for name, total in totals.items()}
        self._counted.clear()
        return commit

    def drop(self, protocol: str, event: str, size: int) -> None:
        """Write no record of this; the next counters tell of it."""
        self.dropped[protocol, event] += 1
        self.dropped_bytes[protocol, event] += size

    def _count(self, at_us: int, protocol: str, what: str, count: int) -> None:
        place = (at_us // _HOUR_US, protocol, what)
        self._counted[place] = self._counted.get(place, 0) + count


def _by_protocol(counts: Counter[tuple[str, str]]) -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = {}
    for (protocol, event), count in counts.items():
        found.setdefault(protocol, {})[event] = count
    return found
