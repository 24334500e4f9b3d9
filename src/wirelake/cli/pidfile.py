"""Keep data/gateway.pid: which process is the gateway of this data folder.

The gateway holds a lock on the file for as long as it lives, and the operating system drops the lock with the process.
So a process id in a file that is not locked is stale, even if another process has that id now.
"""

from pathlib import Path
from typing import Final

from wirelake.errors import StorageError
from wirelake.files import FileLock, lock_holder

NAME: Final = "gateway.pid"
FOLDER_MODE: Final = 0o700  # of a new data folder: it contains the bytes of the wire, including tokens of logins
_FILE_MODE: Final = 0o644


class PidFile:
    """Hold the lock that makes this process the gateway of a data folder."""

    def __init__(self, folder: Path) -> None:
        try:
            folder.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
            conflict = f"the data folder {folder} is in use by the gateway"
            self._lock = FileLock(folder / NAME, conflict, _FILE_MODE)
        except OSError as error:
            raise StorageError(f"the data folder {folder} cannot be used: {error}") from error

    def release(self) -> None:
        self._lock.release()


def running(folder: Path) -> int | None:
    """Return the process id of the gateway that runs on this data folder, or None."""
    return lock_holder(folder / NAME)
