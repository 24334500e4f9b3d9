"""How far the pipeline has come: a small file that its job writes, and that the gateway's /metrics shows too."""

from pathlib import Path
from typing import Final

from msgspec import DecodeError, Struct, field, json

from wirelake.files import replace_file
from wirelake.limits import PIPELINE_ERRORS_SHOWN

PATH: Final = Path("checkpoints") / "tables" / "metrics.json"  # below the data folder


class Fault(Struct, frozen=True):
    at_ms: int
    text: str


class Progress(Struct):
    """`at` figures are event time: when the gateway saw the newest record that a stage has taken in."""

    pid: int
    written_at_ms: int = 0
    running: bool = True
    ui: str = ""  # address of Spark's own pages
    batch: int = -1
    next_seq: int = 0  # of the first record that is not in the tables
    at_us: int = 0
    gold_seq: int = 0  # the same for what is worked out from them
    gold_at_us: int = 0
    rows: int = 0  # since the job started
    batches: int = 0
    restarts: int = 0
    poisoned: int = 0  # records that broke the decoder
    dropped: dict[str, int] = field(default_factory=dict)  # what was left out or given up since the tables were begun
    noted: dict[str, int] = field(default_factory=dict)  # what else was counted since then
    files_joined: int = 0
    rows_s: float = 0.0  # of the last batches
    batch_s: float = 0.0  # how long the last one took
    errors: list[Fault] = field(default_factory=list)  # the newest last

    def fail(self, at_ms: int, text: str) -> None:
        self.errors = [*self.errors, Fault(at_ms, text)][-PIPELINE_ERRORS_SHOWN:]


def write_progress(data: Path, progress: Progress) -> None:
    """In one step. It is not synced: the next one comes soon, and nothing depends on it."""
    path = data / PATH
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_file(path, json.encode(progress), sync=False)


def read_progress(data: Path) -> Progress | None:
    """None while no job has run."""
    try:
        return json.decode((data / PATH).read_bytes(), type=Progress)
    except (FileNotFoundError, DecodeError):  # a job of another version may have written it
        return None
