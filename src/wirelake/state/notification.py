"""A notification of a durable topic, and the names by which it is found.

    id    "<epoch>-<topic number>-<position>", the numbers in hex: what an ack brings back
    key   topic number << 40 | position: the row on disk

The epoch is drawn when a database is made, so that no two databases ever give the same id.
"""

from collections.abc import Iterable, Iterator
from typing import Final

from msgspec import Struct

POSITION_BITS: Final = 40
POSITION_MAX: Final = (1 << POSITION_BITS) - 1


class Notification(Struct, frozen=True, gc=False):
    id: str
    topic: str
    position: int  # 1 is a topic's first
    at_ms: int
    type: int
    publisher: str  # the identity that published it, empty where there is none
    content: bytes


def key_of(topic: int, position: int) -> int:
    return topic << POSITION_BITS | position


def id_of(epoch: str, topic: int, position: int) -> str:
    return f"{epoch}-{topic:x}-{position:x}"


def parse_id(epoch: str, text: str) -> tuple[int, int] | None:
    """Topic number and position; None for an id that this database cannot have given."""
    parts = text.split("-")
    if len(parts) != 3 or parts[0] != epoch:
        return None
    try:
        topic, position = int(parts[1], 16), int(parts[2], 16)
    except ValueError:
        return None
    return (topic, position) if id_of(epoch, topic, position) == text else None  # one spelling only


def id_runs(epoch: str, texts: Iterable[str]) -> Iterator[tuple[int, int, int]]:
    """Topic number, first and last position of ids that follow each other, as acks mostly do; others are left out.

    The next id of a run is known before it comes, and to compare it is far cheaper than to read it.
    """
    number = first = last = 0
    head = ""
    expected: str | None = None
    for text in texts:
        if text == expected:
            last += 1
        else:
            if last:
                yield number, first, last
            number, first = parse_id(epoch, text) or (0, 0)
            last, head = first, text[: text.rfind("-") + 1]
        expected = f"{head}{last + 1:x}" if last else None
    if last:
        yield number, first, last
