"""Identities and devices from the shell: asked of the gateway that has the data folder open, or changed in it."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from wirelake.cli.api import Api
from wirelake.config import Settings
from wirelake.errors import InUseError
from wirelake.state.store import StateStore


@contextmanager
def registry(settings: Settings) -> Iterator[StateStore | Api]:
    """The data folder itself where nobody has it open; otherwise the API of the gateway that has."""
    folder = Path(settings.data)
    folder.mkdir(parents=True, exist_ok=True)
    try:
        store = StateStore(folder / "state.db")
    except InUseError:
        yield Api(settings)
        return
    try:
        yield store
    finally:
        store.close()
