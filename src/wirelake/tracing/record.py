"""A record of the log, with its note read."""

from datetime import datetime
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from wirelake.errors import ProtocolError
from wirelake.limits import TRACE_FRAME_BYTES_MAX
from wirelake.protocols.jsontext import read_json
from wirelake.tracing.asked import Place


class Record(Struct, frozen=True):
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
    bytes: int  # of the frame, also where `frame` holds no more than its beginning

    def concerns(self, place: Place, topic: str) -> bool:
        """Whether it is about this notification. An expiry names the topic alone; where that is not known, any may."""
        note, event = self.note, self.event
        if event == "frame":
            return names(self.frame, place.id)
        if event == "publish" or "acked" in note:
            return place.id in (note.get("id"), *note.get("acked", ()))
        if event == "expire":
            is_of_topic = topic in {"", note.get("topic")}
        else:
            is_of_topic = event in {"deliver", "unsayable", "ack"} and note.get("ids") == place.ids
        return is_of_topic and bool(note.get("first", 0) <= place.position <= note.get("last", note.get("through", 0)))


def brief(record: Record) -> Record:
    """Without bytes that are not shown: there may be thousands, each with the same megabyte."""
    if record.event in {"publish", "deliver", "unsayable"} or record.bytes <= TRACE_FRAME_BYTES_MAX:
        return record
    return replace(record, frame=record.frame[:TRACE_FRAME_BYTES_MAX])


def records(batch: Any) -> list[Record]:
    """`batch` has the columns of the log."""
    rows = batch.to_pylist()
    return [record(row, microseconds(row["at"]), row["frame"]) for row in rows]


def record(row: dict[str, Any], at_us: int, frame: bytes) -> Record:
    return Record(
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
    """Since 1970, exactly."""
    return int(at.replace(microsecond=0).timestamp()) * 1_000_000 + at.microsecond


def names(frame: bytes, id: str) -> bool:  # noqa: A002 the field's name
    """Whether the id stands in the bytes, and not as the beginning of a longer one."""
    wanted, start = id.encode(), 0
    while (found := frame.find(wanted, start)) >= 0:
        after = frame[found + len(wanted) : found + len(wanted) + 1]
        if after not in _HEX:
            return True
        start = found + 1
    return False


_HEX = frozenset(bytes([digit]) for digit in b"0123456789abcdef")


def _note(text: str) -> dict[str, Any]:
    try:
        note = read_json(text.encode()) if text else {}
    except ProtocolError:  # of a frame from elsewhere: the log's own notes are JSON
        return {"text": text}
    return note if isinstance(note, dict) else {"text": text}
