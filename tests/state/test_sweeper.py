import asyncio

import pytest

from state.series import add_records
from wirelake.state.records import SeriesRecord
from wirelake.state.sessions import ResumableSession
from wirelake.state.store import StateStore, Sweeper
from wirelake.state.subscriptions import SweepResult

WAIT_S = 30


def test_a_step_takes_a_slice_of_everything_that_is_over(store: StateStore) -> None:
    store.topics.subscribe("ann", "@news")
    for number in range(3):
        store.topics.publish("@news", b"x", 0)
        store.values.set(b"%d" % number, b"", 0, expires_at_ms=1)
        store.sessions.save(ResumableSession(b"%d" % number, "magline", "", 1, ()))
    add_records(store, "sisdb", "a", "day", [SeriesRecord(time, b"") for time in range(3)])
    store.records.delete_series("sisdb", [("a", "day")])[1].wait(WAIT_S)
    sweep = Sweeper(store, keep_s=1, rows_max=2)
    removed = []
    for _ in range(4):
        removed.append(sweep.step(1000).removed)
        store.barrier().wait(WAIT_S)
    assert removed == [8, 4, 0, 0]
    for table in ("notifications", "redis_values", "sessions", "records"):
        assert store.database.reader.row(f"SELECT count(*) FROM {table}") == (0,)


def test_many_topics_take_several_slices_for_a_round(store: StateStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wirelake.state.topics.STATE_SWEEP_TOPICS", 2)
    sweep = Sweeper(store)
    assert sweep.step(0).round_done
    for number in range(5):
        store.topics.subscribe("ann", f"@{number}")
    assert [sweep.step(0).round_done for _ in range(6)] == [False, False, True, False, True, False]


def test_it_runs_by_itself_and_tells_what_expired(store: StateStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wirelake.state.store.STATE_SWEEP_PAUSE_S", 0)
    store.topics.subscribe("ann", "@news")
    for _ in range(10):
        store.topics.publish("@news", b"x", 0)
    store.barrier().wait(WAIT_S)
    told: list[SweepResult] = []

    async def run() -> None:
        enough = asyncio.Event()

        def tell(swept: SweepResult) -> None:
            told.append(swept)
            if store.topics.floor("@news") == 10:
                enough.set()

        task = asyncio.create_task(Sweeper(store, keep_s=1, rows_max=4).run(lambda: 5000, tell))
        await asyncio.wait_for(enough.wait(), WAIT_S)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(run())
    assert [(part.first, part.last) for swept in told for part in swept.expired] == [(1, 4), (5, 8), (9, 10)]
