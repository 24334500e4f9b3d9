import time
from collections.abc import Callable
from pathlib import Path

import pytest

from log.records import AT_US, append, fill, seqs_in
from wirelake.errors import LogWriteError
from wirelake.log.segments.format import list_segments
from wirelake.log.segments.log import SegmentLog
from wirelake.log.segments.retention import read_removed
from wirelake.log.segments.settings import LogSettings, RetentionLimits

DAY_US = 24 * 3600 * 1_000_000


class Clock:
    def __init__(self) -> None:
        self.now_us = AT_US

    def __call__(self) -> int:
        return self.now_us


def open_log(folder: Path, clock: Clock, **settings: float | None) -> SegmentLog:
    return SegmentLog(folder, LogSettings(segment_bytes=16 * 1024, **settings), now_us=clock)  # type: ignore[arg-type]


def test_imported_records_are_kept_from_when_they_were_written(folder: Path) -> None:
    clock = Clock()
    log = open_log(folder, clock, keep_days=2, segment_age_s=3600)
    append(log, at_us=AT_US - 400 * DAY_US).wait(10)
    for day in (1, 3):
        clock.now_us = AT_US + day * DAY_US
        append(log, at_us=clock.now_us).wait(10)
        kept = [0, 1] if day == 1 else [1, 2]
        log.close()
        log = open_log(folder, clock, keep_days=2, segment_age_s=3600)
        assert seqs_in(folder) == kept
    log.close()


def test_segments_older_than_the_days_go(folder: Path) -> None:
    clock = Clock()
    log = open_log(folder, clock, keep_days=2, segment_age_s=3600)
    for day in range(6):
        clock.now_us = AT_US + day * DAY_US
        append(log, at_us=clock.now_us).wait(10)
    log.close()
    again = open_log(folder, clock, keep_days=2)
    again.close()
    assert seqs_in(folder) == [3, 4, 5]


def test_segments_over_the_bytes_go_oldest_first(folder: Path) -> None:
    log = open_log(folder, Clock(), keep_bytes=60 * 1024)
    fill(log, 400)
    log.close()
    seqs = seqs_in(folder)
    assert seqs == list(range(seqs[0], 400))
    assert 0 < seqs[0] < 399
    assert sum(path.stat().st_size for path in folder.glob("*.seg")) <= 60 * 1024 + 16 * 1024
    assert read_removed(folder).rows == log.removed.rows == seqs[0]


def test_what_a_consumer_has_not_read_stays(folder: Path) -> None:
    log = open_log(folder, Clock(), keep_bytes=40 * 1024)
    log.commit_offset("pipeline", 0)
    log.commit_offset("console", 300)
    fill(log, 400)
    assert seqs_in(folder) == list(range(400))
    log.commit_offset("pipeline", 250)
    fill(log, 50)
    assert 200 < seqs_in(folder)[0] <= 250
    log.close()


def test_at_the_disk_limit_what_is_read_goes_first(folder: Path) -> None:
    log = open_log(folder, Clock(), keep_days=None, disk_bytes_max=80 * 1024)
    for done in range(0, 2000, 100):
        log.commit_offset("pipeline", done)
        fill(log, 100)
        assert log.usage.bytes <= 80 * 1024
    log.close()
    assert seqs_in(folder)[0] <= 1900
    assert seqs_in(folder)[-1] == 1999
    assert log.removed.rows == log.usage.oldest_seq


def test_at_the_disk_limit_the_unread_stays_and_new_records_are_refused(folder: Path) -> None:
    log = open_log(folder, Clock(), keep_bytes=40 * 1024, disk_bytes_max=80 * 1024, retry_first_s=0.01)
    log.commit_offset("console", 10_000)
    log.commit_offset("pipeline", 7)
    with pytest.raises(LogWriteError, match="consumer pipeline has read only up to record 7") as refused:
        fill(log, 2000)
    assert "log.disk_bytes_max = 81920" in str(refused.value)
    assert "consumer pipeline" in log.refusal
    with pytest.raises(LogWriteError, match="consumer pipeline"):
        append(log)
    assert log.usage.bytes <= 80 * 1024
    assert seqs_in(folder)[0] == 0
    log.commit_offset("pipeline", log.next_seq)  # it has caught up: the log goes on by itself
    wait_until(lambda: not log.refusal)
    append(log).wait(10)
    accepted = log.next_seq
    log.close()
    assert seqs_in(folder)[-1] == accepted - 1
    assert seqs_in(folder) == list(range(seqs_in(folder)[0], accepted)), "what was accepted before is there too"


def test_without_consumers_the_disk_limit_removes_the_oldest(folder: Path) -> None:
    log = open_log(folder, Clock(), keep_days=None, disk_bytes_max=80 * 1024)
    for _ in range(50):
        fill(log, 20)
        assert log.usage.bytes <= 80 * 1024
    log.close()
    assert 0 < seqs_in(folder)[0] < seqs_in(folder)[-1] == 999


def test_new_limits_hold_at_once(folder: Path) -> None:
    log = open_log(folder, Clock(), keep_days=None)
    fill(log, 800)
    before = log.usage
    log.set_retention_limits(RetentionLimits(None, 60 * 1024, None))
    wait_until(lambda: log.usage.bytes < before.bytes)
    wait_until(lambda: log.usage.bytes <= 60 * 1024)
    log.set_retention_limits(RetentionLimits(None, None, 48 * 1024))
    log.commit_offset("pipeline", 800)
    with pytest.raises(LogWriteError, match=r"log\.disk_bytes_max = 49152"):
        fill(log, 2000)
    log.set_retention_limits(RetentionLimits(None, None, None))
    wait_until(lambda: not log.refusal)
    append(log).wait(10)
    log.close()


def wait_until(holds: Callable[[], bool]) -> None:
    until_s = time.monotonic() + 30
    while not holds():
        assert time.monotonic() < until_s
        time.sleep(0.01)


def test_a_segment_ends_at_its_age(folder: Path) -> None:
    clock = Clock()
    log = open_log(folder, clock, segment_age_s=60)
    append(log).wait(10)
    clock.now_us += 61 * 1_000_000
    append(log).wait(10)
    append(log).wait(10)
    log.close()
    assert list_segments(folder) == [0, 1]
