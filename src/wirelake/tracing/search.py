"""Looking through the event log, within bounds: so many records, so many seconds."""

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
from wirelake.log.reader import Reader
from wirelake.protocols import registry
from wirelake.protocols.frame import Sender
from wirelake.protocols.jsontext import read_json, write_json
from wirelake.tracing.asked import Place
from wirelake.tracing.record import Record, brief, records

_RANGED = pa.array(["deliver", "unsayable", "ack"])
About = Callable[[Any], list[Record]]  # those of a batch that are wanted


class Search:
    """One search of one log. `complete` says whether the bounds let it see all that it should have."""

    def __init__(self, folder: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self._reader = Reader(folder)
        self._clock = clock
        self._deadline_s = clock() + TRACE_SEARCH_S
        self._left = TRACE_SEARCHED_MAX
        self.end_seq = self._reader.next_seq
        self.complete = True
        self.left_out = 0  # records that are about what was asked, and too many

    @property
    def oldest_seq(self) -> int:
        return self._reader.oldest_seq

    def one(self, seq: int) -> Record | None:
        found = self._between(seq, seq + 1)
        return found[0] if found else None

    def notification(self, place: Place, topic: str, since_us: int | None) -> list[Record]:
        """What the log has about it, oldest first. Without a time, from the newest record back to its publishing."""

        def about(batch: Any) -> list[Record]:
            maybe = records(batch.filter(_about(batch, place)))
            return [brief(record) for record in maybe if record.concerns(place, topic)]

        return self._gathered(about, since_us, "publish")

    def session(self, session: str, since_us: int | None) -> list[Record]:
        """Its records, oldest first. Without a time, from the newest record back to its opening."""

        def about(batch: Any) -> list[Record]:
            hers = batch.filter(pc.equal(batch["session"], session))
            parts = [hers]
            if hers.num_rows > TRACE_RECORDS_MAX:  # more than anybody looks at
                half = TRACE_RECORDS_MAX // 2
                parts = [hers.slice(0, half), hers.slice(hers.num_rows - half)]
                self.left_out += hers.num_rows - 2 * half
            return [brief(record) for part in parts for record in records(part)]

        return self._gathered(about, since_us, "open")

    def newest(self, events: set[str], from_seq: int, count_max: int) -> list[Record]:
        """Records of these events from a place on, the newest first, so many of them."""
        wanted = pa.array(sorted(events))
        found: list[Record] = []
        for part in self._backward(from_seq):
            matching = [batch.filter(pc.is_in(batch["event"], value_set=wanted)) for batch in part]
            found += reversed([record for batch in matching for record in records(batch)])
            if len(found) >= count_max:
                break
        return found[:count_max]

    def bringing(self, published: Record) -> tuple[Record, bool] | None:
        """The frame that brought what was published, and whether its content was seen in it.

        The log keeps the two apart: a frame is recorded when it comes, what it causes when it is done.
        """
        by = published.note.get("by")
        near = self._between(published.seq - TRACE_NEAR_RECORDS, published.seq)
        hers = [each for each in near if (each.event, each.direction, each.identity) == ("frame", "in", by)]
        for wanted in (carries, holds):
            for record in reversed(hers):
                if wanted(record, published.frame):
                    return record, True
        return (hers[-1], False) if by and hers else None

    def caused(self, frame: Record) -> list[Record]:
        """What was published because of a frame."""
        near = self._between(frame.seq + 1, frame.seq + 1 + TRACE_NEAR_RECORDS)
        hers = [each for each in near if each.event == "publish" and each.note.get("by") == frame.identity]
        return [each for each in hers if carries(frame, each.frame) or holds(frame, each.frame)]

    def _gathered(self, about: About, since_us: int | None, first_event: str) -> list[Record]:
        found: list[Record] = []
        if since_us is not None:
            for batch in self._forward(since_us - TRACE_SLACK_US):
                more = about(batch)
                found = self._ends(found + more) if more else found
            return found
        for part in self._backward():
            earlier = [record for batch in part for record in about(batch)]
            found = self._ends(earlier + found)
            if any(record.event == first_event for record in earlier):
                break
        return found

    def _ends(self, found: list[Record]) -> list[Record]:
        """The first and the last: beginning and end tell the most."""
        if len(found) <= TRACE_RECORDS_MAX:
            return found
        half = TRACE_RECORDS_MAX // 2
        self.left_out += len(found) - 2 * half
        return found[:half] + found[-half:]

    def _between(self, start: int, end: int) -> list[Record]:
        start, end = max(start, self.oldest_seq), min(end, self.end_seq)
        return [record for batch in self._reader.read(start, end) for record in records(batch)] if start < end else []

    def _forward(self, since_us: int) -> Iterator[Any]:
        try:
            for batch in self._reader.read(until_seq=self.end_seq, since_us=since_us):
                yield batch
                if self._spent(batch.num_rows):
                    return
        except GoneError:  # retention was faster
            self.complete = False

    def _backward(self, from_seq: int = 0) -> Iterator[list[Any]]:
        """Steps from the end to the beginning, or to a place; within a step the batches are in order."""
        end = self.end_seq
        while end > (first := max(from_seq, self.oldest_seq)):
            start = max(first, end - TRACE_STEP_RECORDS)
            try:
                yield list(self._reader.read(start, end))
            except GoneError:
                self.complete = False
                return
            if self._spent(end - start):
                return
            end = start

    def _spent(self, count: int) -> bool:
        self._left -= count
        spent = self._left <= 0 or self._clock() > self._deadline_s
        self.complete = self.complete and not spent
        return spent


def _about(batch: Any, place: Place) -> Any:
    """Rows that may be about it: quickly, over the columns. The records themselves are asked afterwards."""
    events, notes = batch["event"], batch["note"]
    named = pc.match_substring(notes, f'"{place.id}"')
    ranged = pc.and_(pc.is_in(events, value_set=_RANGED), pc.match_substring(notes, f'"{place.ids}"'))
    framed = pc.and_(pc.equal(events, "frame"), pc.match_substring(batch["frame"], place.id))
    return pc.or_(pc.or_(named, ranged), pc.or_(framed, pc.equal(events, "expire")))


def carries(frame: Record, content: bytes) -> bool:
    """Whether the frame's message has exactly this content."""
    try:
        if frame.protocol == "http":
            return _posted(frame.frame) == content
        protocol = registry.get(frame.protocol)
        return bool(protocol.to_message(protocol.decode(frame.frame, Sender.CLIENT), Sender.CLIENT).payload == content)
    except (ProtocolError, TranslationError, InputError):
        return False


def _posted(body: bytes) -> bytes | None:
    """The content that a request by HTTP is about: text, base64, or any JSON."""
    asked = read_json(body) if body else None
    if not isinstance(asked, dict) or "content" not in asked:
        return None
    value = asked["content"]
    if not isinstance(value, str):
        return write_json(value)
    try:
        return base64.b64decode(value, validate=True) if asked.get("encoding") == "base64" else value.encode()
    except ValueError:
        return None


def holds(frame: Record, content: bytes) -> bool:
    """Whether the content stands somewhere in the frame."""
    return bool(content) and content in frame.frame
