"""Test that the number of buckets can change in the middle of a history, and the tables do not show it."""

from pathlib import Path
from random import Random

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.chance import KEYS, history
from pipeline.histories import BucketRun
from pipeline.stateful.cutting import cut
from wirelake.lake.store import LocalStore
from wirelake.pipeline.commit.manifests import StateFile
from wirelake.pipeline.stateful.bucket_state import BucketState, StateChange, clock_of, clock_state
from wirelake.pipeline.stateful.events import EVERY, bucket_of
from wirelake.pipeline.stateful.rebucketing import rebucket, rebucket_files
from wirelake.pipeline.stateful.state_files import read_state, write_state

NOTHING = np.zeros(0, np.int64)


@given(st.integers(0, 2**32), st.integers(20, 250), st.lists(st.integers(1, 5), min_size=1, max_size=5))
@settings(max_examples=15)
def test_any_numbers_of_buckets_give_the_same_tables(seed: int, steps: int, numbers: list[int]) -> None:
    records = history(seed, steps)
    steady = BucketRun(3, KEYS)
    changing = BucketRun(2, KEYS)
    for part, number in zip(cut(records, Random(seed), len(numbers) + 1), [*numbers, 4], strict=True):
        steady.batch(part)
        changing.batch(part)
        changing.rebucket(number)
    for name in steady.final:
        assert changing.rows(name) == steady.rows(name), name
    assert changing.counts == steady.counts


def test_two_then_three_then_one_then_four() -> None:
    run, steady = BucketRun(2, KEYS), BucketRun(4, KEYS)
    for part, number in zip(cut(history(11, 800), Random(1), 4), (3, 1, 4, 4), strict=True):
        run.batch(part)
        steady.batch(part)
        run.rebucket(number)
    assert sum(len(run.open_rows(name)) for name in run.final) > 10
    for name in run.final:
        assert run.rows(name) == steady.rows(name), name
    for one, other in zip(run.states, steady.states, strict=True):
        found, expected = (sorted(state.table().to_pylist(), key=repr) for state in (one, other))
        assert found == expected


def test_each_key_is_in_its_bucket_and_what_is_for_every_bucket_in_all() -> None:
    run = BucketRun(3, KEYS)
    run.batch(history(5, 600))
    for buckets in (1, 7):
        states = [BucketState().apply(StateChange(NOTHING, rows)) for rows in rebucket(run.states, buckets)]
        keys = [set(state.table()["key"].to_pylist()) for state in states]
        assert all(EVERY in of_bucket for of_bucket in keys)
        assert all(bucket_of(key, buckets) == bucket for bucket, of in enumerate(keys) for key in of - {EVERY})
        assert set.union(*keys) == {key for state in run.states for key in state.table()["key"].to_pylist()}


def test_the_clock_is_the_latest() -> None:
    states = [BucketState().apply(StateChange(NOTHING, clock_state(now_us))) for now_us in (3, 9, 5)]
    for rows in rebucket(states, 2):
        assert clock_of(BucketState().apply(StateChange(NOTHING, rows))) == 9


def test_files_are_written_as_often_as_needed(tmp_path: Path) -> None:
    run = BucketRun(2, KEYS)
    run.batch(history(3, 300))
    folder = LocalStore(tmp_path)
    before: dict[int, list[StateFile]] = {}
    for bucket, state in enumerate(run.states):
        change = StateChange(NOTHING, state.table())
        before[bucket] = write_state(folder, f"{bucket}.arrow", BucketState(), [], change)
    first, again = (rebucket_files(folder, before, 3, "000000000007-0000") for _ in range(2))
    assert first == again
    expected = [BucketState().apply(StateChange(NOTHING, rows)).table() for rows in rebucket(run.states, 3)]
    assert [read_state(folder, files).table() for _, files in sorted(first.items())] == expected
    assert len(list(tmp_path.iterdir())) == 5, "those before are still there"
