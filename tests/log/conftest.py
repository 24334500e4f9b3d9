import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from wirelake.log.segments.log import SegmentLog
from wirelake.log.segments.settings import LogSettings

ROUNDS = 60


def pytest_addoption(parser: pytest.Parser) -> None:
    with suppress(ValueError):  # another folder's crash tests may have added it
        parser.addoption("--rounds", type=int, help="how often the crash tests kill a writer")


@pytest.fixture
def rounds(request: pytest.FixtureRequest) -> int:
    """`pytest tests/log --rounds 1000`, or CRASH_ROUNDS=1000 where other folders run too."""
    asked: int | None = request.config.getoption("--rounds", default=None)
    return asked or int(os.environ.get("CRASH_ROUNDS", ROUNDS))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "log"


@pytest.fixture
def log(folder: Path) -> Iterator[SegmentLog]:
    """A log of small segments."""
    opened = SegmentLog(folder, LogSettings(segment_bytes=64 * 1024))
    yield opened
    opened.close()
