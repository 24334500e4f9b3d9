"""A notification of a durable topic: what is known of it now, and who has it."""

from itertools import islice
from typing import Literal

from msgspec import UNSET, Struct, UnsetType

from wirelake.gateway.http.content import Encoding, as_text
from wirelake.gateway.http.errors import ApiError
from wirelake.gateway.http.exchange import Exchange
from wirelake.gateway.http.route import Parameter, Route
from wirelake.limits import HTTP_DELIVERIES_SHOWN_MAX


class Delivery(Struct):
    identity: str
    state: Literal["acked", "pending"]


class Trace(Struct, kw_only=True):
    """`subscribers` counts those it is for; `deliveries` lists them, up to a limit."""

    id: str
    topic: str
    position: int
    ts: int
    type: int
    publisher: str
    content: str
    encoding: Encoding | UnsetType = UNSET
    subscribers: int
    deliveries: list[Delivery]


async def trace(exchange: Exchange, _: None) -> Trace:
    wanted = exchange.path("id")
    topics = exchange.gateway.state.topics
    found = topics.find(wanted)
    own = [exchange.identity]
    if found is not None and not exchange.admin:
        hers = topics.acked(exchange.identity, found.topic, found.position)
        found = None if hers is None and found.publisher != exchange.identity else found
    if found is None:
        raise ApiError(404, f"no message {wanted[:64]!r} is kept: all have acked it, it has expired, or never was")
    subscribers = topics.subscribers(found.topic)
    shown = islice(subscribers, HTTP_DELIVERIES_SHOWN_MAX) if exchange.admin else own
    deliveries = []
    for identity in shown:
        acked = topics.acked(identity, found.topic, found.position)
        if acked is not None:
            deliveries.append(Delivery(identity, "acked" if acked else "pending"))
    content, encoding = as_text(found.content)
    return Trace(
        id=found.id,
        topic=found.topic,
        position=found.position,
        ts=found.at_ms,
        type=found.type,
        publisher=found.publisher,
        content=content,
        encoding=encoding,
        subscribers=len(subscribers) if exchange.admin else len(deliveries),
        deliveries=deliveries,
    )


ROUTES = (
    Route(
        method="GET",
        path="/api/messages/{id}",
        summary="What is known of a notification while it is kept; an identity sees those it published or gets.",
        handle=trace,
        gives=Trace,
        parameters=(Parameter("id", "As the publisher was answered."),),
        refusals=(404,),
        example_answer={
            "id": "3f9a2c-1-7",
            "topic": "@news",
            "position": 7,
            "ts": 1_700_000_000_000,
            "type": 0,
            "publisher": "admin",
            "content": "hello",
            "subscribers": 1,
            "deliveries": [{"identity": "phone-1", "state": "pending"}],
        },
    ),
)
