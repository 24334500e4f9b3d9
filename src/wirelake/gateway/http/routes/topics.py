"""Topics: publish on one, list them."""

from collections.abc import Generator
from typing import Annotated, Any

from msgspec import UNSET, Meta, Struct, UnsetType

from wirelake.broker.broker import RETAIN
from wirelake.gateway.http.content import BASE64_SCHEMA, as_bytes
from wirelake.gateway.http.request_context import RequestContext
from wirelake.gateway.http.route import LIMIT, Parameter, Route
from wirelake.limits import HTTP_NAMES_AT_ONCE, HTTP_ROWS_AT_ONCE
from wirelake.message import TOPIC, Kind, Message, Topic
from wirelake.protocols.jsontext import Encoding
from wirelake.state.records import sort_in_steps


class NewNotification(Struct, forbid_unknown_fields=True):
    """`content` is text; base64 if `encoding` says so; or any other JSON value, which is published as JSON text.

    With `retain` a durable topic keeps it as its last value: whoever subscribes later gets it at once.
    """

    content: Any
    type: Annotated[int, Meta(ge=0, le=255)] = 0
    encoding: Encoding | UnsetType = UNSET
    retain: bool = False


class PublishAnswer(Struct, omit_defaults=True):
    """For a live name, `id` is that of the request in the event log, and `receivers` says how many it went to."""

    id: str
    topic: str
    ts: int
    receivers: int | UnsetType = UNSET


class TopicRow(Struct):
    """`lag` is how far the slowest subscriber is behind the head; for an identity, how much waits for itself."""

    topic: str
    durable: bool
    subscribers: int
    connected: int
    head: int
    lag: int


class TopicList(Struct):
    topics: list[TopicRow]
    next: str | None = None  # the `after` of the next page, if there is one


async def publish(exchange: RequestContext, new: NewNotification) -> PublishAnswer:
    gateway = exchange.gateway
    topic = exchange.path("topic")
    content = as_bytes(new.content, new.encoding)
    message = Message(kind=Kind.NOTIFICATION, payload=content, type=new.type, headers={RETAIN: new.retain})
    notification, commit = gateway.broker.publish(topic, message, exchange.identity, gateway.now_ms())
    gateway.flush_soon()
    if commit is None:
        return PublishAnswer(exchange.id, topic, notification.at_ms, notification.fields.get("receivers", 0))
    await commit
    gateway.flush_soon()  # now it may go out
    return PublishAnswer(notification.id, topic, notification.at_ms)


async def list_topics(exchange: RequestContext, _: None) -> TopicList:
    return await exchange.gateway.jobs.result(exchange.share, _list(exchange, exchange.rows_max))


def _list(exchange: RequestContext, rows_max: int) -> Generator[None, None, TopicList]:
    broker, topics = exchange.gateway.broker, exchange.gateway.state.topics
    live = broker.live.names() if exchange.admin else {}
    durable = topics.names() if exchange.admin else topics.topics_of(exchange.identity)
    after, prefix = exchange.query("after"), exchange.query("prefix")
    wanted: list[str] = []
    for place, name in enumerate([*durable, *live]):
        if name > after and name.startswith(prefix):
            wanted.append(name)
        if place % HTTP_NAMES_AT_ONCE == 0:
            yield
    names = (yield from sort_in_steps(wanted))[: rows_max + 1]
    rows = []
    for place, name in enumerate(names[:rows_max]):
        if place % HTTP_ROWS_AT_ONCE == 0:
            yield
        if not Topic(name).is_durable:
            rows.append(TopicRow(name, False, live[name], live[name], 0, 0))
            continue
        own = None if exchange.admin else topics.delivery_counts(exchange.identity, name)
        lag = topics.lag(name) if own is None else own.pending
        rows.append(
            TopicRow(name, True, len(topics.subscribers(name)), broker.durable.connected(name), topics.head(name), lag)
        )
    return TopicList(rows, names[rows_max - 1] if len(names) > rows_max else None)


def _describe_content(schema: dict[str, Any]) -> dict[str, Any]:
    """Any content, or base64 where `encoding` says so."""
    fields, required = schema["properties"], schema["required"]
    plain = {name: field for name, field in fields.items() if name != "encoding"}
    encoded = {**schema, "properties": {**fields, "content": BASE64_SCHEMA}, "required": [*required, "encoding"]}
    return {"anyOf": [{**schema, "properties": plain}, encoded]}


ROUTES = (
    Route(
        method="POST",
        path="/api/topics/{topic}/notifications",
        summary="Publish a notification; responds once it is on disk.",
        handle=publish,
        takes=NewNotification,
        gives=PublishAnswer,
        status=201,
        recorded=True,
        describe_body=_describe_content,
        parameters=(
            Parameter("topic", "A topic whose name begins with @ is durable, any other is live.", pattern=TOPIC),
        ),
        refusals=(507,),
        example={"content": "hello", "type": 0},
        example_answer={"id": "3f9a2c-1-7", "topic": "@news", "ts": 1_700_000_000_000},
    ),
    Route(
        method="GET",
        path="/api/topics",
        summary="List topics by name: all for the admin, its own durable ones for an identity.",
        handle=list_topics,
        gives=TopicList,
        parameters=(
            Parameter("prefix", "Prefix of the names."),
            Parameter("after", "Return names after this one."),
            LIMIT,
        ),
        example_answer={
            "topics": [{"topic": "@news", "durable": True, "subscribers": 3, "connected": 1, "head": 7, "lag": 2}],
            "next": None,
        },
    ),
)
