import asyncio
import threading

import pytest

from wirelake.errors import StorageError
from wirelake.state.commit import Commit


def test_those_who_await_go_on_when_it_is_durable() -> None:
    async def run() -> None:
        commit = Commit(asyncio.get_running_loop())
        waiting = [asyncio.create_task(_await(commit)) for _ in range(3)]
        await asyncio.sleep(0)
        threading.Thread(target=commit.resolve, args=(None,)).start()
        assert await asyncio.gather(*waiting) == [True, True, True]
        await commit  # and again, without waiting

    asyncio.run(run())


def test_cancelling_one_who_waits_leaves_the_others_waiting() -> None:
    async def run() -> None:
        commit = Commit(asyncio.get_running_loop())
        impatient, patient = (asyncio.create_task(_await(commit)) for _ in range(2))
        await asyncio.sleep(0)
        impatient.cancel()
        with pytest.raises(asyncio.CancelledError):
            await impatient
        commit.resolve(None)
        assert await patient

    asyncio.run(run())


def test_everyone_who_waits_hears_of_a_failure_in_an_exception_of_its_own() -> None:
    async def run() -> None:
        commit = Commit(asyncio.get_running_loop())
        waiting = [asyncio.create_task(_await(commit)) for _ in range(2)]
        await asyncio.sleep(0)
        commit.resolve(StorageError("disk full"))
        first, second = await asyncio.gather(*waiting, return_exceptions=True)
        assert isinstance(first, StorageError)
        assert isinstance(second, StorageError)
        assert first is not second
        assert str(first) == "disk full"

    asyncio.run(run())


def test_callbacks_run_on_the_loop_and_a_bad_one_does_not_stop_the_rest() -> None:
    async def run() -> list[int]:
        commit = Commit(asyncio.get_running_loop())
        threads: list[int] = []
        commit.add_done_callback(_bad)
        commit.add_done_callback(lambda _: threads.append(threading.get_ident()))
        writer = threading.Thread(target=commit.resolve, args=(None,))
        writer.start()
        writer.join()
        await asyncio.sleep(0)
        commit.add_done_callback(lambda _: threads.append(threading.get_ident()))
        await asyncio.sleep(0)
        return threads

    assert asyncio.run(run()) == [threading.get_ident()] * 2


def test_a_commit_of_another_loop_can_be_awaited() -> None:
    commit = Commit()

    async def run() -> None:
        waiting = asyncio.create_task(_await(commit))
        await asyncio.sleep(0)
        threading.Thread(target=commit.resolve, args=(None,)).start()
        assert await waiting

    asyncio.run(run())


def test_a_thread_waits_no_longer_than_it_said() -> None:
    commit = Commit()
    with pytest.raises(TimeoutError):
        commit.wait(0.01)
    commit.resolve(StorageError("gone"))
    with pytest.raises(StorageError, match="gone"):
        commit.wait(0)
    assert commit.error is not None
    assert not commit.durable


def _bad(_: Commit) -> None:
    raise ValueError("not ours")


async def _await(commit: Commit) -> bool:
    await commit
    return commit.durable
