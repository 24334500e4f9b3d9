"""Trace a message: what the state, the log and the tables have about it."""

import asyncio
from pathlib import Path
from typing import Final

from wirelake.broker.access import AccessPolicy, Rights
from wirelake.gateway.http.errors import ApiError
from wirelake.gateway.http.limiter import ConcurrencyLimit, busy
from wirelake.gateway.http.request_context import RequestContext
from wirelake.gateway.http.route import BoundRoute, Parameter, Route
from wirelake.lake.store import Store
from wirelake.limits import HTTP_TRACES_MAX
from wirelake.roles import LOG, Action
from wirelake.state.topics import TopicStore
from wirelake.tracing.record import NotificationId, parse_trace_id
from wirelake.tracing.stored import find_notification
from wirelake.tracing.trace import Trace, trace_or_reason


class Tracer:
    """Trace messages, a limited number at once."""

    def __init__(self, folder: Path, lake: Store, topics: TopicStore, access: AccessPolicy) -> None:
        self._folder = folder
        self._lake = lake
        self._topics = topics
        self._access = access
        self._limit = ConcurrencyLimit(HTTP_TRACES_MAX, busy("messages are being traced", "HTTP_TRACES_MAX"))

    async def trace(self, context: RequestContext, message_id: str) -> Trace:
        """Return what the sender of the request may know about a message. AccessDeniedError if that is nothing, also if
        there is no such message; ApiError if there is none and the sender may see all.
        """
        rights, target = context.rights, f"traces/{message_id}"
        only = "" if rights.sees(target) else context.identity
        if not only and not isinstance(parse_trace_id(message_id), NotificationId):
            self._access.authorize(context, Action.SEE, LOG)  # a record or a session, with frames about any topic
        stored = find_notification(self._topics, message_id, only)
        with self._limit.slot():
            found = await asyncio.to_thread(trace_or_reason, self._folder, message_id, stored, only, self._lake)
        if isinstance(found, str) and only:
            raise self._access.denied(context, Action.SEE, target)
        if isinstance(found, str):
            reason = f" ({found})" if found else ""
            raise ApiError(404, f"no message {message_id[:64]!r}: it never existed, or retention removed it{reason}")
        if isinstance(found.topic, str) and found.publisher != context.identity and not _knows(rights, found.topic):
            raise self._access.denied(context, Action.SEE, target)
        found.rows = {name: rows for name, rows in found.rows.items() if rights.reads_whole(name)}
        return found


def _knows(rights: Rights, topic: str) -> bool:
    """Return whether the content of a topic is no secret."""
    return rights.sees(f"topics/{topic}") or rights.allows(Action.SUBSCRIBE, topic)


class MessageRoutes:
    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer

    def routes(self) -> tuple[BoundRoute, ...]:
        return (TRACE.bind(self.trace),)

    async def trace(self, context: RequestContext, _: None) -> Trace:
        return await self._tracer.trace(context, context.path("id"))


TRACE: Final = Route(
    method="GET",
    path="/api/messages/{id}",
    operation_id="messages.trace",
    summary="Trace a message: its bytes, session, route, deliveries, acks and rows. "
    "An identity sees its own part of notifications that it published or got; who may see traces, all of them; and "
    "who may see the log, also its records and sessions.",
    gives=Trace,
    parameters=(Parameter("id", "Id of a notification, number of a log record, or id of a session."),),
    example_answer={
        "kind": "notification",
        "id": "3f9a2c-1-7",
        "topic": "@news",
        "position": 7,
        "ts": 1_700_000_000_000,
        "type": 0,
        "publisher": "admin",
        "content": "hello",
        "kept": True,
        "subscribers": 1,
        "deliveries": [{"identity": "phone-1", "state": "pending"}],
        "timeline": [
            {
                "what": "publish",
                "text": "published on @news at position 7 by admin",
                "at_us": 1_700_000_000_000_123,
                "offset_ms": 0.0,
                "source": "log",
                "seq": 41,
                "protocol": "",
                "direction": "",
                "session": "",
                "identity": "admin",
                "peer": "",
                "topic": "@news",
                "id": "3f9a2c-1-7",
                "attempt": 0,
                "bytes": 5,
                "hex": "68656c6c6f",
                "recipients": 0,
                "to": [],
            }
        ],
        "rows": {"silver.notifications": [{"seq": 41, "id": "3f9a2c-1-7", "topic": "@news"}]},
        "caveats": [],
    },
)

ROUTES: Final = (TRACE,)
