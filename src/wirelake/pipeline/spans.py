"""How the log is cut up: what one batch takes, and what one task of it reads."""

from msgspec import Struct

from wirelake.errors import MissingRecordsError
from wirelake.limits import PIPELINE_PARTITION_BYTES, PIPELINE_PARTITION_ROWS
from wirelake.log.segments.block_index import BlockIndex, BlockRange
from wirelake.log.segments.mapped_segment import BlockHint


class Span(Struct, frozen=True):
    """Records of the log from one seq on, before another."""

    from_seq: int
    until_seq: int
    now_us: int = 0  # the largest `at` of the whole batch: what its clock shows
    # A block at or before the first record, which saves the task the search (see `BlockHint`); -1 is none.
    near_segment: int = -1
    near_offset: int = -1
    near_seq: int = -1
    salt: int = -1  # of the log, so that a task does not read another one; -1 is unknown

    @property
    def near(self) -> BlockHint | None:
        return None if self.near_segment < 0 else BlockHint(self.near_segment, self.near_offset, self.near_seq)

    @property
    def rows(self) -> int:
        return self.until_seq - self.from_seq


def batch_end(survey: BlockIndex, from_seq: int, until_seq: int, rows_max: int | None, bytes_max: int | None) -> int:
    """Where a batch that begins at `from_seq` ends: whole blocks, so long as they fit, and at least some records."""
    end, size = from_seq, 0
    for piece in survey.ranges(from_seq, until_seq):
        size += piece.bytes
        if rows_max is not None and piece.end_seq - from_seq > rows_max:
            return end if end > from_seq else from_seq + rows_max
        if bytes_max is not None and size > bytes_max and end > from_seq:
            return end
        end = piece.end_seq
    return end


def cut(survey: BlockIndex, from_seq: int, until_seq: int, rows: int | None = None) -> list[Span]:
    """Few and large spans: so many that none has much more than `rows` or PIPELINE_PARTITION_BYTES, cut at blocks.

    Together they hold every record, or it is an error: the log may end before a batch that was planned earlier, after a
    power failure that no gateway has recovered from yet.
    """
    if until_seq <= from_seq:
        return []
    rows = PIPELINE_PARTITION_ROWS if rows is None else rows
    pieces = list(survey.ranges(from_seq, until_seq))
    now_us = max((piece.at_max_us for piece in pieces), default=0)
    size = sum(piece.bytes for piece in pieces)
    count = max(1, round((until_seq - from_seq) / rows), round(size / PIPELINE_PARTITION_BYTES))
    weight = sum(map(_weight, pieces)) / count
    spans: list[Span] = []
    start, first, filled = from_seq, None, 0.0
    for number, piece in enumerate(pieces):
        first = first or piece
        filled += _weight(piece)
        if filled >= weight * (len(spans) + 1) or number == len(pieces) - 1:
            spans.append(_span(start, piece.end_seq, now_us, first, survey.salt))
            start, first = piece.end_seq, None
    if start < until_seq:
        raise MissingRecordsError(
            f"records {start} to {until_seq - 1} of a batch that begins with {from_seq} are not in {survey.folder}, "
            f"which ends before record {survey.next_seq}: start the gateway, which recovers the log, or bring it back"
        )
    return spans


def _span(from_seq: int, until_seq: int, now_us: int, first: BlockRange, salt: int | None) -> Span:
    return Span(from_seq, until_seq, now_us, *(first.hint or (-1, -1, -1)), -1 if salt is None else salt)


def _weight(piece: BlockRange) -> float:
    return piece.rows / PIPELINE_PARTITION_ROWS + piece.bytes / PIPELINE_PARTITION_BYTES
