"""A disk that is full, read-only or broken: nothing is promised meanwhile, and it goes on by itself."""

import errno
import os
import time
from pathlib import Path
from threading import Event

import pytest

from log.faults import FaultyFiles
from log.records import append, check, fill, seqs_in
from wirelake.errors import BusyError, LogWriteError, StateError, StorageError
from wirelake.log.segments.log import SegmentLog
from wirelake.log.segments.settings import LogSettings

SETTLE_S = 60.0  # only a failing test waits so long
SETTINGS = LogSettings(segment_bytes=64 * 1024, retry_first_s=0.005, retry_max_s=0.02)


def settle(log: SegmentLog) -> None:
    """Until the disk takes blocks again."""
    end_s = time.monotonic() + SETTLE_S
    while log.refusal:
        assert time.monotonic() < end_s
        time.sleep(0.001)


@pytest.mark.parametrize("operation", ["write", "fsync_data"])
@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO, errno.EROFS])
def test_waiting_commits_fail_and_the_log_goes_on_by_itself(folder: Path, operation: str, error: int) -> None:
    files = FaultyFiles()
    log = SegmentLog(folder, SETTINGS, files)
    fill(log, 25)
    files.partial_bytes = 100
    files.break_(operation, error)
    commit = append(log)
    with pytest.raises(LogWriteError, match=os.strerror(error)):
        commit.wait(10)
    with pytest.raises(LogWriteError, match=os.strerror(error)):
        append(log)
    assert seqs_in(folder) == list(range(25))
    files.mend()
    settle(log)
    fill(log, 25)
    # The record whose commit failed was on the wire: it is kept, in its place.
    assert log.next_seq == 51
    assert check(log.read()) == list(range(51))
    log.close()
    assert log.failures >= 1
    again = SegmentLog(folder)
    assert (again.recovery.rows_lost, again.next_seq) == (0, 51)
    again.close()
    assert seqs_in(folder) == list(range(51))


def test_after_a_failed_sync_the_block_goes_into_a_new_file(folder: Path) -> None:
    files = FaultyFiles()
    log = SegmentLog(folder, SETTINGS, files)
    fill(log, 10)
    files.fail("fsync_data", errno.EIO)
    with pytest.raises(LogWriteError):
        append(log).wait(10)
    settle(log)
    assert sorted(path.name for path in folder.glob("*.seg")) == [f"{0:020d}.seg", f"{10:020d}.seg"]
    assert check(log.read()) == list(range(11))
    log.close()
    reopened = SegmentLog(folder)
    assert reopened.recovery.rows_lost == 0
    assert check(reopened.read()) == list(range(11))
    reopened.close()


def test_a_first_block_whose_sync_fails_leaves_no_file_behind(folder: Path) -> None:
    files = FaultyFiles()
    log = SegmentLog(folder, SETTINGS, files)
    files.fail("fsync_data", errno.EIO, errno.EIO)
    with pytest.raises(LogWriteError):
        append(log).wait(10)
    settle(log)
    fill(log, 5)
    log.close()
    assert seqs_in(folder) == list(range(6))


@pytest.mark.parametrize("operation", ["create", "fsync", "fsync_dir"])
def test_a_segment_that_cannot_be_begun_is_begun_later(folder: Path, operation: str) -> None:
    files = FaultyFiles()
    log = SegmentLog(folder, SETTINGS, files)
    files.fail(operation, errno.ENOSPC, errno.ENOSPC, errno.ENOSPC)
    with pytest.raises(LogWriteError):
        append(log).wait(10)
    settle(log)
    fill(log, 20)
    log.close()
    assert seqs_in(folder) == list(range(21))


def test_no_room_for_a_whole_segment_is_no_reason_to_refuse(folder: Path) -> None:
    files = FaultyFiles()
    files.break_("allocate", errno.ENOSPC)
    log = SegmentLog(folder, SETTINGS, files)
    fill(log, 300)
    assert check(log.read()) == list(range(300))
    log.close()
    assert log.failures == 0


def test_a_segment_that_cannot_be_sealed_stays_readable_and_is_sealed_at_the_next_start(folder: Path) -> None:
    files = FaultyFiles()
    log = SegmentLog(folder, SETTINGS, files)
    fill(log, 50)
    files.break_("truncate", errno.EIO)
    log.close()
    assert seqs_in(folder) == list(range(50))
    again = SegmentLog(folder)
    assert not again.recovery.clean
    assert again.recovery.damages == []
    assert check(again.read(from_seq=45)) == list(range(45, 50))
    again.close()


def test_closing_a_log_that_cannot_be_written_says_how_much_is_lost(folder: Path) -> None:
    files = FaultyFiles()
    log = SegmentLog(folder, SETTINGS, files)
    fill(log, 10)
    files.break_("write", errno.ENOSPC)
    with pytest.raises(LogWriteError):
        append(log).wait(10)
    with pytest.raises(LogWriteError, match="1 records"):
        log.close()
    with pytest.raises(StateError):
        append(log)
    again = SegmentLog(folder)
    assert again.next_seq == 10
    again.close()


def test_more_than_may_gather_is_refused(folder: Path) -> None:
    class Slow(FaultyFiles):
        def fsync_data(self, fd: int) -> None:
            gate.wait(10)
            super().fsync_data(fd)

    gate = Event()
    log = SegmentLog(folder, LogSettings(buffered_bytes_max=5000), Slow())
    commits = {append(log)}

    def flood() -> None:
        for _ in range(1000):
            commits.add(append(log))

    with pytest.raises(BusyError, match="behind"):
        flood()
    assert log.buffered_bytes <= 5000
    gate.set()
    for commit in commits:
        commit.wait(10)
    count = log.next_seq
    assert count > 2
    fill(log, 10, per_block=2)
    log.close()
    assert seqs_in(folder) == list(range(count + 10))


def test_a_record_larger_than_what_may_gather_has_its_turn(folder: Path) -> None:
    log = SegmentLog(folder, LogSettings(buffered_bytes_max=1000))
    large = bytes(100_000)
    log.append(1, "esnp", "frame", "in", "s", "i", "p", large).wait(10)
    log.close()
    assert [row["frame"] for batch in log.read() for row in batch.to_pylist()] == [large]


def test_a_folder_that_cannot_be_written_is_said_in_words(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    with pytest.raises(StorageError, match=r"cannot open the log in .* for writing"):
        SegmentLog(blocked / "log")


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_fault_of_our_own_leaves_nobody_waiting(folder: Path) -> None:
    class Broken(FaultyFiles):
        def fsync_data(self, fd: int) -> None:
            raise RuntimeError("a bug")

    log = SegmentLog(folder, SETTINGS, Broken())
    with pytest.raises(LogWriteError, match="a bug"):
        append(log).wait(10)
    with pytest.raises(LogWriteError, match="a bug"):
        append(log)
    with pytest.raises(LogWriteError, match="a bug"):
        log.close()
