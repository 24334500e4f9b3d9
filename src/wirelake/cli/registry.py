"""Access identities and devices, through the running gateway or in the data folder itself."""

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
    """Yield the data folder's store or, if a gateway has it open, that gateway's API.

    A missing folder is created only with `make`, to add something: otherwise its name is a mistake.
    """
    folder = Path(settings.data)
    if make:
        folder.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
    elif not folder.is_dir():
        raise InputError(f"data folder {folder} does not exist (see --data)")
    try:
        store = StateStore(folder / "state.db")
    except InUseError:
        yield ApiClient(settings)
        return
    try:
        yield store
    finally:
        store.close()
