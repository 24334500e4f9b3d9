"""Build one timeline from records of the log and rows of the tables. This is pure: it reads nothing."""

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import Any, Final

from msgspec import Struct, field
from msgspec.json import Decoder
from msgspec.structs import replace

from wirelake.limits import TRACE_EVENTS_MAX, TRACE_FRAME_BYTES_MAX, TRACE_RECIPIENTS_MAX
from wirelake.protocols.redaction import redact_stored
from wirelake.tracing.record import LogRecord, microseconds

_recipients: Final = Decoder(list[list[str]]).decode
# The order of events in the same microsecond.
_ORDER: Final = ("open", "frame", "login", "publish", "route", "deliver", "unsayable", "ack", "expire", "close")
_NAMED_MAX: Final = 5  # in a text


class Recipient(Struct, frozen=True):
    session: str
    identity: str
    protocol: str = ""  # if known


class TraceEvent(Struct, kw_only=True):
    """Hold an event of a timeline. `hex` is the frame, cut if it is long; `bytes` is its real length.

    `recipients` is how many a delivery went to; `to` names them, up to a limit.
    """

    what: str
    text: str
    at_us: int
    offset_ms: float = 0.0  # since the first event
    source: str = "log"  # or a table's name
    seq: int | None = None
    protocol: str = ""
    direction: str = ""
    session: str = ""
    identity: str = ""
    peer: str = ""
    topic: str = ""
    id: str = ""
    attempt: int = 0
    bytes: int = 0
    hex: str = ""
    recipients: int = 0
    to: list[Recipient] = field(default_factory=list)


def event_of(record: LogRecord) -> TraceEvent:
    """Return the event of a log record."""
    note = record.note
    event = TraceEvent(
        what=record.event,
        text="",
        at_us=record.at_us,
        seq=record.seq,
        protocol=record.protocol,
        direction=record.direction,
        session=record.session,
        identity=record.identity or str(note.get("identity") or note.get("by") or ""),
        peer=record.peer,
        topic=str(note.get("topic") or ""),
        id=str(note.get("id") or ""),
        attempt=int(note.get("attempt") or 0),
    )
    if record.event in {"deliver", "unsayable"}:
        event.to = [Recipient(*recipient[:3]) for recipient in _recipients(record.frame)]
        event.recipients = len(event.to)
    else:
        shown = redact_stored(record.protocol, record.direction, record.frame)
        event.bytes, event.hex = record.bytes, shown[:TRACE_FRAME_BYTES_MAX].hex()
    event.text = _SENTENCES.get(record.event, _other)(event, note)
    return event


def _frame(event: TraceEvent, note: dict[str, Any]) -> str:
    path = f", {note['method']} {note['path']}" if "path" in note else ""
    return f"{event.protocol} frame {'from' if event.direction == 'in' else 'to'} {_who(event)}{path}"


def _publish(event: TraceEvent, note: dict[str, Any]) -> str:
    return f"published on {event.topic} at position {note.get('position')} by {event.identity or 'an anonymous client'}"


def _deliver(event: TraceEvent, _: dict[str, Any]) -> str:
    again = f", attempt {event.attempt}" if event.attempt > 1 else ""
    return f"written to {_join_names([each.identity for each in event.to])}{again}"


def _unencodable(event: TraceEvent, note: dict[str, Any]) -> str:
    return f"not encodable for {_join_names([each.identity for each in event.to])}: {note.get('reason')}"


def _ack(event: TraceEvent, note: dict[str, Any]) -> str:
    return f"acked by {_who(event)}{', with all before' if 'through' in note else ''}"


def _expire(event: TraceEvent, _: dict[str, Any]) -> str:
    return f"expired on {event.topic}: no longer stored"


def _quarantine(_: TraceEvent, note: dict[str, Any]) -> str:
    return f"cannot be decoded: {note.get('text')} (byte {note.get('offset')}, {note.get('code')})"


def _login(event: TraceEvent, note: dict[str, Any]) -> str:
    return f"{_who(event)} logged in{' and resumed its session' if note.get('resumed') else ''}"


def _other(event: TraceEvent, note: dict[str, Any]) -> str:
    details = ", ".join(f"{name} {value}" for name, value in note.items() if value not in ("", None))
    return f"{event.what}: {details}" if details else event.what


_SENTENCES: Final[dict[str, Callable[[TraceEvent, dict[str, Any]], str]]] = {
    "frame": _frame,
    "publish": _publish,
    "deliver": _deliver,
    "unsayable": _unencodable,
    "ack": _ack,
    "expire": _expire,
    "quarantine": _quarantine,
    "fault": _quarantine,
    "login": _login,
}


def _who(event: TraceEvent) -> str:
    return event.identity or event.peer or "an unknown peer"


def first_acks(found: Iterable[LogRecord]) -> list[LogRecord]:
    """Return the records without cumulative acks of identities that had acked already."""
    acked: set[str] = set()
    remaining: list[LogRecord] = []
    for record in found:
        if record.event == "ack":
            identity = record.note["identity"]
            if "through" in record.note and identity in acked:
                continue
            acked.add(identity)
        remaining.append(record)
    return remaining


def table_events(rows: dict[str, list[dict[str, Any]]]) -> list[TraceEvent]:
    """Return the events that the tables have, for when the log no longer has them."""
    events: list[TraceEvent] = []
    for row in rows.get("silver.notifications", ()):
        text = (
            f"published on {row['topic']} at position {row['position']} by {row['publisher'] or 'an anonymous client'}"
        )
        content = row["content"] or ""
        at, publisher = row["received_at"], row["publisher"] or ""
        published = _row_event("silver.notifications", "publish", row, at, text, identity=publisher)
        published.bytes, published.hex = len(content) // 2, content[: 2 * TRACE_FRAME_BYTES_MAX]
        events.append(published)
    for row in rows.get("silver.deliveries", ()):
        who = row["identity"]
        again = f", {row['attempts']} times in all" if row["attempts"] > 1 else ""
        sent = _row_event("silver.deliveries", "deliver", row, row["first_sent_at"], f"written to {who}{again}")
        sent.to, sent.recipients, sent.attempt = [Recipient(row["session"] or "", who)], 1, row["attempts"]
        events.append(sent)
        if row["acked_at"]:
            acked = _row_event("silver.deliveries", "ack", row, row["acked_at"], f"acked by {who}", identity=who)
            events.append(replace(acked, seq=None))
    return events


def _row_event(table: str, what: str, row: dict[str, Any], at: str, text: str, identity: str = "") -> TraceEvent:
    return TraceEvent(
        what=what,
        text=text,
        at_us=parse_time_us(at),
        source=table,
        seq=row["seq"],
        topic=row["topic"],
        id=row["id"],
        identity=identity,
    )


def unknown_events(events: Iterable[TraceEvent], known: Sequence[TraceEvent]) -> list[TraceEvent]:
    """Return the events of the tables that the log does not have."""
    published = any(event.what == "publish" for event in known)
    sent = {each.identity for event in known if event.what == "deliver" for each in event.to}
    acked = {event.identity for event in known if event.what == "ack"}
    return [
        event
        for event in events
        if not (
            (event.what == "publish" and published)
            or (event.what == "deliver" and event.to[0].identity in sent)
            or (event.what == "ack" and event.identity in acked)
        )
    ]


def route_event(published: TraceEvent, identities: Sequence[str]) -> TraceEvent:
    """Return the event that says who a notification is for."""
    text = f"{published.topic} → {_join_names(identities)}" if identities else f"{published.topic} → no subscribers"
    return TraceEvent(
        what="route",
        text=text,
        at_us=published.at_us,
        source=published.source,
        topic=published.topic,
        recipients=len(identities),
        to=[Recipient("", identity) for identity in identities],
    )


def visible_to(events: Iterable[TraceEvent], identity: str) -> list[TraceEvent]:
    """Return what an identity may see: its own part, and the publish."""
    visible: list[TraceEvent] = []
    for event in events:
        if event.what == "publish" or (event.identity == identity and event.what in {"frame", "ack"}):
            visible.append(event)
        elif event.what == "deliver" and (own := [each for each in event.to if each.identity == identity]):
            text = event.text if event.attempt > 1 and event.recipients == 1 else f"written to {identity}"
            visible.append(replace(event, to=own, recipients=len(own), text=text))
        elif event.what == "unsayable" and event.to[0].identity == identity:  # recorded for each recipient separately
            visible.append(event)
    return visible


def sort_events(events: Iterable[TraceEvent]) -> list[TraceEvent]:
    """Return events by time, with offsets. Of too many, return the first and the last, which say the most."""
    timeline = sorted(events, key=lambda event: (event.at_us, _rank(event), event.seq or 0))
    if len(timeline) > TRACE_EVENTS_MAX:
        half = TRACE_EVENTS_MAX // 2
        timeline = [*timeline[:half], *timeline[-half:]]
    for event in timeline:
        event.offset_ms = (event.at_us - timeline[0].at_us) / 1000
        event.to = event.to[:TRACE_RECIPIENTS_MAX]
    return timeline


def _rank(event: TraceEvent) -> int:
    return _ORDER.index(event.what) if event.what in _ORDER else len(_ORDER)


def parse_time_us(text: str) -> int:
    """Return a time of a query result as microseconds since 1970."""
    return microseconds(datetime.fromisoformat(text))


def _join_names(names: Sequence[str]) -> str:
    """Return names for a text, up to a limit."""
    unique = list(dict.fromkeys(name or "anonymous" for name in names))
    more = f" and {len(unique) - _NAMED_MAX} more" if len(unique) > _NAMED_MAX else ""
    return ", ".join(unique[:_NAMED_MAX]) + more
