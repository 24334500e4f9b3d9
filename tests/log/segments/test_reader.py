import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from log.faults import FaultyFiles
from log.records import AT_US, append, check, fill, seqs_in
from wirelake.errors import GoneError, InputError
from wirelake.log.segments.format import list_segments, segment_path
from wirelake.log.segments.log import SegmentLog
from wirelake.log.segments.reader import LogReader
from wirelake.log.segments.settings import LogSettings

SMALL = LogSettings(segment_bytes=16 * 1024)


def test_a_reader_follows_the_tail_and_ends_after_its_wait(folder: Path) -> None:
    log = SegmentLog(folder, SMALL)
    fill(log, 5)
    naps: list[float] = []

    def nap(seconds: float) -> None:
        naps.append(seconds)
        if len(naps) <= 30:
            fill(log, 3)

    reader = LogReader(folder, sleep=nap)
    assert check(reader.read(wait_s=0.05)) == list(range(5 + 30 * 3))
    assert 0 < max(naps) <= 0.02
    assert len(list_segments(folder)) > 1
    log.close()


def test_a_reader_in_another_process_follows_a_living_writer(folder: Path) -> None:
    log = SegmentLog(folder, SMALL)
    append(log).wait(10)
    code = (
        "import sys; from pathlib import Path; from log.records import check;"
        "from wirelake.log.segments.reader import LogReader;"
        "reader = LogReader(Path(sys.argv[1])); print('ready', flush=True);"
        "print(len(check(reader.read(until_seq=500, wait_s=10))))"
    )
    other = subprocess.Popen(
        [sys.executable, "-c", code, folder], stdout=subprocess.PIPE, cwd=Path(__file__).parent.parent.parent
    )
    assert other.stdout is not None
    assert other.stdout.readline() == b"ready\n"
    fill(log, 499, per_block=3)
    assert int(other.stdout.read()) == 500
    other.stdout.close()
    assert other.wait(10) == 0
    log.close()


def test_reading_by_time_passes_over_what_is_outside(folder: Path) -> None:
    log = SegmentLog(folder, SMALL)
    fill(log, 200)
    reader = LogReader(folder)
    assert check(reader.read(since_us=AT_US + 150)) == list(range(150, 200))
    assert check(reader.read(since_us=AT_US + 33, until_us=AT_US + 77)) == list(range(33, 77))
    assert check(reader.read(until_us=AT_US + 5)) == list(range(5))
    assert check(reader.read(from_seq=40, since_us=AT_US + 33, until_us=AT_US + 77)) == list(range(40, 77))
    assert check(reader.read(since_us=AT_US + 10_000)) == []
    log.close()
    # A block outside the times is not even checked: damage there does not matter.
    path = segment_path(folder, 0)
    content = bytearray(path.read_bytes())
    content[1000] ^= 1
    path.write_bytes(content)
    reader = LogReader(folder)
    assert check(reader.read(since_us=AT_US + 190)) == list(range(190, 200))
    assert reader.rows_lost == 0


def test_times_out_of_order_are_all_found(folder: Path) -> None:
    log = SegmentLog(folder, SMALL)
    for number in (5, 900, 3, 70, 901, 2, 71):
        append(log, at_us=AT_US + number).wait(10)
    log.close()
    assert check(LogReader(folder).read(since_us=AT_US + 70, until_us=AT_US + 901)) == [1, 3, 6]


def test_what_retention_removed_is_gone_and_the_oldest_left_is_named(folder: Path) -> None:
    log = SegmentLog(folder, SMALL)
    fill(log, 200)
    log.close()
    firsts = list_segments(folder)
    reading = LogReader(folder).read()
    first = next(reading)
    kept = first.to_pylist()
    for seq in firsts[:3]:
        segment_path(folder, seq).unlink()
    assert first.to_pylist() == kept  # its map outlives the file
    with pytest.raises(GoneError) as caught:
        check(reading)
    assert caught.value.oldest_seq == firsts[3]
    with pytest.raises(GoneError, match=f"oldest left is {firsts[3]}"):
        next(LogReader(folder).read(from_seq=1))
    assert seqs_in(folder) == list(range(firsts[3], 200))


def test_batches_are_not_copied(folder: Path) -> None:
    log = SegmentLog(folder)
    fill(log, 10)
    (batch,) = log.read()
    buffer = batch.column("frame").buffers()[2]
    assert not buffer.is_mutable
    assert buffer.parent is not None
    assert buffer.address % 8 == 0
    log.close()


def test_a_segment_that_grows_under_a_reader_is_mapped_again(folder: Path) -> None:
    """Where no room could be reserved the file grows block by block."""
    files = FaultyFiles()
    files.break_("allocate", 28)
    log = SegmentLog(folder, LogSettings(), files)
    fill(log, 10)
    reading = LogReader(folder, sleep=lambda _: fill(log, 10)).read(until_seq=60, wait_s=5)
    assert check(reading) == list(range(60))
    assert len(list_segments(folder)) == 1
    log.close()


def test_no_log_is_said_in_words(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no log in"):
        LogReader(tmp_path)


async def test_many_tasks_append_and_wait_at_once(folder: Path) -> None:
    log = SegmentLog(folder, SMALL)

    async def one() -> int:
        for _ in range(20):
            seq = log.next_seq
            assert (await append(log)).stop > seq
        return 1

    assert sum(await asyncio.gather(*(one() for _ in range(50)))) == 50
    assert log.blocks < 1000  # they shared blocks
    log.close()
    assert seqs_in(folder) == list(range(1000))
