import gc
import tracemalloc

from wirelake.limits import STATE_RECENT_NOTIFICATIONS_MAX
from wirelake.state.store import StateStore

WAIT_S = 60
SUBSCRIBERS = 1000
PUBLISHED = 200_000
IN_FLIGHT = 4000
GROWTH_BYTES_MAX = 2 * 1024 * 1024  # ten bytes for each notification: keeping them would take fifty times as much


def publish(store: StateStore, number: int) -> None:
    for done in range(number):
        store.topics.publish("@news", b"%0100d" % done, done)
        if done % IN_FLIGHT == 0:
            store.barrier().wait(WAIT_S)
    store.barrier().wait(WAIT_S)


def test_memory_does_not_grow_with_what_waits_for_absent_subscribers(store: StateStore) -> None:
    for number in range(SUBSCRIBERS):
        store.topics.subscribe(f"absent {number}", "@news")
    tracemalloc.start()
    try:
        publish(store, 2 * STATE_RECENT_NOTIFICATIONS_MAX)  # what is kept of the last few is there from here on
        gc.collect()
        before, _ = tracemalloc.get_traced_memory()
        publish(store, PUBLISHED)
        gc.collect()
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert after - before < GROWTH_BYTES_MAX
    assert len(store.topics.backlog("absent 0", rows_max=10)) == 10
    deliveries = store.topics.delivery_counts("absent 999", "@news")
    assert deliveries is not None
    assert deliveries.pending == PUBLISHED + 2 * STATE_RECENT_NOTIFICATIONS_MAX
