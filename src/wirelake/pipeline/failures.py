"""Which batch failed last, and how often: kept on disk, for a restart may be one of the whole process."""

from pathlib import Path

from msgspec import DecodeError, Struct, json

from wirelake.errors import MissingRecordsError, StorageError
from wirelake.files import replace_file
from wirelake.limits import PIPELINE_RESTART_FIRST_S, PIPELINE_RESTART_MAX_S, PIPELINE_SENTENCE_MAX


class Failure(Struct, frozen=True):
    batch: int
    times: int
    text: str


class Failures:
    def __init__(self, folder: Path) -> None:
        self._path = folder / "failure.json"

    def last(self) -> Failure | None:
        try:
            return json.decode(self._path.read_bytes(), type=Failure)
        except (FileNotFoundError, DecodeError):
            return None

    def times(self, batch: int) -> int:
        last = self.last()
        return last.times if last is not None and last.batch == batch else 0

    def note(self, batch: int, text: str) -> None:
        replace_file(self._path, json.encode(Failure(batch, self.times(batch) + 1, text)))

    def clear(self) -> None:
        self._path.unlink(missing_ok=True)


def pause_s(times: int) -> float:
    """Before the next try: it doubles with each failure, up to a limit."""
    return float(min(PIPELINE_RESTART_MAX_S, PIPELINE_RESTART_FIRST_S * 2 ** min(times - 1, 16)))


def sentence(error: BaseException) -> str:
    """The last thing said in Python, where Spark wraps it in pages of Java, or else what Spark says first of all."""
    if isinstance(error, StorageError):
        return str(error)[:PIPELINE_SENTENCE_MAX]
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
    told = [line for line in lines if "Error" in line or "Exception" in line]
    return (told[-1] if told else lines[0])[:PIPELINE_SENTENCE_MAX]


def are_records_missing(error: BaseException) -> bool:
    """Whether a task could not read its records to the end. From executors, Spark brings errors as text."""
    return isinstance(error, MissingRecordsError) or MissingRecordsError.__name__ in str(error)
