from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from log.records import check, expected, fill

from wirelake.errors import GoneError, InputError
from wirelake.log.interface import SCHEMA
from wirelake.log.segments.block_index import BlockIndex
from wirelake.log.segments.format import list_segments, segment_path
from wirelake.log.segments.log import SegmentLog
from wirelake.log.segments.mapped_segment import BlockHint
from wirelake.log.segments.reader import LogReader
from wirelake.pipeline.ingest.source import SourceOptions, WirelakeReader, WirelakeStreamReader

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from wirelake.pipeline.ingest.source import _Partition


def options(data: Path, **rest: str) -> SourceOptions:
    return SourceOptions({"path": str(data), **rest})


def seqs_of(reader: WirelakeReader | WirelakeStreamReader, partitions: "list[_Partition] | list[Any]") -> list[int]:
    return [seq for partition in partitions for batch in reader.read(partition) for seq in batch["seq"].to_pylist()]


def drop_oldest(data: Path) -> int:
    """Remove the first segment as retention does, and return the seq of the first record left."""
    firsts = list_segments(data / "log")
    segment_path(data / "log", firsts[0]).unlink()
    return firsts[1]


def test_a_batch_has_the_records_as_they_are(spark: "SparkSession", log: SegmentLog, data: Path) -> None:
    fill(log, 500)
    frame = spark.read.format("wirelake").load(str(data))
    assert frame.columns == SCHEMA.names
    assert dict(frame.dtypes)["frame"] == "binary"
    assert dict(frame.dtypes)["at"] == "timestamp"
    rows = frame.toArrow().to_pylist()
    assert sorted(row["seq"] for row in rows) == list(range(500))
    for row in rows:
        wanted = expected(row["seq"], row["note"])
        assert {name: row[name] for name in wanted} == wanted


def test_a_span_of_it_in_many_partitions(spark: "SparkSession", log: SegmentLog, data: Path) -> None:
    fill(log, 1000)
    reader = spark.read.format("wirelake").option("from_seq", "123").option("until", "877")
    frame = reader.option("partitionRows", "100").load(str(data))
    assert frame.rdd.getNumPartitions() == 8
    assert sorted(row.seq for row in frame.select("seq").collect()) == list(range(123, 877))


def test_spans_cover_the_log_once(spark: "SparkSession", log: SegmentLog, data: Path) -> None:
    fill(log, 1000)
    spans = spark.read.format("wirelake").option("view", "spans").option("partitionRows", "300").load(str(data))
    rows = sorted(spans.collect())
    assert rows[0].from_seq == 0
    assert [row.until_seq for row in rows[:-1]] == [row.from_seq for row in rows[1:]]
    assert rows[-1].until_seq == 1000


def test_a_stream_takes_what_it_may_and_ends_at_what_was_there(
    spark: "SparkSession", log: SegmentLog, data: Path, tmp_path: Path
) -> None:
    fill(log, 500)
    seen: list[tuple[int, list[int]]] = []

    def gather(batch: "DataFrame", batch_id: int) -> None:
        seen.append((batch_id, sorted(row.seq for row in batch.select("seq").collect())))
        if batch_id == 0:
            fill(log, 10)  # comes too late for availableNow

    stream = spark.readStream.format("wirelake").option("maxRows", "200").load(str(data))
    writer = stream.writeStream.foreachBatch(gather).option("checkpointLocation", str(tmp_path / "checkpoint"))
    query = writer.trigger(availableNow=True).start()
    assert query.awaitTermination(60)
    assert [batch_id for batch_id, _ in seen] == [0, 1, 2]
    assert [seq for _, seqs in seen for seq in seqs] == list(range(500))
    seen.clear()
    query = writer.trigger(availableNow=True).start()
    assert query.awaitTermination(60)
    assert seen == [(3, list(range(500, 510)))]


def test_offsets_follow_limits_in_rows_and_bytes(log: SegmentLog, data: Path) -> None:
    from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

    fill(log, 300, per_block=10)
    reader = WirelakeStreamReader(options(data, maxRows="100"))
    start = reader.initialOffset()
    assert start == {"seq": 0}
    assert reader.latestOffset(start, reader.getDefaultReadLimit()) == {"seq": 100}
    assert reader.latestOffset({"seq": 100}, ReadMaxRows(7)) == {"seq": 107}  # no whole block fits
    assert reader.latestOffset({"seq": 107}, ReadMaxRows(50)) == {"seq": 150}
    assert reader.latestOffset({"seq": 100}, ReadAllAvailable()) == {"seq": 300}
    assert reader.latestOffset({"seq": 300}, ReadMaxRows(50)) == {"seq": 300}
    narrow = WirelakeStreamReader(options(data, maxBytes="1"))
    first = narrow.latestOffset(start, narrow.getDefaultReadLimit())
    assert 0 < first["seq"] <= 20  # at least one block
    assert seqs_of(reader, reader.partitions({"seq": 95}, {"seq": 140})) == list(range(95, 140))
    assert reader.partitions({"seq": 95}, {"seq": 95}) == []
    assert reader.reportLatestOffset() == {"seq": 300}


def test_available_now_stops_at_what_was_there(log: SegmentLog, data: Path) -> None:
    fill(log, 50)
    reader = WirelakeStreamReader(options(data))
    reader.prepareForTriggerAvailableNow()
    fill(log, 50)
    assert reader.latestOffset({"seq": 0}, reader.getDefaultReadLimit()) == {"seq": 50}


def test_what_retention_removed_is_an_error_or_left_out(log: SegmentLog, data: Path) -> None:
    fill(log, 1000)
    oldest = drop_oldest(data)
    assert oldest > 0
    strict, lenient = options(data, from_seq="0"), options(data, from_seq="0", gone="oldest")
    with pytest.raises(GoneError, match=f"oldest left is {oldest}"):
        WirelakeReader(strict).partitions()
    reader = WirelakeReader(lenient)
    assert seqs_of(reader, reader.partitions()) == list(range(oldest, 1000))
    with pytest.raises(GoneError):
        WirelakeStreamReader(strict).latestOffset({"seq": 0}, WirelakeStreamReader(strict).getDefaultReadLimit())
    stream = WirelakeStreamReader(lenient)
    end = stream.latestOffset({"seq": 0}, stream.getDefaultReadLimit())
    assert seqs_of(stream, stream.partitions({"seq": 0}, end)) == list(range(oldest, 1000))
    anywhere = WirelakeReader(options(data))  # without from_seq: from whatever is the oldest
    assert seqs_of(anywhere, anywhere.partitions()) == list(range(oldest, 1000))


def test_options_that_mean_nothing_are_refused(data: Path) -> None:
    with pytest.raises(InputError, match="no view 'tables'"):
        options(data, view="tables")
    with pytest.raises(InputError, match="option from_seq of the source wirelake must be a number"):
        options(data, from_seq="newest")
    with pytest.raises(InputError, match="needs the data folder"):
        SourceOptions({})


def test_a_survey_sees_every_record_once_wherever_it_begins(log: SegmentLog, data: Path) -> None:
    fill(log, 400, per_block=7)
    survey = BlockIndex(data / "log")
    for first, end in ((0, 400), (3, 350), (350, 400), (10, 11), (0, 1), (399, 400), (200, 300)):
        pieces = list(survey.ranges(first, end))
        assert pieces[0].first_seq == first
        assert pieces[-1].end_seq == end
        assert all(one.end_seq == other.first_seq for one, other in pairwise(pieces))
    assert list(survey.ranges(400, 500)) == []
    fill(log, 20)
    assert list(survey.ranges(400, 500))[-1].end_seq == 420


def test_a_reader_believes_a_place_only_if_a_block_is_there(log: SegmentLog, data: Path) -> None:
    fill(log, 300, per_block=10)
    block = list(BlockIndex(data / "log").ranges(0, 300))[-2]
    near = block.hint
    assert near is not None
    reader = LogReader(data / "log")
    for place in (near, near._replace(offset=near.offset + 8), near._replace(seq=near.seq - 1), BlockHint(7, 0, 0)):
        assert check(reader.read(near.seq + 1, hint=place)) == list(range(near.seq + 1, 300))
    assert check(reader.read(5, hint=near)) == list(range(5, 300))  # it is after what is asked for
    assert reader.damages == []


def test_only_the_columns_that_are_asked_for(spark: "SparkSession", log: SegmentLog, data: Path) -> None:
    fill(log, 50)
    read = spark.read.format("wirelake").option("columns", "protocol, seq").load(str(data))
    assert read.columns == ["protocol", "seq"]
    assert sorted(row.seq for row in read.collect()) == list(range(50))
    decoded = spark.read.format("wirelake").option("view", "messages").option("columns", "name").load(str(data))
    assert decoded.columns == ["name"]
    with pytest.raises(Exception, match="no column colour to select"):
        spark.read.format("wirelake").option("columns", "seq,colour").load(str(data)).count()
