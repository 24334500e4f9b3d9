"""The stream that fills the tables, as its folder knows it: who it is, and that only one process works on it."""

import os
import uuid
from pathlib import Path
from typing import Final

from msgspec import DecodeError, Struct, json
from msgspec.structs import replace

from wirelake.errors import InputError, LossError, StorageError
from wirelake.files import FileLock, FileSystem, replace_file
from wirelake.lake.tables import FRAMES
from wirelake.limits import PIPELINE_BUCKETS
from wirelake.log.segments.high_watermark import read_data_id
from wirelake.pipeline.commits import Commits
from wirelake.pipeline.intents import Intents
from wirelake.pipeline.places import Places
from wirelake.pipeline.status import checkpoint_problem

CONSUMER: Final = "pipeline"  # its name among the log's consumers


class Stream(Struct, frozen=True):
    """Written once, when the stream begins. Another number of buckets would find other things in them."""

    app: str
    buckets: int
    data_id: str = ""  # of the data folder whose log fills the tables; empty where it was written before there were ids


class StreamLock:
    """Held for as long as the process works on the stream; the system lets go of it when the process ends."""

    def __init__(self, places: Places) -> None:
        places.checkpoint.mkdir(parents=True, exist_ok=True)
        self._lock = FileLock(places.checkpoint / "lock", f"another pipeline is at work on {places.data},")

    def release(self) -> None:
        self._lock.release()


def open_stream(places: Places) -> Stream:
    """Found, or begun. Refuses what would lose rows or have them twice: a checkpoint and tables that do not fit."""
    path = _path(places)
    places.carry.mkdir(parents=True, exist_ok=True)
    check_log(places)
    data_id = read_data_id(places.log)
    if not path.exists():
        if Commits(places.lake, "").is_filled(FRAMES.name):
            raise InputError(
                f"the tables in {places.lake} are filled, but there is no checkpoint in {places.checkpoint} that says "
                "from where to go on: bring back the checkpoint, or move the tables away too and fill them anew"
            )
        replace_file(path, json.encode(Stream(f"wirelake-{uuid.uuid4()}", PIPELINE_BUCKETS, data_id)))
    stream = _read(path)
    if data_id and not stream.data_id:
        stream = replace(stream, data_id=data_id)
        replace_file(path, json.encode(stream))
    intents, commits = Intents(places.checkpoint), Commits(places.lake, stream.app)
    kept = intents.batches()
    if kept and not any(offsets_folder(places).glob("[0-9]*")):
        raise InputError(
            f"{places.checkpoint} has lost Spark's own part of the checkpoint ({offsets_folder(places)}): bring it "
            "back, or move the checkpoint and the tables away and fill them anew"
        )
    if kept and commits.version(FRAMES.name) < kept[0] - 1:
        raise StorageError(
            f"the tables in {places.lake} have less in them than the checkpoint in {places.checkpoint} says: bring "
            "back the tables, or move the checkpoint away too and fill them anew"
        )
    return stream


def check_log(places: Places) -> None:
    """Refuse a checkpoint of another log, or one beyond the end of this log: new records would be ignored."""
    problem = checkpoint_problem(places.data)
    if problem:
        raise LossError(problem)


def known_stream(places: Places) -> Stream | None:
    """For those who only look; None if it has not begun."""
    path = _path(places)
    return _read(path) if path.exists() else None


def _path(places: Places) -> Path:
    return places.checkpoint / "stream.json"


def _read(path: Path) -> Stream:
    try:
        return json.decode(path.read_bytes(), type=Stream)
    except DecodeError as error:
        raise StorageError(
            f"{path} is damaged ({error}): bring the checkpoint back from a backup, or move it and the tables away and "
            "fill them anew"
        ) from error


def spark_checkpoint(places: Places) -> Path:
    return places.checkpoint / "spark"


def offsets_folder(places: Places) -> Path:
    return spark_checkpoint(places) / "offsets"


def sync_offsets(places: Places, batch: int) -> None:
    """Spark does not sync what it writes. After a power failure an intent must not be there without its batch's end:
    Spark would give the same number to another span.
    """
    fd = os.open(offsets_folder(places) / str(batch), os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
    FileSystem().fsync_dir(offsets_folder(places))
