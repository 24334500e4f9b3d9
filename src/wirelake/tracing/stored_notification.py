"""A notification that is still stored in its topic, and its deliveries."""

from itertools import islice
from typing import Literal

from msgspec import Struct

from wirelake.limits import HTTP_DELIVERIES_SHOWN_MAX
from wirelake.state.topics import TopicStore


class DeliveryState(Struct, frozen=True):
    identity: str
    state: Literal["acked", "pending", "expired"]


class NotificationTrace(Struct, frozen=True):
    topic: str
    type: int
    publisher: str
    content: bytes
    at_us: int
    subscribers: int
    deliveries: list[DeliveryState]


def find_notification(topics: TopicStore, id: str, only: str = "") -> NotificationTrace | None:  # noqa: A002 the field's name
    """Return a notification by its id. `only` restricts the deliveries to one identity."""
    found = topics.find(id)
    if found is None:
        return None
    subscribers = topics.subscribers(found.topic)
    deliveries = []
    for identity in [only] if only else islice(subscribers, HTTP_DELIVERIES_SHOWN_MAX):
        acked = topics.is_acked(identity, found.topic, found.position)
        if acked is not None:
            deliveries.append(DeliveryState(identity, "acked" if acked else "pending"))
    return NotificationTrace(
        topic=found.topic,
        type=found.type,
        publisher=found.publisher,
        content=found.content,
        at_us=found.at_ms * 1000,
        subscribers=len(deliveries) if only else len(subscribers),
        deliveries=deliveries,
    )
