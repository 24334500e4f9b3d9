import logging
from pathlib import Path

import pytest

from log.records import AT_US, append, fill, seqs_in
from wirelake.log.log import Log
from wirelake.log.retention import read_removed
from wirelake.log.segment import segment_firsts
from wirelake.log.settings import LogSettings

DAY_US = 24 * 3600 * 1_000_000


class Clock:
    def __init__(self) -> None:
        self.now_us = AT_US

    def __call__(self) -> int:
        return self.now_us


def open_log(folder: Path, clock: Clock, **settings: float | None) -> Log:
    return Log(folder, LogSettings(segment_bytes=16 * 1024, **settings), now_us=clock)  # type: ignore[arg-type]


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
    assert (log.removed.rows, log.removed.forced_rows) == (seqs[0], 0)


def test_what_a_consumer_has_not_read_stays(folder: Path) -> None:
    log = open_log(folder, Clock(), keep_bytes=40 * 1024)
    log.commit_position("pipeline", 0)
    log.commit_position("console", 300)
    fill(log, 400)
    assert seqs_in(folder) == list(range(400))
    log.commit_position("pipeline", 250)
    fill(log, 50)
    assert 200 < seqs_in(folder)[0] <= 250
    log.close()


def test_the_disk_limit_removes_the_unread_too_and_says_so(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    log = open_log(folder, clock, keep_bytes=40 * 1024, disk_bytes_max=80 * 1024)
    log.commit_position("pipeline", 7)
    with caplog.at_level(logging.ERROR):
        fill(log, 500)
    log.close()
    oldest = seqs_in(folder)[0]
    assert oldest > 7
    removed = read_removed(folder)
    assert removed.rows == oldest
    assert removed.forced_rows == oldest - 7
    assert removed.forced_at_us == clock.now_us
    assert "that a consumer has not read" in caplog.text


def test_a_segment_ends_at_its_age(folder: Path) -> None:
    clock = Clock()
    log = open_log(folder, clock, segment_age_s=60)
    append(log).wait(10)
    clock.now_us += 61 * 1_000_000
    append(log).wait(10)
    append(log).wait(10)
    log.close()
    assert segment_firsts(folder) == [0, 1]
