import pytest

from wirelake.errors import StateError
from wirelake.protocols.apostol.constants import APOSTOL_UNRECEIPTED_PACKETS_MAX
from wirelake.protocols.apostol.envelope import build_packets
from wirelake.protocols.apostol.frames import Packet
from wirelake.protocols.apostol.packet_session import Outbox


def packets(number: int, count: int = 2) -> list[Packet]:
    return build_packets(bytes(count), 0, 6, "1234", number, 1)


def test_a_command_is_done_with_its_last_receipt() -> None:
    outbox = Outbox(5.0, 3)
    outbox.add(packets(7), "q", 0.0)
    assert 7 in outbox
    assert outbox.confirm(7, 1) is None
    done = outbox.confirm(7, 0)
    assert done is not None
    assert (done.command_no, done.correlation, done.is_answer) == (7, "q", False)
    assert 7 not in outbox
    assert outbox.deadline_s is None


def test_unknown_receipts_change_nothing() -> None:
    outbox = Outbox(5.0, 3)
    outbox.add(packets(7), "q", 0.0)
    outbox.confirm(7, 0)
    for command_no, packet_no in ((7, 0), (7, 2), (8, 0)):
        with pytest.raises(KeyError):
            outbox.confirm(command_no, packet_no)
    assert outbox.confirm(7, 1) is not None


def test_only_what_has_no_receipt_is_sent_again_three_times() -> None:
    outbox = Outbox(5.0, 3)
    sent = packets(7, 3)
    outbox.add(sent, "q", 0.0)
    outbox.confirm(7, 1)
    assert outbox.due(4.9) == ([], [])
    for repeat in (1, 2, 3):
        assert outbox.deadline_s == 5.0 * repeat
        assert outbox.due(5.0 * repeat) == ([sent[0], sent[2]], [])
    again, (given_up,) = outbox.due(20.0)
    assert again == []
    assert (given_up.command_no, list(given_up.packets)) == (7, [0, 2])
    assert outbox.deadline_s is None


def test_the_earliest_is_due_first() -> None:
    outbox = Outbox(5.0, 3)
    outbox.add(packets(1), "", 0.0)
    outbox.add(packets(2), "", 3.0)
    assert [packet.command_no for packet in outbox.due(5.0)[0]] == [1, 1]
    assert outbox.deadline_s == 8.0
    assert [packet.command_no for packet in outbox.due(8.0)[0]] == [2, 2]
    assert outbox.deadline_s == 10.0


def test_what_waits_is_bounded() -> None:
    outbox = Outbox(5.0, 3)
    for number in range(APOSTOL_UNRECEIPTED_PACKETS_MAX // 256):
        outbox.add(packets(number, 256), "", 0.0)
    with pytest.raises(StateError, match="receipts"):
        outbox.add(packets(200, 1), "", 0.0)
    outbox.confirm(0, 0)
    outbox.add(packets(200, 1), "", 0.0)
    outbox.drop(1)
    outbox.drop(99)
    outbox.add(packets(201, 256), "", 0.0)
    assert len(outbox.clear()) == 5
    outbox.add(packets(1, 256), "", 0.0)
