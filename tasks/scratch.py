"""Choose where tests keep their files."""

import os
import shutil
from pathlib import Path

MEMORY_FOLDER = Path("/dev/shm")  # noqa: S108 (pytest makes a folder of this user in it)
MEMORY_FREE_BYTES_MIN = 4 * 1024**3  # a run takes far less, and half a small machine stays free


def environment(memory: Path = MEMORY_FOLDER, free_bytes_min: int = MEMORY_FREE_BYTES_MIN) -> dict[str, str]:
    """Return the environment of pytest, with its files in memory if there is room and programs in them may run.

    The tests call fsync tens of thousands of times, and one costs milliseconds on a disk. No test needs one to reach
    a disk: those of power failures record what was written and when, and a killed process leaves its files behind.
    """
    is_roomy = memory.is_dir() and shutil.disk_usage(memory).free >= free_bytes_min
    if not is_roomy or os.statvfs(memory).f_flag & os.ST_NOEXEC:
        return dict(os.environ)
    return {"PYTEST_DEBUG_TEMPROOT": str(memory), **os.environ}
