"""One topic: who is subscribed and how far behind each of them is, and what was published last."""

from itertools import islice

from msgspec import UNSET, Struct, UnsetType

from wirelake.broker.broker import check_topic
from wirelake.gateway.http.errors import ApiError
from wirelake.gateway.http.request_context import RequestContext
from wirelake.gateway.http.route import Parameter, Route
from wirelake.limits import (
    HTTP_SUBSCRIBERS_SHOWN_MAX,
    HTTP_TOPIC_CONTENT_CHARS,
    HTTP_TOPIC_LAST_BYTES,
    HTTP_TOPIC_LAST_ROWS,
)
from wirelake.message import TOPIC, Topic
from wirelake.protocols.jsontext import Encoding, as_text
from wirelake.state.notifications import StoredNotification

_BASE64_GROUP = 4  # characters


class TopicSubscriber(Struct):
    """`connected` counts its sessions that listen now; `lag` the notifications that it has not acked."""

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
    truncated: bool = False  # only the content's beginning is here


class TopicView(Struct, kw_only=True):
    """`subscribers` and `connected` count all; `who` lists them up to a limit, those that lag most first.

    `last` has the newest first, as far as they are kept (somebody has not acked them) or still in memory. Nothing is
    kept of a live name, and nobody lags there.
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


async def show(exchange: RequestContext, _: None) -> TopicView:
    name = exchange.path("topic")
    check_topic(name)
    topics = exchange.gateway.state.topics
    if exchange.admin:
        return _live(exchange, name) if not Topic(name).is_durable else _durable(exchange, name)
    own = topics.subscription(exchange.identity, name)
    if own is None:
        raise ApiError(404, f"{exchange.identity!r} is not subscribed to a durable topic {name[:64]!r}")
    return _durable(exchange, name, begun=own.start, only=exchange.identity)


def _live(exchange: RequestContext, name: str) -> TopicView:
    listeners = exchange.gateway.broker.live.listeners(name)
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


def _durable(exchange: RequestContext, name: str, begun: int = 0, only: str = "") -> TopicView:
    """For an identity, what it is told itself: what came after it subscribed, and where it stands."""
    topics, durable = exchange.gateway.state.topics, exchange.gateway.broker.durable
    listeners = durable.listeners(name)
    identities = [only] if only else islice(topics.subscribers(name), HTTP_SUBSCRIBERS_SHOWN_MAX)
    who = []
    for identity in identities:
        found = topics.delivery_counts(identity, name)
        if found is not None:
            connected = listeners[identity]
            who.append(TopicSubscriber(identity, connected, found.pending, found.acked, found.expired))
    who.sort(key=lambda each: (-each.lag, each.identity))
    retained = topics.retained(name)
    return TopicView(
        topic=name,
        durable=True,
        subscribers=len(topics.subscribers(name)),
        connected=listeners.total(),
        head=topics.head(name),
        lag=who[0].lag if only and who else topics.lag(name),
        who=who,
        last=[_shown(each) for each in topics.read_newest(name, begun, HTTP_TOPIC_LAST_ROWS, HTTP_TOPIC_LAST_BYTES)],
        retained=None if retained is None else _shown(retained),
    )


def _shown(notification: StoredNotification) -> LastNotification:
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


ROUTES = (
    Route(
        method="GET",
        path="/api/topics/{topic}",
        summary="Get a topic's subscribers with their lag, and its latest notifications, without acking them.",
        handle=show,
        gives=TopicView,
        parameters=(
            Parameter(
                "topic",
                "For an identity, a durable topic that it is subscribed to; any topic for the admin.",
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
    ),
)
