"""One message's way, put together from what the state, the log and the tables know of it.

state   the notification while it is kept, and who has acked it
log     everything, as far back as it is kept; looked through within bounds
tables  what the pipeline has written, also after the log has let go of it
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import replace

from wirelake.errors import DamagedTableError, InputError
from wirelake.limits import TRACE_EVENTS_MAX, TRACE_SEARCH_S, TRACE_SEARCHED_MAX
from wirelake.protocols.jsontext import Encoding, as_text
from wirelake.tracing import rows as tables
from wirelake.tracing.asked import Place, parse
from wirelake.tracing.kept import Delivery, Kept
from wirelake.tracing.record import Record, record
from wirelake.tracing.rows import Rows
from wirelake.tracing.search import Search
from wirelake.tracing.timeline import (
    Event,
    first_acks,
    in_order,
    moment,
    of_one,
    of_record,
    of_tables,
    routed,
    without_known,
)


class Trace(Struct, kw_only=True):
    """Of a notification: all fields. Of a record or a session: those without a topic.

    `kept` says whether the topic still has it; `subscribers` counts those it is for, and `deliveries` lists them, up to
    a limit. `caveats` are sentences about what could not be looked at.
    """

    kind: Literal["notification", "record", "session"]
    id: str
    topic: str | UnsetType = UNSET
    position: int | UnsetType = UNSET
    ts: int | UnsetType = UNSET
    type: int | UnsetType = UNSET
    publisher: str | UnsetType = UNSET
    content: str | UnsetType = UNSET
    encoding: Encoding | UnsetType = UNSET
    kept: bool | UnsetType = UNSET
    subscribers: int | UnsetType = UNSET
    deliveries: list[Delivery] | UnsetType = UNSET
    timeline: list[Event]
    rows: dict[str, list[dict[str, Any]]]
    caveats: list[str]


def trace(folder: Path, text: str, kept: Kept | None = None, only: str = "") -> Trace | None:
    """None where nothing is known. `folder` is the data folder; `only` is the one identity whose part is told.

    Reads files, and may take some seconds.
    """
    asked = parse(text)
    if isinstance(asked, Place):
        return _Tracing(folder).notification(asked, kept, only)
    if asked is None or only:
        return None
    return _Tracing(folder).record(asked) if isinstance(asked, int) else _Tracing(folder).session(asked)


class _Tracing:
    def __init__(self, folder: Path) -> None:
        self._lake = folder / "lake"
        self._caveats: list[str] = []
        try:
            self._search: Search | None = Search(folder / "log")
        except InputError as error:
            self._search = None
            self._caveats.append(f"{error}")

    def notification(self, place: Place, kept: Kept | None, only: str) -> Trace | None:
        rows = self._rows(tables.of_notification, place.id)
        known = kept or _from_tables(rows)
        found: list[Record] = []
        if self._search is not None:
            since_us = None if known is None else known.at_us
            found = self._search.notification(place, "" if known is None else known.topic, since_us)
        published = next((each for each in found if each.event == "publish"), None)
        if known is None and published is not None:
            known = _from_record(published)
        if known is None:
            return None
        found = [each for each in first_acks(found) if each.event != "expire" or each.note.get("topic") == known.topic]
        events = self._line(published, found)
        events += without_known(of_tables(rows), events)
        deliveries = kept.deliveries if kept is not None else _deliveries(events, rows, only)
        if only and only != known.publisher and not any(each.identity == only for each in deliveries):
            return None
        publishing = next((event for event in events if event.what == "publish"), None)
        if publishing is not None:
            identities = [each.identity for event in events if event.what == "deliver" for each in event.to]
            events.append(
                routed(publishing, list(dict.fromkeys([*(each.identity for each in deliveries), *identities])))
            )
        if only:
            events, rows = of_one(events, only), {}
        else:
            seqs = [event.seq for event in events if event.what == "frame" and event.seq is not None]
            rows |= self._rows(tables.of_records, seqs)
        content, encoding = as_text(known.content)
        return Trace(
            kind="notification",
            id=place.id,
            topic=known.topic,
            position=place.position,
            ts=known.at_us // 1000,
            type=known.type,
            publisher=known.publisher,
            content=content,
            encoding=encoding,
            kept=kept is not None,
            subscribers=len(deliveries) if kept is None else kept.subscribers,
            deliveries=deliveries,
            timeline=in_order(events),
            rows=tables.shortened(rows),
            caveats=self._told(len(events)),
        )

    def record(self, seq: int) -> Trace | None:
        found = None if self._search is None else self._search.one(seq)
        source = "log"
        if found is None:
            source = "bronze.frames"
            row = self._rows(tables.frame, seq)
            found = None if not row else record(row, moment(row["at"]), bytes.fromhex(row["frame"]))
        if found is None:
            return None
        events = [replace(of_record(found), source=source)]
        if self._search is not None and source == "log":
            if (found.event, found.direction) == ("frame", "in"):
                events += [of_record(each) for each in self._search.caused(found)]
            elif found.event == "publish":
                events = self._line(found, [found])
        rows = self._rows(tables.of_records, [each.seq for each in events if each.seq is not None])
        return self._other("record", str(seq), events, rows)

    def session(self, session: str) -> Trace | None:
        rows = self._rows(tables.of_session, session)
        opened = [moment(row["opened_at"]) for row in rows.get("silver.sessions", ()) if row["opened_at"]]
        found: list[Record] = []
        if self._search is not None:
            found = self._search.session(session, min(opened, default=None))
        if not found and not rows:
            return None
        events = [of_record(each) for each in found]
        if not any(each.event == "open" for each in found):
            events += [
                Event(what="open", text="opened", at_us=at_us, source="silver.sessions", session=session)
                for at_us in opened
            ]
        return self._other("session", session, events, rows)

    def _other(self, kind: Literal["record", "session"], name: str, events: list[Event], rows: Rows) -> Trace:
        shown = tables.shortened(rows)
        return Trace(kind=kind, id=name, timeline=in_order(events), rows=shown, caveats=self._told(len(events)))

    def _line(self, published: Record | None, found: Sequence[Record]) -> list[Event]:
        events = [of_record(each) for each in found]
        brought = None if published is None or self._search is None else self._search.bringing(published)
        if brought is not None and brought[0].seq not in {each.seq for each in found}:
            event = of_record(brought[0])
            events.append(event if brought[1] else replace(event, text=f"{event.text}, which probably brought it"))
        return events

    def _rows(self, ask: Any, *wanted: Any) -> Any:
        """A lake that cannot be asked is no reason to tell nothing."""
        try:
            return ask(self._lake, *wanted)
        except (InputError, DamagedTableError) as error:
            told = f"the tables could not be asked: {error}"
            if told not in self._caveats:
                self._caveats.append(told)
            return {}

    def _told(self, events: int) -> list[str]:
        if events > TRACE_EVENTS_MAX:
            self._caveats.append(f"of {events} events the first and the last are shown (TRACE_EVENTS_MAX)")
        if self._search is not None and not self._search.complete:
            bounds = f"at most {TRACE_SEARCHED_MAX:,} records, for {TRACE_SEARCH_S:g} s"
            self._caveats.append(f"the log is long: not all of it was looked through ({bounds})")
        if self._search is not None and self._search.left_out:
            self._caveats.append(f"{self._search.left_out} records in between are left out (TRACE_RECORDS_MAX)")
        return self._caveats


class _Known(Struct, frozen=True):
    topic: str
    type: int
    publisher: str
    content: bytes
    at_us: int


def _from_tables(rows: Rows) -> _Known | None:
    for row in rows.get("silver.notifications", ()):
        content = bytes.fromhex(row["content"] or "")
        return _Known(row["topic"], row["type"], row["publisher"] or "", content, moment(row["at"]))
    return None


def _from_record(published: Record) -> _Known:
    note = published.note
    return _Known(note["topic"], note["type"], note["by"], published.frame, published.at_us)


def _deliveries(events: Sequence[Event], rows: Rows, only: str) -> list[Delivery]:
    """Of a notification that is kept no longer, by what is on record."""
    states: dict[str, Literal["acked", "pending", "expired"]] = {}
    expired = any(event.what == "expire" for event in events)
    for event in events:
        if event.what == "deliver":
            states |= {each.identity: "expired" if expired else "pending" for each in event.to}
    states |= {row["identity"]: "expired" for row in rows.get("silver.deliveries", ()) if row["state"] == "expired"}
    states |= {event.identity: "acked" for event in events if event.what == "ack"}
    return [Delivery(identity, state) for identity, state in states.items() if not only or identity == only]
