"""Sessions: who is connected now, whatever they speak."""

import heapq
from collections.abc import Generator, Iterator
from operator import itemgetter
from typing import TYPE_CHECKING

from msgspec import Struct

from wirelake.gateway.devices.peer import DevicePeer
from wirelake.gateway.http import examples
from wirelake.gateway.http.errors import ApiError
from wirelake.gateway.http.request_context import RequestContext
from wirelake.gateway.http.route import LIMIT, Access, Parameter, Route
from wirelake.gateway.http.subscriber import Subscriber
from wirelake.gateway.transport.connection import Connection
from wirelake.limits import HTTP_ROWS_AT_ONCE
from wirelake.protocols.session import Closing

if TYPE_CHECKING:
    from wirelake.gateway.gateway import Gateway

AnySession = Connection | DevicePeer | Subscriber


class SessionRow(Struct):
    id: str
    protocol: str
    identity: str  # empty before the login
    address: str
    state: str
    opened_at_ms: int
    frames_in: int
    frames_out: int
    bytes_in: int
    bytes_out: int
    pending_bytes: int  # written and not yet taken
    slow: bool  # more of that than the limit: it is not fed for now
    lag: int  # notifications of its durable topics that it has not been sent


class SessionList(Struct):
    sessions: list[SessionRow]
    next: str | None = None


async def list_sessions(exchange: RequestContext, _: None) -> SessionList:
    return await exchange.gateway.jobs.result(exchange.share, _list(exchange, exchange.rows_max))


def _list(exchange: RequestContext, rows_max: int) -> Generator[None, None, SessionList]:
    after, protocol, identity = _number(exchange.query("after")), exchange.query("protocol"), exchange.query("identity")
    wanted: list[tuple[int, AnySession]] = []
    for place, session in enumerate(_all(exchange)):
        number = _number(session.id)
        if (
            number > after
            and (not protocol or session.protocol == protocol)
            and (not identity or session.identity == identity)
        ):
            wanted.append((number, session))
        if place % HTTP_ROWS_AT_ONCE == 0:
            yield
    rows = []
    for place, (_, session) in enumerate(heapq.nsmallest(rows_max, wanted, key=itemgetter(0))):
        rows.append(_row(exchange.gateway, session))
        if place % HTTP_ROWS_AT_ONCE == 0:
            yield
    return SessionList(rows, rows[-1].id if len(wanted) > rows_max else None)


async def end_session(exchange: RequestContext, _: None) -> None:
    wanted = exchange.path("id")
    session = next((session for session in _all(exchange) if session.id == wanted), None)
    if session is None:
        raise ApiError(404, f"no session {wanted[:64]!r}")
    session.close(Closing("ended", "ended by the administrator"))


def end_all_of(exchange: RequestContext, identity: str, closing: Closing) -> None:
    """End the sessions of an identity that is no more. A device's session has a serial for its identity, and stays."""
    for session in _of_identities(exchange):
        if session.identity == identity:
            session.close(closing)


def _all(exchange: RequestContext) -> Iterator[AnySession]:
    yield from _of_identities(exchange)
    yield from list(exchange.gateway.devices.peers.values())


def _of_identities(exchange: RequestContext) -> list[Connection | Subscriber]:
    return [*exchange.gateway.connections.values(), *exchange.api.subscribers.values()]


def _row(gateway: "Gateway", session: AnySession) -> SessionRow:
    return SessionRow(
        id=session.id,
        protocol=session.protocol,
        identity=session.identity,
        address=session.address,
        state="streaming" if isinstance(session, Subscriber) else session.session.state.name.lower(),
        opened_at_ms=session.opened_at_ms,
        frames_in=session.frames_in,
        frames_out=session.frames_out,
        bytes_in=session.bytes_in,
        bytes_out=session.bytes_out,
        pending_bytes=session.pending_bytes,
        slow=session.is_congested,
        lag=sum(gateway.broker.durable.lag(session).values()),
    )


def _number(session_id: str) -> int:
    """Sessions are numbered in the order in which they came; the number is the id's last part, in hex."""
    return int(session_id.rpartition("-")[2] or "0", 16)


ROUTES = (
    Route(
        method="GET",
        path="/api/sessions",
        summary="List the sessions, oldest first.",
        handle=list_sessions,
        access=Access.ADMIN,
        gives=SessionList,
        parameters=(
            Parameter("protocol", "Sessions of this protocol."),
            Parameter("identity", "Sessions of this identity."),
            Parameter(
                "after",
                "Return sessions after this id.",
                pattern="(?:[0-9a-f]{1,12}-[0-9a-f]{1,12})?",
                rule="a session's id",
            ),
            LIMIT,
        ),
        example_answer={
            "sessions": [
                {
                    "id": "a1b2c3-4",
                    "protocol": examples.NAME,
                    "identity": "phone-1",
                    "address": "127.0.0.1:50000",
                    "state": "ready",
                    "opened_at_ms": 1_700_000_000_000,
                    "frames_in": 3,
                    "frames_out": 9,
                    "bytes_in": 60,
                    "bytes_out": 800,
                    "pending_bytes": 0,
                    "slow": False,
                    "lag": 0,
                }
            ],
            "next": None,
        },
    ),
    Route(
        method="DELETE",
        path="/api/sessions/{id}",
        summary="Disconnect a session. Its peer is notified and may reconnect.",
        handle=end_session,
        access=Access.ADMIN,
        status=204,
        recorded=True,
        parameters=(Parameter("id", "Id of the session."),),
    ),
)
