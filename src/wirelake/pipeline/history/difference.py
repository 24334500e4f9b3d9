"""Rows as they were beside rows as they are now: how many differ, in which columns, and when they are."""

from collections import Counter
from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct, field

from wirelake.lake.tables import Table
from wirelake.pipeline.memory.outcome import minutes_of
from wirelake.pipeline.parquet import delta_text

DECODER: Final = "decoder"
_KEY: Final = ("node", "seq")


class Difference(Struct):
    """Between a table's rows before and after. Those that only name another decoder are `relabelled`."""

    same: int = 0
    relabelled: int = 0
    changed: int = 0
    new: int = 0
    gone: int = 0
    kept: int = 0  # rows that nothing could be read again for: as they were
    fields: dict[str, int] = field(default_factory=dict)  # column → changed rows that differ in it
    days: set[str] = field(default_factory=set)  # whose files have to be replaced
    dirty_us: set[int] = field(default_factory=set)  # minutes whose rows are others now

    @property
    def before(self) -> int:
        return self.same + self.relabelled + self.changed + self.gone + self.kept

    @property
    def after(self) -> int:
        return self.same + self.relabelled + self.changed + self.new + self.kept

    def add(self, other: "Difference") -> None:
        for name in ("same", "relabelled", "changed", "new", "gone", "kept"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.fields = dict(Counter(self.fields) + Counter(other.fields))
        self.days |= other.days
        self.dirty_us |= other.dirty_us

    def touch(self, table: Table, rows: Any, *, dirty: bool = True) -> None:
        """These rows come, go or change."""
        if len(rows):
            self.days |= {delta_text(day) or "" for day in pc.unique(rows["day"]).to_pylist()}
            if dirty:
                self.dirty_us |= minutes_of(table, rows)


def compared(table: Table, old: Any, new: Any) -> Difference:
    """Rows that are known by their place in the log. A row that is there twice was once too often."""
    found = Difference()
    was, is_now = matched(old, new)
    before, after = _taken(old, was), _taken(new, is_now)
    changed, relabelled = np.zeros(len(was), bool), np.zeros(len(was), bool)
    for column in table.schema.names:
        if column in (*_KEY, *table.grouped_by):
            continue
        differs = _differs(before[column], after[column])
        if column == DECODER:
            relabelled = differs
        elif differs.any():
            changed |= differs
            found.fields[column] = int(differs.sum())
    relabelled &= ~changed
    found.changed, found.relabelled = int(changed.sum()), int(relabelled.sum())
    found.same = len(was) - found.changed - found.relabelled
    found.touch(table, chosen(before, changed))
    found.touch(table, chosen(after, changed))
    found.touch(table, chosen(after, relabelled), dirty=False)
    gone, came = _others(old, was), _others(new, is_now)
    found.gone, found.new = len(gone), len(came)
    found.touch(table, gone)
    found.touch(table, came)
    return found


def compared_whole(table: Table, old: Any, new: Any) -> Difference:
    """Rows that have no name of their own: each is the same as another or it is not."""
    names = [name for name in table.schema.names if name != DECODER]
    rows = pa.concat_tables([_counted(old, 1, 0), _counted(new, 0, 1)])
    sums = [("_old", "sum"), ("_new", "sum"), (DECODER, "min"), (DECODER, "max")]
    groups = rows.group_by(names).aggregate(sums)
    were, are = groups["_old_sum"].to_numpy(), groups["_new_sum"].to_numpy()
    both = np.minimum(were, are)
    relabelled = (both > 0) & _differs(groups[f"{DECODER}_min"], groups[f"{DECODER}_max"])
    found = Difference(gone=int((were - both).sum()), new=int((are - both).sum()))
    found.relabelled = int(both[relabelled].sum())
    found.same = int(both.sum()) - found.relabelled
    found.touch(table, groups.filter(pa.array(were != are)))
    found.touch(table, groups.filter(pa.array(relabelled)), dirty=False)
    return found


def matched(old: Any, new: Any) -> tuple[Any, Any]:
    """Places in the one and in the other where the same record is."""
    was, is_now = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    for mine, theirs in _by_node(old, new):
        _, first, second = np.intersect1d(_seqs(old)[mine], _seqs(new)[theirs], return_indices=True)
        was.append(mine[first])
        is_now.append(theirs[second])
    return np.concatenate(was), np.concatenate(is_now)


def known(rows: Any, by: Any) -> Any:
    """Which of the rows are of records that the others are of, too."""
    found = np.zeros(len(rows), bool)
    for mine, theirs in _by_node(rows, by):
        found[mine] = np.isin(_seqs(rows)[mine], _seqs(by)[theirs])
    return found


def _by_node(one: Any, other: Any) -> Iterator[tuple[Any, Any]]:
    for node in set(pc.unique(one["node"]).to_pylist()) & set(pc.unique(other["node"]).to_pylist()):
        yield _places(one, node), _places(other, node)


def _places(rows: Any, node: str) -> Any:
    return np.flatnonzero(pc.equal(rows["node"], node).to_numpy())


def _seqs(rows: Any) -> Any:
    return rows["seq"].to_numpy()


def _others(rows: Any, places: Any) -> Any:
    left = np.ones(len(rows), bool)
    left[places] = False
    return chosen(rows, left)


def chosen(rows: Any, which: Any) -> Any:
    """A copy only where it must be: mostly all of the rows are meant, or none."""
    if which.all():
        return rows
    return rows.filter(pa.array(which)) if which.any() else rows.slice(0, 0)


def in_order(rows: Any) -> Any:
    """By seq, as they mostly are."""
    return rows.sort_by("seq") if (np.diff(_seqs(rows)) < 0).any() else rows


def _taken(rows: Any, places: Any) -> Any:
    return rows if np.array_equal(places, np.arange(len(rows))) else rows.take(pa.array(places))


def _differs(one: Any, other: Any) -> Any:
    """Null is a value like any other."""
    unequal = pc.fill_null(pc.not_equal(one, other), fill_value=False)
    return pc.or_(unequal, pc.xor(pc.is_null(one), pc.is_null(other))).to_numpy()


def _counted(rows: Any, old: int, new: int) -> Any:
    size = len(rows)
    return rows.append_column("_old", pa.array(np.full(size, old))).append_column("_new", pa.array(np.full(size, new)))
