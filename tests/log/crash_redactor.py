"""Redacts a log and kills itself at a step on the way. Started once; forks for each "STEP FOLDER" it reads.

On standard output, a line for each: `killed` or `done`. Forking saves the time that importing takes.
"""

import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from log.records import AT_US
from log.redacting import blank_passwords
from wirelake.files import Buffer, FileSystem
from wirelake.log.segments.redaction import redact_log


class KillingFiles(FileSystem):
    """Kill the process before one of its steps; a write is torn."""

    def __init__(self, step: int) -> None:
        self._left = step

    def _step(self) -> None:
        if self._left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        self._left -= 1

    def create(self, path: Path, mode: int = 0o640) -> int:
        self._step()
        return super().create(path, mode)

    def write(self, fd: int, buffers: Sequence[Buffer], offset: int) -> None:
        if self._left == 0:
            data = b"".join(buffers)
            os.pwrite(fd, data[: len(data) // 2], offset)
        self._step()
        super().write(fd, buffers, offset)

    def fsync(self, fd: int) -> None:
        self._step()
        super().fsync(fd)

    def rename(self, path: Path, new: Path) -> None:
        self._step()
        super().rename(path, new)

    def fsync_dir(self, folder: Path) -> None:
        self._step()
        super().fsync_dir(folder)


def main() -> None:
    for line in sys.stdin:
        step, _, folder = line.strip().partition(" ")
        child = os.fork()
        if child == 0:
            redact_log(Path(folder), blank_passwords, AT_US, files=KillingFiles(int(step)))
            os._exit(0)
        status = os.waitpid(child, 0)[1]
        print("killed" if os.WIFSIGNALED(status) else "done", flush=True)


if __name__ == "__main__":
    main()
