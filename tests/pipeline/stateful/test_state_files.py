"""Test that states in several files are the same as in one, whatever the batches do."""

from pathlib import Path
from random import Random

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.chance import KEYS, history
from pipeline.histories import BucketRun
from pipeline.stateful.cutting import cut
from wirelake.errors import StorageError
from wirelake.lake.store import LocalStore
from wirelake.pipeline.commit.manifests import StateFile
from wirelake.pipeline.stateful import state_files
from wirelake.pipeline.stateful.bucket_state import NEVER_US, BucketState, PackedStates, StateChange
from wirelake.pipeline.stateful.reduce import open_rows
from wirelake.pipeline.stateful.state_files import read_state, write_state

NOTHING = np.zeros(0, np.int64)


def packed(*states: tuple[str, bytes], kind: str = "call") -> pa.Table:
    found = PackedStates()
    for key, state in states:
        found.put(key, NEVER_US, 1, state)
    return found.table(kind)


def contents(state: BucketState) -> list[tuple[str, str, bytes]]:
    table = state.table()
    return sorted(zip(*(table[name].to_pylist() for name in ("kind", "key", "state")), strict=True), key=repr)


class Bucket:
    """Write the changes of a bucket, batch after batch."""

    def __init__(self, folder: Path) -> None:
        self.folder = LocalStore(folder)
        self.files: list[StateFile] = []
        self.batch = 0

    @property
    def state(self) -> BucketState:
        return read_state(self.folder, self.files)

    def change(self, *states: tuple[str, bytes], take: tuple[str, ...] = ()) -> int:
        """Replace these keys, and return how many bytes were written."""
        before = self.state
        kind = before.of_kind("call")
        kind.take_keys(pa.array(take, pa.string()), 0)
        name = state_files.state_name(0, 1, f"{self.batch:012d}")
        self.files = write_state(self.folder, name, before, self.files, kind.changes([packed(*states)]))
        self.batch += 1
        return self.files[-1].bytes


def test_changes_are_files_of_their_own_until_they_are_many(tmp_path: Path) -> None:
    bucket = Bucket(tmp_path)
    large = bucket.change(*((f"s{number}", bytes(100)) for number in range(50_000)))
    written = [bucket.change((f"new{number}", bytes(100)), take=(f"s{number}",)) for number in range(60)]
    assert sum(written) < large / 2, "each batch rewrites little"
    assert len(bucket.files) < 12
    assert len(bucket.state.table()) == 50_000
    assert {key for _, key, _ in contents(bucket.state)} >= {"new0", "new59", "s60"}
    assert not {key for _, key, _ in contents(bucket.state)} & {"s0", "s59"}


def test_one_new_key_costs_the_same_among_few_and_many(tmp_path: Path) -> None:
    costs = []
    for number in (1_000, 100_000):
        (tmp_path / str(number)).mkdir()
        bucket = Bucket(tmp_path / str(number))
        bucket.change(*((f"s{key}", bytes(100)) for key in range(number)))
        costs.append(max(bucket.change((f"new{batch}", bytes(100))) for batch in range(5)))
    assert costs[1] <= costs[0]
    assert costs[1] < 16 * 1024


def test_what_was_mostly_removed_is_not_kept(tmp_path: Path) -> None:
    bucket = Bucket(tmp_path)
    keys = tuple(f"s{number}" for number in range(10_000))
    bucket.change(*((key, bytes(100)) for key in keys))
    bucket.change(take=keys[:9_000])
    assert [file.name for file in bucket.files] == ["0000-of-0001-000000000001.arrow"]
    assert sorted(key for _, key, _ in contents(bucket.state)) == sorted(keys[9_000:])


def test_a_state_that_is_put_back_as_it_was_is_no_change() -> None:
    state = BucketState().apply(StateChange(NOTHING, packed(("a", b"1"), ("b", b"2"))))
    kind = state.of_kind("call")
    kind.take()
    change = kind.changes([packed(("b", b"2"), ("a", b"3"))])
    assert change.removed.tolist() == [0]
    assert change.added["key"].to_pylist() == ["a"]
    assert contents(state.apply(change)) == [("call", "a", b"3"), ("call", "b", b"2")]


def test_a_task_that_is_run_again_writes_the_same_file(tmp_path: Path) -> None:
    bucket = Bucket(tmp_path)
    bucket.change(*((f"s{number}", bytes(100)) for number in range(2_000)))
    before = list(bucket.files)
    bucket.change(("t", b"1"), take=("s1",))
    first, content = list(bucket.files), (tmp_path / bucket.files[-1].name).read_bytes()
    bucket.files, bucket.batch = before, 1
    bucket.change(("t", b"1"), take=("s1",))
    assert bucket.files == first
    assert (tmp_path / first[-1].name).read_bytes() == content


def test_a_file_that_is_damaged_is_named(tmp_path: Path) -> None:
    bucket = Bucket(tmp_path)
    bucket.change(("a", b"1"))
    path = tmp_path / bucket.files[0].name
    path.write_bytes(path.read_bytes()[:-1] + b"?")
    with pytest.raises(StorageError, match=r"0000-of-0001-000000000000\.arrow is damaged"):
        read_state(bucket.folder, bucket.files)


def test_a_file_of_an_earlier_version_is_read_and_replaced(tmp_path: Path) -> None:
    rows = packed(("a", b"1"), ("b", b"2"))
    with pa.OSFile(str(tmp_path / "old.arrow"), "wb") as sink, pa.ipc.new_file(sink, rows.schema) as writer:
        writer.write_table(rows)
    bucket = Bucket(tmp_path)
    bucket.files = [StateFile("old.arrow")]
    bucket.change(take=("a",))
    assert contents(bucket.state) == [("call", "b", b"2")]
    assert "old.arrow" not in {file.name for file in bucket.files}


def test_what_is_cached_is_bounded_and_not_needed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_files, "PIPELINE_STATE_CACHE_FILES", 2)
    bucket = Bucket(tmp_path)
    for number in range(3):
        bucket.change((f"s{number}", bytes(3_000_000 // 4**number)))
    assert len(bucket.files) == 3
    found = contents(bucket.state)
    monkeypatch.setattr(state_files, "_cache", state_files._FileCache())  # as in another worker
    assert contents(bucket.state) == found
    assert len(found) == 3
    assert len(state_files._cache._parts) <= 2


@given(st.integers(0, 2**32), st.integers(1, 200), st.integers(1, 12))
@settings(max_examples=25)
def test_a_history_leaves_the_same_in_many_files_as_in_one(
    tmp_path_factory: pytest.TempPathFactory, seed: int, steps: int, batches: int
) -> None:
    """Check rows, state and counts after every batch, with files that are joined at other times than usual."""
    folder, chance = LocalStore(tmp_path_factory.mktemp("states")), Random(seed)
    incremental, complete = BucketRun(2, KEYS), BucketRun(2, KEYS)
    files: list[list[StateFile]] = [[], []]
    for number, part in enumerate(cut(history(seed, steps), chance, batches)):
        before = list(incremental.states)
        changes = [reduced.state for reduced in incremental.batch(part)]
        complete.batch(part)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(state_files, "PIPELINE_STATE_FILE_BYTES", chance.choice((0, 10_000)))
            patch.setattr(state_files, "PIPELINE_STATE_FILES_MAX", chance.choice((1, 3, 9)))
            for bucket, change in enumerate(changes):
                name = state_files.state_name(bucket, 2, f"{number:012d}")
                attempts = [write_state(folder, name, before[bucket], files[bucket], change) for _ in range(2)]
                assert attempts[0] == attempts[1], "a task that is killed and run again"
                patch.setattr(state_files, "_cache", state_files._FileCache())
                assert contents(read_state(folder, files[bucket])) == contents(before[bucket])
                files[bucket] = attempts[1]
        incremental.states = [read_state(folder, each) for each in files]
        complete.states = [BucketState([state.joined()]) for state in complete.states]
        for one, other in zip(incremental.states, complete.states, strict=True):
            assert sorted(one.table().to_pylist(), key=repr) == sorted(other.table().to_pylist(), key=repr)
    for name in incremental.final:
        assert incremental.rows(name) == complete.rows(name), name
    assert incremental.counts == complete.counts
    opened = [open_rows(state) for state in incremental.states]
    for name in incremental.final:
        rows = [{**row, "settled": False} for each in opened if name in each for row in each[name].to_pylist()]
        assert sorted(rows, key=repr) == incremental.open_rows(name), name
