"""Small files joined, files that nobody needs removed.

A stream that commits every second leaves many small files. Only those are joined whose rows are settled: the others are
replaced by the next batch anyway. It is done with plain adds and removes in one commit that can be tried again, because
Delta's own OPTIMIZE fails, with all its work, whenever another commit removed a file meanwhile: every batch does.
"""

import logging
import threading
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Any, Final

import pyarrow.parquet as pq
from deltalake import DeltaTable
from msgspec import Struct

from wirelake.errors import InUseError
from wirelake.lake.tables import TABLES, Table
from wirelake.limits import (
    LAKE_COMPACT_EVERY_BATCHES,
    LAKE_COMPACT_FILES_MIN,
    LAKE_FILE_BYTES,
    LAKE_KEEP_REMOVED_H,
    LAKE_VACUUM_EVERY_COMPACTIONS,
    PIPELINE_CHUNK_ROWS,
)
from wirelake.pipeline.commits import ReplacedError, live_files, open_table, rewriting, swap
from wirelake.pipeline.parquet import FileAction, GroupFile
from wirelake.pipeline.reading import gathered

_OPEN: Final = {"settled": "false"}
_log = logging.getLogger(__name__)


class Compacted(Struct):
    files_before: int = 0
    files_after: int = 0
    bytes_joined: int = 0
    files_removed: int = 0  # from disk

    @property
    def files_joined(self) -> int:
        return self.files_before - self.files_after


class Compacting:
    """In a running job: every so many batches, in a thread of its own, so that no batch waits for it."""

    def __init__(self, lake: Path, every_batches: int = LAKE_COMPACT_EVERY_BATCHES) -> None:
        self._lake = lake
        self._every_batches = every_batches
        self._batches = 0
        self._rounds = 0
        self._wanted = threading.Event()
        self._closing = False
        self.files_joined = 0
        self._thread = threading.Thread(target=self._run, name="compaction", daemon=True)
        self._thread.start()

    def after_batch(self) -> None:
        self._batches += 1
        if self._batches % self._every_batches == 0:
            self._wanted.set()

    def close(self) -> None:
        """Returns when nothing is under way."""
        self._closing = True
        self._wanted.set()
        self._thread.join()

    def _run(self) -> None:
        while True:
            self._wanted.wait()
            self._wanted.clear()
            if self._closing:
                return
            self._rounds += 1
            try:
                with rewriting(self._lake):
                    self._round()
            except InUseError:
                _log.info("compaction: somebody else is rewriting the tables")
            except Exception:  # noqa: BLE001 (a full disk, a strange file: the stream goes on, the next round tries again)
                _log.exception("compaction failed")

    def _round(self) -> None:
        for table in TABLES.values():
            if self._closing:
                return
            compacted = compact_table(self._lake, table, LAKE_COMPACT_FILES_MIN)
            self.files_joined += compacted.files_joined
            if self._rounds % LAKE_VACUUM_EVERY_COMPACTIONS == 0:
                vacuum_table(self._lake, table)


def compact(lake: Path, files_min: int = 2) -> dict[str, Compacted]:
    """Every table that is there. Runs beside a stream without disturbing it."""
    with rewriting(lake):
        done = {}
        for table in TABLES.values():
            if DeltaTable.is_deltatable(str(lake / table.folder)):
                done[table.name] = compact_table(lake, table, files_min)
                done[table.name].files_removed = vacuum_table(lake, table)
        return done


def compact_table(lake: Path, table: Table, files_min: int) -> Compacted:
    """Joins the files of each group that are small, `files_min` or more of them, into larger ones."""
    if not DeltaTable.is_deltatable(str(lake / table.folder)):
        return Compacted()
    opened = open_table(lake, table)
    files = live_files(opened, table.name)
    compacted = Compacted(len(files), len(files))
    for some in _to_join(files, files_min):
        joined = _join(lake, table, some)
        try:
            swap(opened, table.name, [joined], some, data_change=False)
        except ReplacedError as error:  # what took their place is what counts
            _log.info("compaction of %s gave way: %s", table.name, error)
            (lake / table.folder / joined.path).unlink(missing_ok=True)
        else:
            compacted.files_after -= len(some) - 1
            compacted.bytes_joined += sum(file.bytes for file in some)
        opened.update_incremental()
    return compacted


def vacuum_table(lake: Path, table: Table) -> int:
    """Removes files that no version of the last hours needs, those that no commit ever named among them."""
    if not DeltaTable.is_deltatable(str(lake / table.folder)):
        return 0
    opened = DeltaTable(lake / table.folder)
    return len(opened.vacuum(retention_hours=LAKE_KEEP_REMOVED_H, dry_run=False, full=True))


def _to_join(files: list[FileAction], files_min: int) -> Iterator[list[FileAction]]:
    """Runs of small files of one group, each about as large together as a file should be.

    A day that is over gets few more: what is left of it is joined to the last file, because every commit costs by the
    files that the table has.
    """
    today = max((_day(file) for file in files), default="")
    small = [file for file in files if file.bytes < LAKE_FILE_BYTES // 2 and not _OPEN.items() <= file.groups.items()]

    def group(file: FileAction) -> list[tuple[str, str]]:
        return sorted((name, value or "") for name, value in file.groups.items())

    for _, members in groupby(sorted(small, key=group), group):
        some: list[FileAction] = []
        for file in members:
            enough = files_min if _day(file) == today else min(files_min, 2)
            if some and sum(each.bytes for each in some) + file.bytes > LAKE_FILE_BYTES:
                if len(some) >= enough:
                    yield some
                some = []
            some.append(file)
        if len(some) >= enough:
            yield some


def _day(file: FileAction) -> str:
    return file.groups.get("day") or ""


def _join(lake: Path, table: Table, files: list[FileAction]) -> FileAction:
    joined = GroupFile(table, lake, files[0].groups)
    try:
        for batch in gathered(_batches(lake / table.folder, files)):
            joined.write(batch)
    except BaseException:
        joined.discard()
        raise
    return joined.close()


def _batches(folder: Path, files: list[FileAction]) -> Iterator[Any]:
    for file in files:
        with pq.ParquetFile(folder / file.path) as opened:
            yield from opened.iter_batches(PIPELINE_CHUNK_ROWS)
