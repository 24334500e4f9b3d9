from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from wirelake.state.store import StateStore

Records = list[tuple[str, str, bytes, dict[str, object]]]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[StateStore]:
    """Real, but without the wait for the disk: the order of things is tested here."""
    store = StateStore(tmp_path / "state.db")
    store.database.write_connection.execute("PRAGMA synchronous = OFF")
    yield store
    store.close()


@pytest.fixture
def records() -> Records:
    return []


@pytest.fixture
def record(records: Records) -> Callable[[str, str, bytes, dict[str, object]], None]:
    return lambda *what: records.append(what)
