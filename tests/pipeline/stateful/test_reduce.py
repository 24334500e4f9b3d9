"""Test that the tables do not depend on where the log is cut into batches, and batches into spans."""

from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.chance import KEYS, history
from pipeline.histories import SECOND, BucketRun
from pipeline.stateful.cutting import cut
from wirelake.lake.tables import TABLES

SETTLED = [name for name, table in TABLES.items() if name.startswith("silver.") and table.has_open_rows]
SETTLED += ["silver.readings", "silver.records"]
BUCKETS = 3


@given(st.integers(0, 2**32), st.integers(1, 250), st.integers(1, 12))
@settings(max_examples=60)
def test_any_cut_gives_the_same_tables(seed: int, steps: int, batches: int) -> None:
    records = history(seed, steps)
    whole = BucketRun(BUCKETS, KEYS)
    whole.batch(records)
    chance = Random(seed)
    pieces = BucketRun(BUCKETS, KEYS)
    for part in cut(records, chance, batches):
        if part:
            pieces.batch(*(span for span in cut(part, chance, chance.randrange(1, 4)) if span))
    for name in SETTLED:
        assert pieces.rows(name) == whole.rows(name), name
    assert pieces.counts == whole.counts


@given(st.integers(0, 2**32), st.integers(50, 200))
@settings(max_examples=15)
def test_clocks_gone_wild_lose_nothing(seed: int, steps: int) -> None:
    """Check that everything has one row, although what timed out may depend on the cut."""
    chance = Random(seed)
    day_us = 24 * 3600 * SECOND
    records = [{**each, "at": each["at"] + chance.randrange(-day_us, day_us)} for each in history(seed, steps)]
    pieces = BucketRun(BUCKETS, KEYS)
    for part in cut(records, chance, 8):
        if part:
            pieces.batch(part)
    opened = [each["session"] for each in records if each["event"] == "open"]
    assert sorted(row["session"] for row in pieces.rows("silver.sessions")) == sorted(opened)
    seqs = [row["seq"] for row in pieces.rows("silver.calls")]
    assert len(seqs) == len(set(seqs))
    whole = BucketRun(BUCKETS, KEYS)
    whole.batch(records)
    assert sorted(row["seq"] for row in whole.rows("silver.calls")) == sorted(seqs)
    assert sum(row["received"] for row in pieces.rows("silver.tallies")) == sum(
        each["direction"] == "in" for each in records
    )
