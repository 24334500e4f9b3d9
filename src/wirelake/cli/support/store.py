"""Open the identities and devices: the store of the data folder, or the API of the gateway that has it open."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from wirelake.cli.support.api import ApiClient
from wirelake.cli.support.processes import FOLDER_MODE
from wirelake.config import Settings
from wirelake.errors import InputError, InUseError
from wirelake.key_source import state_key
from wirelake.state.store import StateStore


@contextmanager
def store_or_api(settings: Settings, *, create: bool = False) -> Iterator[StateStore | ApiClient]:
    """Yield the data folder's store or, if a gateway has it open, that gateway's API.

    A missing folder is created only with `create`, to add something: for any other command, its name is a mistake.
    """
    folder = Path(settings.data)
    if create:
        folder.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
    elif not folder.is_dir():
        raise InputError(f"data folder {folder} does not exist (see --data)")
    try:
        store = StateStore(folder / "state.db", key=state_key(settings.state.key, folder))
    except InUseError:
        yield ApiClient(settings)
        return
    try:
        yield store
    finally:
        store.close()
