import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from wirelake.protocols.apostol.assembly import Assembled, Assembler, Bounds, State
from wirelake.protocols.apostol.constants import ANSWER, LAST, TO_DEVICE, ZIPPED
from wirelake.protocols.apostol.envelope import build_packets
from wirelake.protocols.apostol.frames import Packet
from wirelake.protocols.device_session import Assembling


def pieces(command: bytes, number: int = 7, serial: str = "1234", params: int = 0, size: int = 4) -> list[Packet]:
    """Return the packets of a command with these params. The data is never really zipped."""
    plain = build_packets(command, 0, 6, serial, number, size)
    return [replace(packet, params=packet.params | params) for packet in plain]


def fed(assembler: Assembler, packets: list[Packet], now_s: float = 0.0) -> list[Assembled]:
    return [done for packet in packets for done in assembler.add(packet, now_s)]


def test_one_packet_is_a_command_at_once() -> None:
    assembler = Assembler()
    (done,) = fed(assembler, pieces(b"abc", params=TO_DEVICE | ANSWER | ZIPPED), 5.0)
    assert done == Assembled(
        State.COMPLETE, 6, "1234", 7, TO_DEVICE | ANSWER | ZIPPED, b"abc", 1, 0, 0, first_at_s=5.0, done_at_s=5.0
    )
    assert (done.to_device, done.answer) == (True, True)
    assert len(assembler) == 0


@given(st.binary(min_size=1, max_size=80), st.randoms(use_true_random=False), st.integers(1, 3))
def test_any_order_and_any_repeats_give_the_command_once(command: bytes, random: object, repeats: int) -> None:
    assembler = Assembler()
    sent = pieces(command) * repeats
    random.shuffle(sent)  # type: ignore[attr-defined]
    (done,) = fed(assembler, sent)
    assert (done.state, done.data, done.packets) == (State.COMPLETE, command, len(pieces(command)))
    assert done.conflicts == 0
    assert done.duplicates + assembler.duplicates == len(sent) - done.packets
    assert len(assembler) == 0


def test_the_last_packet_may_come_first() -> None:
    assembler = Assembler()
    zero, one, two = pieces(b"abcdefghij")
    assert fed(assembler, [two, one], 1.0) == []
    assert len(assembler) == 1
    (done,) = fed(assembler, [zero], 3.0)
    assert (done.data, done.first_at_s, done.done_at_s, done.packets) == (b"abcdefghij", 1.0, 3.0, 3)


def test_what_is_under_way_says_which_packets_are_missing() -> None:
    assembler = Assembler()
    zero, _, two, three = pieces(b"abcdefghijklmn")
    fed(assembler, [two, zero], 1.0)
    fed(assembler, [pieces(b"ijklmnop", number=8, params=ANSWER)[1]], 2.0)
    assert assembler.under_way() == [
        Assembling(6, "1234", 7, False, 2, None, (1,), 8, 1.0),
        Assembling(6, "1234", 8, True, 1, 1, (0,), 4, 2.0),
    ]
    fed(assembler, [three], 3.0)
    assert (assembler.under_way()[0].last, assembler.under_way()[0].missing) == (3, (1,))


def test_commands_are_distinguished_by_device_direction_answer_and_number() -> None:
    assembler = Assembler()
    first = pieces(b"abcdefgh")
    others = [
        pieces(b"ijklmnop", serial="1235"),
        pieces(b"ijklmnop", number=8),
        pieces(b"ijklmnop", params=TO_DEVICE),
        pieces(b"ijklmnop", params=ANSWER),
        [replace(packet, device_type=5) for packet in pieces(b"ijklmnop")],
    ]
    assert fed(assembler, [first[0], *(packets[0] for packets in others)]) == []
    assert len(assembler) == 6
    assert [done.data for done in fed(assembler, [packets[1] for packets in others])] == [b"ijklmnop"] * 5
    assert [done.data for done in fed(assembler, first[1:])] == [b"abcdefgh"]


def test_what_came_first_wins() -> None:
    assembler = Assembler()
    zero, one, two = pieces(b"abcdefghij")
    contradictions = [
        replace(zero, data=b"XXXX"),  # other data
        replace(two, packet_no=3),  # a second last packet
        replace(one, packet_no=4),  # beyond the last
        replace(one, params=one.params | ZIPPED),  # another kind of command
    ]
    (done,) = fed(assembler, [zero, two, *contradictions, zero, one])
    assert (done.data, done.conflicts, done.duplicates) == (b"abcdefghij", 4, 1)


def test_a_last_packet_below_one_that_is_here_contradicts_it() -> None:
    assembler = Assembler()
    zero, one, two = pieces(b"abcdefghij")
    (done,) = fed(assembler, [one, replace(zero, params=LAST), zero, two])
    assert (done.data, done.conflicts) == (b"abcdefghij", 1)


def test_a_command_not_complete_in_time_is_dropped_once() -> None:
    assembler = Assembler(Bounds(timeout_s=30.0))
    zero, one, _two = pieces(b"abcdefghij")
    fed(assembler, [zero], 0.0)
    fed(assembler, [one], 20.0)
    assert [assembler.deadline_s] == [30.0]
    assert assembler.expire(29.9) == []
    (done,) = assembler.expire(30.0)
    assert (done.state, done.packets, done.data, done.first_at_s, done.done_at_s) == (State.EXPIRED, 2, b"", 0.0, 30.0)
    assert assembler.deadline_s is None
    assert assembler.expire(100.0) == []


def test_adding_expires_others() -> None:
    assembler = Assembler(Bounds(timeout_s=30.0))
    fed(assembler, pieces(b"abcdefgh")[:1], 0.0)
    expired, complete = fed(assembler, pieces(b"x", number=9), 31.0)
    assert (expired.state, expired.command_no) == (State.EXPIRED, 7)
    assert (complete.state, complete.command_no) == (State.COMPLETE, 9)


def test_stragglers_of_a_dropped_command_begin_nothing_but_its_packet_0_does() -> None:
    assembler = Assembler(Bounds(timeout_s=30.0))
    zero, one, two = pieces(b"abcdefghij")
    fed(assembler, [zero], 0.0)
    assembler.expire(30.0)
    assert fed(assembler, [zero, one, two], 31.0) == []
    assert (assembler.duplicates, assembler.late, len(assembler)) == (1, 2, 0)
    again = pieces(b"ABCDEFGHIJ")
    (done,) = fed(assembler, again, 32.0)
    assert done.data == b"ABCDEFGHIJ"


def test_repeats_of_a_finished_command_make_no_second_one() -> None:
    assembler = Assembler(Bounds(timeout_s=30.0))
    sent = pieces(b"abcdefgh")
    assert len(fed(assembler, sent, 0.0)) == 1
    assert fed(assembler, sent * 3, 29.0) == []
    assert assembler.duplicates == 6
    assert len(fed(assembler, sent, 30.0)) == 1  # too long ago to be a repeat


def test_other_data_under_a_finished_number_is_a_new_command() -> None:
    assembler = Assembler()
    fed(assembler, pieces(b"abcdefgh"), 0.0)
    (restarted,) = fed(assembler, pieces(b"ABCDefgh"), 1.0)
    assert restarted.data == b"ABCDefgh"
    (turned,) = fed(assembler, pieces(b"ABCDefgh", params=ZIPPED), 2.0)
    assert turned.params == ZIPPED
    out_of_order = pieces(b"0123456789ab", params=ZIPPED)[::-1]
    (third,) = fed(assembler, out_of_order, 3.0)
    assert third.data == b"0123456789ab"


def test_a_counter_that_went_round_gives_new_commands_even_with_the_same_data() -> None:
    assembler = Assembler()
    for turn in range(2):
        done = [each for number in range(256) for each in fed(assembler, pieces(b"same", number=number), 0.1)]
        assert len(done) == 256, f"turn {turn}"


def test_too_many_bytes_in_one_command() -> None:
    assembler = Assembler(Bounds(command_bytes_max=10))
    packets = pieces(b"0123456789abcdef")
    (done,) = fed(assembler, packets)
    assert (done.state, done.reason, done.packets, done.data) == (State.REFUSED, "command_bytes_max", 3, b"")
    assert assembler.late == 1
    (single,) = fed(assembler, pieces(b"0123456789a", number=8, size=100))
    assert (single.state, single.reason) == (State.REFUSED, "command_bytes_max")
    assert [done.state for done in fed(assembler, pieces(b"0123456789", number=9))] == [State.COMPLETE]


def test_too_many_commands_of_one_device_drop_its_oldest() -> None:
    assembler = Assembler(Bounds(assembling_per_device_max=2))
    fed(assembler, pieces(b"abcdefgh", number=0, serial="other")[:1])
    for number in (1, 2):
        assert fed(assembler, pieces(b"abcdefgh", number=number)[:1]) == []
    (done,) = fed(assembler, pieces(b"abcdefgh", number=3)[:1])
    assert (done.state, done.command_no, done.serial) == (State.REFUSED, 1, "1234")
    assert done.reason == "assembling_per_device_max"
    assert len(assembler) == 3


def test_too_many_commands_in_all_drop_the_oldest() -> None:
    assembler = Assembler(Bounds(assembling_commands_max=2))
    for serial in ("a", "b"):
        assert fed(assembler, pieces(b"abcdefgh", serial=serial)[:1]) == []
    (done,) = fed(assembler, pieces(b"abcdefgh", serial="c")[:1])
    assert (done.state, done.serial, done.reason) == (State.REFUSED, "a", "assembling_commands_max")


def test_too_many_bytes_in_all_drop_the_oldest() -> None:
    assembler = Assembler(Bounds(assembling_bytes_max=10))
    for serial in ("a", "b"):
        assert fed(assembler, pieces(b"abcdefgh", serial=serial)[:1]) == []
    (done,) = fed(assembler, pieces(b"abcdefgh", serial="c")[:1])
    assert (done.serial, done.reason, len(assembler)) == ("a", "assembling_bytes_max", 2)
    assert len(fed(assembler, pieces(b"abcdefgh", serial="b")[1:])) == 1


@pytest.mark.parametrize("bounds", [Bounds(finished_commands_max=2), Bounds(finished_per_device_max=2)])
def test_what_is_remembered_is_bounded(bounds: Bounds) -> None:
    assembler = Assembler(bounds)
    for number in range(3):
        assert len(fed(assembler, pieces(b"same", number=number))) == 1
    assert fed(assembler, pieces(b"same", number=2)) == []
    assert len(fed(assembler, pieces(b"same", number=0))) == 1


@given(
    st.lists(
        st.tuples(
            st.integers(0, 3), st.integers(0, 3), st.integers(0, 0x3F), st.binary(max_size=6), st.floats(0.0, 20.0)
        ),
        max_size=60,
    )
)
def test_whatever_comes_the_bounds_hold_and_the_sums_agree(
    arriving: list[tuple[int, int, int, bytes, float]],
) -> None:
    bounds = Bounds(
        timeout_s=30.0,
        command_bytes_max=12,
        assembling_bytes_max=16,
        assembling_commands_max=4,
        assembling_per_device_max=3,
        finished_commands_max=5,
        finished_per_device_max=4,
    )
    assembler = Assembler(bounds)
    done: list[Assembled] = []
    now_s = 0.0
    for command_no, packet_no, params, data, wait_s in arriving:
        now_s += wait_s
        done += assembler.add(Packet(1, params, 0, "ab"[command_no % 2], command_no, packet_no, data), now_s)
        assert len(assembler) <= 4
    done += assembler.expire(now_s + 30.0)
    assert len(assembler) == 0
    accounted = sum(each.packets + each.duplicates + each.conflicts for each in done)
    assert accounted + assembler.duplicates + assembler.late == len(arriving)
    assert all(len(each.data) <= 12 for each in done)
