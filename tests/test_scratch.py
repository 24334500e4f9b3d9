"""`./dev test` keeps the files of tests in memory where it can."""

from pathlib import Path

import pytest
import scratch

VARIABLE = "PYTEST_DEBUG_TEMPROOT"


@pytest.fixture(autouse=True)
def unset(monkeypatch: pytest.MonkeyPatch) -> None:
    """Remove what the run of this test has set itself."""
    monkeypatch.delenv(VARIABLE, raising=False)


def test_in_memory_where_there_is_room(tmp_path: Path) -> None:
    assert scratch.environment(tmp_path, 1)[VARIABLE] == str(tmp_path)


def test_on_disk_where_there_is_little_room(tmp_path: Path) -> None:
    assert VARIABLE not in scratch.environment(tmp_path, 1 << 62)


def test_on_disk_where_nothing_is_kept_in_memory(tmp_path: Path) -> None:
    assert VARIABLE not in scratch.environment(tmp_path / "absent", 1)


def test_on_disk_where_no_program_may_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("os.ST_NOEXEC", ~0)
    assert VARIABLE not in scratch.environment(tmp_path, 1)


def test_a_folder_that_the_user_chose_stays(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(VARIABLE, "/elsewhere")
    assert scratch.environment(tmp_path, 1)[VARIABLE] == "/elsewhere"
