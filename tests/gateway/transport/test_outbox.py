"""The outbox sends in order what waits for the disk, and does not send what failed."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from wirelake.commit import Commit
from wirelake.errors import StorageError
from wirelake.gateway.transport.commit_barrier import CommitBarrier
from wirelake.gateway.transport.outbox import Outbox


@asynccontextmanager
async def recording_outbox() -> AsyncIterator[tuple[Outbox, list[bytes], list[StorageError]]]:
    sent: list[bytes] = []
    refused: list[StorageError] = []
    yield Outbox(CommitBarrier(), sent.append, refused.append), sent, refused


async def run_callbacks() -> None:
    for _ in range(3):
        await asyncio.sleep(0)


async def test_a_later_commit_does_not_overtake_an_earlier_one() -> None:
    async with recording_outbox() as (outbox, sent, _):
        first, second = Commit(), Commit()
        outbox.hold(b"1", first)
        outbox.hold(b"2", second)
        outbox.write(b"3")
        second.resolve()
        await run_callbacks()
        assert sent == []
        assert outbox.bytes == 3
        first.resolve()
        await run_callbacks()
        assert sent == [b"123"]
        assert (outbox.bytes, outbox.is_empty) == (0, True)


async def test_what_failed_is_left_out_and_the_rest_goes_on() -> None:
    async with recording_outbox() as (outbox, sent, refused):
        first, second, third = Commit(), Commit(), Commit()
        for data, commit in ((b"1", first), (b"2", second), (b"3", third)):
            outbox.hold(data, commit)
        third.resolve()
        second.resolve(StorageError("full"))
        await run_callbacks()
        assert (sent, len(refused)) == ([], 1)
        first.resolve()
        await run_callbacks()
        assert sent == [b"13"]
        assert (outbox.bytes, outbox.is_empty) == (0, True)


async def test_what_was_discarded_does_not_come_back() -> None:
    async with recording_outbox() as (outbox, sent, _):
        old, new = Commit(), Commit()
        outbox.hold(b"old", old)
        outbox.discard()
        outbox.hold(b"new", new)
        old.resolve()
        await run_callbacks()
        assert sent == []
        new.resolve()
        await run_callbacks()
        assert sent == [b"new"]
        assert outbox.bytes == 0
