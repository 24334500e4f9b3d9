"""Open the checkpoint of the stream that fills the tables, and lock it for the one process that works on it."""

import uuid
from typing import Final

from msgspec import DecodeError, Struct, json
from msgspec.structs import replace

from wirelake.errors import InputError, LossError, StorageError
from wirelake.lake.progress import FOLDER, STREAM
from wirelake.lake.store import LocalStore, Store
from wirelake.lake.tables import FRAMES
from wirelake.limits import PIPELINE_BUCKETS
from wirelake.log.segments.high_watermark import read_data_id
from wirelake.pipeline.commit.manifests import ManifestStore
from wirelake.pipeline.paths import DataPaths
from wirelake.pipeline.status import checkpoint_problem

CONSUMER: Final = "pipeline"  # its name among the log's consumers
LAKE_FORMAT: Final = 2  # 1: open rows among settled ones, and columns named `at` and `offset`


class StreamIdentity(Struct, frozen=True):
    """Identify the stream. This is written once: if the number of buckets changed, keys would move between them."""

    app: str
    buckets: int
    data_id: str = ""  # of the data folder whose log fills the tables; empty if written before there were ids
    format: int = 1  # of the tables


class StreamLock:
    """Hold the lock while the process works on the stream. The system releases it when the process ends."""

    def __init__(self, paths: DataPaths) -> None:
        self._lock = paths.checkpoint.hold("lock", f"another pipeline is running on {paths.data},")

    def check(self) -> None:
        """Raise InUseError if another process has taken over."""
        self._lock.check()

    def release(self) -> None:
        self._lock.release()


def open_stream(paths: DataPaths) -> StreamIdentity:
    """Read the stream's identity, or create it. Refuse a checkpoint and tables that do not fit each other."""
    from wirelake.pipeline.commit.delta import DeltaWriter  # noqa: PLC0415 (executors lack deltalake)

    check_log(paths)
    data_id = read_data_id(paths.log)
    stream = read_stream(paths)
    if stream is None:
        if DeltaWriter(paths.lake, "").has_rows(FRAMES.name):
            raise InputError(
                f"the tables in {paths.lake} have rows, but there is no checkpoint in {paths.checkpoint} that says "
                "where to continue: restore the checkpoint, or move the tables away as well to fill them again"
            )
        stream = StreamIdentity(f"wirelake-{uuid.uuid4()}", PIPELINE_BUCKETS, data_id, LAKE_FORMAT)
        if not paths.checkpoint.create(STREAM, json.encode(stream)):
            stream = _read(paths.checkpoint)
    if data_id and not stream.data_id:
        stream = replace(stream, data_id=data_id)
        paths.checkpoint.write(STREAM, json.encode(stream))
    local = LocalStore(paths.data / FOLDER)
    if local != paths.checkpoint:
        local.write(STREAM, json.encode(stream))
    batches = ManifestStore(paths.checkpoint).batches()
    if batches and not any(paths.spark_offsets.glob("[0-9]*")):
        raise InputError(
            f"{paths.checkpoint} lacks Spark's own part of the checkpoint ({paths.spark_offsets}): restore it, "
            "or move the checkpoint and the tables away to fill them again"
        )
    if batches and DeltaWriter(paths.lake, stream.app).last_batch(FRAMES.name) < batches[0] - 1:
        raise StorageError(
            f"the tables in {paths.lake} have less in them than the checkpoint in {paths.checkpoint} says: restore "
            "the tables, or move the checkpoint away as well to fill them again"
        )
    return stream


def check_log(paths: DataPaths) -> None:
    """Refuse a checkpoint of another log, or one beyond the end of this log: new records would be ignored."""
    problem = checkpoint_problem(paths)
    if problem:
        raise LossError(problem)


def write_stream(paths: DataPaths, stream: StreamIdentity) -> StreamIdentity:
    """Replace the stream's identity, and return it."""
    paths.checkpoint.write(STREAM, json.encode(stream))
    return stream


def read_stream(paths: DataPaths) -> StreamIdentity | None:
    """Return the stream's identity, or None if there is no stream yet."""
    try:
        return _read(paths.checkpoint)
    except FileNotFoundError:
        return None


def _read(checkpoint: Store) -> StreamIdentity:
    try:
        return json.decode(checkpoint.read(STREAM), type=StreamIdentity)
    except DecodeError as error:
        raise StorageError(
            f"{checkpoint.name(STREAM)} is damaged ({error}): restore the checkpoint from a backup, or move it and "
            "the tables away to fill them again"
        ) from error


class _PlannedOffset(Struct):
    seq: int


def planned_end(paths: DataPaths, batch: int) -> int | None:
    """Return the end of a batch as Spark planned it, or None if it did not."""
    try:
        lines = (paths.spark_offsets / str(batch)).read_bytes().strip().splitlines()
    except FileNotFoundError:
        return None
    return json.decode(lines[-1], type=_PlannedOffset).seq


def sync_offsets(paths: DataPaths, batch: int) -> None:
    """Sync the end of a batch, which Spark does not do.

    After a power failure a manifest must not exist without it: Spark would give the same number to another span.
    """
    LocalStore(paths.spark_offsets).sync(str(batch))
