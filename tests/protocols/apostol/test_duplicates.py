"""Test which sealed commands are recognised as replays, and which are forgotten."""

from hypothesis import given
from hypothesis import strategies as st

from wirelake.protocols.apostol.constants import (
    APOSTOL_CLOCK_AHEAD_S,
    APOSTOL_SEALS_PER_DEVICE_MAX,
    APOSTOL_SEALS_UNORDERED_MAX,
)
from wirelake.protocols.apostol.duplicates import Replays, pack_replays, unpack_replays

NOW = 1_700_000_000
WINDOW_S = 300.0


def sealed(number: int) -> bytes:
    return b"the same beginning" + number.to_bytes(16, "big")


def take(replays: Replays, number: int, at: int) -> bool:
    return replays.take(at, sealed(number), NOW, WINDOW_S)


def test_a_command_is_taken_once() -> None:
    replays = Replays()
    assert take(replays, 1, NOW)
    assert not take(replays, 1, NOW)
    assert take(replays, 2, NOW), "another one of the same second"
    assert take(replays, 3, NOW - 299), "late, within the window"
    assert not take(replays, 3, NOW - 299)
    assert not take(replays, 4, NOW - 301), "too old to tell"
    assert take(replays, 5, NOW + 1000)
    assert not take(replays, 1, NOW), "left behind by the window"
    assert len(replays.seen) == 1, "and forgotten"


def test_times_that_say_nothing_do_not_move_the_window() -> None:
    replays = Replays()
    ahead = NOW + int(APOSTOL_CLOCK_AHEAD_S) + 1
    for number, at in enumerate((0, 1, ahead, 2**32 - 1)):
        assert take(replays, number, at)
        assert not take(replays, number, at)
    assert (replays.newest, replays.floor) == (0, 0)
    assert take(replays, 10, NOW)
    for number in range(100, 100 + APOSTOL_SEALS_UNORDERED_MAX):
        assert take(replays, number, 0)
    assert len(replays.unordered) == APOSTOL_SEALS_UNORDERED_MAX
    assert take(replays, 0, 0), "of these only the last are known"


def test_memory_is_bounded_and_what_is_forgotten_is_refused() -> None:
    replays = Replays()
    taken = [(number, NOW + number // 4) for number in range(APOSTOL_SEALS_PER_DEVICE_MAX + 200)]
    assert all(take(replays, number, at) for number, at in taken)
    assert len(replays.seen) <= APOSTOL_SEALS_PER_DEVICE_MAX
    assert not any(take(replays, number, at) for number, at in taken)
    assert take(replays, 5000, NOW + 1000)


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(NOW - 1000, NOW + 1000)), max_size=200), st.booleans())
def test_nothing_with_a_time_is_ever_taken_twice(sent: list[tuple[int, int]], is_stored: bool) -> None:
    replays, taken = Replays(), set[tuple[int, int]]()
    for number, at in sent:
        command = number << 32 | at
        fresh = replays.take(at, sealed(command), NOW, WINDOW_S)
        assert not (fresh and (number, at) in taken)
        newest = max((time for _, time in taken), default=0)
        assert fresh or (number, at) in taken or at < newest - WINDOW_S, "nothing else is refused"
        if fresh:
            taken.add((number, at))
        if is_stored:
            replays = unpack_replays(pack_replays(replays))
