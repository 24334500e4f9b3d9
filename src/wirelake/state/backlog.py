"""What waits for an identity, as much of it as one answer has room for."""

from collections.abc import Iterable
from typing import Annotated, NamedTuple

from msgspec import Meta, Struct

from wirelake.limits import STATE_PASSED_OVER_MAX, STATE_READ_BYTES_MAX, STATE_READ_ROWS_MAX
from wirelake.state.notification import Notification

_Count = Annotated[int, Meta(ge=0)]


class Room(Struct, frozen=True, kw_only=True):
    rows_max: _Count = STATE_READ_ROWS_MAX
    bytes_max: _Count = STATE_READ_BYTES_MAX
    each_bytes: _Count = 0  # that a notification takes beside its id and its content
    content_bytes_max: _Count | None = None  # a longer content fits no answer


class TooLong(Struct, frozen=True):
    """A notification that no answer has room for. Its content is not read."""

    id: str
    topic: str
    position: int
    at_ms: int
    content_bytes: int


class Backlog(NamedTuple):
    rows: list[Notification]  # oldest first
    passed_over: list[TooLong]  # those between them


def within(waiting: Iterable[Notification | TooLong], room: Room) -> Backlog:
    """At least one, if there is one that is not too long."""
    found = Backlog([], [])
    size = 0
    for each in waiting:
        if isinstance(each, TooLong):
            if len(found.passed_over) >= STATE_PASSED_OVER_MAX:
                break
            found.passed_over.append(each)
            continue
        size += len(each.content) + (room.each_bytes and len(each.id) + room.each_bytes)
        if len(found.rows) >= room.rows_max or (found.rows and size > room.bytes_max):
            break
        found.rows.append(each)
    return found
