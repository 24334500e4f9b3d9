from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from wirelake.state.store import StateStore

Reopen = Callable[[], StateStore]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state.db"


@pytest.fixture
def reopen(path: Path) -> Iterator[Reopen]:
    """Closes the store it opened before, if any, and opens it anew."""
    opened: list[StateStore] = []

    def again() -> StateStore:
        if opened:
            opened.pop().close()
        opened.append(StateStore(path))
        return opened[0]

    yield again
    if opened:
        opened[0].close()


@pytest.fixture
def store(reopen: Reopen) -> StateStore:
    return reopen()
