"""One connected subscriber of one durable topic, and notifications on their way to it."""

from collections.abc import Sequence

from msgspec import Struct, field
from msgspec.structs import replace

from wirelake.broker.in_flight import InFlight
from wirelake.broker.peer import Peer
from wirelake.message import Kind, Message, Topic
from wirelake.state.notifications import StoredNotification


class Consumer(Struct, eq=False):
    peer: Peer
    topic: str
    position: int  # written up to here
    begun: int  # how long the topic was when it was attached: of what came before, only the unacked is sent
    behind: bool = False  # catches up from disk, in slices
    timed: bool = False  # has its place among those that may have to be written to again
    unacked: InFlight = field(default_factory=InFlight)
    unsayable: int = 0  # up to here, what the peer's protocol cannot carry is recorded


def as_message(notification: StoredNotification) -> Message:
    return Message(
        kind=Kind.NOTIFICATION,
        id=notification.id,
        source=notification.publisher,
        target=Topic(notification.topic),
        payload=notification.content,
        type=notification.type,
        at_ms=notification.at_ms,
    )


def as_messages(run: Sequence[StoredNotification]) -> list[Message]:
    """Notifications of one topic; a third of the time that each by itself takes."""
    if not run:
        return []
    like = as_message(run[0])
    return [
        replace(like, id=each.id, source=each.publisher, payload=each.content, type=each.type, at_ms=each.at_ms)
        for each in run
    ]


def in_a_row(rows: list[StoredNotification]) -> list[list[StoredNotification]]:
    """Cut where positions are missing."""
    runs: list[list[StoredNotification]] = []
    for row in rows:
        if runs and runs[-1][-1].position == row.position - 1:
            runs[-1].append(row)
        else:
            runs.append([row])
    return runs
