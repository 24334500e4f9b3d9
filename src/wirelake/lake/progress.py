"""The pipeline's progress: a small file that its job writes, also shown in the gateway's /metrics."""

from pathlib import Path
from typing import Final

from msgspec import DecodeError, Struct, field, json

from wirelake.files import replace_file
from wirelake.limits import PIPELINE_ERRORS_SHOWN

PATH: Final = Path("checkpoints") / "tables" / "metrics.json"  # in the data folder


class JobError(Struct, frozen=True):
    at_ms: int
    text: str


class JobProgress(Struct):
    """The progress of a job. `at` figures are event time: when the gateway saw the newest record of a stage."""

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
    errors: list[JobError] = field(default_factory=list)  # the newest last

    def add_error(self, at_ms: int, text: str) -> None:
        self.errors = [*self.errors, JobError(at_ms, text)][-PIPELINE_ERRORS_SHOWN:]


def write_progress(data: Path, progress: JobProgress) -> None:
    """Write the file atomically. It is not synced: the next one follows soon, and nothing depends on it."""
    path = data / PATH
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_file(path, json.encode(progress), sync=False)


def read_progress(data: Path) -> JobProgress | None:
    """Return the progress, or None if no job has run."""
    try:
        return json.decode((data / PATH).read_bytes(), type=JobProgress)
    except (FileNotFoundError, DecodeError):  # or a job of another version wrote it
        return None
