"""Where is this message: what the state, the log and the tables know of it."""

import asyncio

from wirelake.gateway.http.errors import AGAIN, ApiError
from wirelake.gateway.http.request_context import RequestContext
from wirelake.gateway.http.route import Parameter, Route
from wirelake.limits import HTTP_TRACES_MAX
from wirelake.tracing.stored_notification import find_notification
from wirelake.tracing.trace import Trace
from wirelake.tracing.trace import trace as put_together


async def trace(exchange: RequestContext, _: None) -> Trace:
    return await traced(exchange, exchange.path("id"))


async def traced(exchange: RequestContext, wanted: str) -> Trace:
    """As far as whoever asks may know."""
    api = exchange.api
    only = "" if exchange.admin else exchange.identity
    kept = find_notification(exchange.gateway.state.topics, wanted, only)
    if api.traces >= HTTP_TRACES_MAX:
        raise ApiError(
            429, f"{api.traces} messages are being traced already (HTTP_TRACES_MAX): try again", headers=AGAIN
        )
    api.traces += 1
    try:
        found = await asyncio.to_thread(put_together, exchange.gateway.folder, wanted, kept, only)
    finally:
        api.traces -= 1
    if found is None:
        raise ApiError(404, f"no message {wanted[:64]!r}: it never existed, or retention removed it")
    return found


ROUTES = (
    Route(
        method="GET",
        path="/api/messages/{id}",
        summary="Trace a message: its bytes, session, route, deliveries, acks and rows. "
        "An identity sees its own part of notifications that it published or got; the admin also traces records of "
        "the log and sessions.",
        handle=trace,
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
    ),
)
