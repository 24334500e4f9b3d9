"""The small parts that the clients are made of."""

import asyncio
from random import Random

import pytest

from wirelake.backoff import Backoff
from wirelake.clients.faults import Faults
from wirelake.clients.notification import AckTracker, Inbox, Notification
from wirelake.errors import AnswerError, LateError, LostError, StateError
from wirelake.protocols.frame import Sender


def test_pauses_double_up_to_a_bound_with_full_jitter() -> None:
    shares = iter([0.0, 0.5, 1.0, 1.0, 1.0, 0.5])
    backoff = Backoff(lambda: next(shares), first_s=1.0, max_s=6.0)
    assert [backoff.next_s() for _ in range(5)] == [0.0, 1.0, 4.0, 6.0, 6.0]
    backoff.reset()
    assert backoff.next_s() == 0.5


async def test_an_inbox_keeps_order_and_each_key_once() -> None:
    inbox: Inbox[int] = Inbox(3)
    assert [inbox.put(key, value) for key, value in (("a", 1), ("b", 2), ("a", 9), ("c", 3), ("d", 4))] == [
        True,
        True,
        True,
        True,
        False,
    ]
    assert inbox.left_out == 1
    inbox.discard("b")
    inbox.discard("unknown")
    inbox.wake()
    assert [await inbox.take() for _ in range(3)] == [None, 1, 3]
    waiting = [asyncio.create_task(inbox.take()) for _ in range(2)]
    await asyncio.sleep(0)
    inbox.put("e", 5)
    inbox.put("f", 6)
    assert sorted([await task or 0 for task in waiting]) == [5, 6]


async def test_an_inbox_gives_out_what_it_has_before_it_is_over() -> None:
    inbox: Inbox[int] = Inbox(3)
    inbox.put("a", 1)
    inbox.finish(ValueError("why"))
    inbox.finish()
    assert len(inbox) == 1
    assert await inbox.take() == 1
    assert inbox.is_over
    for _ in range(2):
        with pytest.raises(ValueError, match="why"):
            await inbox.take()


def test_faults_make_nothing_up() -> None:
    faults = Faults(Random(1), lose=0.2, repeat=0.2, delay=0.2)
    packets = [bytes([number]) for number in range(200)]
    arrived = [each for packet in packets for each in faults(packet, Sender.CLIENT)]
    assert set(arrived) <= set(packets)
    assert len(arrived) - len(set(arrived)) == faults.repeated > 0
    missing = len(set(packets) - set(arrived))
    assert faults.lost <= missing <= faults.lost + 64
    assert arrived != sorted(arrived)
    assert list(Faults(Random(1))(b"x", Sender.SERVER)) == [b"x"]


def test_faults_change_one_bit() -> None:
    faults = Faults(Random(1), corrupt=0.5)
    packets = [bytes(8)] * 200
    arrived = [each for packet in packets for each in faults(packet, Sender.CLIENT)]
    assert [int.from_bytes(packet).bit_count() for packet in arrived if packet != bytes(8)] == [1] * faults.corrupted
    assert 60 < faults.corrupted < 140
    assert faults.made == {"lost": 0, "repeated": 0, "delayed": 0, "corrupted": faults.corrupted}


def test_content_that_is_no_text() -> None:
    assert Notification("1", b"\xff!").text == "\ufffd!"


async def test_acks_are_gathered_while_one_is_under_way_and_repeated_after_a_loss() -> None:
    sent: list[list[str]] = []
    faults: list[Exception | None] = [None, LostError("gone"), LateError("slow"), None, AnswerError("no", 1), None]
    go = asyncio.Event()

    async def send(ids: list[str]) -> None:
        sent.append(ids)
        await go.wait()
        fault = faults.pop(0)
        if fault is not None:
            raise fault
        acks.forget(ids)

    acks = AckTracker(send, 3)
    for number in range(6):
        acks.add(str(number))
        await asyncio.sleep(0)
    assert sent == [["0"]]
    assert "5" in acks
    with pytest.raises(LateError):
        await acks.flush(0.01)
    go.set()
    await acks.flush(5)
    assert sent == [["0"], ["1", "2", "3"], ["1", "2", "3"], ["1", "2", "3"], ["4", "5"]]
    assert "5" not in acks, "refused: it comes again by itself"
    acks.add("6")
    await acks.finish()
    assert sent[-1] == ["6"]


async def test_acks_end_with_the_client() -> None:
    async def send(_: list[str]) -> None:
        raise StateError("closed")

    acks = AckTracker(send, 3)
    await acks.finish()
    acks.add("1")
    await acks.finish()
    assert "1" in acks
