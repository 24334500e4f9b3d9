"""`GET /api/subscribe`: listen to topics by HTTP, for the command line and for scripts.

    id: 3f9a2c-1-7
    data: {"topic":"@news","id":"3f9a2c-1-7","type":0,"ts":1700000000000,"content":"hello"}

The answer's status comes once the subscription is durable. What waits in a durable topic for this identity comes first.
"""

from wirelake.broker.broker import check_topic
from wirelake.gateway.http.errors import AGAIN, ApiError
from wirelake.gateway.http.request_context import RequestContext
from wirelake.gateway.http.route import Access, Parameter, Route
from wirelake.gateway.http.subscriber import EventStream, StreamEvent, Subscriber
from wirelake.limits import BROKER_TOPICS_PER_REQUEST_MAX, HTTP_STREAM_MS_MAX, HTTP_STREAMS_MAX
from wirelake.message import TOPIC, Topic


async def subscribe(exchange: RequestContext, _: None) -> EventStream:
    topics = list(dict.fromkeys(exchange.queries("topic")))
    for topic in topics:
        check_topic(topic)
    keep = exchange.query("keep", "true")
    if exchange.gateway.stopping or len(exchange.api.subscribers) >= HTTP_STREAMS_MAX:
        text = (
            "the gateway is shutting down"
            if exchange.gateway.stopping
            else f"{HTTP_STREAMS_MAX} streams are open already (HTTP_STREAMS_MAX)"
        )
        raise ApiError(503, text, headers=AGAIN)
    durable = {name for name in topics if Topic(name).is_durable}
    kept = set(exchange.gateway.state.topics.topics_of(exchange.identity))
    for other in exchange.api.streams_of(exchange.identity):
        if keep == "true":
            other.passing -= durable
        kept -= other.passing
    subscriber = Subscriber(exchange, exchange.connection)
    if keep == "false":
        subscriber.passing = durable - kept
    try:
        await subscriber.subscribe(topics)
    except BaseException:
        subscriber.leave()
        raise
    for_ms = exchange.number("for_ms", 0)
    if for_ms:
        subscriber.end_after(for_ms / 1000)
    return EventStream(subscriber)


ROUTES = (
    Route(
        method="GET",
        path="/api/subscribe",
        summary="Stream notifications of these topics as server-sent events.",
        handle=subscribe,
        access=Access.IDENTITY,
        gives=StreamEvent,
        media_type="text/event-stream",
        parameters=(
            Parameter(
                "topic",
                "Name of a topic; may be repeated.",
                many=True,
                required=True,
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
    ),
)
