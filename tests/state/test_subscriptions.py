from hypothesis import given
from hypothesis import strategies as st

from wirelake.state.subscriptions import (
    AckBounds,
    acks_after,
    acks_contain,
    add_acks,
    count_acks,
    count_acks_through,
    pack_acks,
    unpack_acks,
)

CURSOR = 10
positions = st.integers(min_value=CURSOR + 1, max_value=CURSOR + 60)
runs = st.lists(st.tuples(positions, st.integers(min_value=0, max_value=5)), max_size=20)


def built(parts: list[tuple[int, int]]) -> tuple[AckBounds, set[int]]:
    bounds: AckBounds = ()
    model: set[int] = set()
    for first, more in parts:
        bounds = add_acks(bounds, first, first + more)
        model |= set(range(first, first + more + 1))
    return bounds, model


@given(runs, positions)
def test_runs_are_a_set_of_positions(parts: list[tuple[int, int]], place: int) -> None:
    bounds, model = built(parts)
    assert {position for position in range(100) if acks_contain(bounds, position)} == model
    assert list(bounds) == sorted(set(bounds)), "runs that touch are one"
    assert count_acks(bounds) == len(model)
    assert count_acks_through(bounds, place) == len([position for position in model if position <= place])
    rest = acks_after(bounds, place)
    assert {position for position in range(100) if acks_contain(rest, position)} == {p for p in model if p > place}


@given(runs)
def test_packed_runs_come_back(parts: list[tuple[int, int]]) -> None:
    bounds, _ = built(parts)
    assert unpack_acks(pack_acks(bounds, CURSOR), CURSOR) == bounds


def test_one_gap_before_many_acks_is_a_few_bytes() -> None:
    bounds: AckBounds = ()
    for position in range(2, 100_002):
        bounds = add_acks(bounds, position, position)
    assert bounds == (2, 100_002)
    assert len(pack_acks(bounds, 0)) == 4
