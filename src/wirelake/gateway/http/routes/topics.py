"""Publish on a topic, list the topics, and show one: its subscribers with their lag, and its latest notifications."""

from collections.abc import Generator
from itertools import islice
from typing import Annotated, Any, Final

from msgspec import UNSET, Meta, Struct, UnsetType

from wirelake.broker.broker import RETAIN
from wirelake.broker.request_fields import check_topic
from wirelake.gateway.http.bodies import BASE64_SCHEMA, encode_content
from wirelake.gateway.http.peer import BrokerClient
from wirelake.gateway.http.request_context import RequestContext
from wirelake.gateway.http.route import LIMIT, BoundRoute, Parameter, Route
from wirelake.gateway.jobs import SlicedJobRunner
from wirelake.limits import (
    HTTP_NAMES_AT_ONCE,
    HTTP_ROWS_AT_ONCE,
    HTTP_SUBSCRIBERS_SHOWN_MAX,
    HTTP_TOPIC_CONTENT_CHARS,
    HTTP_TOPIC_LAST_BYTES,
    HTTP_TOPIC_LAST_ROWS,
)
from wirelake.message import TOPIC, Kind, Message, Topic
from wirelake.protocols.text import Encoding, as_text
from wirelake.roles import Action
from wirelake.state.notifications import StoredNotification
from wirelake.state.records import sort_in_steps
from wirelake.state.topics import TopicStore

_BASE64_GROUP: Final = 4  # characters


class NewNotification(Struct, forbid_unknown_fields=True):
    """`content` is text; base64 if `encoding` says so; or any other JSON value, which is published as JSON text.

    With `retain` a durable topic stores it as its last value, which later subscribers get at once.
    """

    content: Any
    type: Annotated[int, Meta(ge=0, le=255)] = 0
    encoding: Encoding | UnsetType = UNSET
    retain: bool = False


class PublishAnswer(Struct, omit_defaults=True):
    """For a live topic, `id` is that of the request in the event log, and `receivers` the number of subscribers."""

    id: str
    topic: str
    ts: int
    receivers: int | UnsetType = UNSET


class TopicRow(Struct):
    """`lag` is how far the slowest subscriber is behind the head; for who may see its own part only, its own lag."""

    topic: str
    durable: bool
    subscribers: int
    connected: int
    head: int
    lag: int


class TopicList(Struct):
    topics: list[TopicRow]
    next: str | None = None  # the `after` of the next page, if there is one


class TopicSubscriber(Struct):
    """`connected` counts its subscribed sessions; `lag` the notifications that it has not acked."""

    identity: str
    connected: int
    lag: int
    acked: int
    expired: int


class LastNotification(Struct):
    id: str
    position: int
    ts: int
    type: int
    publisher: str
    bytes: int  # of the whole content
    content: str
    encoding: Encoding | UnsetType = UNSET
    truncated: bool = False  # `content` is only the beginning


class TopicView(Struct, kw_only=True):
    """`subscribers` and `connected` count all; `who` lists them up to a limit, those with the largest lag first.

    `last` has the latest notifications first, if they are stored (a subscriber has not acked them) or still in memory.
    A live topic stores nothing, and its subscribers have no lag.
    """

    topic: str
    durable: bool
    subscribers: int
    connected: int
    head: int
    lag: int
    who: list[TopicSubscriber]
    last: list[LastNotification]
    retained: LastNotification | None


class TopicRoutes:
    def __init__(self, client: BrokerClient, topics: TopicStore, jobs: SlicedJobRunner) -> None:
        self._client = client
        self._topics = topics
        self._jobs = jobs

    def routes(self) -> tuple[BoundRoute, ...]:
        return (PUBLISH.bind(self.publish), LIST.bind(self.list_topics), SHOW.bind(self.show))

    async def publish(self, context: RequestContext, new: NewNotification) -> PublishAnswer:
        topic = context.path("topic")
        content = encode_content(new.content, new.encoding)
        message = Message(kind=Kind.NOTIFICATION, payload=content, type=new.type, headers={RETAIN: new.retain})
        notification, commit = self._client.publish(context, topic, message)
        if commit is None:
            return PublishAnswer(context.id, topic, notification.at_ms, notification.fields.get("receivers", 0))
        await commit
        self._client.flush_soon()  # it may be delivered now
        return PublishAnswer(notification.id, topic, notification.at_ms)

    async def list_topics(self, context: RequestContext, _: None) -> TopicList:
        return await self._jobs.result(context.share, self._list(context, context.rows_max))

    def _list(self, context: RequestContext, rows_max: int) -> Generator[None, None, TopicList]:
        broker, topics = self._client.broker, self._topics
        live, subscribed = broker.live.names(), set(topics.topics_of(context.identity))
        after, prefix = context.query("after"), context.query("prefix")
        wanted: list[str] = []
        for place, name in enumerate([*topics.names(), *live]):
            is_wanted = name > after and name.startswith(prefix)
            if is_wanted and (_sees(context, name) or (name in subscribed and _may_subscribe(context, name))):
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
            own = topics.delivery_counts(context.identity, name)
            lag = topics.lag(name) if _sees(context, name) else 0 if own is None else own.pending
            subscribers, connected = len(topics.subscribers(name)), broker.durable.connected(name)
            rows.append(TopicRow(name, True, subscribers, connected, topics.head(name), lag))
        return TopicList(rows, names[rows_max - 1] if len(names) > rows_max else None)

    async def show(self, context: RequestContext, _: None) -> TopicView:
        name = context.path("topic")
        check_topic(name)
        if _sees(context, name):
            return self._live(name) if not Topic(name).is_durable else self._durable(name)
        own = self._topics.subscription(context.identity, name)
        if own is None or not _may_subscribe(context, name):
            raise self._client.broker.access.denied(context, Action.SEE, f"topics/{name}")
        return self._durable(name, start=own.start, only=context.identity)

    def _live(self, name: str) -> TopicView:
        listeners = self._client.broker.live.listeners(name)
        who = [TopicSubscriber(identity, count, 0, 0, 0) for identity, count in sorted(listeners.items())]
        return TopicView(
            topic=name,
            durable=False,
            subscribers=len(listeners),
            connected=listeners.total(),
            head=0,
            lag=0,
            who=who[:HTTP_SUBSCRIBERS_SHOWN_MAX],
            last=[],
            retained=None,
        )

    def _durable(self, name: str, start: int = 0, only: str = "") -> TopicView:
        """Show a durable topic. For the identity `only`: its own lag, and what was published since it subscribed."""
        topics = self._topics
        listeners = self._client.broker.durable.listeners(name)
        identities = [only] if only else islice(topics.subscribers(name), HTTP_SUBSCRIBERS_SHOWN_MAX)
        who = []
        for identity in identities:
            counts = topics.delivery_counts(identity, name)
            if counts is not None:
                connected = listeners[identity]
                who.append(TopicSubscriber(identity, connected, counts.pending, counts.acked, counts.expired))
        who.sort(key=lambda each: (-each.lag, each.identity))
        retained = topics.retained(name)
        latest = topics.read_newest(name, start, HTTP_TOPIC_LAST_ROWS, HTTP_TOPIC_LAST_BYTES)
        return TopicView(
            topic=name,
            durable=True,
            subscribers=len(topics.subscribers(name)),
            connected=listeners.total(),
            head=topics.head(name),
            lag=who[0].lag if only and who else topics.lag(name),
            who=who,
            last=[_last_notification(each) for each in latest],
            retained=None if retained is None else _last_notification(retained),
        )


def _sees(context: RequestContext, topic: str) -> bool:
    return context.rights.sees(f"topics/{topic}")


def _may_subscribe(context: RequestContext, topic: str) -> bool:
    """Return whether the sender still may: a durable subscription stays when the right to it is revoked."""
    return context.rights.allows(Action.SUBSCRIBE, topic)


def _last_notification(notification: StoredNotification) -> LastNotification:
    content, encoding = as_text(notification.content)
    most = HTTP_TOPIC_CONTENT_CHARS // _BASE64_GROUP * _BASE64_GROUP
    return LastNotification(
        notification.id,
        notification.position,
        notification.at_ms,
        notification.type,
        notification.publisher,
        len(notification.content),
        content[:most],
        encoding,
        len(content) > most,
    )


def _describe_content(schema: dict[str, Any]) -> dict[str, Any]:
    """Allow any content, or base64 if `encoding` says so."""
    fields, required = schema["properties"], schema["required"]
    plain = {name: field for name, field in fields.items() if name != "encoding"}
    encoded = {**schema, "properties": {**fields, "content": BASE64_SCHEMA}, "required": [*required, "encoding"]}
    return {"anyOf": [{**schema, "properties": plain}, encoded]}


PUBLISH: Final = Route(
    method="POST",
    path="/api/topics/{topic}/notifications",
    operation_id="topics.publish",
    summary="Publish a notification; responds once it is on disk.",
    takes=NewNotification,
    gives=PublishAnswer,
    status=201,
    is_recorded=True,
    describe_body=_describe_content,
    parameters=(Parameter("topic", "A topic whose name begins with @ is durable, any other is live.", pattern=TOPIC),),
    refusals=(507,),
    example={"content": "hello", "type": 0},
    example_answer={"id": "3f9a2c-1-7", "topic": "@news", "ts": 1_700_000_000_000},
)

LIST: Final = Route(
    method="GET",
    path="/api/topics",
    operation_id="topics.list_topics",
    summary="List topics by name: those that one may see, and the durable ones that one is subscribed to.",
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
)

SHOW: Final = Route(
    method="GET",
    path="/api/topics/{topic}",
    operation_id="topic.show",
    summary="Get a topic's subscribers with their lag, and its latest notifications, without acking them.",
    gives=TopicView,
    parameters=(
        Parameter(
            "topic",
            "A topic that one may see, or a durable one that one is subscribed to.",
            pattern=TOPIC,
        ),
    ),
    example_answer={
        "topic": "@news",
        "durable": True,
        "subscribers": 1,
        "connected": 0,
        "head": 7,
        "lag": 2,
        "who": [{"identity": "phone-1", "connected": 0, "lag": 2, "acked": 5, "expired": 0}],
        "last": [
            {
                "id": "3f9a2c-1-7",
                "position": 7,
                "ts": 1_700_000_000_000,
                "type": 0,
                "publisher": "admin",
                "bytes": 5,
                "content": "hello",
                "truncated": False,
            }
        ],
        "retained": None,
    },
)

ROUTES: Final = (PUBLISH, LIST, SHOW)
