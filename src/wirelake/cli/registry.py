"""Identities and devices from the shell: asked of the gateway that has the data folder open, or changed in it."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from wirelake.cli.api import ApiClient
from wirelake.cli.pidfile import FOLDER_MODE
from wirelake.config import Settings
from wirelake.errors import InputError, InUseError
from wirelake.state.store import StateStore


@contextmanager
def registry(settings: Settings, *, make: bool = False) -> Iterator[StateStore | ApiClient]:
    """The data folder itself where nobody has it open; otherwise the API of the gateway that has.

    One that is not there is made only where something is added: elsewhere its name is a mistake.
    """
    folder = Path(settings.data)
    if make:
        folder.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
    elif not folder.is_dir():
        raise InputError(f"there is no data folder {folder} (see --data)")
    try:
        store = StateStore(folder / "state.db")
    except InUseError:
        yield ApiClient(settings)
        return
    try:
        yield store
    finally:
        store.close()
