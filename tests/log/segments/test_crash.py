"""A real writer process, killed with SIGKILL at random moments, again and again."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import IO

import pytest

from log.records import check
from wirelake.log.segments.log import SegmentLog
from wirelake.log.segments.reader import LogReader

ROUNDS_PER_FOLDER = 10
LIFE_S_MAX = 0.06


class Writers:
    """The process that forks writers."""

    def __init__(self) -> None:
        tests = Path(__file__).parent.parent.parent
        self._process = subprocess.Popen(
            [sys.executable, "-m", "log.crash_writer"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=tests
        )

    def life(self, folder: Path, life_s: float) -> int:
        """Let a writer live for about this long after it opened the log; the last seq it said to be on disk."""
        self._pipe(self._process.stdin).write(f"{folder}\n".encode())
        self._pipe(self._process.stdin).flush()
        pid = seq = 0
        for line in self._pipe(self._process.stdout):
            words = line.decode().split()
            if words[0] == "writer":
                pid = int(words[1])
            elif words[0] == "on":
                seq = max(seq, int(words[2]))
            elif words[0] == "dead":
                assert int(words[1]) == -signal.SIGKILL
                return seq
            if pid and (words[0] == "open" or life_s == 0):
                time.sleep(life_s)
                os.kill(pid, signal.SIGKILL)
                pid = 0
        raise AssertionError("the process that forks writers ended")

    def end(self) -> None:
        self._pipe(self._process.stdin).close()
        self._pipe(self._process.stdout).read()
        self._process.wait(10)
        self._pipe(self._process.stdout).close()

    @staticmethod
    def _pipe(pipe: IO[bytes] | None) -> IO[bytes]:
        assert pipe is not None
        return pipe


@pytest.fixture
def writers() -> Iterator[Writers]:
    started = Writers()
    yield started
    started.end()


def test_what_was_on_disk_survives_sigkill(tmp_path: Path, writers: Writers, rounds: int) -> None:
    random = Random(0)
    confirmed = 0
    for number in range(rounds):
        folder = tmp_path / f"log-{number // ROUNDS_PER_FOLDER}"
        if number % ROUNDS_PER_FOLDER == 0:
            confirmed = 0
        # Some die while they still open the log, which is when they mend what the last one left.
        life_s = 0.0 if random.random() < 0.15 else random.random() * LIFE_S_MAX
        confirmed = max(confirmed, writers.life(folder, life_s))
        if not folder.exists():
            continue
        if (folder / "committed").exists():  # a reader that comes before the next writer
            seen = check(LogReader(folder).read())
            assert seen == list(range(len(seen)))
            assert len(seen) >= confirmed
        log = SegmentLog(folder)
        assert log.recovery.rows_lost == 0
        assert log.next_seq >= confirmed
        assert check(log.read()) == list(range(log.next_seq))
        log.close()
    assert confirmed > 0
