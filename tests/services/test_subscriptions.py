from collections.abc import Callable

from broker.peers import ESNP, FakePeer

from wirelake.broker.peer import Peer
from wirelake.services.subscriptions import PacketQueue, PacketSender


class Clock:
    """Hold the calls that are scheduled, to run them turn by turn."""

    def __init__(self) -> None:
        self.waiting: list[tuple[float, Callable[[], object]]] = []

    def later(self, _peer: Peer, delay_s: float, call: Callable[[], object]) -> None:
        self.waiting.append((delay_s, call))

    def turn(self) -> list[float]:
        due, self.waiting = self.waiting, []
        for _, call in due:
            call()
        return [delay_s for delay_s, _ in due]


def response(peer: FakePeer, count: int, sent: list[str], name: str) -> PacketQueue:
    return PacketQueue(peer, count, lambda following: sent.append(f"{name}{following}"))


def test_one_packet_a_turn_and_one_answer_after_the_other() -> None:
    clock, sent = Clock(), list[str]()
    sender = PacketSender(clock.later, lambda _: 0.0)
    one, other = FakePeer("1", ESNP), FakePeer("2", ESNP)
    sender.start(response(one, 3, sent, "a"))
    sender.start(response(one, 2, sent, "b"))
    sender.start(response(other, 2, sent, "x"))
    assert sent == ["a2", "x1"]
    clock.turn()
    assert sent[2:] == ["a1", "x0"]
    while clock.waiting:
        clock.turn()
    assert sent[4:] == ["a0", "b1", "b0"]
    sender.start(response(one, 1, sent, "c"))
    assert sent[-1] == "c0"
    assert clock.waiting == []


def test_a_slow_reader_is_waited_for_and_one_that_left_forgotten() -> None:
    clock, sent = Clock(), list[str]()
    sender = PacketSender(clock.later, lambda _: 0.0)
    slow, closed = FakePeer("1", ESNP), FakePeer("2", ESNP)
    sender.start(response(slow, 3, sent, "a"))
    sender.start(response(closed, 3, sent, "x"))
    slow.is_congested = True
    sender.on_close(closed)
    clock.turn()
    assert sent == ["a2", "x2"]
    assert clock.waiting == []
    slow.is_congested = False
    sender.on_drain(slow)
    sender.on_drain(slow)
    assert len(clock.waiting) == 1, "however often it is called"
    while clock.waiting:
        clock.turn()
    assert sent == ["a2", "x2", "a1", "a0"]


def test_while_the_disk_is_behind_nothing_is_sent() -> None:
    clock, sent, pause_s = Clock(), list[str](), [0.5]
    sender = PacketSender(clock.later, lambda _: pause_s[0])
    sender.start(response(FakePeer("1", ESNP), 1, sent, "a"))
    assert sent == []
    assert clock.turn() == [0.5]
    pause_s[0] = 0.0
    clock.turn()
    assert sent == ["a0"]
