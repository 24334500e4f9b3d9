from pipeline.rows import NOON, after, rows_in, rows_out
from pyspark.sql import SparkSession

from wirelake.lake.tables import CALL_MINUTE, CALLS
from wirelake.pipeline.gold.calls import call_minute


def test_counts_and_latencies_by_the_minute_of_the_question(spark: SparkSession) -> None:
    one = {"protocol": "esnp", "service": "rates", "op": "get"}
    calls = rows_in(
        spark,
        CALLS,
        {**one, "asked_at": after(1), "status": "ok", "latency_ms": 1.0},
        {**one, "asked_at": after(2), "status": "timeout", "latency_ms": 3.0},
        {**one, "asked_at": after(3), "status": "open"},
        {**one, "asked_at": after(61), "status": "unanswered"},
    )
    columns = ("minute", "protocol", "service", "op", "calls", "failed", "open", "p50_ms", "p99_ms")
    assert rows_out(call_minute(calls), CALL_MINUTE, *columns) == [
        (NOON, "esnp", "rates", "get", 3, 1, 1, 2.0, 2.98),
        (after(60), "esnp", "rates", "get", 1, 1, 0, None, None),
    ]
