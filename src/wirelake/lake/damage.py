"""Explain why a table cannot be read: which of its files is damaged or missing, and what to do.

Libraries report damaged files in their own ways: DuckDB with a backtrace, delta-rs with a DeltaError that names no
file, pyarrow with an ArrowInvalid, Spark with pages of Java. This turns all of them into one error.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
from msgspec import DecodeError, json

from wirelake.errors import DamagedTableError, WirelakeError
from wirelake.lake.store import Store
from wirelake.lake.tables import TABLES, LakeTable

_FILE_NAME: Final = re.compile(r"(?:bronze|silver|gold)/\w+/[^\s\"'|:,;)]+\.parquet")
_COMMIT: Final = re.compile(r"(\d{20})\.json")
_CHECKPOINT: Final = re.compile(r"(\d{20})\.checkpoint.*\.parquet")
ACTIONS: Final = "wirelakeActions"  # in a commit of ours: how many lines follow the first one
_ADVICE: Final = (
    "restore the file from a backup; or move the lake and its checkpoint (checkpoints/tables) away and run "
    "`wirelake pipeline run`, which fills the tables again from what is left in the log"
)


def find_damage(lake: Store, error: BaseException | str, *, check_files: bool = False) -> DamagedTableError | None:
    """Return the damage that caused this error, or None. `check_files` also opens every file of every table."""
    written = [table for table in TABLES.values() if lake.has_files(f"{table.folder}/_delta_log")]
    for table in written:
        found = _in_log(lake, f"{table.folder}/_delta_log")
        if found is not None:
            return _damage(table, *found)
    named = _FILE_NAME.search(str(error).replace("%3D", "="))
    for table in written:
        if named is not None and named[0].startswith(f"{table.folder}/"):
            return _damage(table, named[0], "is missing" if lake.size(named[0]) is None else "is damaged")
        found = _in_data(lake, table) if check_files and named is None else None
        if found is not None:
            return _damage(table, *found)
    return None


@contextmanager
def explain_damage(lake: Store, *, check_files: bool = False) -> Iterator[None]:
    """Raise libraries' errors about damaged files as DamagedTableError, and all others as they are."""
    try:
        yield
    except (WirelakeError, AssertionError):
        raise
    except Exception as error:
        damage = find_damage(lake, error, check_files=check_files)
        if damage is None:
            raise
        raise damage from error


def _damage(table: LakeTable, path: str, what: str) -> DamagedTableError:
    """Name the file relative to the data folder: readers of tables need not know where that is."""
    return DamagedTableError(f"{table.name} cannot be read: lake/{path} {what}; {_ADVICE}")


def _in_log(lake: Store, folder: str) -> tuple[str, str] | None:
    """Return the first file of a Delta log that is damaged or missing, and what is wrong with it.

    A reader begins with the newest checkpoint, so older files do not matter.
    """
    names = [path.removeprefix(f"{folder}/") for path in lake.list(folder)]
    checkpoints = [found for name in names if (found := _CHECKPOINT.fullmatch(name))]
    checkpointed = _checkpointed(names)
    for found in checkpoints:
        if int(found[1]) == checkpointed and not _is_parquet(lake, f"{folder}/{found[0]}"):
            return f"{folder}/{found[0]}", "is damaged"
    expected = checkpointed + 1
    for version in _commits(names):
        if version != expected:
            return f"{folder}/{expected:020d}.json", "is missing"
        path = f"{folder}/{version:020d}.json"
        reason = find_commit_error(lake.read(path))
        if reason:
            return path, f"is damaged ({reason})"
        expected = version + 1
    return None


def commits_of(lake: Store, folder: str) -> list[int]:
    """Return the versions in a Delta log after its newest checkpoint, in order."""
    return _commits([path.removeprefix(f"{folder}/") for path in lake.list(folder)])


def _commits(names: list[str]) -> list[int]:
    versions = sorted(int(found[1]) for name in names if (found := _COMMIT.fullmatch(name)))
    return [version for version in versions if version > _checkpointed(names)]


def _checkpointed(names: list[str]) -> int:
    return max((int(found[1]) for name in names if (found := _CHECKPOINT.fullmatch(name))), default=-1)


def find_commit_error(content: bytes) -> str:
    """Return what is wrong with a commit, or "" if all of it is there and can be read."""
    lines = content.splitlines()
    expected = 1
    for number, line in enumerate(lines, 1):
        try:
            action = json.decode(line, type=dict[str, Any])
        except (DecodeError, UnicodeDecodeError) as error:
            return f"line {number}: {error}"
        expected += int(action.get("commitInfo", {}).get(ACTIONS, 0))
    return "" if len(lines) >= expected else f"it has {len(lines)} of {expected} lines"


def _in_data(lake: Store, table: LakeTable) -> tuple[str, str] | None:
    from deltalake import DeltaTable  # noqa: PLC0415 an extra

    opened = DeltaTable(lake.table_uri(table.folder), storage_options=lake.delta_options)
    for row in pa.table(opened.get_add_actions())["path"].to_pylist():
        path = f"{table.folder}/{row}"
        if lake.size(path) is None:
            return path, "is missing"
        if not _is_parquet(lake, path):
            return path, "is damaged"
    return None


def _is_parquet(lake: Store, path: str) -> bool:
    try:
        with lake.open_input(path) as source:
            pq.read_metadata(source)
    except (pa.ArrowInvalid, OSError):
        return False
    return True
