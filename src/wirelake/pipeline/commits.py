"""Files into Delta tables, exactly once: a commit carries the number of its batch, and no number is committed twice."""

import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import date
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit
from urllib.request import url2pathname

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import CommitProperties, DeltaTable, PostCommitHookProperties, Schema
from deltalake.exceptions import CommitFailedError
from deltalake.schema import Field
from deltalake.transaction import AddAction, RemoveAction, Transaction

from wirelake.errors import StorageError
from wirelake.files import FileLock, wait_for_lock
from wirelake.lake.tables import TABLES, Table
from wirelake.limits import (
    LAKE_CHECKPOINT_COMMITS,
    LAKE_COMMIT_ATTEMPTS_MAX,
    LAKE_KEEP_LOG_H,
    LAKE_KEEP_REMOVED_H,
    PIPELINE_VIEW_WAIT_S,
)
from wirelake.pipeline.file_checks import FileChecks
from wirelake.pipeline.parquet import FileAction, delta_text

_BATCH_LOCK: Final = "batch.lock"  # held for as long as a batch's commits, or a listing, take
_SETTINGS: Final = {
    # Statistics for some columns only would make filters on the others find nothing; Parquet's own are in the files.
    "delta.dataSkippingNumIndexedCols": "0",
    "delta.checkpointInterval": str(LAKE_CHECKPOINT_COMMITS),
    "delta.deletedFileRetentionDuration": f"interval {LAKE_KEEP_REMOVED_H} hours",
    "delta.logRetentionDuration": f"interval {LAKE_KEEP_LOG_H} hours",
}


class Commits:
    """The tables of a lake, for one writer. `app` names the checkpoint that its batches are numbered by."""

    def __init__(self, lake: Path, app: str) -> None:
        self._lake = lake
        self._app = app
        self._tables: dict[str, DeltaTable] = {}

    def is_filled(self, name: str) -> bool:
        """Whether the table is there and has rows."""
        folder = self._folder(name)
        return DeltaTable.is_deltatable(str(folder)) and bool(DeltaTable(folder).file_uris())

    def version(self, name: str) -> int:
        """The last batch that is in the table; -1 if none of this checkpoint's is."""
        if name not in self._tables and not DeltaTable.is_deltatable(str(self._folder(name))):
            return -1
        return self._version(self.table(name))

    def table(self, name: str) -> DeltaTable:
        """As it is now, made if need be, with the columns of today."""
        opened = self._tables.get(name)
        if opened is None:
            opened = self._tables[name] = open_table(self._lake, TABLES[name])
        else:
            opened.update_incremental()
        return opened

    def _version(self, table: DeltaTable) -> int:
        found = table.transaction_version(self._app)
        return -1 if found is None else found

    def commit(self, name: str, batch: int, adds: Sequence[FileAction], removes: Sequence[FileAction]) -> bool:
        """Whether it was this call that did it. Another process may commit beside us: a compaction, a redecode."""
        for attempt in range(1, LAKE_COMMIT_ATTEMPTS_MAX + 1):
            table = self.table(name)
            if self._version(table) >= batch:
                return False
            transaction = CommitProperties(app_transactions=[Transaction(self._app, batch)])
            try:
                write_actions(table, [*_adds(adds), *_removes(removes)], transaction)
            except CommitFailedError:
                if attempt == LAKE_COMMIT_ATTEMPTS_MAX:
                    raise
                continue
            return True
        raise AssertionError("the last attempt returns or raises")

    def present(self, actions: Iterable[FileAction]) -> None:
        """Refuses files that are not there as they were: the lake was changed by hand since they were written."""
        FileChecks().tables(self._lake, actions, "the checkpoint")

    def _folder(self, name: str) -> Path:
        return self._lake / TABLES[name].folder


def open_table(lake: Path, table: Table) -> DeltaTable:
    """Made if it is not there. A column that is new to it is added, without touching a file; a type stays."""
    folder = lake / table.folder
    if not DeltaTable.is_deltatable(str(folder)):
        folder.mkdir(parents=True, exist_ok=True)
        return DeltaTable.create(
            str(folder), table.schema, mode="ignore", partition_by=list(table.grouped_by), configuration=_SETTINGS
        )
    opened = DeltaTable(str(folder))
    if tuple(opened.metadata().partition_columns) != table.grouped_by:
        groups = ", ".join(opened.metadata().partition_columns) or "nothing"
        raise StorageError(f"{table.name} on disk is grouped by {groups}, not by {', '.join(table.grouped_by)}")
    there = {field.name: field for field in opened.schema().fields}
    wanted: list[Field] = Schema.from_arrow(table.schema).fields
    for field in wanted:
        known = there.get(field.name)
        if known is not None and known.type != field.type:
            raise StorageError(
                f"{table.name}.{field.name} is {_word(known)} on disk and {_word(field)} in this version: a type "
                "cannot be changed in place; give the column a new name, or move the table away and fill it anew"
            )
    new = [field for field in wanted if field.name not in there]
    if new:
        opened.alter.add_columns(new)
        opened.update_incremental()
    return opened


def write_actions(table: DeltaTable, actions: list[AddAction | RemoveAction], properties: CommitProperties) -> None:
    """Old versions are forgotten now and then only: to look for them is to list them all."""
    forget = table.version() % LAKE_CHECKPOINT_COMMITS == 0
    table.create_write_transaction(
        actions,
        "append",
        table.schema(),
        table.metadata().partition_columns,
        commit_properties=properties,
        post_commithook_properties=PostCommitHookProperties(cleanup_expired_logs=forget),
    )


class ReplacedError(StorageError):
    """Files that were to be replaced have been, by somebody else."""


@contextmanager
def rewriting(lake: Path) -> Iterator[None]:
    """Held by whoever replaces settled files by others (`swap`), from reading them to the commit: one at a time.

    Delta would not notice two that replace the same file without changing its rows: these would then be there twice.
    """
    lake.mkdir(parents=True, exist_ok=True)
    lock = FileLock(lake / "rewriting.lock", f"another process is rewriting the tables in {lake}: it is")
    try:
        yield
    finally:
        lock.release()


@contextmanager
def committing(lake: Path) -> Iterator[None]:
    """While a batch is put into one table after the other."""
    lake.mkdir(parents=True, exist_ok=True)
    with wait_for_lock(lake / _BATCH_LOCK):
        yield


@contextmanager
def between_batches(lake: Path) -> Iterator[None]:
    """No batch is in some of the tables and not yet in others: what is listed now belongs together."""
    lake.mkdir(parents=True, exist_ok=True)
    with wait_for_lock(lake / _BATCH_LOCK, shared=True):
        yield


def swap(
    table: DeltaTable, name: str, adds: Sequence[FileAction], removes: Sequence[FileAction], data_change: bool
) -> None:
    """Replace settled files by others in one commit, under `rewriting`. Refuses files that are not there as written."""
    checks, folder = FileChecks(PIPELINE_VIEW_WAIT_S), Path(url2pathname(urlsplit(table.table_uri).path))
    for file in adds:
        checks.file(folder / file.path, file.bytes, file.worker)
    actions: list[AddAction | RemoveAction] = [*_adds(adds, data_change), *_removes(removes, data_change)]
    for attempt in range(1, LAKE_COMMIT_ATTEMPTS_MAX + 1):
        table.update_incremental()
        paths = pa.array([file.path for file in removes], pa.string())
        there = pc.is_in(paths, pa.table(table.get_add_actions())["path"].combine_chunks().cast(pa.string()))
        gone = paths.filter(pc.invert(there)).to_pylist()
        if gone:
            raise ReplacedError(f"{name}: {len(gone)} files were replaced meanwhile, {min(gone)} among them")
        try:
            write_actions(table, actions, CommitProperties())
        except CommitFailedError:  # a batch removed something at the same moment: Delta does not ask whether it matters
            if attempt == LAKE_COMMIT_ATTEMPTS_MAX:
                raise
        else:
            table.update_incremental()
            return


def live_files(table: DeltaTable, name: str, days: Collection[date] | None = None) -> list[FileAction]:
    """The files that the table consists of; those of these days, where its files are grouped by day."""
    rows = pa.table(table.get_add_actions(flatten=False))
    if days is not None:
        rows = rows.filter(pc.is_in(pc.struct_field(rows["partition"], "day"), pa.array(days, pa.date32())))
    return [
        FileAction(name, row["path"], row["size_bytes"], row["num_records"], _groups(row.get("partition")))
        for row in rows.to_pylist()
    ]


def _adds(actions: Iterable[FileAction], data_change: bool = True) -> list[AddAction]:
    now_ms = time.time_ns() // 1_000_000
    return [
        AddAction(each.path, each.bytes, each.groups, now_ms, data_change, f'{{"numRecords": {each.rows}}}')
        for each in actions
    ]


def _removes(actions: Iterable[FileAction], data_change: bool = True) -> list[RemoveAction]:
    now_ms = time.time_ns() // 1_000_000
    return [RemoveAction(each.path, data_change, now_ms, each.bytes, dict(each.groups)) for each in actions]


def _groups(values: dict[str, Any] | None) -> dict[str, str | None]:
    return {name: delta_text(value) for name, value in (values or {}).items()}


def _word(field: Field) -> str:
    return str(getattr(field.type, "type", field.type))
