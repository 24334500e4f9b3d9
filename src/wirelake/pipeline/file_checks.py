"""Checks that files which tasks say they wrote are there, before anything refers to them.

A worker whose lake folder is another one writes its files where nobody else sees them: committing them would make the
tables unreadable. So the driver looks at each file itself; for a while, where another machine's files appear late.
"""

import os
import socket
import time
from collections.abc import Iterable
from pathlib import Path

from msgspec.structs import replace

from wirelake.errors import StorageError
from wirelake.lake.tables import TABLES
from wirelake.limits import LOG_VIEW_POLL_S
from wirelake.pipeline.parquet import FileAction


def worker_name() -> str:
    """Name this process as the driver's errors do."""
    return f"{socket.gethostname()}, process {os.getpid()}"


def from_here(files: Iterable[FileAction]) -> list[FileAction]:
    """Mark files as written by this process."""
    worker = worker_name()
    return [replace(file, worker=worker) for file in files]


class FileChecks:
    """Waits `wait_s` in all for files that are not seen yet."""

    def __init__(self, wait_s: float = 0.0) -> None:
        self._wait_s = wait_s

    def tables(self, lake: Path, files: Iterable[FileAction], source: str = "") -> None:
        """Refuse files of tables that are not there as reported. `source` names who says so, instead of the worker."""
        for file in files:
            self.file(lake / TABLES[file.table].folder / file.path, file.bytes, file.worker, source)

    def file(self, path: Path, size: int, worker: str, source: str = "") -> None:
        found = _size(path)
        while found != size and self._wait_s > 0:
            step_s = min(LOG_VIEW_POLL_S, self._wait_s)
            self._wait_s -= step_s
            time.sleep(step_s)
            found = _size(path)
        if found == size:
            return
        there = "is not there" if found is None else f"has {found} bytes"
        by = f", reported by the worker on {worker}" if worker else ""
        raise StorageError(
            f"{path} is part of what {source or 'a task'} says was written, but {there} (expected: {size} bytes{by}); "
            "nothing refers to it yet: every worker must see the data folder as this process does"
        )


def _size(path: Path) -> int | None:
    try:
        return path.stat().st_size
    except (FileNotFoundError, NotADirectoryError):
        return None
