"""Small things about writing: the lock, values no column can hold, files and blocks as they are drawn."""

import subprocess
import sys
import zlib
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from log.records import AT_US, append, check, fill, seqs_in
from wirelake.commit import Commit
from wirelake.errors import EncodeError, InUseError, VersionError
from wirelake.limits import LOG_BLOCK_BYTES, LOG_CALL_BYTES_MAX
from wirelake.log.batch_builder import BatchBuilder
from wirelake.log.interface import SCHEMA, schema_for_version
from wirelake.log.segments.format import (
    BlockHeader,
    BlockKind,
    decode_header,
    encode_block,
    encode_header,
    is_body_valid,
    list_segments,
    segment_path,
)
from wirelake.log.segments.log import SegmentLog
from wirelake.log.segments.mapped_segment import MappedSegment
from wirelake.log.segments.settings import LogSettings

I64 = st.integers(-(2**63), 2**63 - 1)


def test_a_second_writer_is_refused_and_told_who_the_first_is(folder: Path) -> None:
    code = "import sys; from pathlib import Path; from wirelake.log.segments.log import SegmentLog; "
    code += "SegmentLog(Path(sys.argv[1])); print('open', flush=True); sys.stdin.read()"
    other = subprocess.Popen([sys.executable, "-c", code, folder], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert other.stdout is not None
    assert other.stdin is not None
    assert other.stdout.readline() == b"open\n"
    with pytest.raises(InUseError, match=f"process {other.pid}"):
        SegmentLog(folder)
    other.kill()
    other.wait(10)
    other.stdin.close()
    other.stdout.close()
    log = SegmentLog(folder)  # the lock died with its holder
    fill(log, 3)
    log.close()
    assert seqs_in(folder) == [0, 1, 2]


def test_without_fsync_it_is_the_same_log(folder: Path) -> None:
    log = SegmentLog(folder, LogSettings(fsync=False, segment_bytes=16 * 1024))
    fill(log, 100)
    log.close()
    assert seqs_in(folder) == list(range(100))


def test_a_block_larger_than_a_segment_has_one_to_itself(folder: Path) -> None:
    log = SegmentLog(folder, LogSettings(segment_bytes=4096))
    fill(log, 3)
    log.append(1_900_000_000_000_000, "esnp", "frame", "in", "s", "i", "p", bytes(100_000)).wait(10)
    append(log).wait(10)
    log.close()
    assert list_segments(folder)[-2:] == [3, 4]
    assert [batch.num_rows for batch in log.read(from_seq=3)] == [1, 1]


def test_a_sealed_segment_is_cut_to_what_it_holds_and_has_its_index(folder: Path) -> None:
    log = SegmentLog(folder, LogSettings(segment_bytes=1024 * 1024))
    fill(log, 50, per_block=10)
    assert segment_path(folder, 0).stat().st_size == 1024 * 1024
    log.close()
    segment = MappedSegment(segment_path(folder, 0), 0, None)
    assert segment.size_bytes < 64 * 1024
    trailer = segment.trailer
    assert trailer is not None
    assert (trailer.first_seq, trailer.end_seq, trailer.rows) == (0, 50, 50)
    index = segment.read_index()
    assert index is not None
    places = [(found.first_seq, found.offset) for found in segment.scan() if found.rows]
    assert list(zip(index[::4], index[1::4], strict=True)) == places
    assert all(offset % 64 == 0 for _, offset in places)
    for seq in (0, 9, 10, 33, 49):
        offset, first = segment.seek(seq)
        assert (first, offset) in places
        assert first <= seq < first + 10


def test_a_burst_is_cut_into_blocks_that_are_confirmed_one_after_the_other(folder: Path) -> None:
    log = SegmentLog(folder)
    frame = bytes(LOG_BLOCK_BYTES // 20)
    commits: dict[Commit, int] = {}
    for _ in range(100):
        seq = log.next_seq
        commits[log.append(AT_US, "esnp", "frame", "in", "s", "i", "p", frame)] = seq
    assert len(commits) >= 5
    for commit, last_seq in commits.items():
        assert commit.wait(10).stop > last_seq
    log.close()
    sizes = [batch.num_rows for batch in log.read()]
    assert sum(sizes) == 100
    assert max(sizes) <= 20


def test_one_call_has_a_limit(folder: Path) -> None:
    log = SegmentLog(folder)
    with pytest.raises(EncodeError, match="exceed the limit"):
        log.append_many(1, "p", "e", "d", "s", "i", "p", [bytes(LOG_CALL_BYTES_MAX // 2)] * 2)
    with pytest.raises(EncodeError, match="at least one frame"):
        log.append_many(1, "p", "e", "d", "s", "i", "p", [])
    assert log.next_seq == 0
    log.close()


def test_a_value_that_no_column_can_hold_costs_the_others_nothing(folder: Path) -> None:
    log = SegmentLog(folder)
    anything: Any = None
    commits = {append(log)}
    commits.add(log.append(anything, "comet", anything, "in", "lone \udc80", 7 and anything, "p", b"x"))
    commits.add(log.append(2**70, "comet", "frame", "in", "s", "i", "p", bytearray(b"mutable"), 7))  # type: ignore[arg-type]
    commits.add(append(log))
    for commit in commits:
        commit.wait(10)
    rows = [row for batch in log.read() for row in batch.select(["event", "session", "frame", "note"]).to_pylist()]
    assert rows[1] == {"event": "", "session": "lone \\udc80", "frame": b"x", "note": ""}
    assert rows[2]["frame"] == b"mutable"
    assert rows[2]["note"] == "7"
    assert [rows[0]["note"], rows[3]["note"]] == ["0", "3"]
    assert not log.refusal
    log.close()


def test_runs_and_single_records_make_the_same_batch() -> None:
    columns = BatchBuilder("n")
    fields = ("comet", "frame", "in", "s", "i", "p", "note")
    single = [cell for number in range(5) for cell in (1, 9, *fields, b"%d" % number, 0)]
    runs = [2, 9, *fields, (b"0", b"1"), 0, 1, 9, *fields, b"2", 0, 2, 9, *fields, (b"3", b"4"), 0]
    one, other = columns.build(single, 7), columns.build(runs, 7)
    assert one.batch.schema.equals(SCHEMA)
    assert one.batch.equals(other.batch)
    assert (other.first_seq, other.end_seq, other.at_us) == (7, 12, (9, 9))
    one.batch.validate(full=True)
    other.batch.validate(full=True)


@given(st.integers(0, 2**32 - 1), st.integers(0, 2**63), st.binary(max_size=300), I64, I64, st.integers(0, 2**32 - 1))
def test_a_block_is_read_as_it_was_written(rows: int, seq: int, body: bytes, low: int, high: int, salt: int) -> None:
    block = b"".join(encode_block(BlockKind.DATA, seq, rows, (low, high), body, salt))
    assert len(block) % 64 == 0
    header = decode_header(memoryview(block), 0, salt)
    assert header is not None
    assert header[:6] == (BlockKind.DATA, rows, seq, len(body), low, high)
    assert header.span_bytes == len(block)
    assert is_body_valid(memoryview(block), 0, header)
    assert decode_header(memoryview(block), 0, salt ^ 1) is None


@given(st.binary(min_size=1, max_size=200), st.data())
def test_any_changed_bit_is_seen(body: bytes, data: st.DataObject) -> None:
    block = bytearray(b"".join(encode_block(BlockKind.DATA, 5, 1, (0, 0), body, 99)))
    bit = data.draw(st.integers(0, (64 + len(body)) * 8 - 1))
    block[bit // 8] ^= 1 << bit % 8
    header = decode_header(memoryview(block), 0, 99)
    assert header is None or not is_body_valid(memoryview(block), 0, header)


def test_the_header_is_the_one_drawn() -> None:
    raw = encode_header(BlockHeader(BlockKind.DATA, 2, 3, 4, 5, 6, 7), 0)
    assert raw[:8] == b"WLKBLOCK"
    assert raw[8:16].hex() == "01000100" + "02000000"
    assert [int.from_bytes(raw[at : at + 8], "little") for at in (16, 24, 32, 40)] == [3, 4, 5, 6]
    assert raw[56:60] == b"\x07\0\0\0"
    assert zlib.crc32(raw[:60]).to_bytes(4, "little") != raw[60:]  # CRC-32C is another polynomial


def test_columns_of_a_later_version_are_refused() -> None:
    with pytest.raises(VersionError, match="columns of version 9"):
        schema_for_version(9, "x.seg")


def test_check_sees_what_it_should() -> None:
    batch = pa.table({"seq": [1], "session": ["session-1"], "note": ["1"], "frame": [b"?"]}).to_batches()
    with pytest.raises(AssertionError):
        check(batch)


def test_what_nobody_waits_for_goes_with_what_somebody_does(folder: Path) -> None:
    log = SegmentLog(folder, LogSettings(linger_s=3600))
    for _ in range(3):
        before = log.blocks
        for _ in range(10):
            append(log)
        append(log).wait(60)
        assert log.blocks == before + 1
    append(log)
    log.close()  # waits for everything
    assert seqs_in(folder) == list(range(34))


def test_what_nobody_waits_for_lingers_no_longer_than_it_may(folder: Path) -> None:
    log = SegmentLog(folder, LogSettings(linger_s=0.001))
    for count in range(1, 20):
        append(log)
        for _ in log.read(count - 1, wait_s=60):
            break
        assert seqs_in(folder) == list(range(count))
    log.close()
