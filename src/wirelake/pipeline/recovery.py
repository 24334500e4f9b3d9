"""Recover when a batch fails: count its failures, wait longer each time, and find the records that break the job.

Failures are stored on disk, because the process itself may restart.
"""

import logging
import re
from collections.abc import Callable
from pathlib import Path
from typing import Final

from msgspec import DecodeError, Struct, json
from msgspec.structs import replace

from wirelake.errors import MissingRecordsError, StorageError
from wirelake.lake.store import Store
from wirelake.limits import (
    PIPELINE_ERROR_CHARS_MAX,
    PIPELINE_POISON_MAX,
    PIPELINE_RESTART_FIRST_S,
    PIPELINE_RESTART_MAX_S,
)
from wirelake.log.segments.block_index import BlockIndex
from wirelake.pipeline.ingest.spans import Span, plan_spans

_log = logging.getLogger(__name__)

_FAILURE: Final = "failure.json"
_OWN_CLASS: Final = re.compile(r"^wirelake\.[\w.]+: ")  # the message says what its class would
DryRun = Callable[[list[Span]], None]


class BatchFailure(Struct, frozen=True):
    batch: int
    times: int
    text: str


class FailureLog:
    """Store which batch failed last, and how often."""

    def __init__(self, checkpoint: Store) -> None:
        self._store = checkpoint

    def last(self) -> BatchFailure | None:
        try:
            return json.decode(self._store.read(_FAILURE), type=BatchFailure)
        except (FileNotFoundError, DecodeError):
            return None

    def times(self, batch: int) -> int:
        last = self.last()
        return last.times if last is not None and last.batch == batch else 0

    def add(self, batch: int, text: str) -> None:
        self._store.write(_FAILURE, json.encode(BatchFailure(batch, self.times(batch) + 1, text)))

    def clear(self) -> None:
        self._store.delete(_FAILURE)


def restart_delay_s(times: int) -> float:
    """Return how long to wait before the next attempt: twice as long after each failure, up to a limit."""
    return float(min(PIPELINE_RESTART_MAX_S, PIPELINE_RESTART_FIRST_S * 2 ** min(times - 1, 16)))


def summarize_error(error: BaseException) -> str:
    """Return one line: the last Python error, if Spark wraps it in pages of Java, or else Spark's first line."""
    if isinstance(error, StorageError):
        return str(error)[:PIPELINE_ERROR_CHARS_MAX]
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
    errors = [line for line in lines if "Error" in line or "Exception" in line]
    return _OWN_CLASS.sub("", errors[-1] if errors else lines[0])[:PIPELINE_ERROR_CHARS_MAX]


def are_records_missing(error: BaseException) -> bool:
    """Return whether a task could not read its records to the end. Errors of executors arrive as text."""
    return isinstance(error, MissingRecordsError) or MissingRecordsError.__name__ in str(error)


def is_commit_error(error: BaseException) -> bool:
    """Return whether the files of a batch could not be committed. Errors of Spark's processes arrive as text."""
    return "CommitError: cannot commit batch" in str(error)


class NoPoisonRecordError(Exception):
    """Raised if the cause is not a single record: a full disk, too little memory, two records together."""


def find_poison(log: Path, failing: Span, dry_run: DryRun) -> list[int]:
    """Return the seqs of the records on each of which `dry_run` fails. `failing` is known to fail."""
    if not _passes(dry_run, [Span(failing.from_seq, failing.from_seq, failing.now_us)]):
        raise NoPoisonRecordError("the batch fails even without its records")
    found: list[int] = []
    _search(log, failing, dry_run, found)
    return found


def _search(log: Path, span: Span, dry_run: DryRun, found: list[int]) -> None:
    """Bisect a span that is known to fail."""
    if span.rows == 1:
        if _passes(dry_run, _spans(log, span)):  # do not blame a record for a fault that comes and goes
            raise NoPoisonRecordError(f"record {span.from_seq} failed once, and then did not")
        _log.warning("record %d breaks the job: it goes to quarantine", span.from_seq)
        found.append(span.from_seq)
        if len(found) > PIPELINE_POISON_MAX:
            raise NoPoisonRecordError(f"more than {PIPELINE_POISON_MAX} records of one batch break the job")
        return
    middle = (span.from_seq + span.until_seq) // 2
    halves = [Span(span.from_seq, middle, span.now_us), Span(middle, span.until_seq, span.now_us)]
    failing_halves = [half for half in halves if not _passes(dry_run, _spans(log, half))]
    if not failing_halves:
        raise NoPoisonRecordError(f"records {span.from_seq} to {span.until_seq} fail together, but not in halves")
    for half in failing_halves:
        _search(log, half, dry_run, found)


def _spans(log: Path, span: Span) -> list[Span]:
    spans = plan_spans(BlockIndex(log), span.from_seq, span.until_seq)
    return [replace(each, now_us=span.now_us) for each in spans]


def _passes(dry_run: DryRun, spans: list[Span]) -> bool:
    try:
        dry_run(spans)
    except Exception:  # noqa: BLE001 (that it fails is the answer, whatever the error)
        return False
    return True
