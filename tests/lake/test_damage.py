"""Test that a damaged file gives one sentence with the table, the file and what to do, never a traceback."""

from collections.abc import Callable
from datetime import UTC, date, datetime
from pathlib import Path

import pytest
from cli.serving import wirelake

from lake.writing import write
from wirelake.errors import DamagedTableError, InputError
from wirelake.lake.damage import explain_damage, find_damage
from wirelake.lake.query import list_tables, query
from wirelake.lake.store import LocalStore
from wirelake.lake.tables import LEDGER, READINGS

AT = datetime(2026, 1, 2, tzinfo=UTC)
SQL = "SELECT * FROM silver.readings"


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    folder = tmp_path / "lake"
    write(folder, LEDGER, {"hour": AT, "protocol": "comet", "balanced": True})
    for number in range(3):
        write(
            folder, READINGS, {"seq": number, "received_at": AT, "serial": "m", "value": 1.5, "day": date(2026, 1, 2)}
        )
    return folder


def commit(lake: Path, version: int) -> Path:
    return lake / READINGS.folder / "_delta_log" / f"{version:020d}.json"


def data(lake: Path) -> Path:
    return min((lake / READINGS.folder).rglob("*.parquet"))


def data_folder(path: Path) -> Path:
    return next(parent.parent for parent in path.parents if parent.name == "lake")


def cut(path: Path) -> Path:
    path.write_bytes(path.read_bytes()[:40])
    return path


def fill_with_noise(path: Path) -> Path:
    path.write_bytes(b"\0\1 noise")
    return path


def remove(path: Path) -> Path:
    path.unlink()
    return path


def zero_inside(path: Path) -> Path:
    content = path.read_bytes()
    path.write_bytes(content[:10] + bytes(100) + content[110:])
    return path


LOG = [
    (commit, 1, cut, "is damaged"),
    (commit, 2, fill_with_noise, "is damaged"),
    (commit, 0, remove, "is missing"),
    (commit, 1, remove, "is missing"),
]
DATA = [(cut, "is damaged"), (fill_with_noise, "is damaged"), (zero_inside, "is damaged"), (remove, "is missing")]


def check(text: str, path: Path, what: str) -> None:
    assert text.startswith(f"silver.readings cannot be read: {path.relative_to(data_folder(path))} {what}")
    assert "restore the file from a backup" in text
    assert "\n" not in text


@pytest.mark.parametrize(("place", "version", "harm", "what"), LOG)
def test_a_damaged_commit(
    lake: Path, place: Callable[[Path, int], Path], version: int, harm: Callable[[Path], Path], what: str
) -> None:
    path = harm(place(lake, version))
    with pytest.raises(DamagedTableError) as raised:
        query(LocalStore(lake), SQL)
    check(str(raised.value), path, what)
    with pytest.raises(DamagedTableError) as listed:
        list_tables(LocalStore(lake))
    check(str(listed.value), path, what)


@pytest.mark.parametrize(("harm", "what"), DATA)
def test_a_damaged_file_of_rows(lake: Path, harm: Callable[[Path], Path], what: str) -> None:
    path = harm(data(lake))
    with pytest.raises(DamagedTableError) as raised:
        query(LocalStore(lake), SQL)
    check(str(raised.value), path, what)
    assert query(LocalStore(lake), "SELECT protocol FROM gold.ledger").rows == [["comet"]]


def test_a_library_that_names_no_file_is_helped(lake: Path) -> None:
    path = cut(data(lake))
    with pytest.raises(DamagedTableError) as found, explain_damage(LocalStore(lake), check_files=True):
        raise OSError("Parquet magic bytes not found in footer")
    check(str(found.value), path, "is damaged")


def test_what_is_no_damage_stays_what_it_is(lake: Path) -> None:
    assert find_damage(LocalStore(lake), ValueError("else"), check_files=True) is None
    with pytest.raises(ValueError, match="else"), explain_damage(LocalStore(lake), check_files=True):
        raise ValueError("else")
    with pytest.raises(InputError, match="Conversion"):
        query(LocalStore(lake), "SELECT 'x'::INT")


def test_the_command_line_ends_with_the_sentence(lake: Path) -> None:
    path = cut(commit(lake, 1))
    for words in (["query", SQL], ["pipeline", "compact"]):
        ran = wirelake(*words, "--data", str(lake.parent))
        assert ran.returncode == 1
        assert ran.stdout == ""
        (line,) = ran.stderr.splitlines()
        check(line.removeprefix("wirelake: "), path, "is damaged")
