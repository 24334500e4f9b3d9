"""Search the log for who did what, from the newest record backwards."""

from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from wirelake.log.audit import audit_rows
from wirelake.log.interface import AT_TYPE
from wirelake.log.segments.reader import LogReader

_STEP_ROWS: Final = 16_384  # records that are read at once
_NOT: Final = "!"
_COLUMNS: Final = ("identity", "action", "outcome", "target")


class AuditFilter(Struct, frozen=True):
    """Which rows are wanted; "" matches any, and an action with ! before it all others."""

    identity: str = ""
    action: str = ""
    outcome: str = ""
    target: str = ""
    since_us: int | None = None
    until_us: int | None = None

    def select(self, rows: Any) -> Any:
        """Return the wanted rows of a batch of `audit.SCHEMA`."""
        for name in _COLUMNS:
            value = getattr(self, name)
            if value and rows.num_rows:
                rows = rows.filter(_matches(rows[name], name, value))
        if self.since_us is not None:
            rows = rows.filter(pc.greater_equal(rows["received_at"], pa.scalar(self.since_us, AT_TYPE)))
        if self.until_us is not None:
            rows = rows.filter(pc.less(rows["received_at"], pa.scalar(self.until_us, AT_TYPE)))
        return rows


def _matches(column: Any, name: str, value: str) -> Any:
    if name == "action" and value.startswith(_NOT):
        return pc.not_equal(column, value.removeprefix(_NOT))
    return pc.equal(column, value)


class AuditPage(Struct):
    """What a search found, newest first, and the record before which it can go on; None if nothing is left."""

    rows: list[dict[str, Any]]
    before: int | None


def search(reader: LogReader, wanted: AuditFilter, limit: int, before: int | None, searched_max: int) -> AuditPage:
    """Return the newest rows before a record, at most `limit`, of at most `searched_max` records."""
    end = reader.next_seq if before is None else min(before, reader.next_seq)
    oldest = reader.oldest_seq
    stop = max(oldest, end - searched_max)
    found: list[dict[str, Any]] = []
    while end > stop and len(found) < limit:
        start = max(stop, end - _STEP_ROWS)
        batches = list(reader.read(start, end))
        for batch in reversed(batches):
            found += reversed(wanted.select(audit_rows(batch)).to_pylist())
        end = start
        if _is_before(batches, wanted.since_us):
            end = stop = oldest
    if len(found) > limit:
        return AuditPage(found[:limit], found[limit - 1]["seq"])
    return AuditPage(found, end if end > oldest else None)


def _is_before(batches: list[Any], since_us: int | None) -> bool:
    """Return whether all records are older than this: so are those before them."""
    if since_us is None or not batches:
        return False
    newest = max(pc.max(batch["at"]).value for batch in batches)
    return bool(newest < since_us)
