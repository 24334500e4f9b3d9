"""Share one Spark session per pytest worker, because it takes seconds to start."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from wirelake.lake.store import LocalStore
from wirelake.log.segments.log import SegmentLog
from wirelake.log.segments.settings import LogSettings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


PLUGIN = Path(__file__).parent / "plugin"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run all tests that share the session in one worker, so that there is one session."""
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.xdist_group("spark"))


@pytest.fixture(scope="session")
def codec(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the file with the installed version of `mended`."""
    return tmp_path_factory.mktemp("codec") / "version"


@pytest.fixture(scope="session")
def spark(codec: Path) -> "Iterator[SparkSession]":
    """Open a session whose Python workers have the protocols `brittle` and `mended` of the folder plugin/."""
    from wirelake.pipeline.spark.session import open_session

    os.environ["MENDED_CODEC"] = str(codec)
    os.environ["PYTHONPATH"] = os.pathsep.join([str(PLUGIN), os.environ.get("PYTHONPATH", "")])
    session = open_session("local[2]", "tests", {"spark.ui.enabled": "false", "spark.driver.memory": "768m"})
    yield session
    session.stop()


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Return a data folder."""
    return tmp_path / "data"


@pytest.fixture
def lake(tmp_path: Path) -> LocalStore:
    """Return an empty lake."""
    return LocalStore(tmp_path)


@pytest.fixture
def log(data: Path) -> Iterator[SegmentLog]:
    """Open a log with small segments."""
    opened = SegmentLog(data / "log", LogSettings(segment_bytes=64 * 1024, fsync=False, keep_days=None))
    yield opened
    opened.close()
