"""What a batch is about to do to the tables, written down before the first of them is touched.

A crash between two tables is healed by doing what the intent says: a table that already has the batch is passed by. The
newest ones are kept for a while: a power failure may take back commits that were not yet on disk.

    checkpoints/tables/intents/000000000042.json
"""

from pathlib import Path
from typing import Final

from msgspec import DecodeError, Struct, field, json

from wirelake.errors import StorageError
from wirelake.files import replace_file
from wirelake.limits import PIPELINE_INTENTS_KEPT
from wirelake.log.segments.range_reader import Gap
from wirelake.pipeline.accounts import ReadCount
from wirelake.pipeline.parquet import FileAction

_SUFFIX: Final = ".json"


class Intent(Struct, frozen=True, kw_only=True):
    batch: int
    from_seq: int
    until_seq: int
    now_us: int  # the batch's clock: the largest `at` in it
    rows: int  # records; fewer than the seqs, where some are lost
    poison: list[int] = []  # records that broke the decoder, now in the quarantine
    gaps: list[Gap] = []  # records that are lost in the log
    removed: int = 0  # records before `from_seq` that retention removed before they were read
    read: list[ReadCount] = []  # what its tasks read, by hour and protocol
    counts: dict[str, int] = {}  # what was dropped, or is worth knowing and has no row
    totals: dict[str, int] = {}  # the same since the tables were begun
    accounted_us: int | None = None  # since when silver.batches has whole hours; None: before it was there
    adds: dict[str, list[FileAction]] = field(default_factory=dict)  # by table
    removes: dict[str, list[FileAction]] = field(default_factory=dict)
    open: dict[str, dict[int, list[FileAction]]] = field(default_factory=dict)  # table → bucket → its unsettled rows
    carry: dict[int, str] = field(default_factory=dict)  # bucket → file with what it remembers
    dirty_us: dict[str, list[int]] = field(default_factory=dict)  # table → minutes whose rows changed

    @property
    def tables(self) -> list[str]:
        """Those it changes, bronze first."""
        return sorted(self.adds.keys() | self.removes.keys())


class Intents:
    def __init__(self, folder: Path) -> None:
        self._folder = folder / "intents"
        self._folder.mkdir(parents=True, exist_ok=True)

    def write(self, intent: Intent) -> None:
        """Durable when this returns."""
        replace_file(self._path(intent.batch), json.encode(intent))

    def get(self, batch: int) -> Intent | None:
        path = self._path(batch)
        return self._read(path) if path.exists() else None

    def last(self) -> Intent | None:
        batches = self.batches()
        return self.get(batches[-1]) if batches else None

    def since(self, batch: int) -> list[Intent]:
        """Those after this one, in order."""
        return [self._read(self._path(each)) for each in self.batches() if each > batch]

    def batches(self) -> list[int]:
        names = (path.name for path in self._folder.iterdir() if path.name.endswith(_SUFFIX))
        return sorted(int(name.removesuffix(_SUFFIX)) for name in names)

    def prune(self, needed: int) -> list[Intent]:
        """Forget the old ones, but none after the batch `needed`. Answers what was forgotten."""
        old = [batch for batch in self.batches()[:-PIPELINE_INTENTS_KEPT] if batch <= needed]
        forgotten = [self._read(self._path(batch)) for batch in old]
        for batch in old:
            self._path(batch).unlink()
        return forgotten

    def _path(self, batch: int) -> Path:
        return self._folder / f"{batch:012d}{_SUFFIX}"

    def _read(self, path: Path) -> Intent:
        try:
            return json.decode(path.read_bytes(), type=Intent)
        except DecodeError as error:
            raise StorageError(f"{path} does not hold an intent: {error}") from error
