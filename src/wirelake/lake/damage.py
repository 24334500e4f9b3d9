"""Why a table cannot be read, in one sentence: which file of it is damaged or missing, and what to do.

Libraries report damaged files in their own ways: DuckDB as an error with a backtrace of its kernel, delta-rs as a
DeltaError that names no file, pyarrow as an ArrowInvalid, Spark as pages of Java. All of them come here.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
from msgspec import DecodeError, json

from wirelake.errors import DamagedTableError, WirelakeError
from wirelake.lake.tables import TABLES, Table

_NAMED: Final = re.compile(r"(?:bronze|silver|gold)/\w+/[^\s\"'|:,;)]+\.parquet")
_COMMIT: Final = re.compile(r"(\d{20})\.json")
_CHECKPOINT: Final = re.compile(r"(\d{20})\.checkpoint.*\.parquet")
_ADVICE: Final = (
    "bring the file back from a backup; or move the lake and its checkpoint (checkpoints/tables) away and run "
    "`wirelake pipeline run`, which fills the tables anew from what the log still has"
)


def explain(lake: Path, error: BaseException | str, *, look_at_data: bool = False) -> DamagedTableError | None:
    """Return the damage that this error comes from, or None. `look_at_data` also opens every file of every table."""
    written = [table for table in TABLES.values() if (lake / table.folder / "_delta_log").is_dir()]
    for table in written:
        found = _in_log(lake / table.folder / "_delta_log")
        if found is not None:
            return _damage(lake, table, *found)
    named = _NAMED.search(str(error).replace("%3D", "="))
    for table in written:
        if named is not None and named[0].startswith(f"{table.folder}/"):
            path = lake / named[0]
            return _damage(lake, table, path, "is damaged" if path.exists() else "is not there")
        found = _in_data(lake, table) if look_at_data and named is None else None
        if found is not None:
            return _damage(lake, table, *found)
    return None


@contextmanager
def explained(lake: Path, *, look_at_data: bool = False) -> Iterator[None]:
    """Raise errors of libraries about damaged files as a DamagedTableError; all others as they are."""
    try:
        yield
    except (WirelakeError, AssertionError):
        raise
    except Exception as error:
        damage = explain(lake, error, look_at_data=look_at_data)
        if damage is None:
            raise
        raise damage from error


def _damage(lake: Path, table: Table, path: Path, what: str) -> DamagedTableError:
    """Name the file as it lies below the data folder: where that is concerns nobody who asks for rows."""
    return DamagedTableError(f"{table.name} cannot be read: {path.relative_to(lake.parent)} {what}; {_ADVICE}")


def _in_log(folder: Path) -> tuple[Path, str] | None:
    """The first file of a Delta log that is damaged or missing."""
    names = sorted(path.name for path in folder.iterdir())
    checkpoints = [found for name in names if (found := _CHECKPOINT.fullmatch(name))]
    for found in checkpoints:
        if not _is_parquet(folder / found[0]):
            return folder / found[0], "is damaged"
    commits = [int(found[1]) for name in names if (found := _COMMIT.fullmatch(name))]
    summed_up = max((int(found[1]) for found in checkpoints), default=-1)
    expected = summed_up + 1
    for version in (each for each in commits if each > summed_up):
        if version != expected:
            return folder / f"{expected:020d}.json", "is not there"
        path = folder / f"{version:020d}.json"
        reason = _not_json(path)
        if reason:
            return path, f"is damaged ({reason})"
        expected = version + 1
    return None


def _not_json(path: Path) -> str:
    lines = path.read_bytes().splitlines()
    for number, line in enumerate(lines, 1):
        try:
            json.decode(line, type=dict[str, Any])
        except (DecodeError, UnicodeDecodeError) as error:
            return f"line {number}: {error}"
    return "" if lines else "it is empty"


def _in_data(lake: Path, table: Table) -> tuple[Path, str] | None:
    from deltalake import DeltaTable  # noqa: PLC0415 an extra

    folder = lake / table.folder
    for row in pa.table(DeltaTable(folder).get_add_actions())["path"].to_pylist():
        path = folder / row
        if not path.exists():
            return path, "is not there"
        if not _is_parquet(path):
            return path, "is damaged"
    return None


def _is_parquet(path: Path) -> bool:
    try:
        pq.read_metadata(path)
    except (pa.ArrowInvalid, OSError):
        return False
    return True
