"""A power failure leaves of the write-ahead log what was synced, and any part of what was not, in any condition.

A commit returns after the sync, so all of the log up to its length at that moment is safe. Here the log is cut or
damaged at every kind of place behind such a moment; what had been confirmed by then must be there, and of the rest
whole transactions in their order, or nothing.
"""

import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from state.series import add_records, stored_records
from wirelake.state.records import SeriesRecord
from wirelake.state.store import StateStore

WAIT_S = 30
COMMITS = 60
CUTS = 40


def truncated(log: bytes, safe: int, chance: random.Random) -> bytes:
    return log[: chance.randint(safe, len(log))]


def zeroed(log: bytes, safe: int, chance: random.Random) -> bytes:
    start = chance.randint(safe, len(log))
    return log[:start] + bytes(len(log) - start)


def flipped(log: bytes, safe: int, chance: random.Random) -> bytes:
    if safe == len(log):
        return log
    place = chance.randrange(safe, len(log))
    return log[:place] + bytes([log[place] ^ 1 << chance.randrange(8)]) + log[place + 1 :]


def torn(log: bytes, safe: int, chance: random.Random) -> bytes:
    """Sectors that were written in another order than they were given."""
    lost = bytearray(log)
    for start in range(safe, len(log), 512):
        if chance.random() < 0.3:
            end = min(start + 512, len(log))
            lost[start:end] = bytes(end - start)
    return bytes(lost)


@pytest.mark.parametrize("damage", [truncated, zeroed, flipped, torn])
def test_what_was_synced_survives_and_the_rest_is_whole_or_gone(
    tmp_path: Path, damage: Callable[[bytes, int, random.Random], bytes]
) -> None:
    (tmp_path / "live").mkdir()
    path = tmp_path / "live" / "state.db"
    log = path.with_name("state.db-wal")
    store = StateStore(path)
    store.topics.subscribe("ann", "@news").wait(WAIT_S)
    sizes = [log.stat().st_size]  # after the n-th commit
    for number in range(COMMITS):
        with store.writer.transaction():
            notification, _ = store.topics.publish("@news", b"%d" % number, number)
            store.topics.publish("@twin", bytes(number * 50), number)
            add_records(store, "sisdb", "key", "day", [SeriesRecord(number, b"x")] * 2)
            store.topics.ack("ann", [notification.id])
        store.barrier().wait(WAIT_S)
        sizes.append(log.stat().st_size)
    whole = log.read_bytes()
    assert len(set(sizes)) == len(sizes), "the log was not emptied meanwhile, which would make the lengths meaningless"
    chance = random.Random(damage.__name__)
    for cut in range(CUTS):
        confirmed = chance.randint(0, COMMITS)
        copy = tmp_path / str(cut) / "state.db"
        copy.parent.mkdir()
        shutil.copy(path, copy)
        copy.with_name("state.db-wal").write_bytes(damage(whole, sizes[confirmed], chance))
        after = StateStore(copy)
        there = after.topics.head("@news")
        assert confirmed <= there <= COMMITS
        assert [each.content for each in after.topics.read_after("@news", 0)] == [
            b"%d" % number for number in range(there)
        ]
        assert after.topics.head("@twin") == there
        assert len(stored_records(after, "sisdb", "key", "day")) == 2 * there
        assert after.topics.backlog("ann") == []
        after.close()
    store.close()
