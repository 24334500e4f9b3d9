"""Change files on disk safely: sync, lock, and replace them in one step.

The event log makes all of its changes through a `FileSystem`, so that a test can substitute one that fails.
"""

import fcntl
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from wirelake.errors import InUseError

Buffer = bytes | memoryview

TEMP_SUFFIX: Final = ".new"  # of a file that `replace_file` has not renamed yet
_FILE_MODE: Final = 0o640
_PID_BYTES_MAX: Final = 32
_FULL_SYNC: Final[int | None] = getattr(fcntl, "F_FULLFSYNC", None)  # macOS: fsync stops at the drive's cache
_FALLOCATE: Final[Callable[[int, int, int], Any] | None] = getattr(os, "posix_fallocate", None)  # not on macOS
_FDATASYNC: Final[Callable[[int], Any] | None] = getattr(os, "fdatasync", None)  # not on macOS


class FileSystem:
    """Write to the real disk. Files are identified by descriptors, as in `os`."""

    def create(self, path: Path, mode: int = _FILE_MODE) -> int:
        """Create a file and open it; raise FileExistsError if there is one of that name."""
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)

    def open(self, path: Path) -> int:
        """Open an existing file to change it in place."""
        return os.open(path, os.O_RDWR | os.O_CLOEXEC)

    def close(self, fd: int) -> None:
        os.close(fd)

    def allocate(self, fd: int, size: int) -> None:
        """Extend the file to this size and reserve the disk space."""
        if _FALLOCATE is not None:
            _FALLOCATE(fd, 0, size)
        else:
            os.ftruncate(fd, size)

    def write(self, fd: int, buffers: Sequence[Buffer], offset: int) -> None:
        """Write all buffers. After an error, any part of them may be in the file."""
        size = sum(len(buffer) for buffer in buffers)
        written = os.pwritev(fd, buffers, offset)
        if written != size:
            self._write_rest(fd, b"".join(buffers), offset, written)

    def _write_rest(self, fd: int, data: bytes, offset: int, written: int) -> None:
        while written < len(data):
            written += os.pwrite(fd, memoryview(data)[written:], offset + written)

    def fsync(self, fd: int) -> None:
        """Sync the content and all metadata."""
        if _FULL_SYNC is not None:
            fcntl.fcntl(fd, _FULL_SYNC)
        else:
            os.fsync(fd)

    def fsync_data(self, fd: int) -> None:
        """Sync the content and the metadata needed to read it."""
        if _FULL_SYNC is None and _FDATASYNC is not None:
            _FDATASYNC(fd)
        else:
            self.fsync(fd)

    def truncate(self, fd: int, size: int) -> None:
        os.ftruncate(fd, size)

    def rename(self, path: Path, new: Path) -> None:
        path.replace(new)

    def unlink(self, path: Path) -> None:
        path.unlink()

    def fsync_dir(self, folder: Path) -> None:
        """Make new names, renames and removals in the folder durable."""
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def replace_file(self, path: Path, content: bytes, *, mode: int = _FILE_MODE, sync: bool = True) -> None:
        """Write the content to a temporary file and rename it: readers see the old content or the new, never a mix.

        With `sync` the new content is durable when this returns. Without, a power failure may bring the old one back.
        """
        new = path.with_name(f"{path.name}.{os.getpid()}{TEMP_SUFFIX}")
        new.unlink(missing_ok=True)
        fd = self.create(new, mode)
        try:
            self.write(fd, [content], 0)
            if sync:
                self.fsync(fd)
        finally:
            self.close(fd)
        self.rename(new, path)
        if sync:
            self.fsync_dir(path.parent)


_DISK: Final = FileSystem()


def replace_file(path: Path, content: bytes, *, mode: int = _FILE_MODE, sync: bool = True) -> None:
    """Replace a file in one step, see `FileSystem.replace_file`."""
    _DISK.replace_file(path, content, mode=mode, sync=sync)


class FileLock:
    """Hold an exclusive advisory lock on a file, which then contains the id of this process.

    The operating system drops the lock with the process, so an id in a file that is not locked is stale.
    """

    __slots__ = ("_fd",)

    def __init__(self, path: Path, conflict: str, mode: int = _FILE_MODE) -> None:
        """Raise InUseError if another process holds it: `conflict`, followed by "in process" and that process's id."""
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, mode)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            holder = _read_holder(fd)
            os.close(fd)
            raise InUseError(f"{conflict} in process {holder}") from error
        os.ftruncate(fd, 0)
        os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)
        self._fd: int | None = fd

    def release(self) -> None:
        """Unlock. The file stays: if it were removed, two processes could lock two files of the same name."""
        if self._fd is not None:
            os.ftruncate(self._fd, 0)
            os.close(self._fd)
            self._fd = None


def lock_holder(path: Path) -> int | None:
    """Return the id of the process that holds a `FileLock` on the file, or None if no process does."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return None
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = _read_holder(fd)
        return int(holder) if holder.isdecimal() else None
    finally:
        os.close(fd)
    return None


@contextmanager
def wait_for_lock(path: Path, *, shared: bool = False) -> Iterator[None]:
    """Wait for a lock on the file and hold it: alone, or together with others that ask for a shared one."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, _FILE_MODE)
    try:
        fcntl.flock(fd, fcntl.LOCK_SH if shared else fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)


def _read_holder(fd: int) -> str:
    return os.pread(fd, _PID_BYTES_MAX, 0).decode("ascii", "replace").strip() or "unknown"
