"""Find the processes that Spark starts, to kill them."""

import os
import signal
from contextlib import suppress
from pathlib import Path


def children_of(pid: int, word: str) -> list[int]:
    """Return the children of a process that have this word in their command line."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(FileNotFoundError, ProcessLookupError):
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            if parent == pid and word.encode() in (folder / "cmdline").read_bytes():
                found.append(int(folder.name))
    return found


def python_workers_of(driver: int) -> list[int]:
    """Return the Python workers of a driver in local mode: its JVM starts a daemon, which forks them."""
    daemons = [daemon for java in children_of(driver, "java") for daemon in children_of(java, "pyspark.worker")]
    return [worker for daemon in daemons for worker in children_of(daemon, "pyspark.worker")]


def kill(pids: list[int]) -> int:
    """Kill processes, and return how many there were."""
    killed = 0
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
            killed += 1
    return killed
