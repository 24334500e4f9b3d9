"""List the sessions of all protocols, and disconnect one."""

import heapq
from collections.abc import Generator, Iterator, Mapping
from operator import itemgetter
from typing import Final

from msgspec import Struct

from wirelake.broker.broker import Broker
from wirelake.gateway.devices.driver import DeviceDriver
from wirelake.gateway.devices.sessions import DeviceSessions
from wirelake.gateway.http.auth import admin_only
from wirelake.gateway.http.bodies import EXAMPLE_NAME
from wirelake.gateway.http.errors import ApiError
from wirelake.gateway.http.request_context import RequestContext
from wirelake.gateway.http.route import LIMIT, BoundRoute, Parameter, Route
from wirelake.gateway.http.subscriber import EventStreams, Subscriber
from wirelake.gateway.jobs import SlicedJobRunner
from wirelake.gateway.transport.connection import Connection
from wirelake.limits import HTTP_ROWS_AT_ONCE
from wirelake.protocols.session import Closing

AnySession = Connection | DeviceDriver | Subscriber


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
    pending_bytes: int  # written, but not read by the peer yet
    slow: bool  # more than the limit is pending: it is sent nothing for now
    lag: int  # notifications of its durable topics that it has not been sent


class SessionList(Struct):
    sessions: list[SessionRow]
    next: str | None = None


class OpenSessions:
    """All open sessions: connections, devices, and streams of HTTP."""

    def __init__(self, connections: Mapping[str, Connection], devices: DeviceSessions, streams: EventStreams) -> None:
        self._connections = connections
        self._devices = devices
        self._streams = streams

    def __iter__(self) -> Iterator[AnySession]:
        yield from self._of_identities()
        yield from list(self._devices.peers.values())

    def close_all_of(self, identity: str, closing: Closing, token_id: str = "") -> None:
        """Close the sessions of an identity, or only those that logged in with this token.

        A device's session, which has its serial for an identity, stays open.
        """
        for session in self._of_identities():
            if session.identity == identity and (not token_id or session.token_id == token_id):
                session.close(closing)

    def _of_identities(self) -> list[Connection | Subscriber]:
        return [*self._connections.values(), *self._streams]


class SessionRoutes:
    def __init__(self, sessions: OpenSessions, broker: Broker, jobs: SlicedJobRunner) -> None:
        self._sessions = sessions
        self._broker = broker
        self._jobs = jobs

    def routes(self) -> tuple[BoundRoute, ...]:
        return (LIST.bind(self.list_sessions), CLOSE.bind(self.close))

    async def list_sessions(self, context: RequestContext, _: None) -> SessionList:
        return await self._jobs.result(context.share, self._list(context, context.rows_max))

    def _list(self, context: RequestContext, rows_max: int) -> Generator[None, None, SessionList]:
        after, protocol, identity = (
            _number(context.query("after")),
            context.query("protocol"),
            context.query("identity"),
        )
        wanted: list[tuple[int, AnySession]] = []
        for place, session in enumerate(self._sessions):
            number = _number(session.id)
            if (
                number > after
                and (_is_own(context, session) or context.rights.sees(f"sessions/{session.id}"))
                and (not protocol or session.protocol == protocol)
                and (not identity or session.identity == identity)
            ):
                wanted.append((number, session))
            if place % HTTP_ROWS_AT_ONCE == 0:
                yield
        rows = []
        for place, (_, session) in enumerate(heapq.nsmallest(rows_max, wanted, key=itemgetter(0))):
            rows.append(self._row(session))
            if place % HTTP_ROWS_AT_ONCE == 0:
                yield
        return SessionList(rows, rows[-1].id if len(wanted) > rows_max else None)

    def _row(self, session: AnySession) -> SessionRow:
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
            lag=sum(self._broker.durable.lag(session).values()),
        )

    async def close(self, context: RequestContext, _: None) -> None:
        wanted = context.path("id")
        session = next((session for session in self._sessions if session.id == wanted), None)
        if session is not None:
            context.audited |= {"identity": session.identity, "protocol": session.protocol, "address": session.address}
        if not context.rights.is_admin and (session is None or not _is_own(context, session)):
            raise admin_only()
        if session is None:
            raise ApiError(404, f"no session {wanted[:64]!r}")
        by = "the administrator" if context.rights.is_admin else "its identity"
        session.close(Closing("ended", f"ended by {by}"))


def _is_own(context: RequestContext, session: AnySession) -> bool:
    """Return whether a session is of the request's sender. A device's has its serial for an identity."""
    is_same = (session.identity, session.is_admin) == (context.identity, context.is_admin)
    return is_same and not isinstance(session, DeviceDriver)


def _number(session_id: str) -> int:
    """Return the number of a session, the last part of its id in hex. Numbers increase in the order of opening."""
    return int(session_id.rpartition("-")[2] or "0", 16)


LIST: Final = Route(
    method="GET",
    path="/api/sessions",
    operation_id="sessions.list_sessions",
    summary="List the sessions, oldest first: one's own, and those that one may see.",
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
                "protocol": EXAMPLE_NAME,
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
)

CLOSE: Final = Route(
    method="DELETE",
    path="/api/sessions/{id}",
    operation_id="sessions.end_session",
    summary="Disconnect a session: one's own; any for the admin. Its peer is notified and may reconnect.",
    status=204,
    is_recorded=True,
    audit="session.end",
    audit_target="id",
    parameters=(Parameter("id", "Id of the session."),),
)

ROUTES: Final = (LIST, CLOSE)
