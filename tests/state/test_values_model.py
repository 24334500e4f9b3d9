"""Random redis operations, on strings and hashes, beside a plain dict, with time passing, sweeps and restarts."""

import tempfile
from contextlib import ExitStack
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from state.series import matching_keys
from wirelake.errors import WrongTypeError
from wirelake.state.store import StateStore
from wirelake.state.values import NO_EXPIRY, NO_KEY, SetCondition

WAIT_S = 30
keys = st.sampled_from([b"a", b"ab", b"b", b"", b"\xff"])
fields = st.sampled_from([b"f", b"g", b""])
ends = st.none() | st.integers(min_value=0, max_value=20)


class ValuesModel(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.store = StateStore(Path(self.folder.name) / "state.db")
        self.held = ExitStack()
        self.now_ms = 0
        self.model: dict[bytes, tuple[bytes | dict[bytes, bytes], int | None]] = {}

    def teardown(self) -> None:
        self.held.close()
        self.store.close()
        self.folder.cleanup()

    def end(self, after_ms: int | None) -> int | None:
        return None if after_ms is None else self.now_ms + after_ms

    @rule(key=keys, value=st.binary(max_size=3), after_ms=ends, only=st.none() | st.sampled_from(SetCondition))
    def set(self, key: bytes, value: bytes, after_ms: int | None, only: SetCondition | None) -> None:
        allowed = only is None or (key in self.model) is (only is SetCondition.IF_PRESENT)
        done = self.store.values.set(key, value, self.now_ms, expires_at_ms=self.end(after_ms), only=only)
        assert (done is not None) is allowed
        if allowed:
            self.model[key] = (value, self.end(after_ms))
            self.forget()

    @rule(key=keys, after_ms=ends)
    def expire(self, key: bytes, after_ms: int | None) -> None:
        done = self.store.values.expire(key, self.end(after_ms), self.now_ms)
        assert (done is not None) is (key in self.model)
        if key in self.model:
            self.model[key] = (self.model[key][0], self.end(after_ms))
            self.forget()

    @rule(gone=st.lists(keys, max_size=3))
    def delete(self, gone: list[bytes]) -> None:
        there, _ = self.store.values.delete(gone, self.now_ms)
        assert there == sum(self.model.pop(key, None) is not None for key in gone)

    @rule(key=keys, given=st.dictionaries(fields, st.binary(max_size=3), min_size=1))
    def set_fields(self, key: bytes, given: dict[bytes, bytes]) -> None:
        before, end = self.model.get(key, ({}, None))
        if isinstance(before, bytes):
            with pytest.raises(WrongTypeError):
                self.store.values.set_fields(key, given, self.now_ms)
            return
        added, _ = self.store.values.set_fields(key, given, self.now_ms)
        assert added == len(given.keys() - before.keys())
        self.model[key] = (before | given, end)

    @rule(key=keys, gone=st.lists(fields, max_size=3))
    def delete_fields(self, key: bytes, gone: list[bytes]) -> None:
        before, end = self.model.get(key, ({}, None))
        if isinstance(before, bytes):
            with pytest.raises(WrongTypeError):
                self.store.values.delete_fields(key, gone, self.now_ms)
            return
        there, _ = self.store.values.delete_fields(key, gone, self.now_ms)
        assert there == len(set(gone) & before.keys())
        left = {field: value for field, value in before.items() if field not in gone}
        if left:
            self.model[key] = (left, end)
        else:
            self.model.pop(key, None)

    @rule(given=st.dictionaries(keys, st.binary(max_size=3), min_size=1))
    def set_many(self, given: dict[bytes, bytes]) -> None:
        self.store.values.set_many(given, self.now_ms)
        self.model.update({key: (value, None) for key, value in given.items()})

    @rule()
    def clear(self) -> None:
        self.store.values.clear()
        self.model.clear()

    @rule(later_ms=st.integers(min_value=1, max_value=15))
    def time_passes(self, later_ms: int) -> None:
        self.now_ms += later_ms
        self.forget()

    def forget(self) -> None:
        self.model = {key: (value, end) for key, (value, end) in self.model.items() if end is None or end > self.now_ms}

    @rule()
    def hold_the_writer(self) -> None:
        """What follows gathers in one batch, and the disk stays behind memory."""
        self.held.enter_context(self.store.writer.transaction())

    @rule()
    def let_the_writer_go(self) -> None:
        self.held.close()
        self.store.barrier().wait(WAIT_S)

    @rule()
    def sweep(self) -> None:
        self.store.values.sweep(self.now_ms, 2)

    @rule()
    def restart(self) -> None:
        self.held.close()
        path, size_bytes = self.store.database.path, self.store.values.size_bytes
        self.store.close()
        self.store = StateStore(path)
        assert self.store.values.size_bytes == size_bytes

    @invariant()
    def both_hold_the_same(self) -> None:
        values, now_ms = self.store.values, self.now_ms
        assert sorted(matching_keys(values, b"*", now_ms)) == sorted(self.model)
        assert sorted(matching_keys(values, b"a*", now_ms)) == sorted(key for key in self.model if key.startswith(b"a"))
        for key in (b"a", b"ab", b"b", b"", b"\xff"):
            value, end = self.model.get(key, (None, None))
            if isinstance(value, dict):
                assert values.fields(key, now_ms) == value
                assert values.type(key, now_ms) == "hash"
            else:
                assert values.get(key, now_ms) == value
            remaining = NO_KEY if key not in self.model else NO_EXPIRY if end is None else end - now_ms
            assert values.remaining_ms(key, now_ms) == remaining


TestValues = ValuesModel.TestCase
TestValues.settings = settings(max_examples=60, stateful_step_count=40)
