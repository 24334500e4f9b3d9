"""Locks are held by one process and dropped with it; a file is replaced in one step."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from wirelake.errors import InUseError
from wirelake.files import TEMP_SUFFIX, FileLock, lock_holder, replace_file, wait_for_lock

WAIT_S = 30
HOLD = (
    "import sys; from pathlib import Path; from wirelake.files import FileLock;"
    "lock = FileLock(Path(sys.argv[1]), 'the store is open'); print('locked', flush=True); sys.stdin.read()"
)


def test_a_lock_names_its_holder_and_is_dropped_with_the_process(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    assert lock_holder(path) is None
    other = subprocess.Popen([sys.executable, "-c", HOLD, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert other.stdout is not None
        assert other.stdout.readline() == b"locked\n"
        assert lock_holder(path) == other.pid
        with pytest.raises(InUseError, match=f"the store is open in process {other.pid}"):
            FileLock(path, "the store is open")
    finally:
        other.kill()
        other.communicate(timeout=WAIT_S)
    assert lock_holder(path) is None, "the id that the process left behind is stale"
    lock = FileLock(path, "the store is open")
    assert lock_holder(path) == os.getpid()
    lock.release()
    lock.release()
    assert lock_holder(path) is None
    assert path.exists()


def test_shared_locks_are_held_together_and_keep_an_exclusive_one_out(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with wait_for_lock(path, shared=True), wait_for_lock(path, shared=True), pytest.raises(InUseError):
        FileLock(path, "in use")
    FileLock(path, "in use").release()


@pytest.mark.parametrize("sync", [True, False])
def test_a_file_is_replaced_with_its_mode_and_nothing_else_is_left(tmp_path: Path, sync: bool) -> None:
    path = tmp_path / "secret"
    (tmp_path / f"secret.{os.getpid()}{TEMP_SUFFIX}").write_bytes(b"of an attempt that crashed")
    for content in (b"first", b"second"):
        replace_file(path, content, mode=0o600, sync=sync)
        assert path.read_bytes() == content
    assert path.stat().st_mode & 0o777 == 0o600
    assert list(tmp_path.iterdir()) == [path]
