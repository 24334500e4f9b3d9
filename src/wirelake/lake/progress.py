"""Read how far the pipeline has filled the tables, without Spark.

checkpoints/tables/metrics.json         the progress of the job, which is also in the gateway's /metrics
checkpoints/tables/stream.json          the data folder's id
checkpoints/tables/intents/NUMBER.json  the end of a batch, from its manifest
checkpoints/tables/spark/offsets/N      the same, as Spark planned it

All of it is in the data folder. If the tables are elsewhere (`lake.url`), so are the manifests; stream.json is in both
places, so that a gateway can check its log without reaching them.
"""

from pathlib import Path, PurePosixPath
from typing import Final

from msgspec import DecodeError, Struct, field, json

from wirelake.lake.store import LocalStore, Store, open_lake
from wirelake.limits import PIPELINE_ERRORS_SHOWN

FOLDER: Final = PurePosixPath("checkpoints/tables")  # in the data folder
PATH: Final = FOLDER / "metrics.json"
STREAM: Final = "stream.json"


class JobError(Struct, frozen=True):
    at_ms: int
    text: str


class JobProgress(Struct):
    """Hold the progress of a job. `at` figures are event time: when the gateway saw the newest record of a stage."""

    pid: int
    written_at_ms: int = 0
    running: bool = True
    ui: str = ""  # address of Spark's web UI
    batch: int = -1
    next_seq: int = 0  # the first record that is not in the tables
    at_us: int = 0
    gold_seq: int = 0  # the same for gold tables
    gold_at_us: int = 0
    rows: int = 0  # since the job started
    batches: int = 0
    restarts: int = 0
    poisoned: int = 0  # records that broke the decoder
    dropped: dict[str, int] = field(default_factory=dict)  # what was left out or given up since the tables were created
    noted: dict[str, int] = field(default_factory=dict)  # other counts since then
    files_joined: int = 0
    rows_s: float = 0.0  # of the last batches
    batch_s: float = 0.0  # duration of the last one
    phases_s: dict[str, float] = field(default_factory=dict)  # of the last batch: parts of it, and sums over its tasks
    files: int = 0  # that the last batch added
    bytes: int = 0  # their size
    state_bytes: int = 0  # of all buckets
    open_rows: dict[str, int] = field(default_factory=dict)  # by table
    errors: list[JobError] = field(default_factory=list)  # the newest last
    migrating: str = ""  # which table of an earlier version is being rewritten, and how far

    def add_error(self, at_ms: int, text: str) -> None:
        self.errors = [*self.errors, JobError(at_ms, text)][-PIPELINE_ERRORS_SHOWN:]


def checkpoint_store(data: Path, lake: Store) -> Store:
    """Return where the checkpoint is: in the data folder if the lake is there, otherwise beside the tables."""
    return LocalStore(data / FOLDER) if lake == open_lake(data) else lake.at(str(FOLDER))


def write_progress(data: Path, progress: JobProgress) -> None:
    """Write the file atomically. It is not synced: the next one follows soon, and nothing depends on it."""
    LocalStore(data).write(str(PATH), json.encode(progress), sync=False)


def read_progress(data: Path) -> JobProgress | None:
    """Return the progress, or None if no job has run."""
    try:
        return json.decode((data / PATH).read_bytes(), type=JobProgress)
    except (FileNotFoundError, DecodeError):  # or a job of another version wrote it
        return None


class Checkpoint(Struct, frozen=True):
    """Hold what the checkpoint says about the log that filled the tables."""

    data_id: str  # empty if written before there were ids
    next_seq: int  # the first record that is in no batch


class _Stream(Struct):
    data_id: str = ""


class _Manifest(Struct):
    until_seq: int


class _Offset(Struct):
    seq: int


def read_checkpoint(data: Path, checkpoint: Store | None = None) -> Checkpoint | None:
    """Return the checkpoint, or None if no pipeline has run.

    Without `checkpoint`, this reads what is in the data folder: also if the tables are elsewhere, the identity of the
    stream and Spark's own part are there.
    """
    checkpoint = LocalStore(data / FOLDER) if checkpoint is None else checkpoint
    try:
        stream = json.decode(checkpoint.read(STREAM), type=_Stream)
    except FileNotFoundError:
        return None
    except DecodeError:  # the pipeline reports the damage
        stream = _Stream()
    return Checkpoint(stream.data_id, max(_manifest_end(checkpoint), _planned_end(data / FOLDER)))


def mismatch(checkpoint: Checkpoint, data_id: str, next_seq: int) -> str:
    """Return why a checkpoint does not fit the log with this id and end, or "" if it does."""
    if checkpoint.data_id and data_id and checkpoint.data_id != data_id:
        return (
            f"the checkpoint and the tables belong to another data folder (id {checkpoint.data_id}; the log has "
            f"{data_id}): restore the checkpoints/ and lake/ of this log, or move both away to fill the tables again"
        )
    if checkpoint.next_seq > next_seq:
        return (
            f"the tables are filled up to record {checkpoint.next_seq}, but the log ends at {next_seq}: it was "
            "deleted, truncated, or restored from an older copy. Restore the log, or start the gateway once with "
            "--accept-loss, which continues the log after that record; to fill the tables again from this log, move "
            "checkpoints/ and lake/ away"
        )
    return ""


def _manifest_end(checkpoint: Store) -> int:
    last = max((path for path in checkpoint.list("intents") if path.endswith(".json")), default=None)
    return 0 if last is None else _seq(checkpoint.read(last), _Manifest, "until_seq")


def _planned_end(folder: Path) -> int:
    files = [path for path in folder.glob("spark/offsets/[0-9]*") if path.name.isdecimal()]
    last = max(files, key=lambda path: int(path.name), default=None)
    return 0 if last is None else _seq(last.read_bytes().strip().rpartition(b"\n")[2], _Offset, "seq")


def _seq(text: bytes, kind: type[Struct], name: str) -> int:
    """Return a number of a file; 0 if it is damaged, which the pipeline itself reports."""
    try:
        return int(getattr(json.decode(text, type=kind), name))
    except DecodeError:
        return 0
