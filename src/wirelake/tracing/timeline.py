"""From records of the log and rows of the tables to one time line. Nothing is read here, and no clock asked."""

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import Any, Final

from msgspec import Struct, field
from msgspec.json import Decoder
from msgspec.structs import replace

from wirelake.limits import TRACE_EVENTS_MAX, TRACE_FRAME_BYTES_MAX, TRACE_RECIPIENTS_MAX
from wirelake.tracing.record import Record, microseconds

_recipients: Final = Decoder(list[list[str]]).decode
# Of things that happened in the same microsecond, what comes first.
_ORDER: Final = ("open", "frame", "login", "publish", "route", "deliver", "unsayable", "ack", "expire", "close")
_NAMED_MAX: Final = 5  # in a sentence


class Recipient(Struct, frozen=True):
    session: str
    identity: str
    protocol: str = ""  # where that is known


class Event(Struct, kw_only=True):
    """`hex` is the frame, cut where it is long; `bytes` is how long it really is. `source` is where this is known from.

    `recipients` counts whom a delivery went to; `to` names them, up to a limit.
    """

    what: str
    text: str
    at_us: int
    offset_ms: float = 0.0  # since the first on the time line
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


def of_record(record: Record) -> Event:
    """What a record says, in a sentence."""
    note = record.note
    event = Event(
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
        event.to = [Recipient(*whom[:3]) for whom in _recipients(record.frame)]
        event.recipients = len(event.to)
    else:
        event.bytes, event.hex = record.bytes, record.frame[:TRACE_FRAME_BYTES_MAX].hex()
    event.text = _SENTENCES.get(record.event, _other)(event, note)
    return event


def _frame(event: Event, note: dict[str, Any]) -> str:
    path = f", {note['method']} {note['path']}" if "path" in note else ""
    return f"{event.protocol} frame {'from' if event.direction == 'in' else 'to'} {_who(event)}{path}"


def _publish(event: Event, note: dict[str, Any]) -> str:
    return f"published on {event.topic} at position {note.get('position')} by {event.identity or 'nobody'}"


def _deliver(event: Event, _: dict[str, Any]) -> str:
    again = f", attempt {event.attempt}" if event.attempt > 1 else ""
    return f"written to {_some([each.identity for each in event.to])}{again}"


def _unsayable(event: Event, note: dict[str, Any]) -> str:
    return f"cannot be said to {_some([each.identity for each in event.to])}: {note.get('reason')}"


def _ack(event: Event, note: dict[str, Any]) -> str:
    return f"acked by {_who(event)}{', with all before' if 'through' in note else ''}"


def _expire(event: Event, _: dict[str, Any]) -> str:
    return f"expired on {event.topic}: kept no longer"


def _quarantine(_: Event, note: dict[str, Any]) -> str:
    return f"could not be read: {note.get('text')} (byte {note.get('offset')}, {note.get('code')})"


def _login(event: Event, note: dict[str, Any]) -> str:
    return f"{_who(event)} logged in{' again, where it was' if note.get('resumed') else ''}"


def _other(event: Event, note: dict[str, Any]) -> str:
    told = ", ".join(f"{name} {value}" for name, value in note.items() if value not in ("", None))
    return f"{event.what}: {told}" if told else event.what


_SENTENCES: Final[dict[str, Callable[[Event, dict[str, Any]], str]]] = {
    "frame": _frame,
    "publish": _publish,
    "deliver": _deliver,
    "unsayable": _unsayable,
    "ack": _ack,
    "expire": _expire,
    "quarantine": _quarantine,
    "fault": _quarantine,
    "login": _login,
}


def _who(event: Event) -> str:
    return event.identity or event.peer or "somebody"


def first_acks(found: Iterable[Record]) -> list[Record]:
    """Without acks of all up to a later position: what was acked stays so."""
    acked: set[str] = set()
    kept: list[Record] = []
    for record in found:
        if record.event == "ack":
            identity = record.note["identity"]
            if "through" in record.note and identity in acked:
                continue
            acked.add(identity)
        kept.append(record)
    return kept


def of_tables(rows: dict[str, list[dict[str, Any]]]) -> list[Event]:
    """The same, as the tables know it when the log no longer does."""
    events: list[Event] = []
    for row in rows.get("silver.notifications", ()):
        text = f"published on {row['topic']} at position {row['position']} by {row['publisher'] or 'nobody'}"
        content = row["content"] or ""
        published = _row_event("silver.notifications", "publish", row, row["at"], text, identity=row["publisher"] or "")
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


def _row_event(table: str, what: str, row: dict[str, Any], at: str, text: str, identity: str = "") -> Event:
    return Event(
        what=what,
        text=text,
        at_us=moment(at),
        source=table,
        seq=row["seq"],
        topic=row["topic"],
        id=row["id"],
        identity=identity,
    )


def without_known(events: Iterable[Event], known: Sequence[Event]) -> list[Event]:
    """Those of the tables that the log has nothing of."""
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


def routed(published: Event, identities: Sequence[str]) -> Event:
    """Whom it is for."""
    text = f"{published.topic} → {_some(identities)}" if identities else f"{published.topic} → nobody subscribes to it"
    return Event(
        what="route",
        text=text,
        at_us=published.at_us,
        source=published.source,
        topic=published.topic,
        recipients=len(identities),
        to=[Recipient("", identity) for identity in identities],
    )


def of_one(events: Iterable[Event], identity: str) -> list[Event]:
    """What an identity may know: its own part, and that it was published."""
    seen: list[Event] = []
    for event in events:
        if event.what == "publish" or (event.identity == identity and event.what in {"frame", "ack"}):
            seen.append(event)
        elif event.what == "deliver" and (own := [each for each in event.to if each.identity == identity]):
            text = event.text if event.attempt > 1 and event.recipients == 1 else f"written to {identity}"
            seen.append(replace(event, to=own, recipients=len(own), text=text))
        elif event.what == "unsayable" and event.to[0].identity == identity:  # recorded for each by itself
            seen.append(event)
    return seen


def in_order(events: Iterable[Event]) -> list[Event]:
    """By time, with offsets; of very many the first ones and the last, because beginning and end tell the most."""
    line = sorted(events, key=lambda event: (event.at_us, _rank(event), event.seq or 0))
    if len(line) > TRACE_EVENTS_MAX:
        half = TRACE_EVENTS_MAX // 2
        line = [*line[:half], *line[-half:]]
    for event in line:
        event.offset_ms = (event.at_us - line[0].at_us) / 1000
        event.to = event.to[:TRACE_RECIPIENTS_MAX]
    return line


def _rank(event: Event) -> int:
    return _ORDER.index(event.what) if event.what in _ORDER else len(_ORDER)


def moment(text: str) -> int:
    """Microseconds, of a time as the tables' answers have it."""
    return microseconds(datetime.fromisoformat(text))


def _some(names: Sequence[str]) -> str:
    """Names in a sentence."""
    unique = list(dict.fromkeys(name or "somebody" for name in names))
    more = f" and {len(unique) - _NAMED_MAX} more" if len(unique) > _NAMED_MAX else ""
    return ", ".join(unique[:_NAMED_MAX]) + more
