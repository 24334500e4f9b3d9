"""One writer for each log: an advisory lock that the operating system drops with the process."""

import fcntl
import os
from pathlib import Path
from typing import Final

from wirelake.errors import InUseError

NAME: Final = "lock"
_PID_BYTES_MAX: Final = 32


class WriterLock:
    __slots__ = ("_fd",)

    def __init__(self, folder: Path) -> None:
        fd = os.open(folder / NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            pid = os.pread(fd, _PID_BYTES_MAX, 0).decode("ascii", "replace").strip() or "unknown"
            os.close(fd)
            raise InUseError(f"the log in {folder} is open for writing in process {pid}") from error
        os.ftruncate(fd, 0)
        os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)
        self._fd: int | None = fd

    def release(self) -> None:
        """The file stays: removing it would let two writers lock two files of one name."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None
