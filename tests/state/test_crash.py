"""A worker is killed at random moments, again and again on the same database; what it had confirmed must be there.

CRASH_ROUNDS=1000 pytest tests/state/test_crash.py for more.
"""

import os
import random
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path

from state.crash_worker import KINDS, OPERATIONS_MAX, is_acked, is_removed
from wirelake.state.notifications import StoredNotification
from wirelake.state.store import StateStore

ROUNDS = int(os.environ.get("CRASH_ROUNDS", "50"))
DELAY_S_MAX = 0.06
WAIT_S = 60
WORKER = Path(__file__).with_name("crash_worker.py")

Worker = subprocess.Popen[str]


def start(path: Path, round_: int, chance: random.Random) -> Worker:
    """It loads its modules and waits, so that the rounds are not spent on that."""
    command = [sys.executable, str(WORKER), str(path), str(round_), str(chance.choice([1, 7, 50, 300]))]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def run(worker: Worker, delay_s: float, *, is_at_work: bool) -> int:
    """Let it work for so long, kill it; the last operation it confirmed, -1 for none.

    With `is_at_work`, the time begins when it has confirmed something, however slow the machine is.
    """
    assert worker.stdin is not None
    assert worker.stdout is not None
    assert worker.stdout.readline() == "ready\n"
    worker.stdin.write("go\n")
    worker.stdin.flush()
    said = worker.stdout.readline() if is_at_work else ""
    threading.Event().wait(delay_s)
    worker.kill()
    said += worker.stdout.read()
    worker.wait(WAIT_S)
    worker.stdin.close()
    worker.stdout.close()
    whole_lines = said[: said.rfind("\n") + 1].split()
    return max(map(int, whole_lines), default=-1)


class Checks:
    """What must hold, and what is known to be there from earlier rounds."""

    def __init__(self) -> None:
        self.positions = 0
        self.confirmed: dict[int, int] = {}  # round → last operation confirmed

    def after_round(self, store: StateStore, round_: int, confirmed: int) -> None:
        self.confirmed[round_] = confirmed
        published = self._publishes(store, round_, confirmed)
        self._acks(store, confirmed, published)
        self._identities(store, round_, confirmed)
        self._records(store, round_, confirmed)
        value = store.values.get(b"last", 0)
        last = [(r, n) for r, done in self.confirmed.items() for n in range(5, done + 1, KINDS)]
        if last:
            assert value is not None
            assert tuple(map(int, value.decode().split("."))) >= max(last)

    def _publishes(self, store: StateStore, round_: int, confirmed: int) -> set[str]:
        head = store.topics.head("@news")
        assert store.topics.head("@twin") == head, "two publishes in one transaction, one is missing"
        found = [
            notification.content.decode()
            for position in range(self.positions, head)
            if (notification := self._at(store, position + 1)) is not None
        ]
        swept = {f"{round_}.{number}" for number in range(0, OPERATIONS_MAX, KINDS)} - set(found)
        expected = [f"{round_}.{number}" for number in range(0, KINDS * (head - self.positions), KINDS)]
        assert [tag for tag in expected if tag in set(found)] == found, "each once, in the order they were published"
        assert len(expected) >= confirmed // KINDS + (confirmed >= 0), "a confirmed publish is missing"
        assert all(is_acked(int(tag.split(".")[1])) for tag in expected if tag in swept), "removed without its ack"
        self.positions = head
        return set(expected)

    def _at(self, store: StateStore, position: int) -> StoredNotification | None:
        found = store.topics.read_after("@news", position - 1, rows_max=1)
        return found[0] if found and found[0].position == position else None

    def _acks(self, store: StateStore, confirmed: int, published: set[str]) -> None:
        waiting = Counter(
            notification.content.decode() for notification in store.topics.backlog("reader", rows_max=1_000_000)
        )
        assert set(waiting.values()) <= {1}
        for tag in published:
            number = int(tag.split(".")[1])
            if not is_acked(number):
                assert waiting[tag] == 1, "what was never acked must wait"
            elif number + 1 <= confirmed:
                assert waiting[tag] == 0, "a confirmed ack is missing"
        deliveries = store.topics.delivery_counts("reader", "@news")
        assert deliveries is not None
        assert deliveries.pending == len(waiting)
        assert deliveries.acked + deliveries.pending == store.topics.head("@news")

    def _identities(self, store: StateStore, round_: int, confirmed: int) -> None:
        names = {identity.name for identity in store.identities.list()}
        assert names == set(store.topics.subscribers("@members")), "an identity and its subscription go together"
        for number in range(2, confirmed + 1, KINDS):
            gone = is_removed(number)
            if not gone:
                assert f"{round_}.{number}" in names, "a confirmed identity is missing"
            elif number + 1 <= confirmed:
                assert f"{round_}.{number}" not in names, "a confirmed removal is missing"

    def _records(self, store: StateStore, round_: int, confirmed: int) -> None:
        found: Counter[str] = Counter()
        rows = store.database.reader.rows("SELECT data FROM records")
        found.update(data.decode() for (data,) in rows)
        assert set(found.values()) <= {3}, "records of one set are there all or not at all, and once"
        for number in range(4, confirmed + 1, KINDS):
            assert found[f"{round_}.{number}"] == 3, "a confirmed record is missing"


def test_what_was_confirmed_before_a_kill_is_there_after_it(path: Path) -> None:
    chance = random.Random(os.environ.get("CRASH_SEED", "wirelake"))
    checks = Checks()
    StateStore(path).close()
    worker = start(path, 0, chance)
    for round_ in range(ROUNDS):
        following = start(path, round_ + 1, chance)
        try:
            confirmed = run(worker, chance.uniform(0, DELAY_S_MAX), is_at_work=round_ % 2 == 0)
        except BaseException:
            following.kill()
            raise
        worker = following
        store = StateStore(path)
        try:
            checks.after_round(store, round_, confirmed)
        finally:
            store.close()
    worker.kill()
    worker.communicate()
    interrupted = [done for done in checks.confirmed.values() if -1 < done < OPERATIONS_MAX - 1]
    assert len(interrupted) >= ROUNDS // 3, "too few were killed in the middle of their work to show anything"
