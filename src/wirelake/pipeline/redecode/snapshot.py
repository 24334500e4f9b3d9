"""Take a snapshot of the tables after one batch, while a stream may go on committing."""

import time
from collections.abc import Sequence
from typing import Final

from deltalake import DeltaTable
from msgspec import Struct

from wirelake.errors import InputError, StorageError
from wirelake.lake.tables import FRAMES, LakeTable
from wirelake.limits import PIPELINE_SNAPSHOT_S
from wirelake.pipeline.commit.checkpoint import LAKE_FORMAT, StreamIdentity, read_stream
from wirelake.pipeline.commit.delta import MIGRATE, exists, live_files, read_table
from wirelake.pipeline.commit.files import FileAction
from wirelake.pipeline.commit.manifests import Manifest, ManifestStore
from wirelake.pipeline.paths import DataPaths

_POLL_S: Final = 0.05


class TableSnapshot(Struct, frozen=True):
    until_seq: int  # the tables have the records before this one, and no others
    buckets: int
    files: dict[str, list[FileAction]]  # by table


def check_tables(paths: DataPaths) -> StreamIdentity:
    """Return the identity of the stream that fills the tables. Refuse if there are none."""
    stream = read_stream(paths)
    if stream is None or not exists(paths.lake, FRAMES):
        raise InputError(f"there are no tables in {paths.lake}: run `wirelake pipeline run --once` first")
    if stream.format < LAKE_FORMAT:
        raise InputError(f"the tables in {paths.lake} were written by an earlier version: {MIGRATE}")
    return stream


def take_snapshot(paths: DataPaths, tables: Sequence[LakeTable]) -> TableSnapshot:
    """Return the files of these tables. Wait until a running batch is in all of them."""
    stream = check_tables(paths)
    manifests = ManifestStore(paths.checkpoint)
    deadline_s = time.monotonic() + PIPELINE_SNAPSHOT_S
    while True:
        opened = {each.name: read_table(paths.lake, each) for each in tables if exists(paths.lake, each)}
        versions = {name: _last_batch(table, stream.app) for name, table in opened.items()}
        manifest = manifests.get(versions[FRAMES.name])
        if manifest is not None and _has_all(manifest, tables, versions):
            files = {each.name: live_files(opened[each.name], each.name) for each in tables if each.name in opened}
            return TableSnapshot(manifest.until_seq, stream.buckets, files)
        if time.monotonic() > deadline_s:
            raise StorageError(
                f"a batch is in some of the tables in {paths.lake} and not in others: finish it with "
                "`wirelake pipeline run --once`"
            )
        time.sleep(_POLL_S)


def _has_all(manifest: Manifest, tables: Sequence[LakeTable], versions: dict[str, int]) -> bool:
    """Return whether this batch is in the tables that it changes, and no later one in any."""
    for table in tables:
        version = versions.get(table.name, -1)
        if version > manifest.batch or (version < manifest.batch and table.name in manifest.tables):
            return False
    return True


def _last_batch(table: DeltaTable, app: str) -> int:
    found = table.transaction_version(app)
    return -1 if found is None else found
