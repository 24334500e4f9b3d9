from hypothesis import given
from hypothesis import strategies as st

from wirelake.state.notifications import (
    BacklogLimits,
    OversizedNotification,
    StoredNotification,
    fit_backlog,
    notification_id,
    parse_id,
    parse_id_runs,
)
from wirelake.state.store import StateStore

IDS = st.one_of(
    st.builds(notification_id, st.just("e"), st.integers(1, 3), st.integers(0, 40)),
    st.sampled_from(["", "e", "e--", "e-1-01", "e-1-A", "x-1-1", "e-1-", "e-1-+2"]),
)
IN_A_ROW = st.builds(
    lambda number, first, count: [notification_id("e", number, first + place) for place in range(count)],
    st.integers(1, 2),
    st.integers(0, 300),
    st.integers(1, 30),
)


@given(st.lists(st.one_of(st.lists(IDS, max_size=3), IN_A_ROW), max_size=6))
def test_runs_hold_the_ids_that_are_known_and_no_others(lists: list[list[str]]) -> None:
    texts = [text for some in lists for text in some]
    places = [place for text in texts if (place := parse_id("e", text)) is not None and place[1]]
    runs = list(parse_id_runs("e", texts))
    assert [(number, place) for number, first, last in runs for place in range(first, last + 1)] == places


WAIT_S = 30


def waiting(position: int, content: bytes) -> StoredNotification:
    return StoredNotification(f"e-1-{position}", "@a", position, 0, 0, "", content)


def test_ids_and_what_stands_beside_them_take_room_too() -> None:
    rows = [waiting(n, bytes(10)) for n in range(5)]
    assert fit_backlog(rows, BacklogLimits(bytes_max=30)).rows == rows[:3]
    assert fit_backlog(rows, BacklogLimits(bytes_max=30, each_bytes=5)).rows == rows[:1], "5 of the id, 10 and 5"
    assert fit_backlog(rows, BacklogLimits(bytes_max=40, each_bytes=5)).rows == rows[:2]


def test_what_is_too_long_is_passed_over_and_not_read(store: StateStore) -> None:
    topics = store.topics
    topics.subscribe("ann", "@a")
    ids = [topics.publish("@a", bytes(size), now_ms)[0].id for now_ms, size in enumerate((50, 10, 60, 10))]
    store.barrier().wait(WAIT_S)
    found = topics.read_backlog("ann", BacklogLimits(content_bytes_max=20))
    assert [row.id for row in found.rows] == [ids[1], ids[3]]
    assert found.oversized == [
        OversizedNotification(ids[0], "@a", 1, 0, 50),
        OversizedNotification(ids[2], "@a", 3, 2, 60),
    ]
    assert topics.read_backlog("ann", BacklogLimits(content_bytes_max=60)).oversized == []
    first = topics.read_backlog("ann", BacklogLimits(rows_max=1, content_bytes_max=20))
    assert ([row.id for row in first.rows], len(first.oversized)) == ([ids[1]], 2), "up to where it stopped"
