"""Preview what the current decoder would change in the tables: without Spark, and without changing anything.

It decodes the frames of bronze as `redecode` does, in this process, range after range.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct, field

from wirelake.lake.store import Store
from wirelake.lake.tables import FRAMES, MESSAGES, QUARANTINE
from wirelake.pipeline.commit.files import FileAction
from wirelake.pipeline.paths import DataPaths
from wirelake.pipeline.redecode.decode_task import DecodedUnit, DecodeTask, DecodeUnit
from wirelake.pipeline.redecode.difference import (
    DECODER,
    Difference,
    differing_columns,
    is_known,
    match_rows,
    rows_except,
    select_rows,
    take_rows,
)
from wirelake.pipeline.redecode.seq_ranges import files_of, in_ranges, row_groups, split_range
from wirelake.pipeline.redecode.snapshot import take_snapshot

PREVIEW_EXAMPLES_MAX: Final = 3  # of each kind of change
UNNAMED: Final = "message"  # a frame whose message has no name
_DECODED: Final = (MESSAGES, QUARANTINE)


class RowChange(Struct, frozen=True):
    """One row that would change: its columns before and after."""

    seq: int
    columns: dict[str, tuple[Any, Any]]


class RowChanges(Struct):
    """Rows that would change in the same way. The first ones are examples."""

    count: int = 0
    examples: list[RowChange] = field(default_factory=list)


class RedecodePreview(Struct):
    """Report what would change."""

    frames: int = 0
    decoded: int = 0  # frames that could not be decoded before
    refused: int = 0  # frames that cannot be decoded any more
    messages: Difference = field(default_factory=Difference)
    quarantine: Difference = field(default_factory=Difference)
    changes: dict[str, RowChanges] = field(default_factory=dict)  # by what changes
    decoders: set[str] = field(default_factory=set)  # that the rows which would change name

    @property
    def is_changing(self) -> bool:
        """Return whether some row would change in more than the decoder that it names."""
        return any(each.changed or each.new or each.removed for each in (self.messages, self.quarantine))


def preview(
    data: Path,
    protocol: str,
    since_us: int = 0,
    on_progress: Callable[[int, int], None] = lambda _done, _all: None,
    lake: Store | None = None,
) -> RedecodePreview:
    """Decode the stored frames of a protocol, and compare the result with the tables. Raise InputError without any."""
    paths = DataPaths.of(data, lake)
    snapshot = take_snapshot(paths, (FRAMES, *_DECODED))
    units = _units(paths.lake, snapshot.files, protocol, since_us)
    task = DecodeTask(
        lake=paths.lake,
        protocol=protocol,
        since_us=since_us,
        buckets=snapshot.buckets,
        replayed=None,
        units=units,
        dry=True,
    )
    found = RedecodePreview()
    rows, done = sum(unit.rows for unit in units), 0
    for unit in units:
        on_progress(done, rows)
        report, decoded = task.compare(unit)
        found.frames += report.frames
        found.decoded += report.decoded
        found.refused += report.refused
        found.messages.add(report.messages)
        found.quarantine.add(report.quarantine)
        _add_changes(found, decoded)
        done += unit.rows
    on_progress(done, rows)
    return found


def _units(lake: Store, files: dict[str, list[FileAction]], protocol: str, since_us: int) -> list[DecodeUnit]:
    frames = [group for group in row_groups(lake, files[FRAMES.name]) if group.at_max_us >= since_us]
    if not frames:
        return []
    parts = split_range(frames)
    own = [
        row_groups(lake, [file for file in files.get(table.name, ()) if file.partition["protocol"] == protocol])
        for table in _DECODED
    ]
    overlapping = [in_ranges(groups, parts) for groups in (frames, *own)]
    return [
        DecodeUnit(
            part,
            rows=sum(group.rows for group in of_part),
            at_max_us=max((group.at_max_us for group in of_part), default=0),
            frames=files_of(of_part),
            messages=files_of(messages),
            quarantine=files_of(quarantine),
        )
        for part, of_part, messages, quarantine in zip(parts, *overlapping, strict=True)
    ]


def _add_changes(found: RedecodePreview, decoded: DecodedUnit) -> None:
    """Sort the rows that change by what changes."""
    new, quarantine = decoded.messages, decoded.quarantine
    records = pa.concat_tables([rows.select(["node", "seq"]) for rows in (new, quarantine)])
    old = select_rows(decoded.old_messages, is_known(decoded.old_messages, records))
    was, now = match_rows(old, new)
    _add_changed(found, take_rows(old, was), take_rows(new, now))
    _add_moved(found, rows_except(old, was), quarantine, "no longer decoded")
    _add_moved(found, rows_except(new, now), decoded.old_quarantine, "decoded now")


def _add_changed(found: RedecodePreview, before: Any, after: Any) -> None:
    columns = dict(differing_columns(MESSAGES, before, after))
    changed = np.flatnonzero(np.logical_or.reduce(list(columns.values()))) if columns else np.empty(0, np.int64)
    found.decoders.update(pc.unique(before[DECODER].take(pa.array(changed))).to_pylist())
    for row, name in zip(changed.tolist(), after["name"].take(pa.array(changed)).to_pylist(), strict=True):
        differing = [column for column, differs in columns.items() if differs[row]]
        changes = found.changes.setdefault(f"{name or UNNAMED}: {', '.join(differing)}", RowChanges())
        changes.count += 1
        if len(changes.examples) < PREVIEW_EXAMPLES_MAX:
            values = {column: (before[column][row].as_py(), after[column][row].as_py()) for column in differing}
            changes.examples.append(RowChange(before["seq"][row].as_py(), values))


def _add_moved(found: RedecodePreview, messages: Any, quarantine: Any, what: str) -> None:
    """Add the messages that come from the quarantine, or go there."""
    if not len(messages):
        return
    found.decoders.update(pc.unique(messages[DECODER]).to_pylist())
    is_new = what == "decoded now"
    for row, name in enumerate(messages["name"].to_pylist()):
        changes = found.changes.setdefault(f"{name or UNNAMED}: {what}", RowChanges())
        changes.count += 1
        if len(changes.examples) < PREVIEW_EXAMPLES_MAX:
            seq, fields = messages["seq"][row].as_py(), messages["fields"][row].as_py()
            reasons = quarantine.filter(pc.equal(quarantine["seq"], seq)).to_pylist()
            reason = f"{reasons[0]['reason']}: {reasons[0]['text']}" if reasons else None
            pairs = {"quarantine": (reason, None), "fields": (None, fields)}
            values = pairs if is_new else {column: (new, old) for column, (old, new) in pairs.items()}
            changes.examples.append(RowChange(seq, values))
