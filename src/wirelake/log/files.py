"""Every change the log makes on disk goes through here, so that a test can stand in for a disk that fails."""

import fcntl
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from wirelake.log.block import Bytes

NEW_SUFFIX: Final = ".new"  # of a file that is not yet what it is to become
_FULL_SYNC: Final[int | None] = getattr(fcntl, "F_FULLFSYNC", None)  # macOS: its fsync stops at the drive's cache


class Files:
    """The real disk. A file is known by its descriptor, as in `os`."""

    def create(self, path: Path) -> int:
        """A new file; an error if there is one of that name."""
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o640)

    def open(self, path: Path) -> int:
        """A file that is there, to change it in place."""
        return os.open(path, os.O_RDWR | os.O_CLOEXEC)

    def close(self, fd: int) -> None:
        os.close(fd)

    def allocate(self, fd: int, size: int) -> None:
        """Make the file this long and reserve the room."""
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(fd, 0, size)
        else:
            os.ftruncate(fd, size)

    def write(self, fd: int, pieces: Sequence[Bytes], offset: int) -> None:
        """All of it, or an error; after an error any part of it may be there."""
        left = sum(len(piece) for piece in pieces)
        written = os.pwritev(fd, pieces, offset)
        if written != left:
            self._write_rest(fd, b"".join(pieces), offset, written)

    def _write_rest(self, fd: int, data: bytes, offset: int, written: int) -> None:
        while written < len(data):
            written += os.pwrite(fd, memoryview(data)[written:], offset + written)

    def fsync(self, fd: int) -> None:
        """Everything about the file."""
        if _FULL_SYNC is not None:
            fcntl.fcntl(fd, _FULL_SYNC)
        else:
            os.fsync(fd)

    def fsync_data(self, fd: int) -> None:
        """The content and what is needed to find it."""
        if _FULL_SYNC is None and hasattr(os, "fdatasync"):
            os.fdatasync(fd)
        else:
            self.fsync(fd)

    def truncate(self, fd: int, size: int) -> None:
        os.ftruncate(fd, size)

    def rename(self, path: Path, new: Path) -> None:
        path.replace(new)

    def unlink(self, path: Path) -> None:
        path.unlink()

    def fsync_dir(self, folder: Path) -> None:
        """New names, renames and removals in the folder."""
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def replace_file(self, path: Path, content: bytes) -> None:
        """The old content or the new one, never something between, whatever happens."""
        new = path.with_name(f"{path.name}.{os.getpid()}{NEW_SUFFIX}")
        new.unlink(missing_ok=True)
        fd = self.create(new)
        try:
            self.write(fd, [content], 0)
            self.fsync(fd)
        finally:
            self.close(fd)
        self.rename(new, path)
        self.fsync_dir(path.parent)
