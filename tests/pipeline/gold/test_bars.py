from pipeline.rows import NOON, after, rows_in, rows_out
from pyspark.sql import SparkSession

from wirelake.lake.tables import BARS_MINUTE, RECORDS
from wirelake.pipeline.gold.bars import bars_minute


def test_open_high_low_close_in_the_order_of_the_records_own_time(spark: SparkSession) -> None:
    def record(seconds: float, seq: int, price: object, key: str = "sh600600") -> dict[str, object]:
        fields = f'{{"newp":{price}}}' if price is not None else '{"vol":7}'
        place = {"seq": seq, "time": int(after(seconds).timestamp()), "recorded_at": after(seconds)}
        return {**place, "at": after(500), "key": key, "sdb": "now", "fields": fields}

    records = rows_in(
        spark,
        RECORDS,
        record(30, 1, 11),  # came first, but is not the first of its minute
        record(10, 2, 10.5),
        record(20, 3, 9),
        record(40, 4, 10),
        record(40, 5, 10.25),  # the same second, later in the log
        record(61, 6, 8),
        record(1, 7, None),
        record(1, 8, '"cheap"'),
        record(1, 9, 3, "sh2"),
    )
    columns = ("minute", "key", "sdb", "open", "high", "low", "close", "count")
    assert rows_out(bars_minute(records), BARS_MINUTE, *columns) == [
        (NOON, "sh2", "now", 3.0, 3.0, 3.0, 3.0, 1),
        (NOON, "sh600600", "now", 10.5, 11.0, 9.0, 10.25, 5),
        (after(60), "sh600600", "now", 8.0, 8.0, 8.0, 8.0, 1),
    ]


def test_without_a_time_of_its_own_a_record_counts_when_it_came(spark: SparkSession) -> None:
    records = rows_in(spark, RECORDS, {"seq": 1, "at": after(61), "key": "k", "sdb": "s", "fields": '{"newp":1}'})
    assert rows_out(bars_minute(records), BARS_MINUTE, "minute", "count") == [(after(60), 1)]
