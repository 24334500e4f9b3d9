"""Append files to a Delta table without reading it, so that a commit costs the same however long the table exists.

deltalake lists the versions and the files of a table before each commit, because a commit may depend on them. One that
only adds files (Delta calls it a blind append) depends on the number of the newest version, which is known from the
commit before. A version is put into the log unless it exists: if another process was first, deltalake commits instead.
"""

import logging
import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from importlib.metadata import version
from typing import Any, Final

from deltalake import DeltaTable
from msgspec import Struct, json

from wirelake.lake.damage import ACTIONS
from wirelake.lake.store import Store
from wirelake.lake.tables import LakeTable
from wirelake.pipeline.commit.files import FileAction
from wirelake.pipeline.commit.statistics import delta_statistics

_WRITER_VERSION: Final = 2  # later ones have features that a commit must heed, even one that only adds files
_ENGINE: Final = f"wirelake/{version('wirelake')}"
_log = logging.getLogger(__name__)


class TableHead(Struct, frozen=True):
    """Hold what the next commit to a table depends on."""

    version: int  # the newest
    batch: int  # the last one of the checkpoint that is in the table, or -1
    is_plain: bool = True  # no other program has enabled features of Delta that only deltalake knows


def read_head(opened: DeltaTable, app: str) -> TableHead:
    """Read the head of an open table. `app` names the checkpoint that numbers the batches.

    The version comes first: another thread may move the table on, and a batch must not be missed.
    """
    newest = opened.version()
    batch = opened.transaction_version(app)
    is_plain = opened.protocol().min_writer_version <= _WRITER_VERSION
    return TableHead(newest, -1 if batch is None else batch, is_plain)


def append_files(
    lake: Store, table: LakeTable, head: TableHead, app: str, batch: int, adds: Sequence[FileAction]
) -> TableHead | None:
    """Commit new files and the number of their batch as the next version. Return None if the head is not the newest."""
    if lake.size(commit_path(table, head.version)) is None:  # so old that it was removed: the next one may be, too
        return None
    following = TableHead(head.version + 1, batch)
    content = _encode_commit(table, head, app, batch, adds)
    # Not synced: the manifest of the batch is, and a commit that a power failure cuts short is repeated from it.
    return following if lake.create(commit_path(table, following.version), content, sync=False) else None


def commit_path(table: LakeTable, number: int) -> str:
    """Return where the log of a table has this version."""
    return f"{table.folder}/_delta_log/{number:020d}.json"


def _encode_commit(table: LakeTable, head: TableHead, app: str, batch: int, adds: Sequence[FileAction]) -> bytes:
    now_ms = time.time_ns() // 1_000_000
    parameters = {"mode": "Append", "partitionBy": json.encode(table.partition_by).decode()}
    information = {
        "timestamp": now_ms,
        "operation": "WRITE",
        "operationParameters": parameters,
        "readVersion": head.version,
        "isBlindAppend": True,
        "engineInfo": _ENGINE,
        ACTIONS: str(len(adds) + 1),
    }
    actions: list[dict[str, Any]] = [{"commitInfo": information}]
    for file in adds:
        add = {
            "path": file.path,
            "partitionValues": file.partition,
            "size": file.bytes,
            "modificationTime": now_ms,
            "dataChange": True,
            "stats": delta_statistics(file.rows, file.statistics),
        }
        actions.append({"add": add})
    actions.append({"txn": {"appId": app, "version": batch, "lastUpdated": now_ms}})
    return b"\n".join(map(json.encode, actions))


class LogCheckpoints:
    """Write checkpoints of Delta logs in a thread: they take longer the more files a table has, and no batch waits.

    A checkpoint only spares readers the commits before it, so nothing is lost with one that is missing.
    """

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, "delta-checkpoints")
        self._running: dict[str, Future[None]] = {}  # by table

    def write(self, name: str, opened: DeltaTable) -> None:
        """Begin a checkpoint of an open table, unless one is on its way. Also remove the versions that are too old."""
        running = self._running.get(name)
        if running is None or running.done():
            self._running[name] = self._thread.submit(_write_checkpoint, name, opened)

    def wait(self) -> None:
        """Return once those that have begun are written."""
        for running in list(self._running.values()):
            running.result()


def _write_checkpoint(name: str, opened: DeltaTable) -> None:
    try:
        opened.update_incremental()
        opened.create_checkpoint()
        opened.cleanup_metadata()
    except Exception as error:  # noqa: BLE001 (a full disk, a damaged file: the stream continues, the next one retries)
        _log.warning("the checkpoint of the Delta log of %s failed; the next one retries: %s", name, error)
