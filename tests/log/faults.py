"""Disks that fail: with errors, or by losing everything that was not synced."""

import os
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from random import Random
from threading import Lock

from msgspec import Struct, field

from wirelake.files import Buffer, FileSystem
from wirelake.log.segments.high_watermark import WATERMARK_FILE

SECTOR_BYTES = 512


class FaultyFiles(FileSystem):
    """Raises what it was told to, operation by operation, before going on as usual."""

    def __init__(self) -> None:
        self._faults: dict[str, deque[int]] = {}
        self._always: dict[str, int] = {}
        self.partial_bytes = 0  # of a write that fails, as much as this is written
        self.hits = 0

    def fail(self, operation: str, *errnos: int) -> None:
        """The next calls of the operation fail, one for each number."""
        self._faults.setdefault(operation, deque()).extend(errnos)

    def break_(self, operation: str, errno: int) -> None:
        """Every call fails until `mend`."""
        self._always[operation] = errno

    def mend(self) -> None:
        self._always.clear()
        self._faults.clear()

    def _check(self, operation: str) -> None:
        waiting = self._faults.get(operation)
        errno = waiting.popleft() if waiting else self._always.get(operation)
        if errno is not None:
            self.hits += 1
            raise OSError(errno, os.strerror(errno))

    def create(self, path: Path, mode: int = 0o640) -> int:
        self._check("create")
        return super().create(path, mode)

    def allocate(self, fd: int, size: int) -> None:
        self._check("allocate")
        super().allocate(fd, size)

    def write(self, fd: int, pieces: Sequence[Buffer], offset: int) -> None:
        try:
            self._check("write")
        except OSError:
            os.pwrite(fd, b"".join(pieces)[: self.partial_bytes], offset)
            raise
        super().write(fd, pieces, offset)

    def fsync(self, fd: int) -> None:
        self._check("fsync")
        super().fsync(fd)

    def fsync_data(self, fd: int) -> None:
        self._check("fsync_data")
        super().fsync_data(fd)

    def truncate(self, fd: int, size: int) -> None:
        self._check("truncate")
        super().truncate(fd, size)

    def unlink(self, path: Path) -> None:
        self._check("unlink")
        super().unlink(path)

    def fsync_dir(self, folder: Path) -> None:
        self._check("fsync_dir")
        super().fsync_dir(folder)


class Inode(Struct, eq=False):
    """What of a file is on the platter, and what waits in memory: (offset, content), or (size, None) for a new size."""

    durable: bytearray = field(default_factory=bytearray)
    pending: list[tuple[int, bytes | None]] = field(default_factory=list)

    def sync(self) -> None:
        for place, content in self.pending:
            apply(self.durable, place, content)
        self.pending.clear()


class Snapshot(Struct, frozen=True):
    """The disk at one moment: what a power failure then would leave."""

    operation: str
    files: dict[Path, tuple[bytes, tuple[tuple[int, bytes | None], ...]]]
    acknowledged_seq: int
    committed_seq: int

    def restore(self, source: Path, target: Path, random: Random) -> None:
        """Make the files anew. Sectors that were waiting may have reached the platter or not, in any mixture."""
        for path, (durable, pending) in self.files.items():
            content = torn(durable, pending, random)
            new = target / path.relative_to(source)
            new.parent.mkdir(parents=True, exist_ok=True)
            if path.name == WATERMARK_FILE:
                # Written through a map: any value it ever had may be the one on the platter.
                content[8:16] = random.randint(0, self.committed_seq).to_bytes(8, "little")
            new.write_bytes(content)


def torn(durable: bytes | bytearray, pending: Sequence[tuple[int, bytes | None]], random: Random) -> bytearray:
    """What a power failure leaves of a file: of what was not synced, any mixture of sectors and sizes."""
    content = bytearray(durable)
    for place, piece in pending:
        if not piece:
            if random.random() < 0.5:
                apply(content, place, piece)
            continue
        for start in range(0, len(piece), SECTOR_BYTES):
            if random.random() < 0.5:
                apply(content, place + start, piece[start : start + SECTOR_BYTES])
    return content


def apply(content: bytearray, place: int, piece: bytes | None) -> None:
    size = place if piece is None else place + len(piece)
    if piece is None:
        del content[size:]
    if len(content) < size:
        content.extend(bytes(size - len(content)))
    if piece is not None:
        content[place:size] = piece


class PowerFiles(FileSystem):
    """Keeps book of what is synced, and takes a snapshot before every operation."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._open: dict[int, Inode] = {}
        self._now: dict[Path, Inode] = {}
        self._durable: dict[Path, Inode] = {}
        self.snapshots: list[Snapshot] = []
        self.acknowledged_seq = 0
        self.committed_seq = 0

    def adopt(self, folder: Path) -> None:
        """What is in the folder already is on the platter."""
        for path in folder.rglob("*"):
            if path.is_file():
                self._now[path] = self._durable[path] = Inode(bytearray(path.read_bytes()))

    def snapshot(self, operation: str) -> None:
        files = {path: (bytes(inode.durable), tuple(inode.pending)) for path, inode in self._durable.items()}
        self.snapshots.append(Snapshot(operation, files, self.acknowledged_seq, self.committed_seq))

    def create(self, path: Path, mode: int = 0o640) -> int:
        self.snapshot("create")
        fd = super().create(path, mode)
        self._open[fd] = self._now[path] = Inode()
        return fd

    def open(self, path: Path) -> int:
        fd = super().open(path)
        self._open[fd] = self._now[path]
        return fd

    def close(self, fd: int) -> None:
        self._open.pop(fd)
        super().close(fd)

    def allocate(self, fd: int, size: int) -> None:
        super().allocate(fd, size)
        self._open[fd].pending.append((size, None))

    def write(self, fd: int, pieces: Sequence[Buffer], offset: int) -> None:
        self.snapshot("write")
        super().write(fd, pieces, offset)
        self._open[fd].pending.append((offset, b"".join(pieces)))

    def fsync(self, fd: int) -> None:
        self.snapshot("fsync")
        super().fsync(fd)
        self._open[fd].sync()

    def fsync_data(self, fd: int) -> None:
        self.snapshot("fsync_data")
        super().fsync_data(fd)
        self._open[fd].sync()

    def truncate(self, fd: int, size: int) -> None:
        super().truncate(fd, size)
        self._open[fd].pending.append((size, None))

    def rename(self, path: Path, new: Path) -> None:
        super().rename(path, new)
        self._now[new] = self._now.pop(path)
        self.snapshot("rename")

    def unlink(self, path: Path) -> None:
        super().unlink(path)
        self._now.pop(path)

    def fsync_dir(self, folder: Path) -> None:
        self.snapshot("fsync_dir")
        super().fsync_dir(folder)
        for path in [path for path in self._durable if path.parent == folder]:
            del self._durable[path]
        self._durable |= {path: inode for path, inode in self._now.items() if path.parent == folder}
