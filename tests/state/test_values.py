from pathlib import Path

import pytest

from state.conftest import Reopen
from state.series import matching_keys
from wirelake.errors import FullError, InputError
from wirelake.state.store import StateStore
from wirelake.state.values import NO_EXPIRY, NO_KEY, SetCondition

WAIT_S = 30


def test_values_end_when_they_should(store: StateStore, reopen: Reopen) -> None:
    store.values.set(b"short", b"1", 0, expires_at_ms=100)
    store.values.set(b"long", b"2", 0)
    store = reopen()
    assert store.values.get(b"short", 99) == b"1"
    assert store.values.get(b"short", 100) is None
    assert store.values.remaining_ms(b"short", 40) == 60
    assert store.values.remaining_ms(b"short", 100) == NO_KEY
    assert store.values.remaining_ms(b"long", 40) == NO_EXPIRY
    assert store.values.exists([b"short", b"long", b"long", b"none"], 100) == 2
    assert store.values.expire(b"short", 500, 100) is None
    assert store.values.expire(b"long", 500, 100) is not None
    assert reopen().values.remaining_ms(b"long", 400) == 100


def test_set_only_if(store: StateStore) -> None:
    assert store.values.set(b"k", b"1", 0, only=SetCondition.IF_PRESENT) is None
    assert store.values.set(b"k", b"1", 0, only=SetCondition.IF_ABSENT, expires_at_ms=10) is not None
    assert store.values.set(b"k", b"2", 5, only=SetCondition.IF_ABSENT) is None
    assert store.values.get(b"k", 5) == b"1"
    assert store.values.set(b"k", b"2", 10, only=SetCondition.IF_PRESENT) is None
    assert store.values.set(b"k", b"3", 10, only=SetCondition.IF_ABSENT) is not None
    assert store.values.set(b"k", b"4", 10, only=SetCondition.IF_PRESENT) is not None
    assert store.values.get(b"k", 99) == b"4"


def test_a_scan_gives_each_lasting_key_once_whatever_happens_meanwhile(store: StateStore) -> None:
    lasting = {b"key %d" % number for number in range(100)}
    for key in sorted(lasting):
        store.values.set(key, b"", 0)
        store.values.set(b"passing " + key, b"", 0)
    seen: list[bytes] = []
    cursor, turn = 0, 0
    while True:
        ((cursor, keys),) = store.values.scan_in_steps(b"key*", cursor, 7, 0)
        seen += keys
        store.values.delete([b"passing key %d" % turn], 0)
        store.values.set(b"key %d" % turn, b"new", 0)
        store.values.set(b"late %d" % turn, b"", 0)
        turn += 1
        if not cursor:
            break
    assert sorted(seen) == sorted(lasting)
    assert turn > 10


def test_the_sweep_removes_what_is_over_from_memory_and_disk(store: StateStore, reopen: Reopen) -> None:
    for number in range(20):
        store.values.set(b"%d" % number, b"x", 0, expires_at_ms=number + 1)
    store.barrier().wait(WAIT_S)
    assert [_swept(store, 10, 8) for _ in range(3)] == [8, 2, 0]
    assert len(matching_keys(store.values, b"*", 0)) == 10
    assert len(matching_keys(reopen().values, b"*", 0)) == 10


def test_the_sweep_spares_what_was_set_anew_a_moment_ago(store: StateStore, reopen: Reopen) -> None:
    store.values.set(b"k", b"old", 0, expires_at_ms=1)
    store.barrier().wait(WAIT_S)
    with store.writer.transaction():  # on disk it is still the old one
        store.values.set(b"k", b"new", 5)
        assert store.values.sweep(5, 10) == 1
    assert reopen().values.get(b"k", 5) == b"new"


def test_room_is_bounded_and_given_back(path: Path) -> None:
    store = StateStore(path, values_bytes_max=2000)
    store.values.set(b"a", bytes(1000), 0)
    with pytest.raises(FullError):
        store.values.set(b"b", bytes(1000), 0)
    store.values.set(b"a", bytes(1500), 0)
    store.values.delete([b"a"], 0)
    assert store.values.size_bytes == 0
    store.values.set(b"b", bytes(1000), 0)
    with pytest.raises(InputError):
        store.values.set(b"k" * 5000, b"", 0)
    store.close()


def _swept(store: StateStore, now_ms: int, rows_max: int) -> int:
    looked_at = store.values.sweep(now_ms, rows_max)
    store.barrier().wait(WAIT_S)
    return looked_at
