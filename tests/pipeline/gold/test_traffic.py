from pipeline.rows import NOON, after, rows_in, rows_out
from pyspark.sql import SparkSession

from wirelake.lake.tables import MESSAGES, QUARANTINE, TRAFFIC_MINUTE
from wirelake.pipeline.gold.traffic import traffic_minute


def test_frames_bytes_and_errors_by_minute_protocol_and_name(spark: SparkSession) -> None:
    one = {"protocol": "comet", "name": "auth", "direction": "in", "bytes": 10}
    messages = rows_in(
        spark,
        MESSAGES,
        {"at": after(1), **one},
        {"at": after(59.9), **one},
        {"at": after(60), **one},
        {"at": after(1), **one, "direction": "out", "status": "token wrong"},
        {"at": after(2), **one, "direction": "out", "status": "ok"},
    )
    quarantine = rows_in(spark, QUARANTINE, {"at": after(3), "protocol": "esnp", "direction": "in", "frame": b"abc"})
    columns = ("minute", "protocol", "name", "direction", "frames", "bytes", "errors", "day")
    assert rows_out(traffic_minute(messages, quarantine), TRAFFIC_MINUTE, *columns) == [
        (NOON, "comet", "auth", "in", 2, 20, 0, NOON.date()),
        (NOON, "comet", "auth", "out", 2, 20, 1, NOON.date()),
        (NOON, "esnp", "(quarantined)", "in", 1, 3, 1, NOON.date()),
        (after(60), "comet", "auth", "in", 1, 10, 0, NOON.date()),
    ]
