import sqlite3
import stat
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from queue import Queue

import pytest

from state.conftest import Reopen
from wirelake.commit import Commit
from wirelake.errors import BusyError, InUseError, StateError, StorageError
from wirelake.state.batch import Batch, Statement
from wirelake.state.store import StateStore
from wirelake.state.subscriptions import Subscription

WAIT_S = 30


def test_only_the_owner_may_read_the_files(store: StateStore, path: Path) -> None:
    store.topics.publish("@news", b"x", 1)[1].wait(WAIT_S)
    files = {file.name: stat.S_IMODE(file.stat().st_mode) for file in path.parent.rglob("*") if file.is_file()}
    assert {"state.db-wal", "state.key"} <= files.keys()
    assert stat.S_IMODE((path.parent / "keys").stat().st_mode) == 0o700
    assert set(files.values()) == {0o600}


def test_a_file_that_others_could_read_is_made_private(path: Path, reopen: Reopen) -> None:
    reopen()
    path.chmod(0o644)
    reopen()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_second_process_is_refused_until_the_first_is_gone(store: StateStore, path: Path) -> None:
    program = (
        "import sys; from pathlib import Path; from wirelake.state.store import StateStore\n"
        "StateStore(Path(sys.argv[1])).close()"
    )
    command = [sys.executable, "-c", program, str(path)]
    refused = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "InUseError" in refused.stderr
    assert "is open for writing in process" in refused.stderr
    with pytest.raises(InUseError):
        StateStore(path)
    store.close()
    assert subprocess.run(command, check=False).returncode == 0
    StateStore(path).close()


def test_a_folder_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="missing"):
        StateStore(tmp_path / "missing" / "state.db")


def test_another_thread_may_not_change_anything(store: StateStore) -> None:
    caught: list[Exception] = []

    def intrude() -> None:
        try:
            store.topics.publish("@news", b"x", 1)
        except StateError as error:
            caught.append(error)

    thread = threading.Thread(target=intrude)
    thread.start()
    thread.join()
    assert len(caught) == 1
    assert store.topics.head("@news") == 0


def test_what_is_submitted_while_a_commit_runs_shares_the_next_one(store: StateStore) -> None:
    with store.writer.transaction():
        commits = {id(store.topics.publish("@news", b"x", 1)[1]) for _ in range(100)}
        assert len(commits) == 1
        assert store.writer.pending_operations >= 100
    store.barrier().wait(WAIT_S)
    assert store.writer.batches_written == 1
    assert store.writer.pending_operations == 0


def test_a_commit_speaks_after_others_can_see_it_and_not_before(store: StateStore, path: Path) -> None:
    seen: Queue[int] = Queue()

    def look(_: Commit) -> None:  # without a loop, at the very moment it is said
        other = sqlite3.connect(path)
        seen.put(other.execute("SELECT count(*) FROM notifications").fetchone()[0])
        other.close()

    with store.writer.transaction():
        store.topics.publish("@news", b"x", 1)[1].add_done_callback(look)
        store.topics.publish("@news", b"x", 1)
    assert seen.get(timeout=WAIT_S) == 2


def test_a_commit_is_synced(store: StateStore) -> None:
    full = 2
    assert store.database.write_connection.execute("PRAGMA synchronous").fetchone() == (full,)
    assert store.database.write_connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)


def test_many_acks_of_one_subscriber_in_a_batch_become_one_row(store: StateStore) -> None:
    store.topics.subscribe("ann", "@news").wait(WAIT_S)
    changes = store.database.write_connection.total_changes
    with store.writer.transaction():
        for _ in range(50):
            notification, _ = store.topics.publish("@news", b"x", 1)
            store.topics.ack("ann", [notification.id])
    store.barrier().wait(WAIT_S)
    assert store.database.write_connection.total_changes - changes == 50 + 1


@pytest.mark.parametrize("limit", ["STATE_WAITING_OPERATIONS_MAX", "STATE_WAITING_BYTES_MAX"])
def test_more_than_may_wait_is_refused_and_leaves_no_trace(
    store: StateStore, monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    monkeypatch.setattr(f"wirelake.state.writer.{limit}", 3)
    store.topics.subscribe("ann", "@news").wait(WAIT_S)
    release = hold_the_writer(store, monkeypatch)
    published = 0
    while published < 4:
        try:
            store.topics.publish("@news", b"x" * 100, 1)
        except BusyError:
            break
        published += 1
    release()
    assert 0 < published < 4
    assert store.topics.head("@news") == published
    store.barrier().wait(WAIT_S)
    assert len(store.topics.backlog("ann")) == published
    store.topics.publish("@news", b"x", 1)[1].wait(WAIT_S)


def test_closing_writes_what_waits_and_ends_the_work(store: StateStore, reopen: Reopen) -> None:
    with store.writer.transaction():
        _, commit = store.topics.publish("@news", b"x", 1)
    old = store
    store = reopen()
    assert commit.is_durable
    assert store.topics.head("@news") == 1
    with pytest.raises(StorageError, match="closed"):
        old.topics.publish("@news", b"x", 1)
    with pytest.raises(StorageError, match="cannot be read"):
        old.topics.retained("@news")


def hold_the_writer(store: StateStore, monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Keep the writer busy with one batch until the function that is returned is called."""
    released, execute = threading.Event(), Batch.execute

    def slow_execute(batch: Batch, connection: sqlite3.Connection) -> None:
        released.wait(WAIT_S)
        execute(batch, connection)

    monkeypatch.setattr(Batch, "execute", slow_execute)
    store.topics.subscribe("holder", "@held")
    assert _becomes(lambda: store.writer.pending_operations == 0), "the writer did not take it up"
    return released.set


def fill_disk(store: StateStore) -> None:
    """SQLite fails as on a full disk when the file would need another page."""
    (pages,) = store.database.write_connection.execute("PRAGMA page_count").fetchone()
    store.database.write_connection.execute(f"PRAGMA max_page_count = {pages}")


def make_room(store: StateStore) -> None:
    store.database.write_connection.execute("PRAGMA max_page_count = 1000000")


def test_a_full_disk_fails_the_waiting_and_memory_falls_back_to_what_is_durable(
    store: StateStore, reopen: Reopen
) -> None:
    store.topics.subscribe("ann", "@news")
    kept, commit = store.topics.publish("@news", b"kept", 1)
    store.values.set(b"k", b"kept", 0)
    store.barrier().wait(WAIT_S)
    assert commit.is_durable
    fill_disk(store)
    with store.writer.transaction():
        _, lost = store.topics.publish("@news", bytes(100_000), 1)
        store.topics.ack("ann", [kept.id])
        store.values.set(b"k", b"lost", 0)
        store.values.set(b"new", b"lost", 0)
        store.devices.add("meter", 0, None, 1)
        store.topics.subscribe("bob", "@other")
    with pytest.raises(StorageError, match="full"):
        lost.wait(WAIT_S)
    assert store.topics.head("@news") == 1
    assert store.topics.backlog("ann") == [kept]
    assert store.values.get(b"k", 0) == b"kept"
    assert store.values.get(b"new", 0) is None
    assert store.devices.find("meter") is None
    assert store.topics.topics_of("bob") == []
    with pytest.raises(StorageError, match="full"):
        store.topics.publish("@news", b"x", 1)
    make_room(store)
    _wait_until_it_writes_again(store)
    after, commit = store.topics.publish("@news", b"after", 2)
    commit.wait(WAIT_S)
    assert after.position == 2
    assert reopen().topics.backlog("ann") == [kept, after]


async def test_on_a_loop_those_who_hear_of_the_failure_find_memory_in_step(store: StateStore) -> None:
    heads: list[int] = []
    await store.topics.publish("@news", b"kept", 1)[1]
    fill_disk(store)
    _, lost = store.topics.publish("@news", bytes(100_000), 1)
    lost.add_done_callback(lambda _: heads.append(store.topics._by_name["@news"].head))
    with pytest.raises(StorageError):
        await lost
    assert heads == [1]


def test_what_waits_behind_a_failed_batch_fails_with_it(store: StateStore, monkeypatch: pytest.MonkeyPatch) -> None:
    fill_disk(store)
    behind: list[Commit] = []
    gathered, execute = threading.Event(), Batch.execute

    def slow_execute(batch: Batch, connection: sqlite3.Connection) -> None:
        gathered.wait(WAIT_S)
        execute(batch, connection)

    monkeypatch.setattr(Batch, "execute", slow_execute)
    _, first = store.topics.publish("@news", bytes(100_000), 1)
    assert _becomes(lambda: store.writer.pending_operations == 0), "the writer did not take it up"
    behind.append(store.topics.publish("@news", b"small", 1)[1])
    gathered.set()
    for commit in (first, *behind):
        with pytest.raises(StorageError, match="full"):
            commit.wait(WAIT_S)
    assert store.topics.head("@news") == 0


def test_an_operation_cut_by_a_failure_half_way_is_not_written(store: StateStore) -> None:
    """Decided on memory from before the failure, submitted after it."""
    store.topics.publish("@news", b"kept", 1)[1].wait(WAIT_S)
    fill_disk(store)
    _, lost = store.topics.publish("@news", bytes(100_000), 1)
    with pytest.raises(StorageError):
        lost.wait(WAIT_S)
    make_room(store)
    _wait_until_it_writes_again(store)
    stale = store.topics._by_name["@news"]
    assert stale.head == 2
    late = store.topics._write_subscription(stale, "ann", Subscription(2, 2))
    assert late.error is not None
    assert store.topics.head("@news") == 1


def test_a_row_that_cannot_be_written_fails_its_batch_and_no_later_one(store: StateStore) -> None:
    bad = store.writer.submit(Statement("x", "INSERT INTO nowhere VALUES ", "(?)"), (1,))
    with pytest.raises(StorageError, match="no such table"):
        bad.wait(WAIT_S)
    _wait_until_it_writes_again(store)
    store.writer.check_writable()
    huge = store.writer.submit(Statement("x", "INSERT INTO probe VALUES ", "(?, 0)"), (2**70,))
    with pytest.raises(StorageError, match="too large"):
        huge.wait(WAIT_S)
    _wait_until_it_writes_again(store)
    store.topics.publish("@news", b"x", 1)[1].wait(WAIT_S)
    assert (store.writer.batches_failed, store.writer.batches_written) == (2, 1)


def test_closing_while_there_is_trouble_does_not_hang(store: StateStore, reopen: Reopen) -> None:
    fill_disk(store)
    _, lost = store.topics.publish("@news", bytes(100_000), 1)
    with pytest.raises(StorageError):
        lost.wait(WAIT_S)
    assert reopen().topics.head("@news") == 0


def _wait_until_it_writes_again(store: StateStore) -> None:
    assert _becomes(lambda: store.writer.error is None), "it did not go on by itself"


def _becomes(condition: Callable[[], bool]) -> bool:
    pause = threading.Event()
    return any(condition() or pause.wait(0.01) for _ in range(WAIT_S * 100))
