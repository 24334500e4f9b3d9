from datetime import UTC, datetime

from pipeline.rows import after, arrow_rows
from wirelake.lake.tables import MESSAGES, RECORDS
from wirelake.pipeline.time_ranges import MINUTE_US, minutes_of, time_column, time_of


def test_minutes_are_those_of_the_column_that_partitions_the_table() -> None:
    noon = int(after(0).timestamp()) * 1_000_000
    messages = arrow_rows(MESSAGES, {"received_at": after(59)}, {"received_at": after(60)}, {"received_at": after(61)})
    assert minutes_of(MESSAGES, messages) == {noon, noon + MINUTE_US}
    records = arrow_rows(RECORDS, {"received_at": after(0), "recorded_at": after(120)}, {"received_at": after(0)})
    assert time_column(RECORDS) == "recorded_at"
    assert minutes_of(RECORDS, records) == {noon + 2 * MINUTE_US}


def test_times_are_utc() -> None:
    assert time_of(1_000_000) == datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)
