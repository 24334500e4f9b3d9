"""Records that break the job: found by halving, with jobs that write nothing."""

import logging
from collections.abc import Callable
from pathlib import Path

from msgspec.structs import replace

from wirelake.limits import PIPELINE_POISON_MAX
from wirelake.log.segments.block_index import BlockIndex
from wirelake.pipeline.spans import Span, cut

_log = logging.getLogger(__name__)

TryOut = Callable[[list[Span]], None]


class NotTheRecordsError(Exception):
    """The job fails for a reason that is in no single record: a full disk, no memory, two records together."""


def find_poison(log: Path, whole: Span, try_out: TryOut) -> list[int]:
    """The seqs of the records on which `try_out` fails, each of them alone. `whole` is known to fail."""
    if not _passes(try_out, [Span(whole.from_seq, whole.from_seq, whole.now_us)]):
        raise NotTheRecordsError("the batch fails even without its records")
    found: list[int] = []
    _search(log, whole, try_out, found)
    return found


def _search(log: Path, span: Span, try_out: TryOut, found: list[int]) -> None:
    """`span` is known to fail."""
    if span.rows == 1:
        if _passes(try_out, _spans(log, span)):  # nobody is blamed for a fault that comes and goes
            raise NotTheRecordsError(f"record {span.from_seq} failed once, and then did not")
        _log.warning("record %d breaks the job, and goes to the quarantine", span.from_seq)
        found.append(span.from_seq)
        if len(found) > PIPELINE_POISON_MAX:
            raise NotTheRecordsError(f"more than {PIPELINE_POISON_MAX} records of one batch break the job")
        return
    middle = (span.from_seq + span.until_seq) // 2
    halves = [Span(span.from_seq, middle, span.now_us), Span(middle, span.until_seq, span.now_us)]
    failing = [half for half in halves if not _passes(try_out, _spans(log, half))]
    if not failing:
        raise NotTheRecordsError(f"records {span.from_seq} to {span.until_seq} fail together, but not in halves")
    for half in failing:
        _search(log, half, try_out, found)


def _spans(log: Path, span: Span) -> list[Span]:
    pieces = cut(BlockIndex(log), span.from_seq, span.until_seq)
    return [replace(each, now_us=span.now_us) for each in pieces]


def _passes(try_out: TryOut, spans: list[Span]) -> bool:
    try:
        try_out(spans)
    except Exception:  # noqa: BLE001 (whatever it is: that it fails is the answer)
        return False
    return True
