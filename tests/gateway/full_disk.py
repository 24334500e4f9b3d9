"""A disk that is full for a while, and a check that no exception reaches the event loop."""

import asyncio
import errno
import os
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import pytest

from gateway.running_gateway import Running, until
from wirelake.files import Buffer, FileSystem


class FullDisk:
    """Replace the disk of every log that is opened from now on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.is_full = False
        write = FileSystem.write

        def write_or_fail(files: FileSystem, fd: int, pieces: Sequence[Buffer], offset: int) -> None:
            if self.is_full:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            write(files, fd, pieces, offset)

        monkeypatch.setattr(FileSystem, "write", write_or_fail)

    @asynccontextmanager
    async def refusing(self, running: Running) -> AsyncIterator[None]:
        """Let the log refuse everything inside this context, and accept records again afterwards."""
        log = running.gateway.log
        self.is_full = True
        log.append(0, "", "test", "", "", "", "", b"")
        await until(lambda: log.refusal)
        try:
            yield
        finally:
            self.is_full = False
            await until(lambda: not log.refusal)


@contextmanager
def nothing_escapes() -> Iterator[None]:
    """Fail if an exception reaches the event loop's handler inside this context."""
    loop = asyncio.get_running_loop()
    escaped: list[dict[str, Any]] = []
    loop.set_exception_handler(lambda _loop, context: escaped.append(context))
    try:
        yield
    finally:
        loop.set_exception_handler(None)
    assert not escaped
