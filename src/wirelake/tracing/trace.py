"""Trace one message through the state, the log and the tables.

state   the notification while it is stored, and who has acked it
log     everything, as far back as retention goes; searched within limits
tables  what the pipeline has written, also after retention removed it from the log
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import replace

from wirelake.errors import DamagedTableError, InputError
from wirelake.lake.store import Store, open_lake
from wirelake.lake.tables import FRAMES
from wirelake.limits import TRACE_EVENTS_MAX, TRACE_SEARCH_S, TRACE_SEARCHED_MAX
from wirelake.protocols.text import Encoding, as_text
from wirelake.tracing import stored as stored_rows
from wirelake.tracing.record import LogRecord, NotificationId, parse_trace_id, read_record
from wirelake.tracing.search import Search
from wirelake.tracing.stored import DeliveryState, LoggedRange, NotificationTrace, Rows, RowSelection
from wirelake.tracing.timeline import (
    TraceEvent,
    event_of,
    first_acks,
    parse_time_us,
    route_event,
    sort_events,
    table_events,
    unknown_events,
    visible_to,
)


class Trace(Struct, kw_only=True):
    """Hold what is known about a notification, a record or a session. Only a notification has all fields.

    `kept` says whether the topic still stores it; `subscribers` is how many it is for, and `deliveries` lists them, up
    to a limit. `caveats` says what could not be searched.
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
    deliveries: list[DeliveryState] | UnsetType = UNSET
    timeline: list[TraceEvent]
    rows: dict[str, list[dict[str, Any]]]
    caveats: list[str]


def trace(
    folder: Path, text: str, stored: NotificationTrace | None = None, only: str = "", lake: Store | None = None
) -> Trace | None:
    """Return what is known, or None. `only` restricts it to what one identity may see.

    `folder` is the data folder. The tables are inside, unless `lake` is given.

    This reads files and may take some seconds.
    """
    found = trace_or_reason(folder, text, stored, only, lake)
    return None if isinstance(found, str) else found


def trace_or_reason(
    folder: Path, text: str, stored: NotificationTrace | None = None, only: str = "", lake: Store | None = None
) -> Trace | str:
    """Do as `trace`, but return what was searched if nothing was found; nothing to an identity."""
    wanted = parse_trace_id(text)
    if wanted is None or (only and not isinstance(wanted, NotificationId)):
        return "" if only else "not the id of a notification, the number of a record or the id of a session"
    tracer = _Tracer(folder, lake)
    if isinstance(wanted, NotificationId):
        found = tracer.notification(wanted, stored, only)
    elif isinstance(wanted, int):
        found = tracer.record(wanted)
    else:
        found = tracer.session(wanted)
    return ("" if only else tracer.searched()) if found is None else found


class _Tracer:
    """Assemble one trace from the log and the tables of a data folder."""

    def __init__(self, folder: Path, lake: Store | None) -> None:
        self._lake = open_lake(folder) if lake is None else lake
        self._caveats: list[str] = []
        try:
            self._search: Search | None = Search(folder / "log")
        except InputError as error:
            self._search = None
            self._caveats.append(f"{error}")

    def notification(self, wanted: NotificationId, stored: NotificationTrace | None, only: str) -> Trace | None:
        found: list[LogRecord] = []
        if self._search is not None:
            since_us = None if stored is None else stored.at_us
            found = self._search.notification(wanted, "" if stored is None else stored.topic, since_us)
        published = next((each for each in found if each.event == "publish"), None)
        known = stored or (None if published is None else _from_record(published))
        events = self._events(published, [] if known is None else _about(found, known.topic))
        rows = self._notification_rows(wanted.id, published, found, events)
        known = known or _from_tables(rows)
        if known is None:
            return None
        if published is None:
            events = self._events(None, _about(found, known.topic))
        events += unknown_events(table_events(rows), events)
        deliveries = stored.deliveries if stored is not None else _deliveries(events, rows, only)
        if only and only != known.publisher and not any(each.identity == only for each in deliveries):
            return None
        publishing = next((event for event in events if event.what == "publish"), None)
        if publishing is not None:
            identities = [each.identity for event in events if event.what == "deliver" for each in event.to]
            events.append(
                route_event(publishing, list(dict.fromkeys([*(each.identity for each in deliveries), *identities])))
            )
        if only:
            events, rows = visible_to(events, only), {}
        content, encoding = as_text(known.content)
        return Trace(
            kind="notification",
            id=wanted.id,
            topic=known.topic,
            position=wanted.position,
            ts=known.at_us // 1000,
            type=known.type,
            publisher=known.publisher,
            content=content,
            encoding=encoding,
            kept=stored is not None,
            subscribers=len(deliveries) if stored is None else stored.subscribers,
            deliveries=deliveries,
            timeline=sort_events(events),
            rows=stored_rows.shorten(rows),
            caveats=self._all_caveats(len(events)),
        )

    def _notification_rows(
        self, id_: str, published: LogRecord | None, found: list[LogRecord], events: Sequence[TraceEvent]
    ) -> Rows:
        """Return the rows of a notification, and those of the frames on its timeline."""
        sent = [each.seq for each in found if each.event == "deliver"]
        frames = [each.seq for each in events if each.what == "frame" and each.seq is not None]
        if published is None:
            selections = stored_rows.unlogged_notification_rows(id_, sent, self._logged())
        else:
            selections = stored_rows.notification_rows(id_, published.seq, sent)
        return self._rows(selections + stored_rows.record_rows(frames))

    def _logged(self) -> LoggedRange | None:
        """Return which records the log has, if all of them that may match were searched."""
        if self._search is None or not self._search.is_complete or not (node := self._search.node):
            return None
        return LoggedRange(node, self._search.oldest_seq)

    def record(self, seq: int) -> Trace | None:
        found = None if self._search is None else self._search.find_record(seq)
        source = "log"
        if found is None:
            source = "bronze.frames"
            row = next(iter(self._rows(stored_rows.frame_rows(seq)).get(FRAMES.name, ())), None)
            if row is not None:
                found = read_record(row, parse_time_us(row["received_at"]), bytes.fromhex(row["frame"]))
        if found is None:
            return None
        events = [replace(event_of(found), source=source)]
        if self._search is not None and source == "log":
            if (found.event, found.direction) == ("frame", "in"):
                events += [event_of(each) for each in self._search.find_publishes(found)]
            elif found.event == "publish":
                events = self._events(found, [found])
        rows = self._rows(stored_rows.record_rows([each.seq for each in events if each.seq is not None]))
        return self._trace("record", str(seq), events, rows)

    def session(self, session: str) -> Trace | None:
        found = [] if self._search is None else self._search.session(session, None)
        is_whole = any(each.event == "open" for each in found)
        selections: list[RowSelection] = []
        if found:
            selections += stored_rows.session_rows(session, range(found[0].seq, found[-1].seq + 1))
        if not is_whole:  # its beginning may no longer be in the log
            earlier = stored_rows.unlogged_session_rows(session, self._logged())
            selections = [
                RowSelection(table, (*conditions, *(selections[number].conditions if selections else ())))
                for number, (table, conditions) in enumerate(earlier)
            ]
        rows = self._rows(selections)
        opened = [parse_time_us(row["opened_at"]) for row in rows.get("silver.sessions", ()) if row["opened_at"]]
        if not found and not rows:
            return None
        events = [event_of(each) for each in found]
        if not is_whole:
            events += [
                TraceEvent(what="open", text="opened", at_us=at_us, source="silver.sessions", session=session)
                for at_us in opened
            ]
        return self._trace("session", session, events, rows)

    def _trace(self, kind: Literal["record", "session"], name: str, events: list[TraceEvent], rows: Rows) -> Trace:
        short = stored_rows.shorten(rows)
        return Trace(
            kind=kind, id=name, timeline=sort_events(events), rows=short, caveats=self._all_caveats(len(events))
        )

    def _events(self, published: LogRecord | None, found: Sequence[LogRecord]) -> list[TraceEvent]:
        events = [event_of(each) for each in found]
        frame = None if published is None or self._search is None else self._search.find_publishing_frame(published)
        if frame is not None and frame[0].seq not in {each.seq for each in found}:
            event = event_of(frame[0])
            events.append(
                event if frame[1] else replace(event, text=f"{event.text}, probably the one that published it")
            )
        return events

    def _rows(self, selections: list[RowSelection]) -> Rows:
        """Query the tables. If they cannot be read, the rest of the trace is still useful."""
        try:
            return stored_rows.select_rows(self._lake, selections)
        except (InputError, DamagedTableError) as error:
            caveat = f"cannot query the tables: {error}"
            if caveat not in self._caveats:
                self._caveats.append(caveat)
            return {}

    def searched(self) -> str:
        """Say what was searched in vain, and what was not."""
        if self._search is None:
            places = "the tables"
        else:
            first, last = self._search.oldest_seq, self._search.end_seq - 1
            records = f"records {first} to {last} of the log" if first <= last else "the log, which is empty"
            places = f"{records}, and the tables"
        return "; ".join([f"searched {places}", *self._all_caveats(0)])

    def _all_caveats(self, events: int) -> list[str]:
        if events > TRACE_EVENTS_MAX:
            self._caveats.append(f"only the first and the last of {events} events are shown (TRACE_EVENTS_MAX)")
        if self._search is not None and not self._search.is_complete:
            bounds = f"at most {TRACE_SEARCHED_MAX:,} records, for {TRACE_SEARCH_S:g} s"
            count = self._search.unsearched_rows
            self._caveats.append(f"{count:,} records of the log that may be about it were not searched ({bounds})")
        if self._search is not None and self._search.omitted:
            count = self._search.omitted
            records, verb = ("1 record", "is") if count == 1 else (f"{count} records", "are")
            if not self._search.is_omitted_exact:
                records = f"up to {records}"
            self._caveats.append(f"{records} in between {verb} not shown (TRACE_RECORDS_MAX, TRACE_RANGES_MAX)")
        return self._caveats


class _KnownMessage(Struct, frozen=True):
    topic: str
    type: int
    publisher: str
    content: bytes
    at_us: int


def _about(found: list[LogRecord], topic: str) -> list[LogRecord]:
    """Return the records that matter: the first acks, and expiries of this topic alone."""
    return [each for each in first_acks(found) if each.event != "expire" or each.note.get("topic") == topic]


def _from_tables(rows: Rows) -> _KnownMessage | None:
    for row in rows.get("silver.notifications", ()):
        content, at_us = bytes.fromhex(row["content"] or ""), parse_time_us(row["received_at"])
        return _KnownMessage(row["topic"], row["type"], row["publisher"] or "", content, at_us)
    return None


def _from_record(published: LogRecord) -> _KnownMessage:
    note = published.note
    return _KnownMessage(note["topic"], note["type"], note["by"], published.frame, published.at_us)


def _deliveries(events: Sequence[TraceEvent], rows: Rows, only: str) -> list[DeliveryState]:
    """Return the deliveries of a notification that is no longer stored, from its events."""
    states: dict[str, Literal["acked", "pending", "expired"]] = {}
    expired = any(event.what == "expire" for event in events)
    for event in events:
        if event.what == "deliver":
            states |= {each.identity: "expired" if expired else "pending" for each in event.to}
    states |= {row["identity"]: "expired" for row in rows.get("silver.deliveries", ()) if row["state"] == "expired"}
    states |= {event.identity: "acked" for event in events if event.what == "ack"}
    return [DeliveryState(identity, state) for identity, state in states.items() if not only or identity == only]
