from wirelake.state.backlog import Room, TooLong, within
from wirelake.state.notification import Notification
from wirelake.state.store import StateStore

WAIT_S = 30


def waiting(position: int, content: bytes) -> Notification:
    return Notification(f"e-1-{position}", "@a", position, 0, 0, "", content)


def test_ids_and_what_stands_beside_them_take_room_too() -> None:
    rows = [waiting(n, bytes(10)) for n in range(5)]
    assert within(rows, Room(bytes_max=30)).rows == rows[:3]
    assert within(rows, Room(bytes_max=30, each_bytes=5)).rows == rows[:1], "5 of the id, 10 and 5"
    assert within(rows, Room(bytes_max=40, each_bytes=5)).rows == rows[:2]


def test_what_is_too_long_is_passed_over_and_not_read(store: StateStore) -> None:
    topics = store.topics
    topics.subscribe("ann", "@a")
    ids = [topics.publish("@a", bytes(size), now_ms)[0].id for now_ms, size in enumerate((50, 10, 60, 10))]
    store.barrier().wait(WAIT_S)
    found = topics.fitting("ann", Room(content_bytes_max=20))
    assert [row.id for row in found.rows] == [ids[1], ids[3]]
    assert found.passed_over == [TooLong(ids[0], "@a", 1, 0, 50), TooLong(ids[2], "@a", 3, 2, 60)]
    assert topics.fitting("ann", Room(content_bytes_max=60)).passed_over == []
    first = topics.fitting("ann", Room(rows_max=1, content_bytes_max=20))
    assert ([row.id for row in first.rows], len(first.passed_over)) == ([ids[1]], 2), "up to where it stopped"
