"""Writes a log until it is killed. Started once; forks a fresh writer for each folder it reads from standard input.

On standard output, a line for each step: `writer PID`, then `on disk SEQ` after each commit, and `dead CODE` once it is
killed. Forking saves the time that importing takes: a round costs a tenth of a second.
"""

import asyncio
import os
import signal
import sys
from pathlib import Path
from random import Random

from log.records import append, append_many
from wirelake.commit import Commit
from wirelake.log.segments.log import SegmentLog
from wirelake.log.segments.settings import LogSettings

LIFE_S_MAX = 60  # should nobody kill it


def say(text: str) -> None:
    os.write(1, f"{text}\n".encode())  # one write, shorter than a pipe's buffer: whole or not at all


def on_disk(commit: Commit) -> None:
    say(f"on disk {commit.result().stop}")


async def write_for_ever(folder: Path, seed: int) -> None:
    random = Random(seed)
    log = SegmentLog(folder, LogSettings(segment_bytes=random.choice((8, 64, 512)) * 1024))
    say("open")
    while True:
        commits: set[Commit] = set()
        for _ in range(random.choice((1, 3, 50))):
            commits.add(append(log))
        if random.random() < 0.2:
            commits.add(append_many(log, random.choice((1, 2, 30))))
        for commit in commits:
            commit.add_done_callback(on_disk)
        if random.random() < 0.5:
            await commits.pop()
        else:
            await asyncio.sleep(random.random() * 0.002)


def main() -> None:
    for number, line in enumerate(sys.stdin):
        child = os.fork()
        if child == 0:
            signal.alarm(LIFE_S_MAX)
            say(f"writer {os.getpid()}")  # by the child, so that it comes before all else the child says
            asyncio.run(write_for_ever(Path(line.strip()), number))
        _, status = os.waitpid(child, 0)
        say(f"dead {os.waitstatus_to_exitcode(status)}")


if __name__ == "__main__":
    main()
