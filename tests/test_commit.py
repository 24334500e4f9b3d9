import asyncio
import logging
from threading import Thread, get_ident

import pytest

from wirelake.commit import Commit, CommitQueue
from wirelake.errors import LogWriteError, StateError, StorageError


async def test_all_ways_to_wait_give_the_same_outcome() -> None:
    commit = Commit()
    seen: list[range] = []
    commit.add_done_callback(lambda done: seen.append(done.result()))
    thread = Thread(target=commit.resolve, args=(None, range(3, 9)))
    waiters = [asyncio.ensure_future(_await(commit)) for _ in range(5)]
    await asyncio.sleep(0)
    thread.start()
    assert await asyncio.gather(*waiters) == [range(3, 9)] * 5
    thread.join()
    assert await commit == range(3, 9)
    assert seen == [range(3, 9)]
    assert commit.wait(0) == commit.result() == range(3, 9)


async def _await(commit: Commit) -> range:
    return await commit


def test_an_error_reaches_every_waiter() -> None:
    commit = Commit()
    commit.resolve(LogWriteError("no room"))
    with pytest.raises(LogWriteError, match="no room"):
        commit.wait(1)
    with pytest.raises(LogWriteError, match="no room"):
        asyncio.run(_await(commit))


async def test_everyone_who_waits_hears_of_a_failure_in_an_exception_of_its_own() -> None:
    commit = Commit()
    waiting = [asyncio.ensure_future(_await(commit)) for _ in range(2)]
    await asyncio.sleep(0)
    commit.resolve(StorageError("disk full"))
    first, second = await asyncio.gather(*waiting, return_exceptions=True)
    assert isinstance(first, StorageError)
    assert isinstance(second, StorageError)
    assert first is not second
    assert str(first) == "disk full"
    assert commit.error is not None
    assert not commit.is_durable


def test_callbacks_of_a_loop_run_on_its_thread_and_others_at_once() -> None:
    commit = Commit()
    threads: list[int] = []

    async def run() -> None:
        called = asyncio.Event()

        def callback(_: Commit) -> None:
            threads.append(get_ident())
            called.set()

        commit.add_done_callback(callback)
        thread = Thread(target=commit.resolve, args=(None, range(1)))
        thread.start()
        await asyncio.wait_for(called.wait(), 10)
        thread.join()

    asyncio.run(run())
    assert threads == [get_ident()]
    commit.add_done_callback(lambda _: threads.append(0))
    assert threads[-1] == 0


async def test_one_loop_turn_serves_a_whole_block(monkeypatch: pytest.MonkeyPatch) -> None:
    async def run() -> int:
        loop = asyncio.get_running_loop()
        commit = Commit()
        seen: list[Commit] = []
        for _ in range(1000):
            commit.add_done_callback(seen.append)
        calls = 0
        real = loop.call_soon_threadsafe

        def counted(*args: object) -> object:
            nonlocal calls
            calls += 1
            return real(*args)  # type: ignore[arg-type]

        monkeypatch.setattr(loop, "call_soon_threadsafe", counted)
        commit.resolve(None, range(1000))
        await asyncio.sleep(0)
        assert len(seen) == 1000
        return calls

    assert await run() == 1


async def test_cancelling_one_waiter_leaves_the_others() -> None:
    commit = Commit()
    first, second = (asyncio.ensure_future(_await(commit)) for _ in range(2))
    await asyncio.sleep(0)
    first.cancel()
    await asyncio.sleep(0)
    commit.resolve(None, range(2))
    assert await second == range(2)
    assert first.cancelled()


def test_a_callback_that_fails_is_logged_and_harms_no_other(caplog: pytest.LogCaptureFixture) -> None:
    commit = Commit()
    seen: list[Commit] = []
    commit.add_done_callback(lambda _: 1 / 0)
    commit.add_done_callback(seen.append)
    with caplog.at_level(logging.ERROR):
        commit.resolve(None, range(1))
    assert seen == [commit]
    assert "ZeroDivisionError" in caplog.text


def test_a_loop_that_is_gone_is_no_reason_to_stop(caplog: pytest.LogCaptureFixture) -> None:
    commit = Commit()

    async def run() -> None:
        commit.add_done_callback(lambda _: None)

    asyncio.run(run())
    commit.resolve(None, range(1))
    assert commit.is_done
    assert "their event loop is closed" in caplog.text


def test_waiting_has_an_end_and_the_outcome_is_one() -> None:
    commit = Commit()
    with pytest.raises(TimeoutError):
        commit.wait(0.001)
    with pytest.raises(StateError, match="no outcome yet"):
        commit.result()
    commit.resolve(None, range(1))
    with pytest.raises(StateError, match="an outcome already"):
        commit.resolve(None, range(1))


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_a_joint_commit_is_durable_when_both_are(order: tuple[int, int]) -> None:
    parts = (Commit(), Commit())
    combined = Commit.combine(*parts)
    parts[order[0]].resolve()
    assert not combined.is_done
    parts[order[1]].resolve()
    assert combined.is_durable


@pytest.mark.parametrize("failing", [0, 1])
def test_a_joint_commit_fails_with_either(failing: int) -> None:
    parts = (Commit(), Commit())
    combined = Commit.combine(*parts)
    parts[failing].resolve(StorageError("full"))
    assert combined.error is not None
    parts[1 - failing].resolve()
    assert combined.error is not None


def test_a_joint_of_what_is_decided_needs_no_commit_of_its_own() -> None:
    durable, failed, waiting = Commit.resolved(), Commit.resolved(StorageError("full")), Commit()
    assert Commit.combine(durable, waiting) is waiting
    assert Commit.combine(waiting, durable) is waiting
    assert Commit.combine(waiting, waiting) is waiting
    for other in (durable, failed, waiting):
        assert Commit.combine(failed, other) is failed
        assert Commit.combine(other, failed) is failed


def test_a_queue_gives_back_the_items_of_a_commit_together_and_in_order() -> None:
    done: list[tuple[Commit, list[str]]] = []
    queue: CommitQueue[str] = CommitQueue(lambda commit, items: done.append((commit, items)))
    one, other = Commit(), Commit()
    queue.add(one, "a")
    queue.add(other, "b")
    queue.extend(one, ["c", "d"])
    queue.extend(other, [])
    assert list(queue) == ["a", "c", "d", "b"]
    other.resolve(StorageError("full"))
    one.resolve()
    assert done == [(other, ["b"]), (one, ["a", "c", "d"])]
    assert not list(queue)


def test_a_queue_gives_back_at_once_what_waits_for_a_known_outcome() -> None:
    done: list[str] = []
    queue: CommitQueue[str] = CommitQueue(lambda _, items: done.extend(items))
    queue.add(Commit.resolved(), "a")
    queue.extend(Commit.resolved(StorageError("full")), ["b", "c"])
    assert done == ["a", "b", "c"]
