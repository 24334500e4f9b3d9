"""Join small files, and remove files that no version needs.

A stream that commits every second leaves many small files. This joins them with plain adds and removes in one commit
that can be retried. Delta's own OPTIMIZE works on these tables as well, but not on those of open rows: their files are
replaced by the next batch that changes them, and belong to its bucket. The job that merges into gold tables joins their
files itself.
"""

import logging
import threading
from collections.abc import Iterator
from itertools import groupby
from typing import Any, Final

import pyarrow.parquet as pq
from msgspec import Struct

from wirelake.errors import InUseError
from wirelake.lake.store import Store
from wirelake.lake.tables import TABLES, LakeTable
from wirelake.limits import (
    LAKE_COMPACT_EVERY_BATCHES,
    LAKE_COMPACT_FILES_MIN,
    LAKE_FILE_BYTES,
    LAKE_HISTORY_DAYS,
    LAKE_VACUUM_EVERY_COMPACTIONS,
    PIPELINE_CHUNK_ROWS,
)
from wirelake.pipeline.commit.delta import (
    FilesReplacedError,
    exists,
    live_files,
    open_table,
    read_table,
    replace_files,
    rewrite_lock,
)
from wirelake.pipeline.commit.files import FileAction, PartitionFile
from wirelake.pipeline.commit.history import set_history, trim_log
from wirelake.pipeline.ingest.spans import coalesce

_GOLD: Final = "gold."
_log = logging.getLogger(__name__)


class CompactionResult(Struct):
    files_before: int = 0
    files_after: int = 0
    files_removed: int = 0  # from disk

    @property
    def files_joined(self) -> int:
        return self.files_before - self.files_after


class Compactor:
    """Compact in a thread of a running job, every so many batches, so that no batch waits for it."""

    def __init__(
        self, lake: Store, every_batches: int = LAKE_COMPACT_EVERY_BATCHES, history_days: float = LAKE_HISTORY_DAYS
    ) -> None:
        self._lake = lake
        self._history_days = history_days
        self._every_batches = every_batches
        self._batches = 0
        self._rounds = 0
        self._requested = threading.Event()
        self._closing = False
        self.files_joined = 0
        self._thread = threading.Thread(target=self._run, name="compaction", daemon=True)
        self._thread.start()

    def after_batch(self) -> None:
        self._batches += 1
        if self._batches % self._every_batches == 0:
            self._requested.set()

    def close(self) -> None:
        """Stop. Return when nothing is running."""
        self._closing = True
        self._requested.set()
        self._thread.join()

    def _run(self) -> None:
        while True:
            self._requested.wait()
            self._requested.clear()
            if self._closing:
                return
            self._rounds += 1
            try:
                with rewrite_lock(self._lake):
                    self._round()
            except InUseError:
                _log.info("skipped a compaction: another process is rewriting the tables")
            except Exception:  # noqa: BLE001 (a full disk, a damaged file: the stream continues, the next round retries)
                _log.exception("compaction failed; the next round retries")

    def _round(self) -> None:
        for table in TABLES.values():
            if self._closing:
                return
            if not table.is_open:
                self.files_joined += compact_table(self._lake, table, LAKE_COMPACT_FILES_MIN).files_joined
            if self._rounds % LAKE_VACUUM_EVERY_COMPACTIONS == 0:
                vacuum_table(self._lake, table, self._history_days)


def compact(lake: Store, files_min: int = 2, history_days: float = LAKE_HISTORY_DAYS) -> dict[str, CompactionResult]:
    """Compact every table that exists. A stream may run at the same time."""
    with rewrite_lock(lake):
        done = {}
        for table in TABLES.values():
            if exists(lake, table):
                done[table.name] = CompactionResult() if table.is_open else compact_table(lake, table, files_min)
                done[table.name].files_removed = vacuum_table(lake, table, history_days)
        return done


def compact_table(lake: Store, table: LakeTable, files_min: int) -> CompactionResult:
    """Join the small files of each partition that has at least `files_min` of them."""
    if not exists(lake, table):
        return CompactionResult()
    opened = open_table(lake, table)
    files = live_files(opened, table.name)
    compacted = CompactionResult(len(files), len(files))
    for small in () if table.name.startswith(_GOLD) else _plan(files, files_min):
        joined = join_files(lake, table, small)
        try:
            replace_files(lake, opened, table.name, [joined], small, data_change=False)
        except FilesReplacedError as error:  # the new files count
            _log.info("discarded a compaction of %s: %s", table.name, error)
            lake.delete(joined.lake_path)
        else:
            compacted.files_after -= len(small) - 1
        opened.update_incremental()
    return compacted


def vacuum_table(lake: Store, table: LakeTable, history_days: float = LAKE_HISTORY_DAYS) -> int:
    """Remove files that no recent version needs, including those that no commit ever named."""
    if not exists(lake, table):
        return 0
    opened = read_table(lake, table)
    set_history(opened, table, history_days)
    trim_log(lake, table)
    return len(opened.vacuum(dry_run=False, full=True))  # as long as the table's properties say


def _plan(files: list[FileAction], files_min: int) -> Iterator[list[FileAction]]:
    """Yield groups of small files of one partition, each about as large together as a file should be.

    A day that is over gets few more files, so its last ones are joined even if they are few: the cost of every reader
    and every checkpoint grows with the number of files in the table.
    """
    today = max((_day(file) for file in files), default="")
    small = [file for file in files if file.bytes < LAKE_FILE_BYTES // 2]

    def partition(file: FileAction) -> list[tuple[str, str]]:
        return sorted((name, value or "") for name, value in file.partition.items())

    for _, members in groupby(sorted(small, key=partition), partition):
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
    return file.partition.get("day") or ""


def join_files(lake: Store, table: LakeTable, files: list[FileAction]) -> FileAction:
    joined = PartitionFile(table, lake, files[0].partition)
    try:
        for batch in coalesce(_read(lake, files)):
            joined.write(batch)
    except BaseException:
        joined.discard()
        raise
    return joined.close()


def _read(lake: Store, files: list[FileAction]) -> Iterator[Any]:
    for file in files:
        with lake.open_input(file.lake_path) as source, pq.ParquetFile(source) as opened:
            yield from opened.iter_batches(PIPELINE_CHUNK_ROWS)
