"""Test which selections of genuine and forged packets are tried, and how many."""

from hypothesis import given
from hypothesis import strategies as st

from wirelake.protocols.apostol.alternatives import Alternatives
from wirelake.protocols.apostol.constants import (
    APOSTOL_ALTERNATIVES_MAX,
    APOSTOL_SEAL_TRIES_BYTES_MAX,
    APOSTOL_SEAL_TRIES_MAX,
    LAST,
    SEALED,
)


def fed(*pieces: tuple[int, bytes, bool]) -> tuple[Alternatives, list[list[bytes]]]:
    """Return all selections that the last packet completes."""
    parts = Alternatives()
    for number, data, is_last in pieces:
        parts.add(number, SEALED | (LAST if is_last else 0), data)
    return parts, [[data for _, data in selection] for selection in parts.selections(pieces[-1][0])]


def test_the_newest_first_then_the_oldest_then_few_changes() -> None:
    _, tried = fed((0, b"a", False), (0, b"A", False), (1, b"b", False), (1, b"B", False), (2, b"c", True))
    assert tried[:2] == [[b"A", b"B", b"c"], [b"a", b"b", b"c"]]
    assert {b"".join(each) for each in tried} == {b"ABc", b"abc", b"aBc", b"Abc"}


def test_any_of_several_may_be_the_last() -> None:
    _, tried = fed((1, b"forged", True), (2, b"c", True), (1, b"b", False), (0, b"a", False))
    assert {b"".join(each) for each in tried} == {b"aforged", b"abc"}
    assert fed((0, b"a", False), (2, b"c", True))[1] == []


def test_a_selection_has_the_piece_that_came_last() -> None:
    parts, tried = fed((0, b"a", False), (1, b"b", True), (0, b"A", False))
    assert tried == [[b"A", b"b"]]
    assert not parts.add(0, SEALED, b"A")
    assert (parts.repeats, parts.conflicts, parts.size) == (1, 1, 3)


def test_the_oldest_of_a_number_goes() -> None:
    parts, tried = fed(*((0, bytes([each]), False) for each in range(9)), (1, b"end", True))
    assert len(parts.pieces[0]) == len(tried) == APOSTOL_ALTERNATIVES_MAX
    assert parts.size == APOSTOL_ALTERNATIVES_MAX + 3


def test_the_work_is_bounded() -> None:
    many = [(number, bytes([each]), False) for number in range(20) for each in range(4)]
    assert len(fed(*many, (20, b"end", True))[1]) == APOSTOL_SEAL_TRIES_MAX
    parts = Alternatives(tried_bytes=APOSTOL_SEAL_TRIES_BYTES_MAX)
    for number, data, _ in many:
        parts.add(number, SEALED, data)
    for each in range(3):
        parts.add(20, SEALED | LAST, bytes([each]))
        assert len(list(parts.selections(20))) == 1, "the newest is always tried"


@given(st.integers(1, 3), st.data())
def test_a_genuine_command_is_found_among_forged_packets(last: int, data: st.DataObject) -> None:
    """In any order, with at most one forged packet for each number after each genuine one."""
    genuine = [(number, b"genuine" + bytes([number]), number == last) for number in range(last + 1)]
    order = data.draw(st.permutations(genuine))
    parts, found = Alternatives(), False
    for number, content, is_last in order:
        for forged in data.draw(st.lists(st.sampled_from(genuine), max_size=1)):
            ends = data.draw(st.booleans())
            parts.add(forged[0], SEALED | (LAST if ends else 0), data.draw(st.binary(min_size=5, max_size=5)))
        parts.add(number, SEALED | (LAST if is_last else 0), content)
        whole = [each[1] for each in genuine]
        found = found or any([piece for _, piece in each] == whole for each in parts.selections(number))
    assert found
