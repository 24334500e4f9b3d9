"""Commit files to Delta tables exactly once: a commit has the number of its batch, and no number is committed twice."""

import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from datetime import date
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import CommitProperties, DeltaTable, PostCommitHookProperties, Schema
from deltalake.exceptions import CommitFailedError
from deltalake.schema import Field
from deltalake.transaction import AddAction, RemoveAction, Transaction

from wirelake.errors import StorageError
from wirelake.lake.damage import ACTIONS
from wirelake.lake.store import Store
from wirelake.lake.tables import FORMER_NAMES, SETTLED, TABLES, LakeTable
from wirelake.limits import (
    LAKE_CHECKPOINT_COMMITS,
    LAKE_COMMIT_ATTEMPTS_MAX,
    PIPELINE_VIEW_WAIT_S,
)
from wirelake.pipeline.commit.appends import LogCheckpoints, TableHead, append_files, commit_path, read_head
from wirelake.pipeline.commit.files import FileAction, FileChecks, delta_text
from wirelake.pipeline.commit.history import history_properties
from wirelake.pipeline.commit.statistics import delta_statistics

MIGRATE: Final = "run `wirelake pipeline run` once, which migrates the tables"
_COMMIT_LOCK: Final = "batch.lock"  # held during the commits of a batch, or a listing of files


class DeltaWriter:
    """Write the tables of a lake. `app` names the checkpoint that numbers its batches."""

    def __init__(self, lake: Store, app: str) -> None:
        self._lake = lake
        self._app = app
        self._tables: dict[str, DeltaTable] = {}
        self._heads: dict[str, TableHead] = {}  # of the tables whose last commit was an append of ours
        self._checkpoints = LogCheckpoints()

    def has_rows(self, name: str) -> bool:
        """Return whether the table exists and has rows."""
        table = TABLES[name]
        return exists(self._lake, table) and bool(read_table(self._lake, table).file_uris())

    def exists(self, name: str) -> bool:
        return name in self._tables or exists(self._lake, TABLES[name])

    def last_batch(self, name: str) -> int:
        """Return the last batch of this checkpoint that is in the table, or -1."""
        if name in self._tables:
            return self.batch_of(self.table(name))
        return self.batch_of(read_table(self._lake, TABLES[name])) if self.exists(name) else -1

    def table(self, name: str) -> DeltaTable:
        """Return the table as it is now. Create it and add columns as needed."""
        opened = self._tables.get(name)
        if opened is None:
            opened = self._tables[name] = open_table(self._lake, TABLES[name])
        else:
            opened.update_incremental()
        return opened

    def batch_of(self, table: DeltaTable) -> int:
        """Return the last batch of this checkpoint that is in an open table, or -1."""
        found = table.transaction_version(self._app)
        return -1 if found is None else found

    def commit(self, name: str, batch: int, adds: Sequence[FileAction], removes: Sequence[FileAction]) -> bool:
        """Commit a batch, unless the table has it. Return whether this call did.

        Other processes may commit at the same time: a compaction, a redecode.
        """
        if not removes and not TABLES[name].is_replaced and self._append(name, batch, adds):
            return True
        for attempt in range(1, LAKE_COMMIT_ATTEMPTS_MAX + 1):
            table = self.table(name)
            if self.batch_of(table) >= batch:
                return False
            transaction = Transaction(self._app, batch)
            try:
                write_actions(table, [*add_actions(adds), *remove_actions(removes)], transaction)
            except CommitFailedError:
                if attempt == LAKE_COMMIT_ATTEMPTS_MAX:
                    raise
                continue
            return True
        raise AssertionError("the last attempt returns or raises")

    def _append(self, name: str, batch: int, adds: Sequence[FileAction]) -> bool:
        """Commit without reading the table. Return False if it has the batch, or has changed since the last commit."""
        head = self._heads.pop(name, None) or read_head(self.table(name), self._app)
        if head.batch >= batch or not head.is_plain:
            return False
        appended = append_files(self._lake, TABLES[name], head, self._app, batch, adds)
        if appended is None:
            return False
        self._heads[name] = appended
        if appended.version % LAKE_CHECKPOINT_COMMITS == 0:
            self._checkpoints.write(name, self._tables[name])
        return True

    def wait(self) -> None:
        """Return once everything that a commit leaves to a thread is done."""
        self._checkpoints.wait()

    def check_files(self, actions: Iterable[FileAction]) -> None:
        """Refuse files that are not as they were written, because the lake was changed by hand."""
        FileChecks().check_tables(self._lake, actions, "the checkpoint")


def exists(lake: Store, table: LakeTable) -> bool:
    return DeltaTable.is_deltatable(lake.table_uri(table.folder), lake.delta_options)


def read_table(lake: Store, table: LakeTable) -> DeltaTable:
    """Open a table that exists, as it is."""
    return DeltaTable(lake.table_uri(table.folder), storage_options=lake.delta_options)


def is_previous(opened: DeltaTable, table: LakeTable) -> bool:
    """Return whether the previous version wrote the table, and it was not migrated yet."""
    names = {field.name for field in opened.schema().fields}
    renamed = {name for name in table.schema.names if FORMER_NAMES.get(name) in names}
    return bool(renamed - names) or (SETTLED in names and SETTLED not in table.schema.names)


def open_table(lake: Store, table: LakeTable) -> DeltaTable:
    """Open a table. Create it if it does not exist; add columns that it lacks, without rewriting files."""
    if not exists(lake, table):
        return DeltaTable.create(
            lake.table_uri(table.folder),
            table.schema,
            mode="ignore",
            partition_by=list(table.partition_by),
            configuration=table_properties(table),
            storage_options=lake.delta_options,
        )
    opened = read_table(lake, table)
    if is_previous(opened, table):
        raise StorageError(f"{table.name} was written by an earlier version: {MIGRATE}")
    if tuple(opened.metadata().partition_columns) != table.partition_by:
        found = ", ".join(opened.metadata().partition_columns) or "nothing"
        expected = ", ".join(table.partition_by) or "nothing"
        raise StorageError(f"{table.name} on disk is partitioned by {found}, not by {expected}: move it away")
    existing = {field.name: field for field in opened.schema().fields}
    wanted: list[Field] = Schema.from_arrow(table.schema).fields
    for field in wanted:
        known = existing.get(field.name)
        if known is not None and known.type != field.type:
            raise StorageError(
                f"{table.name}.{field.name} is {_type_name(known)} on disk and {_type_name(field)} in this version: a "
                "type cannot be changed in place; rename the column, or move the table away to fill it again"
            )
    new = [field for field in wanted if field.name not in existing]
    if new:
        opened.alter.add_columns(new)
        opened.update_incremental()
    return opened


def write_actions(
    table: DeltaTable, actions: list[AddAction | RemoveAction], transaction: Transaction | None = None
) -> None:
    """Commit actions, with their number. Clean up old versions only now and then, because that lists them all."""
    clean_up = table.version() % LAKE_CHECKPOINT_COMMITS == 0
    transactions = [] if transaction is None else [transaction]
    count = len(actions) + len(transactions)
    table.create_write_transaction(
        actions,
        "append",
        table.schema(),
        table.metadata().partition_columns,
        commit_properties=CommitProperties({ACTIONS: str(count)}, app_transactions=transactions),
        post_commithook_properties=PostCommitHookProperties(cleanup_expired_logs=clean_up),
    )


def table_properties(table: LakeTable) -> dict[str, str | None]:
    """Return the properties of a new table.

    Those of statistics name the columns that have some: otherwise, readers may take filters on others to find nothing.
    """
    statistics = {"delta.dataSkippingNumIndexedCols": "0"}
    if table.statistics:
        statistics = {"delta.dataSkippingStatsColumns": ",".join(table.statistics)}
    return {**statistics, "delta.checkpointInterval": str(LAKE_CHECKPOINT_COMMITS), **history_properties(table)}


class FilesReplacedError(StorageError):
    """Raised if another process has replaced the files that were to be replaced."""


@contextmanager
def rewrite_lock(lake: Store) -> Iterator[None]:
    """Lock the lake while settled files are replaced (`replace_files`), from reading them to the commit.

    Delta would not notice two processes that replace the same file without changing its rows, which then exist twice.
    """
    lock = lake.hold("rewriting.lock", f"another process is rewriting the tables in {lake}: it is")
    try:
        yield
    finally:
        lock.release()


def commit_lock(lake: Store) -> AbstractContextManager[None]:
    """Lock the lake while a batch is committed to one table after the other."""
    return lake.lock(_COMMIT_LOCK)


def listing_lock(lake: Store) -> AbstractContextManager[None]:
    """Lock the lake while files are listed: no batch is in some of the tables and not in others."""
    return lake.lock(_COMMIT_LOCK, shared=True)


def replace_files(
    lake: Store,
    table: DeltaTable,
    name: str,
    adds: Sequence[FileAction],
    removes: Sequence[FileAction],
    data_change: bool,
) -> None:
    """Replace settled files in one commit, under `rewrite_lock`. Refuse new files that are not as they were written."""
    FileChecks(PIPELINE_VIEW_WAIT_S).check_tables(lake, adds)
    actions: list[AddAction | RemoveAction] = [*add_actions(adds, data_change), *remove_actions(removes, data_change)]
    for attempt in range(1, LAKE_COMMIT_ATTEMPTS_MAX + 1):
        table.update_incremental()
        paths = pa.array([file.path for file in removes], pa.string())
        is_live = pc.is_in(paths, pa.table(table.get_add_actions())["path"].combine_chunks().cast(pa.string()))
        replaced = paths.filter(pc.invert(is_live)).to_pylist()
        if replaced:
            files = "1 file was" if len(replaced) == 1 else f"{len(replaced)} files were"
            raise FilesReplacedError(f"{name}: {files} replaced by another process, such as {min(replaced)}")
        try:
            write_actions(table, actions)
        except CommitFailedError:  # a batch removed another file at the same time
            if attempt == LAKE_COMMIT_ATTEMPTS_MAX:
                raise
        else:
            # No manifest could repeat it, as it can the commits of batches, which nobody syncs.
            lake.sync(commit_path(TABLES[name], table.version()))
            table.update_incremental()
            return


def live_files(table: DeltaTable, name: str, days: Collection[date] | None = None) -> list[FileAction]:
    """Return the files of a table; of these days only, if it is partitioned by day."""
    rows = pa.table(table.get_add_actions(flatten=False))
    if days is not None:
        rows = rows.filter(pc.is_in(pc.struct_field(rows["partition"], "day"), pa.array(days, pa.date32())))
    return [
        FileAction(name, row["path"], row["size_bytes"], row["num_records"], _partition(row.get("partition")))
        for row in rows.to_pylist()
    ]


def add_actions(actions: Iterable[FileAction], data_change: bool = True) -> list[AddAction]:
    now_ms = time.time_ns() // 1_000_000
    return [
        AddAction(
            each.path,
            each.bytes,
            each.partition,
            now_ms,
            data_change,
            delta_statistics(each.rows, each.statistics),
        )
        for each in actions
    ]


def remove_actions(actions: Iterable[FileAction], data_change: bool = True) -> list[RemoveAction]:
    now_ms = time.time_ns() // 1_000_000
    return [RemoveAction(each.path, data_change, now_ms, each.bytes, dict(each.partition)) for each in actions]


def _partition(values: dict[str, Any] | None) -> dict[str, str | None]:
    return {name: delta_text(value) for name, value in (values or {}).items()}


def _type_name(field: Field) -> str:
    return str(getattr(field.type, "type", field.type))
