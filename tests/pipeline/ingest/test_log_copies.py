"""Read the log from copies in a store: a reader without the log gets every record, or says which is missing."""

import shutil
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from log.records import AT_US, check, fill, frame_of
from log.segments.test_range_reader import damage
from msgspec.structs import replace

from wirelake.errors import GoneError, InputError, MissingRecordsError
from wirelake.lake.store import LocalStore
from wirelake.limits import LOG_REPEAT_BYTES_MIN
from wirelake.log.segments.block_index import BlockIndex
from wirelake.log.segments.format import list_segments, segment_path
from wirelake.log.segments.log import SegmentLog
from wirelake.log.segments.reader import HOLE, Gap, damaged_gaps
from wirelake.log.segments.redaction import redact_log
from wirelake.log.segments.settings import LogSettings
from wirelake.pipeline.ingest.log_copies import (
    CopiedSegment,
    LogCopies,
    copied_segments,
    read_store_file,
    write_store_file,
)
from wirelake.pipeline.ingest.source import SourceOptions, WirelakeReader, WirelakeStreamReader
from wirelake.pipeline.ingest.spans import Span, SpanReader, plan_spans

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS = 400
NOWHERE = Path("/nowhere")  # a machine without the log


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    return LocalStore(tmp_path / "lake" / "log")


def spans_of(folder: Path, from_seq: int = 0, until_seq: int = ROWS, rows: int = 90) -> list[Span]:
    return plan_spans(BlockIndex(folder), from_seq, until_seq, rows)


def rows_of(store: LocalStore, spans: list[Span], **options: Any) -> list[dict[str, Any]]:
    readers = [SpanReader(NOWHERE, span, copies=store, wait_s=0, **options) for span in spans]
    return [row for reader in readers for batch in reader.batches() for row in batch.to_pylist()]


def seqs_of(store: LocalStore, spans: list[Span]) -> list[int]:
    return check(batch for span in spans for batch in SpanReader(NOWHERE, span, copies=store, wait_s=0).batches())


def copied(data: Path, store: LocalStore) -> list[CopiedSegment]:
    return copied_segments(store, BlockIndex(data / "log").salt or 0)


def tails(store: LocalStore) -> list[str]:
    return [path for path in store.list() if "/tail/" in path]


def test_a_reader_without_the_log_gets_every_record(log: SegmentLog, data: Path, store: LocalStore) -> None:
    fill(log, ROWS)
    assert len(list_segments(data / "log")) > 3
    spans = LogCopies(data / "log", store).publish(spans_of(data / "log"))
    assert seqs_of(store, spans) == list(range(ROWS))
    inside = LogCopies(data / "log", store).publish(spans_of(data / "log", 123, 377, 50))
    assert seqs_of(store, inside) == list(range(123, 377))


def test_sealed_segments_are_copied_once_and_the_tail_is_just_the_blocks(
    log: SegmentLog, data: Path, store: LocalStore
) -> None:
    fill(log, ROWS)
    firsts = list_segments(data / "log")
    spans = LogCopies(data / "log", store).publish(spans_of(data / "log"))
    copies = [path for path in store.list() if path.endswith(".seg")]
    assert len(copies) == len(firsts) - 1
    for first, path in zip(firsts, copies, strict=False):
        assert store.read(path) == segment_path(data / "log", first).read_bytes()
    before = {path: (store.folder / path).stat().st_mtime_ns for path in copies}
    again = LogCopies(data / "log", store)
    assert again.publish(spans_of(data / "log")) == spans
    assert {path: (store.folder / path).stat().st_mtime_ns for path in copies} == before
    fill(log, 10)
    (last,) = again.publish(spans_of(data / "log", ROWS, ROWS + 10))
    assert seqs_of(store, [last]) == list(range(ROWS, ROWS + 10))
    newest = tails(store)[-1]
    assert len(store.read(newest)) < sum(path.stat().st_size for path in (data / "log").glob("*.seg")) / 10


def test_copies_are_removed_when_their_batch_is_committed(log: SegmentLog, data: Path, store: LocalStore) -> None:
    fill(log, ROWS)
    copies = LogCopies(data / "log", store)
    copies.publish(spans_of(data / "log"))
    first_tail = list_segments(data / "log")[-1]
    copies.remove_read(first_tail)
    assert tails(store)
    copies.remove_read(ROWS)
    assert not tails(store)
    assert copied(data, store)  # for other readers
    LogCopies(data / "log", store, keep_s=-1.0).remove_read(ROWS // 2)
    assert copied(data, store)[0].end_seq > ROWS // 2
    LogCopies(data / "log", store, keep_s=-1.0).remove_read(ROWS)
    assert store.list() == []


def test_copies_of_redacted_segments_are_replaced(log: SegmentLog, data: Path, store: LocalStore) -> None:
    fill(log, ROWS)
    copies = LogCopies(data / "log", store)
    copies.publish(spans_of(data / "log"))
    log.close()
    assert tails(store)
    folder, before = data / "log", copied(data, store)
    content = {copy.path: store.read(copy.path) for copy in before}

    def redact(records: Any) -> dict[int, bytes]:
        return {row: b"*" * len(frame_of(seq)) for row, seq in enumerate(records["seq"].to_pylist()) if seq == 5}

    redact_log(folder, redact, AT_US)
    segment_path(folder, before[1].first_seq).unlink()  # by retention
    assert LogCopies(folder, store).renew() == 2 + 1
    after = copied(data, store)
    assert [copy.first_seq for copy in after] == [copy.first_seq for copy in before if copy != before[1]]
    assert store.read(after[0].path) == segment_path(folder, 0).read_bytes() != content[before[0].path]
    assert [copy for copy in after[1:] if store.read(copy.path) != content[copy.path]] == []
    assert not tails(store)
    assert LogCopies(folder, store).renew() == 0


def test_copies_of_segments_that_retention_removed_are_removed(log: SegmentLog, data: Path, store: LocalStore) -> None:
    fill(log, ROWS)
    copies = LogCopies(data / "log", store)
    copies.publish(spans_of(data / "log"))
    oldest = list_segments(data / "log")[0]
    segment_path(data / "log", oldest).unlink()
    before = copied(data, store)
    copies.remove_read(ROWS)
    assert copied(data, store) == before[1:]


def test_repeated_frames_are_complete(tmp_path: Path, store: LocalStore) -> None:
    folder = tmp_path / "repeats"
    log = SegmentLog(folder, LogSettings(fsync=False))
    value = bytes(range(256)) * (4 * LOG_REPEAT_BYTES_MIN // 256)
    frames = [b"%d" % number + value for number in range(4)]
    for frame in frames:
        log.append(AT_US, "redis", "frame", "out", "s", "me", "10.0.0.1:5000", frame).wait(30)
    tail = LogCopies(folder, store).publish(spans_of(folder, 2, 4))
    assert [row["frame"] for row in rows_of(store, tail)] == frames[2:]
    assert len(store.read(tails(store)[0])) < 3 * len(value)  # the one that is repeated, and not all of the segment
    log.close()
    sealed = LogCopies(folder, store).publish(spans_of(folder, 3, 4))
    assert ".seg" in sealed[0].parts
    assert [row["frame"] for row in rows_of(store, sealed)] == frames[3:]


@pytest.mark.parametrize("closed", [False, True])
def test_damage_is_left_out_only_if_the_driver_found_it_too(
    log: SegmentLog, data: Path, store: LocalStore, closed: bool
) -> None:
    fill(log, ROWS)
    if closed:
        log.close()
    damaged = [damage(data / "log", 25), damage(data / "log", ROWS - 15)]
    spans = LogCopies(data / "log", store).publish(spans_of(data / "log"))
    with pytest.raises(MissingRecordsError, match="do not match their checksum"):
        seqs_of(store, spans)
    assert damaged_gaps(data / "log", 0, ROWS, None) == damaged
    lost = {seq for gap in damaged for seq in range(gap.first_seq, gap.end_seq)}
    read = [row["seq"] for row in rows_of(store, spans, damaged=damaged)]
    assert read == [seq for seq in range(ROWS) if seq not in lost]


def test_a_segment_that_recovery_changed_is_copied_again(log: SegmentLog, data: Path, store: LocalStore) -> None:
    fill(log, ROWS)
    lost = damage(data / "log", 25)
    LogCopies(data / "log", store).publish(spans_of(data / "log"))
    data = Path(shutil.copytree(data, data.parent / "killed"))  # as a process leaves it that was killed
    SegmentLog(data / "log").close()
    spans = LogCopies(data / "log", store).publish(spans_of(data / "log"))
    readers = [SpanReader(NOWHERE, span, copies=store, wait_s=0) for span in spans]
    read = [seq for reader in readers for batch in reader.batches() for seq in batch["seq"].to_pylist()]
    assert read == [seq for seq in range(ROWS) if not lost.first_seq <= seq < lost.end_seq]
    assert [gap for reader in readers for gap in reader.gaps] == [Gap(lost.first_seq, lost.end_seq, HOLE)]
    firsts = [copy.first_seq for copy in copied(data, store)]
    assert len(firsts) == len(set(firsts))


def test_a_missing_object_is_an_error(log: SegmentLog, data: Path, store: LocalStore) -> None:
    fill(log, ROWS)
    spans = LogCopies(data / "log", store).publish(spans_of(data / "log"))
    for path in store.list():
        store.delete(path)
    for span in spans:
        with pytest.raises(MissingRecordsError, match="the object was removed"):
            rows_of(store, [span])


def test_an_object_of_another_log_is_an_error(log: SegmentLog, data: Path, store: LocalStore) -> None:
    fill(log, ROWS)
    (span,) = LogCopies(data / "log", store).publish(spans_of(data / "log", rows=ROWS))
    with pytest.raises(MissingRecordsError, match="belongs to another log"):
        rows_of(store, [replace(span, salt=span.salt ^ 1)])


def test_a_log_that_cannot_be_identified_is_not_copied(log: SegmentLog, data: Path, store: LocalStore) -> None:
    fill(log, 10)
    log.close()
    (data / "log" / "committed").write_bytes(bytes((data / "log" / "committed").stat().st_size))
    with pytest.raises(MissingRecordsError, match="start the gateway"):
        LogCopies(data / "log", store)


def test_where_the_copies_go_is_private(tmp_path: Path, store: LocalStore) -> None:
    file = tmp_path / "store.json"
    write_store_file(file, store)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert read_store_file(file) == store


def test_the_stream_copies_as_it_plans_and_removes_after_the_commit(
    log: SegmentLog, data: Path, store: LocalStore, tmp_path: Path
) -> None:
    fill(log, 20)
    write_store_file(tmp_path / "store.json", store)
    options = SourceOptions({"path": str(data), "view": "spans", "copies": str(tmp_path / "store.json")})
    stream = WirelakeStreamReader(options)
    (partition,) = stream.partitions({"seq": 0}, {"seq": 20})
    (row,) = [row for batch in stream.read(partition) for row in batch.to_pylist()]
    assert seqs_of(store, [Span(**row)]) == list(range(20))
    stream.commit({"seq": 20})
    assert not tails(store)


def test_the_copies_are_a_log_that_others_read(log: SegmentLog, data: Path, store: LocalStore) -> None:
    fill(log, ROWS)
    LogCopies(data / "log", store).publish(spans_of(data / "log"))
    sealed_end = list_segments(data / "log")[-1]
    url = store.folder.parent.as_uri()
    reader = WirelakeReader(SourceOptions({"path": url, "partitionRows": "50"}))
    partitions = reader.partitions()
    assert len(partitions) > 3
    assert check(batch for each in partitions for batch in reader.read(each)) == list(range(sealed_end))
    part = WirelakeReader(SourceOptions({"path": url, "from_seq": "7", "until": "133"}))
    assert check(batch for each in part.partitions() for batch in part.read(each)) == list(range(7, 133))
    stream = WirelakeStreamReader(SourceOptions({"path": url}))
    assert (stream.initialOffset(), stream.reportLatestOffset()) == ({"seq": 0}, {"seq": sealed_end})
    fill(log, ROWS)
    LogCopies(data / "log", store).publish(spans_of(data / "log", ROWS, 2 * ROWS))
    assert stream.reportLatestOffset()["seq"] > ROWS - 50
    store.delete(store.list()[0])
    with pytest.raises(GoneError):
        WirelakeReader(SourceOptions({"path": url, "from_seq": "0"})).partitions()


def test_a_session_of_a_user_reads_the_copies(
    spark: "SparkSession", log: SegmentLog, data: Path, store: LocalStore
) -> None:
    fill(log, ROWS)
    LogCopies(data / "log", store).publish(spans_of(data / "log"))
    reader = spark.read.format("wirelake").option("partitionRows", "100").option("columns", "seq,frame")
    frame = reader.load(store.folder.parent.as_uri())
    assert frame.rdd.getNumPartitions() > 1
    rows = {row.seq: bytes(row.frame) for row in frame.collect()}
    assert rows == {seq: frame_of(seq) for seq in range(list_segments(data / "log")[-1])}


def test_several_logs_in_a_store_have_to_be_named(
    log: SegmentLog, data: Path, store: LocalStore, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match="no sealed segments"):
        WirelakeReader(SourceOptions({"path": store.folder.parent.as_uri()})).partitions()
    other = SegmentLog(tmp_path / "other", LogSettings(segment_bytes=64 * 1024, fsync=False))
    for folder, each in ((data / "log", log), (tmp_path / "other", other)):
        fill(each, ROWS)
        LogCopies(folder, store).publish(spans_of(folder))
    options = {"path": store.folder.parent.as_uri()}
    with pytest.raises(InputError, match="several logs"):
        WirelakeReader(SourceOptions(options)).partitions()
    with pytest.raises(InputError, match="no log 0"):
        WirelakeReader(SourceOptions({**options, "log": "0"})).partitions()
    salt = f"{BlockIndex(tmp_path / 'other').salt or 0:08x}"
    assert WirelakeReader(SourceOptions({**options, "log": salt})).partitions()
    other.close()
