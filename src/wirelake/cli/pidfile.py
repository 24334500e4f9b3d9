"""data/gateway.pid: which process is the gateway of this data folder.

The gateway holds a lock on the file for as long as it lives, and the operating system drops it with the process. So a
number in a file that nobody holds is stale, whoever has that number now; and one in a file that is held is the gateway.
"""

import fcntl
import os
from pathlib import Path
from typing import Final

from wirelake.errors import InUseError, StorageError

NAME: Final = "gateway.pid"
FOLDER_MODE: Final = 0o700  # of a data folder that is made: the bytes of the wire are in it, tokens of logins included
_PID_BYTES_MAX: Final = 32


class PidFile:
    """Made by the gateway's own process."""

    def __init__(self, folder: Path) -> None:
        path = folder / NAME
        try:
            folder.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
            self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise StorageError(f"the data folder {folder} cannot be used: {error}") from error
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            pid = _read(self._descriptor)
            os.close(self._descriptor)
            raise InUseError(f"the data folder {folder} is in use by the gateway in process {pid}") from error
        os.ftruncate(self._descriptor, 0)
        os.pwrite(self._descriptor, f"{os.getpid()}\n".encode(), 0)

    def release(self) -> None:
        """The file stays: removing it would let two gateways lock two files of one name."""
        os.ftruncate(self._descriptor, 0)
        os.close(self._descriptor)


def running(folder: Path) -> int | None:
    """The process of the gateway that runs on this data folder, if one does."""
    try:
        descriptor = os.open(folder / NAME, os.O_RDONLY | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        pid = _read(descriptor)
        return int(pid) if pid.isdecimal() else None
    finally:
        os.close(descriptor)
    return None


def _read(descriptor: int) -> str:
    return os.pread(descriptor, _PID_BYTES_MAX, 0).decode("ascii", "replace").strip() or "unknown"
