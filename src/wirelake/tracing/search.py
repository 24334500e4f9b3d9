"""Search the event log with its lookup indexes, within limits on records and time."""

import base64
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from wirelake.errors import GoneError, InputError, ProtocolError, TranslationError
from wirelake.limits import (
    TRACE_NEAR_RECORDS,
    TRACE_RANGES_MAX,
    TRACE_RECIPIENTS_MAX,
    TRACE_RECORDS_MAX,
    TRACE_SEARCH_S,
    TRACE_SEARCHED_MAX,
    TRACE_SLACK_US,
    TRACE_STEP_RECORDS,
)
from wirelake.log.segments.lookup import LogLookup, LookupRange
from wirelake.log.segments.lookup_keys import (
    LookupKey,
    ack_key,
    event_key,
    expiry_key,
    identity_key,
    notification_key,
    session_key,
)
from wirelake.log.segments.reader import LogReader
from wirelake.protocols import registry
from wirelake.protocols.frame import Sender
from wirelake.protocols.text import read_json, write_json
from wirelake.tracing.record import LogRecord, NotificationId, read_records, shorten_frame

_EVENTS_WITH_RANGE = pa.array(["deliver", "unsayable", "ack"])
Select = Callable[[Any], list[LogRecord]]  # the records of a batch to return
_decode_recipients = msgspec.json.Decoder(list[list[str]]).decode


class Search:
    """Search a log once, reading only what its lookup indexes name, and whatever has no index yet.

    `unsearched_rows` says how many records the limits left unread, although they may match.
    """

    def __init__(self, folder: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self._reader = LogReader(folder)
        self._lookup = LogLookup(folder)
        self._clock = clock
        self._deadline_s = clock() + TRACE_SEARCH_S
        self._remaining = TRACE_SEARCHED_MAX
        self._is_exhausted = False
        self.end_seq = self._reader.next_seq
        self.searched_rows = 0  # records that were read
        self.unsearched_rows = 0
        self.omitted = 0  # matching records beyond the limit
        self.is_omitted_exact = True  # otherwise it counts records that may match

    @property
    def is_complete(self) -> bool:
        """Tell whether everything that may match was read."""
        return self.unsearched_rows == 0

    @property
    def oldest_seq(self) -> int:
        return self._reader.oldest_seq

    @property
    def node(self) -> str:
        """Return the node whose log this is; empty if it has no records."""
        if self.end_seq <= self.oldest_seq:
            return ""
        batch = next(self._reader.read(self.end_seq - 1, self.end_seq), None)
        return "" if batch is None else str(batch["node"][0])

    def find_record(self, seq: int) -> LogRecord | None:
        found = self._between(seq, seq + 1)
        return found[0] if found else None

    def notification(self, notification: NotificationId, topic: str, since_us: int | None) -> list[LogRecord]:
        """Return the records about a notification, oldest first. With a time, nothing older is searched."""

        def select(batch: Any) -> list[LogRecord]:
            candidates = read_records(batch.filter(_may_concern(batch, notification)))
            return [shorten_frame(record) for record in candidates if record.concerns(notification, topic)]

        since_us = None if since_us is None else since_us - TRACE_SLACK_US
        wanted = notification_key(notification.ids, notification.position)
        found = self._collect(select, wanted, since_us, "publish")
        published = next((record for record in found if record.event == "publish"), None)
        topic = topic or (published.note["topic"] if published is not None else "")
        if published is not None or since_us is not None:
            from_seq = found[0].seq if found else 0
            found += self._find_acks_and_expiry(notification, topic, from_seq, since_us, found)
        return self._keep_ends(_in_order(found))

    def _find_acks_and_expiry(
        self, notification: NotificationId, topic: str, from_seq: int, since_us: int | None, found: list[LogRecord]
    ) -> list[LogRecord]:
        """Return further records about a notification whose keys follow from those found so far.

        They are its expiry, which names the topic, and the cumulative ack of each recipient.
        """
        more: list[LogRecord] = []

        def select(batch: Any) -> list[LogRecord]:
            events = pc.is_in(batch["event"], value_set=pa.array(["ack", "expire"]))
            return [each for each in read_records(batch.filter(events)) if each.concerns(notification, topic)]

        def keys() -> list[LookupKey]:
            acked = {each.note.get("identity") for each in (*found, *more) if each.event == "ack"}
            expiry = [] if any(each.event == "expire" for each in more) else [expiry_key(topic, notification.position)]
            return expiry + [ack_key(notification.ids, each) for each in recipients if each not in acked]

        recipients = _recipients(found)
        for wanted in self._lookup.ranges(keys, from_seq, self.end_seq, since_us):
            if wanted.is_indexed:  # everything else was read before
                more += self._read(wanted, select)
        return more

    def session(self, session: str, since_us: int | None) -> list[LogRecord]:
        """Return the records of a session, oldest first. With a time, nothing older is searched."""

        def select(batch: Any) -> list[LogRecord]:
            found = batch.filter(pc.equal(batch["session"], session))
            parts = [found]
            if found.num_rows > TRACE_RECORDS_MAX:  # more than anybody reads
                half = TRACE_RECORDS_MAX // 2
                parts = [found.slice(0, half), found.slice(found.num_rows - half)]
                self.omitted += found.num_rows - 2 * half
            return [shorten_frame(record) for part in parts for record in read_records(part)]

        since_us = None if since_us is None else since_us - TRACE_SLACK_US
        return self._keep_ends(_in_order(self._collect(select, session_key(session), since_us, "open")))

    def identity(self, identity: str, count_max: int) -> list[LogRecord]:
        """Return up to `count_max` records of an identity or a device, newest first."""

        def select(batch: Any) -> list[LogRecord]:
            found = batch.filter(pc.equal(batch["identity"], identity))
            newest = found.slice(max(0, found.num_rows - count_max))
            return [shorten_frame(record) for record in read_records(newest)]

        return self._newest(select, [identity_key(identity)], 0, count_max)

    def newest(self, events: set[str], from_seq: int, count_max: int) -> list[LogRecord]:
        """Return up to `count_max` records of these events from a seq on, newest first."""
        event_names = pa.array(sorted(events))

        def select(batch: Any) -> list[LogRecord]:
            return read_records(batch.filter(pc.is_in(batch["event"], value_set=event_names)))

        return self._newest(select, [event_key(event) for event in sorted(events)], from_seq, count_max)

    def _newest(self, select: Select, keys: list[LookupKey], from_seq: int, count_max: int) -> list[LogRecord]:
        found: list[LogRecord] = []
        for wanted in self._lookup.ranges(keys, from_seq, self.end_seq, newest_first=True):
            for step in _steps_back(wanted):
                found += reversed(self._read(step, select))
                if len(found) >= count_max:
                    return found[:count_max]
        return found

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

    def _collect(self, select: Select, key: LookupKey, since_us: int | None, first_event: str) -> list[LogRecord]:
        """Return what is selected of the records with a key.

        Ranges without an index are read from the newest back to the first event, within the limits.
        """
        ranges = list(self._lookup.ranges([key], 0, self.end_seq, since_us))
        found = self._collect_ends([each for each in ranges if each.is_indexed], select)
        unindexed = [step for each in reversed(ranges) if not each.is_indexed for step in _steps_back(each)]
        for step in unindexed:
            first_seq = next((each.seq for each in found if each.event == first_event), None)
            if first_seq is None or first_seq < step.end_seq:
                found = self._keep_ends(_in_order(found + self._read(step, select, since_us)))
        return found

    def _collect_ends(self, ranges: list[LookupRange], select: Select) -> list[LogRecord]:
        """Read ranges from both ends of the list, until there are enough records of each end, or enough ranges."""
        half = TRACE_RECORDS_MAX // 2
        first: list[LogRecord] = []
        last: list[LogRecord] = []
        start, end = 0, len(ranges)
        while start + len(ranges) - end < TRACE_RANGES_MAX and start < end and (len(first) < half or len(last) < half):
            if len(first) <= len(last):
                first += self._read(ranges[start], select)
                start += 1
            else:
                end -= 1
                last = self._read(ranges[end], select) + last
        between = sum(each.rows for each in ranges[start:end])
        self.omitted += between
        self.is_omitted_exact = self.is_omitted_exact and not between
        return self._keep_ends(first + last)

    def _read(self, wanted: LookupRange, select: Select, since_us: int | None = None) -> list[LogRecord]:
        """Return what is selected of a range, or nothing if the limits are reached."""
        self._is_exhausted = self._is_exhausted or self._remaining <= 0 or self._clock() > self._deadline_s
        if self._is_exhausted:
            self.unsearched_rows += wanted.rows
            return []
        self._remaining -= wanted.rows
        self.searched_rows += wanted.rows
        try:
            batches = self._reader.read(wanted.first_seq, wanted.end_seq, since_us=since_us)
            return [record for batch in batches for record in select(batch)]
        except GoneError:  # retention removed it meanwhile
            self.unsearched_rows += wanted.rows
            return []

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


def _in_order(found: list[LogRecord]) -> list[LogRecord]:
    by_seq = {record.seq: record for record in found}
    return [by_seq[seq] for seq in sorted(by_seq)]


def _steps_back(wanted: LookupRange) -> Iterator[LookupRange]:
    """Yield the range in steps, from its end back, so that the limits are checked between them."""
    end = wanted.end_seq
    while end > wanted.first_seq:
        start = max(wanted.first_seq, end - TRACE_STEP_RECORDS)
        yield wanted._replace(first_seq=start, end_seq=end)
        end = start


def _recipients(found: list[LogRecord]) -> list[str]:
    """Return the identities that a notification was delivered to, up to a limit."""
    frames = [record.frame for record in found if record.event in {"deliver", "unsayable"}]
    identities = [recipient[1] for frame in frames for recipient in _decode_recipients(frame)]
    return list(dict.fromkeys(identities))[:TRACE_RECIPIENTS_MAX]


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
