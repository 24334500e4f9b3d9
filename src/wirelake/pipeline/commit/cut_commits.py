"""Remove commits that a power failure cut short: nobody syncs them, and nothing can be read after.

The manifest of a batch is on disk before its commits. What the tables then lack is committed again from the manifests,
and gold tables are computed again.
"""

import logging
from typing import Final

from deltalake import DeltaTable
from msgspec import DecodeError, json

from wirelake.lake.damage import commits_of, find_commit_error
from wirelake.lake.store import LocalStore, Store
from wirelake.lake.tables import TABLES, LakeTable
from wirelake.pipeline.commit.appends import commit_path
from wirelake.pipeline.commit.checkpoint import read_stream
from wirelake.pipeline.commit.manifests import Manifest, ManifestStore
from wirelake.pipeline.paths import DataPaths

_log = logging.getLogger(__name__)

_GOLD: Final = "gold"
_SPARK_LINES: Final = {"commits": 2, "offsets": 3}  # its version, and one JSON value in each other line


def remove_cut_commits(paths: DataPaths) -> None:
    """Remove the newest commits, of tables and of Spark, that are not complete. Call this under the stream's lock.

    One that the manifests cannot replace stays: readers then say which file is damaged.
    """
    stream = read_stream(paths)
    if stream is None:
        return
    manifests = ManifestStore(paths.checkpoint).since(-1)
    for table in TABLES.values():
        cut = _cut_commits(paths.lake, table)
        if not cut:
            continue
        if table.name.startswith(f"{_GOLD}."):
            _log.warning("a commit of %s is cut short: the gold tables are computed again", table.name)
            paths.lake.delete_all(_GOLD)
        elif len(cut) <= len(_missing(paths.lake, table, cut[-1], stream.app, manifests)) + (cut[-1] == 0):
            _log.warning("%d commits of %s are cut short: they are repeated", len(cut), table.name)
            for version in cut:
                paths.lake.delete(commit_path(table, version))
    _remove_cut_files(LocalStore(paths.spark_checkpoint), {manifest.batch for manifest in manifests})


def _cut_commits(lake: Store, table: LakeTable) -> list[int]:
    """Return the newest versions of a table that cannot be read, the newest first."""
    found = []
    for version in reversed(commits_of(lake, f"{table.folder}/_delta_log")):
        if not find_commit_error(lake.read(commit_path(table, version))):
            break
        found.append(version)
    return found


def _missing(lake: Store, table: LakeTable, version: int, app: str, manifests: list[Manifest]) -> list[Manifest]:
    """Return the batches that the table does not have before this version."""
    last = None
    if version > 0:
        before = DeltaTable(lake.table_uri(table.folder), version - 1, storage_options=lake.delta_options)
        last = before.transaction_version(app)
    return [each for each in manifests if table.name in each.tables and (last is None or each.batch > last)]


def _remove_cut_files(spark: LocalStore, known: set[int]) -> None:
    """Remove what Spark wrote last: it then runs the batch again, which has a manifest, or plans it again.

    The end of a batch that has a manifest is on disk (`sync_offsets`).
    """
    for folder, lines in _SPARK_LINES.items():
        batches = sorted(int(path) for path in spark.at(folder).list() if path.isdecimal())
        for batch in batches[-1:]:
            is_needed = folder == "offsets" and batch in known
            if not is_needed and not _is_whole(spark.read(f"{folder}/{batch}"), lines):
                _log.warning("Spark's file %s/%d is cut short: it is written again", folder, batch)
                spark.delete(f"{folder}/{batch}")
                spark.delete(f"{folder}/.{batch}.crc")


def _is_whole(content: bytes, lines: int) -> bool:
    found = content.splitlines()
    try:
        return len(found) >= lines and all(json.decode(line) is not None for line in found[1:])
    except (DecodeError, UnicodeDecodeError):
        return False
