"""Search the event log, within limits on records and time."""

import base64
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from wirelake.errors import GoneError, InputError, ProtocolError, TranslationError
from wirelake.limits import (
    TRACE_NEAR_RECORDS,
    TRACE_RECORDS_MAX,
    TRACE_SEARCH_S,
    TRACE_SEARCHED_MAX,
    TRACE_SLACK_US,
    TRACE_STEP_RECORDS,
)
from wirelake.log.segments.reader import LogReader
from wirelake.protocols import registry
from wirelake.protocols.frame import Sender
from wirelake.protocols.text import read_json, write_json
from wirelake.tracing.record import LogRecord, NotificationId, read_records, shorten_frame

_EVENTS_WITH_RANGE = pa.array(["deliver", "unsayable", "ack"])
Select = Callable[[Any], list[LogRecord]]  # the records of a batch to return


class Search:
    """Search a log once. `is_complete` says whether it read everything within the limits."""

    def __init__(self, folder: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self._reader = LogReader(folder)
        self._clock = clock
        self._deadline_s = clock() + TRACE_SEARCH_S
        self._remaining = TRACE_SEARCHED_MAX
        self.end_seq = self._reader.next_seq
        self.is_complete = True
        self.omitted = 0  # matching records beyond the limit

    @property
    def oldest_seq(self) -> int:
        return self._reader.oldest_seq

    def find_record(self, seq: int) -> LogRecord | None:
        found = self._between(seq, seq + 1)
        return found[0] if found else None

    def notification(self, notification: NotificationId, topic: str, since_us: int | None) -> list[LogRecord]:
        """Return the records about a notification, oldest first. Without a time, search back to its publish."""

        def select(batch: Any) -> list[LogRecord]:
            candidates = read_records(batch.filter(_may_concern(batch, notification)))
            return [shorten_frame(record) for record in candidates if record.concerns(notification, topic)]

        return self._collect(select, since_us, "publish")

    def session(self, session: str, since_us: int | None) -> list[LogRecord]:
        """Return the records of a session, oldest first. Without a time, search from the end back to its open."""

        def select(batch: Any) -> list[LogRecord]:
            found = batch.filter(pc.equal(batch["session"], session))
            parts = [found]
            if found.num_rows > TRACE_RECORDS_MAX:  # more than anybody reads
                half = TRACE_RECORDS_MAX // 2
                parts = [found.slice(0, half), found.slice(found.num_rows - half)]
                self.omitted += found.num_rows - 2 * half
            return [shorten_frame(record) for part in parts for record in read_records(part)]

        return self._collect(select, since_us, "open")

    def newest(self, events: set[str], from_seq: int, count_max: int) -> list[LogRecord]:
        """Return up to `count_max` records of these events from a seq on, newest first."""
        event_names = pa.array(sorted(events))
        found: list[LogRecord] = []
        for part in self._backward(from_seq):
            matching = [batch.filter(pc.is_in(batch["event"], value_set=event_names)) for batch in part]
            found += reversed([record for batch in matching for record in read_records(batch)])
            if len(found) >= count_max:
                break
        return found[:count_max]

    def find_publishing_frame(self, published: LogRecord) -> tuple[LogRecord, bool] | None:
        """Return the frame that a publish came in, and whether the frame contains its content.

        The log does not link them: a frame is recorded when it arrives, a publish when it is done.
        """
        by = published.note.get("by")
        nearby = self._between(published.seq - TRACE_NEAR_RECORDS, published.seq)
        frames = [each for each in nearby if (each.event, each.direction, each.identity) == ("frame", "in", by)]
        for matches in (has_content, contains):
            for record in reversed(frames):
                if matches(record, published.frame):
                    return record, True
        return (frames[-1], False) if by and frames else None

    def find_publishes(self, frame: LogRecord) -> list[LogRecord]:
        """Return what was published because of a frame."""
        nearby = self._between(frame.seq + 1, frame.seq + 1 + TRACE_NEAR_RECORDS)
        published = [each for each in nearby if each.event == "publish" and each.note.get("by") == frame.identity]
        return [each for each in published if has_content(frame, each.frame) or contains(frame, each.frame)]

    def _collect(self, select: Select, since_us: int | None, first_event: str) -> list[LogRecord]:
        found: list[LogRecord] = []
        if since_us is not None:
            for batch in self._forward(since_us - TRACE_SLACK_US):
                more = select(batch)
                found = self._keep_ends(found + more) if more else found
            return found
        for part in self._backward():
            earlier = [record for batch in part for record in select(batch)]
            found = self._keep_ends(earlier + found)
            if any(record.event == first_event for record in earlier):
                break
        return found

    def _keep_ends(self, found: list[LogRecord]) -> list[LogRecord]:
        """Return the first and the last records, which say the most."""
        if len(found) <= TRACE_RECORDS_MAX:
            return found
        half = TRACE_RECORDS_MAX // 2
        self.omitted += len(found) - 2 * half
        return found[:half] + found[-half:]

    def _between(self, start: int, end: int) -> list[LogRecord]:
        start, end = max(start, self.oldest_seq), min(end, self.end_seq)
        return (
            [record for batch in self._reader.read(start, end) for record in read_records(batch)] if start < end else []
        )

    def _forward(self, since_us: int) -> Iterator[Any]:
        try:
            for batch in self._reader.read(until_seq=self.end_seq, since_us=since_us):
                yield batch
                if self._is_exhausted(batch.num_rows):
                    return
        except GoneError:  # retention removed it meanwhile
            self.is_complete = False

    def _backward(self, from_seq: int = 0) -> Iterator[list[Any]]:
        """Yield steps from the end back to a seq; within a step, batches are in order."""
        end = self.end_seq
        while end > (first := max(from_seq, self.oldest_seq)):
            start = max(first, end - TRACE_STEP_RECORDS)
            try:
                yield list(self._reader.read(start, end))
            except GoneError:
                self.is_complete = False
                return
            if self._is_exhausted(end - start):
                return
            end = start

    def _is_exhausted(self, count: int) -> bool:
        self._remaining -= count
        exhausted = self._remaining <= 0 or self._clock() > self._deadline_s
        self.is_complete = self.is_complete and not exhausted
        return exhausted


def _may_concern(batch: Any, notification: NotificationId) -> Any:
    """Return the rows that may be about it: a quick check of the columns, before that of the records."""
    events, notes = batch["event"], batch["note"]
    named = pc.match_substring(notes, f'"{notification.id}"')
    ranged = pc.and_(pc.is_in(events, value_set=_EVENTS_WITH_RANGE), pc.match_substring(notes, f'"{notification.ids}"'))
    framed = pc.and_(pc.equal(events, "frame"), pc.match_substring(batch["frame"], notification.id))
    return pc.or_(pc.or_(named, ranged), pc.or_(framed, pc.equal(events, "expire")))


def has_content(frame: LogRecord, content: bytes) -> bool:
    """Return whether the frame's message has exactly this content."""
    try:
        if frame.protocol == "http":
            return _http_content(frame.frame) == content
        protocol = registry.get(frame.protocol)
        return bool(protocol.to_message(protocol.decode(frame.frame, Sender.CLIENT), Sender.CLIENT).payload == content)
    except (ProtocolError, TranslationError, InputError):
        return False


def _http_content(body: bytes) -> bytes | None:
    """Return the content of an HTTP request to publish: text, base64, or any JSON."""
    request = read_json(body) if body else None
    if not isinstance(request, dict) or "content" not in request:
        return None
    value = request["content"]
    if not isinstance(value, str):
        return write_json(value)
    try:
        return base64.b64decode(value, validate=True) if request.get("encoding") == "base64" else value.encode()
    except ValueError:
        return None


def contains(frame: LogRecord, content: bytes) -> bool:
    """Return whether the content is somewhere in the frame."""
    return bool(content) and content in frame.frame
