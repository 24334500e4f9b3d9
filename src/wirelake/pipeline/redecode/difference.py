"""Compare the rows of a table before and after: how many differ, in which columns, and at which times."""

from collections import Counter
from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct, field

from wirelake.lake.tables import LakeTable
from wirelake.pipeline.commit.files import delta_text
from wirelake.pipeline.time_ranges import minutes_of

DECODER: Final = "decoder"
_KEY: Final = ("node", "seq")


class Difference(Struct):
    """Count the differences between a table's rows before and after. `relabelled` rows only name another decoder."""

    same: int = 0
    relabelled: int = 0
    changed: int = 0
    new: int = 0
    removed: int = field(default=0, name="gone")
    skipped: int = field(default=0, name="kept")  # rows whose frames are no longer in bronze
    fields: dict[str, int] = field(default_factory=dict)  # column → changed rows that differ in it
    days: set[str] = field(default_factory=set)  # the days whose files have to be replaced
    dirty_us: set[int] = field(default_factory=set)  # minutes whose rows changed

    @property
    def before(self) -> int:
        return self.same + self.relabelled + self.changed + self.removed + self.skipped

    @property
    def after(self) -> int:
        return self.same + self.relabelled + self.changed + self.new + self.skipped

    def add(self, other: "Difference") -> None:
        for name in ("same", "relabelled", "changed", "new", "removed", "skipped"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.fields = dict(Counter(self.fields) + Counter(other.fields))
        self.days |= other.days
        self.dirty_us |= other.dirty_us

    def touch(self, table: LakeTable, rows: Any, *, dirty: bool = True) -> None:
        """Note the days and minutes of rows that were added, removed or changed."""
        if len(rows):
            self.days |= {delta_text(day) or "" for day in pc.unique(rows["day"]).to_pylist()}
            if dirty:
                self.dirty_us |= minutes_of(table, rows)


def compare_rows(table: LakeTable, old: Any, new: Any) -> Difference:
    """Compare rows that are identified by node and seq. Of duplicates, all but one count as removed."""
    found = Difference()
    was, now = match_rows(old, new)
    before, after = take_rows(old, was), take_rows(new, now)
    changed = np.zeros(len(was), bool)
    for column, differs in differing_columns(table, before, after):
        changed |= differs
        found.fields[column] = int(differs.sum())
    relabelled = _differs(before[DECODER], after[DECODER]) & ~changed
    found.changed, found.relabelled = int(changed.sum()), int(relabelled.sum())
    found.same = len(was) - found.changed - found.relabelled
    found.touch(table, select_rows(before, changed))
    found.touch(table, select_rows(after, changed))
    found.touch(table, select_rows(after, relabelled), dirty=False)
    removed, added = rows_except(old, was), rows_except(new, now)
    found.removed, found.new = len(removed), len(added)
    found.touch(table, removed)
    found.touch(table, added)
    return found


def differing_columns(table: LakeTable, old: Any, new: Any) -> Iterator[tuple[str, Any]]:
    """Yield the columns in which rows of the same records differ, with which rows do; not `decoder`."""
    for column in table.schema.names:
        if column not in (*_KEY, *table.partition_by, DECODER):
            differs = _differs(old[column], new[column])
            if differs.any():
                yield column, differs


def compare_row_sets(table: LakeTable, old: Any, new: Any) -> Difference:
    """Compare rows that have no identity: count equal ones."""
    names = [name for name in table.schema.names if name != DECODER]
    rows = pa.concat_tables([_with_counts(old, 1, 0), _with_counts(new, 0, 1)])
    sums = [("_old", "sum"), ("_new", "sum")]
    has_decoder = DECODER in table.schema.names
    groups = rows.group_by(names).aggregate([*sums, (DECODER, "min"), (DECODER, "max")] if has_decoder else sums)
    before, after = groups["_old_sum"].to_numpy(), groups["_new_sum"].to_numpy()
    both = np.minimum(before, after)
    relabelled = np.zeros(len(both), bool)
    if has_decoder:
        relabelled = (both > 0) & _differs(groups[f"{DECODER}_min"], groups[f"{DECODER}_max"])
    found = Difference(removed=int((before - both).sum()), new=int((after - both).sum()))
    found.relabelled = int(both[relabelled].sum())
    found.same = int(both.sum()) - found.relabelled
    found.touch(table, groups.filter(pa.array(before != after)))
    found.touch(table, groups.filter(pa.array(relabelled)), dirty=False)
    return found


def match_rows(old: Any, new: Any) -> tuple[Any, Any]:
    """Return the indices of the same records in both."""
    in_old, in_new = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    for old_rows, new_rows in _by_node(old, new):
        _, first, second = np.intersect1d(_seqs(old)[old_rows], _seqs(new)[new_rows], return_indices=True)
        in_old.append(old_rows[first])
        in_new.append(new_rows[second])
    return np.concatenate(in_old), np.concatenate(in_new)


def is_known(rows: Any, others: Any) -> Any:
    """Return which of the rows are of the same records as others."""
    found = np.zeros(len(rows), bool)
    for own, theirs in _by_node(rows, others):
        found[own] = np.isin(_seqs(rows)[own], _seqs(others)[theirs])
    return found


def _by_node(one: Any, other: Any) -> Iterator[tuple[Any, Any]]:
    for node in set(pc.unique(one["node"]).to_pylist()) & set(pc.unique(other["node"]).to_pylist()):
        yield _rows_of(one, node), _rows_of(other, node)


def _rows_of(rows: Any, node: str) -> Any:
    return np.flatnonzero(pc.equal(rows["node"], node).to_numpy())


def _seqs(rows: Any) -> Any:
    return rows["seq"].to_numpy()


def rows_except(rows: Any, indices: Any) -> Any:
    """Return the rows that are not at these indices."""
    remaining = np.ones(len(rows), bool)
    remaining[indices] = False
    return select_rows(rows, remaining)


def select_rows(rows: Any, which: Any) -> Any:
    """Return these rows. Mostly they are all or none, which avoids a copy."""
    if which.all():
        return rows
    return rows.filter(pa.array(which)) if which.any() else rows.slice(0, 0)


def sort_by_seq(rows: Any) -> Any:
    """Return the rows in order of seq. Mostly they are already, which avoids a copy."""
    return rows.sort_by("seq") if (np.diff(_seqs(rows)) < 0).any() else rows


def take_rows(rows: Any, indices: Any) -> Any:
    """Return the rows at these indices. Mostly they are all, which avoids a copy."""
    return rows if np.array_equal(indices, np.arange(len(rows))) else rows.take(pa.array(indices))


def _differs(one: Any, other: Any) -> Any:
    """Return where two columns differ; null is a value like any other."""
    unequal = pc.fill_null(pc.not_equal(one, other), fill_value=False)
    return pc.or_(unequal, pc.xor(pc.is_null(one), pc.is_null(other))).to_numpy()


def _with_counts(rows: Any, old: int, new: int) -> Any:
    size = len(rows)
    return rows.append_column("_old", pa.array(np.full(size, old))).append_column("_new", pa.array(np.full(size, new)))
