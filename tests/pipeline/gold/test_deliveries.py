from pipeline.rows import NOON, after, rows_in, rows_out
from pyspark.sql import SparkSession

from wirelake.lake.tables import DELIVERIES, DELIVERY_MINUTE
from wirelake.pipeline.gold.deliveries import delivery_minute


def test_counts_and_latencies_by_the_minute_of_the_first_sending(spark: SparkSession) -> None:
    deliveries = rows_in(
        spark,
        DELIVERIES,
        *(
            {"topic": "@a", "first_sent_at": after(n), "state": "acked", "attempts": 1, "latency_ms": float(n)}
            for n in range(1, 5)
        ),
        {"topic": "@a", "first_sent_at": after(5), "state": "pending", "attempts": 3},
        {"topic": "@b", "first_sent_at": after(61), "state": "expired", "attempts": 2},
    )
    columns = ("minute", "topic", "deliveries", "acked", "pending", "expired", "attempts", "p50_ms", "p95_ms")
    assert rows_out(delivery_minute(deliveries), DELIVERY_MINUTE, *columns) == [
        (NOON, "@a", 5, 4, 1, 0, 7, 2.5, 3.8499999999999996),
        (after(60), "@b", 1, 0, 0, 1, 2, None, None),
    ]
