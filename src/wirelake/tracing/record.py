"""Parse the records of the log, and the ids by which messages, records and sessions are traced."""

import re
from datetime import datetime
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from wirelake.errors import ProtocolError
from wirelake.limits import TRACE_FRAME_BYTES_MAX
from wirelake.protocols.text import read_json

_HEX: Final = frozenset(bytes([digit]) for digit in b"0123456789abcdef")
_NOTIFICATION: Final = re.compile(r"([0-9a-f]{1,32}-[0-9a-f]{1,16}-)([0-9a-f]{1,16})")  # <epoch>-<topic>-<position>
_RECORD: Final = re.compile(r"[0-9]{1,18}")
_SESSION: Final = re.compile(r"[0-9a-z]{1,32}-[0-9a-z]{1,16}")


class NotificationId(Struct, frozen=True):
    """Hold the id of a notification, and its parts as in the notes of the log."""

    id: str
    ids: str  # the common prefix of the ids of its topic
    position: int


TraceId = NotificationId | int | str  # a notification, a record, a session


def parse_trace_id(text: str) -> TraceId | None:
    """Parse the id of a notification, the seq of a record, or the id of a session. Return None for anything else."""
    notification = _NOTIFICATION.fullmatch(text)
    if notification is not None:
        return NotificationId(text, notification[1], int(notification[2], 16))
    if _RECORD.fullmatch(text):
        return int(text)
    return text if _SESSION.fullmatch(text) else None


class LogRecord(Struct, frozen=True):
    """Hold a record of the log, with its note parsed."""

    seq: int
    at_us: int
    protocol: str
    event: str
    direction: str
    session: str
    identity: str
    peer: str
    frame: bytes
    note: dict[str, Any]
    bytes: int  # length of the frame, even if `frame` holds only its beginning

    def concerns(self, notification: NotificationId, topic: str) -> bool:
        """Return whether it is about this notification. An expiry only names a topic, which may not be known."""
        note, event = self.note, self.event
        if event == "frame":
            return contains_id(self.frame, notification.id)
        if event == "publish" or "acked" in note:
            return notification.id in (note.get("id"), *note.get("acked", ()))
        if event == "expire":
            is_of_topic = topic in {"", note.get("topic")}
        else:
            is_of_topic = event in {"deliver", "unsayable", "ack"} and note.get("ids") == notification.ids
        return is_of_topic and bool(
            note.get("first", 0) <= notification.position <= note.get("last", note.get("through", 0))
        )


def shorten_frame(record: LogRecord) -> LogRecord:
    """Return the record without bytes that are not shown: thousands of records may have a megabyte each."""
    if record.event in {"publish", "deliver", "unsayable"} or record.bytes <= TRACE_FRAME_BYTES_MAX:
        return record
    return replace(record, frame=record.frame[:TRACE_FRAME_BYTES_MAX])


def read_records(batch: Any) -> list[LogRecord]:
    """Return the records of a batch with the columns of the log."""
    rows = batch.to_pylist()
    return [read_record(row, microseconds(row["at"]), row["frame"]) for row in rows]


def read_record(row: dict[str, Any], at_us: int, frame: bytes) -> LogRecord:
    return LogRecord(
        seq=row["seq"],
        at_us=at_us,
        protocol=row["protocol"],
        event=row["event"],
        direction=row["direction"],
        session=row["session"],
        identity=row["identity"],
        peer=row["peer"],
        frame=frame,
        note=_note(row["note"]),
        bytes=len(frame),
    )


def microseconds(at: datetime) -> int:
    """Return microseconds since 1970, exactly."""
    return int(at.replace(microsecond=0).timestamp()) * 1_000_000 + at.microsecond


def contains_id(frame: bytes, id: str) -> bool:  # noqa: A002 the field's name
    """Return whether the bytes contain the id, and not as the prefix of a longer one."""
    wanted, start = id.encode(), 0
    while (found := frame.find(wanted, start)) >= 0:
        after = frame[found + len(wanted) : found + len(wanted) + 1]
        if after not in _HEX:
            return True
        start = found + 1
    return False


def _note(text: str) -> dict[str, Any]:
    try:
        note = read_json(text.encode()) if text else {}
    except ProtocolError:  # the gateway's own notes are JSON; others may not be
        return {"text": text}
    return note if isinstance(note, dict) else {"text": text}
