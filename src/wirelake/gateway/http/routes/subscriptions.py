"""Subscribe to topics over HTTP, and ack notifications.

    id: 3f9a2c-1-7
    data: {"topic":"@news","id":"3f9a2c-1-7","type":0,"ts":1700000000000,"content":"hello"}

The status of `GET /api/subscribe` is sent once the subscription is durable. The backlog of the identity in a durable
topic comes first. A stream cannot send acks: a client that wants no notification twice posts them to `/api/acks`.
"""

from typing import Annotated, Final

from msgspec import Meta, Struct

from wirelake.broker.request_fields import check_topic
from wirelake.gateway.http.errors import AGAIN, ApiError
from wirelake.gateway.http.peer import BrokerClient
from wirelake.gateway.http.request_context import RequestContext
from wirelake.gateway.http.route import Access, BoundRoute, Parameter, Route
from wirelake.gateway.http.subscriber import EventStream, EventStreams, StreamEvent
from wirelake.limits import BROKER_TOPICS_PER_REQUEST_MAX, HTTP_ACKS_MAX, HTTP_STREAM_MS_MAX, HTTP_STREAMS_MAX
from wirelake.message import TOPIC, Topic
from wirelake.state.topics import TopicStore


class AckRequest(Struct, forbid_unknown_fields=True):
    """The ids of notifications that this identity has received. Unknown ids are ignored."""

    ids: Annotated[list[str], Meta(max_length=HTTP_ACKS_MAX)]


class SubscriptionRoutes:
    def __init__(self, client: BrokerClient, streams: EventStreams, topics: TopicStore) -> None:
        self._client = client
        self._streams = streams
        self._topics = topics

    def routes(self) -> tuple[BoundRoute, ...]:
        return (SUBSCRIBE.bind(self.subscribe), ACK.bind(self.ack))

    async def subscribe(self, context: RequestContext, _: None) -> EventStream:
        topics = list(dict.fromkeys(context.queries("topic")))
        for topic in topics:
            check_topic(topic)
        if self._client.is_stopping():
            raise ApiError(503, "the gateway is shutting down", headers=AGAIN)
        if len(self._streams) >= HTTP_STREAMS_MAX:
            raise ApiError(503, f"{HTTP_STREAMS_MAX} streams are open already (HTTP_STREAMS_MAX)", headers=AGAIN)
        is_permanent = context.query("keep", "true") == "true"
        durable = {name for name in topics if Topic(name).is_durable}
        permanent = set(self._topics.topics_of(context.identity))
        for other in self._streams.of(context.identity):
            if is_permanent:
                other.temporary_topics -= durable
            permanent -= other.temporary_topics
        stream = self._streams.open(context)
        if not is_permanent:
            stream.temporary_topics = durable - permanent
        try:
            await stream.subscribe(topics)
        except BaseException:
            stream.on_end()
            raise
        for_ms = context.number("for_ms", 0)
        if for_ms:
            stream.close_after(for_ms / 1000)
        return EventStream(stream)

    async def ack(self, context: RequestContext, acks: AckRequest) -> None:
        await self._client.broker.durable.on_ack(context.identity, acks.ids)


SUBSCRIBE: Final = Route(
    method="GET",
    path="/api/subscribe",
    operation_id="subscribe.subscribe",
    summary="Stream notifications of these topics as server-sent events.",
    access=Access.IDENTITY,
    gives=StreamEvent,
    media_type="text/event-stream",
    parameters=(
        Parameter(
            "topic",
            "Name of a topic; may be repeated.",
            is_list=True,
            is_required=True,
            pattern=TOPIC,
            rule="a topic's name, which has 1 to 256 printable characters",
            items_max=BROKER_TOPICS_PER_REQUEST_MAX,
        ),
        Parameter(
            "keep",
            "Whether a new subscription to a durable topic outlasts the stream: true (the default) or false.",
            choices=("true", "false"),
        ),
        Parameter(
            "for_ms",
            "Duration of the stream; unlimited if not given.",
            "integer",
            most=HTTP_STREAM_MS_MAX,
        ),
    ),
    example_answer={
        "topic": "@news",
        "id": "3f9a2c-1-7",
        "type": 0,
        "ts": 1_700_000_000_000,
        "content": "hello",
    },
)

ACK: Final = Route(
    method="POST",
    path="/api/acks",
    operation_id="acks.ack",
    summary="Acknowledge notifications by their ids: they are not delivered to this identity again.",
    takes=AckRequest,
    status=204,
    is_recorded=True,
    example={"ids": ["3f9a2c-1-7"]},
)

ROUTES: Final = (SUBSCRIBE, ACK)
