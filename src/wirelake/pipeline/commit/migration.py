"""Migrate the tables of the previous version, when the pipeline starts.

That version had open rows in the tables of settled ones, in files of their own (`settled=false`), and columns with the
names of SQL keywords (`at`, `offset`). First, the batches that it left unfinished are committed. Then each table is
rewritten, file by file, and changed in one commit. A new file has a name that follows from that of the old one: after
a crash, the next start finds the files that are complete, and the tables that are done.
"""

import logging
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable, Schema
from deltalake.transaction import Transaction
from msgspec import json
from msgspec.structs import replace

from wirelake.errors import StorageError
from wirelake.lake.store import Store
from wirelake.lake.tables import FLAG, FORMER_NAMES, SETTLED, TABLES, LakeTable
from wirelake.limits import PIPELINE_CHUNK_ROWS
from wirelake.pipeline.commit.appends import commit_path
from wirelake.pipeline.commit.checkpoint import LAKE_FORMAT, StreamIdentity, write_stream
from wirelake.pipeline.commit.delta import (
    add_actions,
    exists,
    is_previous,
    live_files,
    open_table,
    read_table,
    remove_actions,
    rewrite_lock,
    table_properties,
    write_actions,
)
from wirelake.pipeline.commit.files import FileAction, FileChecks, PartitionFile
from wirelake.pipeline.commit.manifests import Manifest, ManifestStore
from wirelake.pipeline.commit.statistics import delta_statistics, footer_statistics
from wirelake.pipeline.paths import DataPaths

_log = logging.getLogger(__name__)
_NAMES: Final = uuid.UUID("5f0ad4c4-6a6c-4f5e-9d0e-3c1f5f2b8a10")  # of new files, each made from an old name
_ADVICE: Final = "restore the lake and its checkpoint from a backup, or move both away to fill the tables again"
OpenFiles = dict[str, dict[int, list[FileAction]]]  # table → bucket → files
OnProgress = Callable[[str], None]  # what is being done, or "" at the end


def migrate(paths: DataPaths, stream: StreamIdentity, on_progress: OnProgress = lambda _: None) -> StreamIdentity:
    """Migrate the tables, if the previous version wrote them. Return the identity of the stream from now on."""
    if stream.format >= LAKE_FORMAT:
        return stream
    with rewrite_lock(paths.lake):
        manifests = ManifestStore(paths.checkpoint)
        _finish_batches(paths.lake, stream, manifests)
        last = manifests.last()
        moved: OpenFiles = {}
        for table in [each for each in TABLES.values() if not each.is_open]:
            if last is not None and table.has_open_rows:
                moved[table.open_table.name] = _move_open_rows(paths.lake, table, last)
            _migrate_table(paths.lake, table, on_progress)
            if last is not None and table.has_open_rows:
                _commit_open_rows(paths.lake, table.open_table, stream.app, last, moved[table.open_table.name])
        if last is not None and any(TABLES[name].has_open_rows for name in last.open):
            manifests.rewrite(replace(last, open=moved))
    on_progress("")
    return write_stream(paths, replace(stream, format=LAKE_FORMAT))


def _finish_batches(lake: Store, stream: StreamIdentity, manifests: ManifestStore) -> None:
    """Commit the batches that the previous version computed and did not commit, as it would have."""
    for manifest in manifests.since(-1):
        for name in manifest.tables:
            opened = _open_previous(lake, TABLES[name])
            done = opened.transaction_version(stream.app)
            if done is None or done < manifest.batch:
                adds, removes = manifest.adds.get(name, ()), manifest.removes.get(name, ())
                FileChecks().check_tables(lake, adds, "the checkpoint")
                transaction = Transaction(stream.app, manifest.batch)
                write_actions(opened, [*add_actions(adds), *remove_actions(removes)], transaction)


def _open_previous(lake: Store, table: LakeTable) -> DeltaTable:
    """Open a table as the previous version had it; create it, if a crash prevented that."""
    if exists(lake, table):
        return read_table(lake, table)
    previous = previous_table(table)
    return DeltaTable.create(
        lake.table_uri(table.folder),
        previous.schema,
        mode="ignore",
        partition_by=list(previous.partition_by),
        storage_options=lake.delta_options,
    )


def previous_table(table: LakeTable) -> LakeTable:
    """Return a table as the previous version had it."""
    fields = [field.with_name(FORMER_NAMES.get(field.name, field.name)) for field in table.schema]
    if not table.has_open_rows:
        return LakeTable(table.name, pa.schema(fields), table.partition_by)
    return LakeTable(
        table.name, pa.schema([*fields[:-1], pa.field(SETTLED, FLAG), fields[-1]]), (SETTLED, *table.partition_by)
    )


def _move_open_rows(lake: Store, table: LakeTable, last: Manifest) -> dict[int, list[FileAction]]:
    """Write the open rows to files of the table for them. Return these by bucket, for the next batch to replace."""
    buckets = last.open.get(table.name, {})
    return {bucket: [_migrate_file(lake, table, file) for file in files] for bucket, files in buckets.items()}


def _migrate_table(lake: Store, table: LakeTable, on_progress: OnProgress) -> None:
    if not exists(lake, table):
        return
    opened = read_table(lake, table)
    if not is_previous(opened, table):
        properties = {name: value or "" for name, value in table_properties(table).items()}
        if any(opened.metadata().configuration.get(name) != value for name, value in properties.items()):
            opened.alter.set_table_properties(properties)
        return
    files = live_files(opened, table.name)
    settled = [file for file in files if not _is_open(file)]
    _log.info("migrating %s: files to rewrite: %d", table.name, len(settled))
    migrated = []
    for number, file in enumerate(settled):
        on_progress(f"{table.name}: {number} of {len(settled)} files")
        migrated.append(_migrate_file(lake, table, file))
    _commit(lake, table, opened, files, migrated)


def _is_open(file: FileAction) -> bool:
    return file.partition.get(SETTLED) == "false"


def _migrate_file(lake: Store, table: LakeTable, file: FileAction) -> FileAction:
    """Rewrite a file. Return the new one, which may be there already."""
    target = table.open_table if _is_open(file) else table
    partition = {name: file.partition.get(name) for name in target.partition_by}
    new = PartitionFile(target, lake, partition, name=_new_name(file))
    known = _complete_file(lake, target, new, partition)
    if known is not None:
        new.discard()
        return known
    try:
        for rows in _rows(lake, target, file):
            new.write(rows)
    except BaseException:
        new.discard()
        raise
    done = new.close()
    if done.rows != file.rows:
        name = lake.name(file.lake_path)
        raise StorageError(f"{name} has {done.rows} rows, not {file.rows}: {_ADVICE}")
    return done


def _new_name(file: FileAction) -> str:
    return str(uuid.uuid5(_NAMES, f"{file.table}/{file.path}"))


def _complete_file(
    lake: Store, table: LakeTable, new: PartitionFile, partition: dict[str, str | None]
) -> FileAction | None:
    """Return the file of a start that was interrupted, if there is one."""
    path = f"{table.folder}/{new.path}"
    size = lake.size(path)
    if size is None:
        return None
    with lake.open_input(path) as source:
        footer = pq.ParquetFile(source).metadata
    statistics = footer_statistics(footer, new.statistics_columns)
    return FileAction(table.name, new.path, size, footer.num_rows, partition, statistics=statistics)


def _rows(lake: Store, target: LakeTable, file: FileAction) -> Iterator[Any]:
    current = {former: name for name, former in FORMER_NAMES.items()}
    with lake.open_input(file.lake_path) as source:
        for batch in pq.ParquetFile(source).iter_batches(PIPELINE_CHUNK_ROWS):
            rows = batch.rename_columns([current.get(name, name) for name in batch.schema.names])
            if "day" in target.schema.names and "day" not in target.partition_by:
                day = pa.scalar(file.partition["day"], pa.string()).cast(target.schema.field("day").type)
                rows = rows.append_column("day", pa.repeat(day, rows.num_rows))
            yield rows


def _commit(
    lake: Store, table: LakeTable, opened: DeltaTable, before: Sequence[FileAction], after: Sequence[FileAction]
) -> None:
    """Change schema, partitions and files in one commit. Settled rows are the same as before, so no stream sees them.

    delta-rs cannot change the columns that partition a table; a commit is a file, of which the first one counts.
    """
    now_ms = time.time_ns() // 1_000_000
    found = opened.metadata()
    metadata = {
        "id": str(found.id),
        "name": found.name,
        "description": found.description,
        "format": {"provider": "parquet", "options": {}},
        "schemaString": Schema.from_arrow(table.schema).to_json(),
        "partitionColumns": list(table.partition_by),
        "configuration": table_properties(table),
        "createdTime": found.created_time,
    }
    actions: list[dict[str, Any]] = [
        {"commitInfo": {"timestamp": now_ms, "operation": "MIGRATE", "operationParameters": {}}},
        {"metaData": metadata},
    ]
    for file in before:
        values = {"path": file.path, "deletionTimestamp": now_ms, "dataChange": _is_open(file), "size": file.bytes}
        actions.append({"remove": values | {"extendedFileMetadata": True, "partitionValues": file.partition}})
    for file in after:
        values = {"path": file.path, "partitionValues": file.partition, "size": file.bytes, "modificationTime": now_ms}
        stats = delta_statistics(file.rows, file.statistics)
        actions.append({"add": values | {"dataChange": False, "stats": stats}})
    path = commit_path(table, opened.version() + 1)
    if not lake.create(path, b"".join(json.encode(action) + b"\n" for action in actions)):
        raise StorageError(f"{table.name} was changed while it was migrated: run the pipeline again")
    read_table(lake, table).create_checkpoint()


def _commit_open_rows(
    lake: Store, table: LakeTable, app: str, last: Manifest, files: dict[int, list[FileAction]]
) -> None:
    """Commit the open rows, unless an interrupted start did."""
    opened = open_table(lake, table)
    if opened.transaction_version(app) is None:
        adds = add_actions(file for of_bucket in files.values() for file in of_bucket)
        write_actions(opened, list(adds), Transaction(app, last.batch))
