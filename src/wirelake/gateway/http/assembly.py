"""Build the HTTP listener from the components of a gateway."""

import socket
import ssl
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final

from msgspec import Struct

from wirelake.address import Address
from wirelake.broker.broker import Broker
from wirelake.clock import SteadyClock
from wirelake.config import Settings
from wirelake.gateway.auth.admission import Admission
from wirelake.gateway.auth.audit import AuditLog
from wirelake.gateway.auth.logins import Logins
from wirelake.gateway.auth.role_enforcement import RoleEnforcement
from wirelake.gateway.devices.sessions import DeviceSessions
from wirelake.gateway.http import openapi
from wirelake.gateway.http.app import PathEndpoint, RequestLog, build_app
from wirelake.gateway.http.auth import Authenticator, CookieSessions, is_loopback
from wirelake.gateway.http.connection import ServerConfig
from wirelake.gateway.http.limiter import RequestLimiter
from wirelake.gateway.http.listener import HttpListener, NewAcceptor, bind_socket, socket_address
from wirelake.gateway.http.peer import BrokerClient
from wirelake.gateway.http.route import BoundRoute, Route
from wirelake.gateway.http.routes import (
    audit,
    decode,
    devices,
    health,
    identities,
    lake,
    log,
    messages,
    metrics,
    roles,
    services,
    sessions,
    static,
    subscriptions,
    tokens,
    topics,
)
from wirelake.gateway.http.routes.health import GatewayStatus
from wirelake.gateway.http.routes.lake import LakeQueries
from wirelake.gateway.http.routes.messages import Tracer
from wirelake.gateway.http.routes.sessions import OpenSessions
from wirelake.gateway.http.subscriber import EventStreams
from wirelake.gateway.http.traffic import HttpStats, TrafficMeter
from wirelake.gateway.jobs import SlicedJobRunner
from wirelake.gateway.metrics import Counters, Histogram
from wirelake.gateway.recorder import Recorder
from wirelake.gateway.transport.connection import Connection
from wirelake.gateway.transport.stalls import StallMonitor
from wirelake.gateway.upstream.upstreams import Upstreams
from wirelake.lake.store import Store
from wirelake.log.segments.log import SegmentLog
from wirelake.state.store import StateStore

ROUTES: Final[tuple[Route, ...]] = (
    *health.ROUTES,
    *metrics.METRICS_ROUTES,
    *openapi.ROUTES,
    *topics.ROUTES,
    *subscriptions.ROUTES,
    *sessions.ROUTES,
    *identities.ROUTES,
    *tokens.ROUTES,
    *roles.ROUTES,
    *devices.ROUTES,
    *services.ROUTES,
    *decode.ROUTES,
    *messages.ROUTES,
    *metrics.LEDGER_ROUTES,
    *lake.ROUTES,
    *log.ROUTES,
    *audit.ROUTES,
    *static.ROUTES,
)


class HttpRuntime(Struct, frozen=True):
    """What most of HTTP needs. `settings` returns the settings in force, which a reload replaces."""

    settings: Callable[[], Settings]
    clock: SteadyClock
    now_s: Callable[[], float]  # of the event loop
    new_id: Callable[[], str]  # of a session
    counters: Counters


class HttpStorage(Struct, frozen=True):
    """What the gateway stores, and where."""

    folder: Path
    lake: Store
    state: StateStore
    log: SegmentLog
    recorder: Recorder
    commit_s: Histogram  # how long it takes until a record is on disk


class HttpSessions(Struct, frozen=True):
    """The sessions of all protocols, and the broker that connects them."""

    connections: Mapping[str, Connection]
    devices: DeviceSessions
    upstreams: Upstreams
    broker: Broker
    flush_soon: Callable[[], None]
    jobs: SlicedJobRunner


class HttpAccess(Struct, frozen=True):
    """What admits connections, authenticates requests, and records who did what."""

    admission: Admission
    audit: AuditLog
    stalls: StallMonitor
    logins: Logins
    admin_token: str
    roles: RoleEnforcement
    new_acceptor: NewAcceptor


class HttpServices(Struct, frozen=True):
    """What the requests of one listener share."""

    authenticator: Authenticator
    limiter: RequestLimiter
    streams: EventStreams
    lake: LakeQueries
    tracer: Tracer
    stats: HttpStats


NewPages = Callable[[HttpRuntime, HttpStorage, HttpSessions, GatewayStatus, HttpServices], Sequence[BoundRoute]]


async def open_http(
    address: Address,
    tls: ssl.SSLContext | None,
    runtime: HttpRuntime,
    storage: HttpStorage,
    sessions: HttpSessions,
    access: HttpAccess,
    status: GatewayStatus,
    new_pages: NewPages | None,
) -> HttpListener:
    """Listen on `address`, and serve the API and the pages that `new_pages` returns."""
    listening = bind_socket(address)
    try:
        listener = _new_listener(
            listening, runtime, storage, sessions, access, status, new_pages, is_secure=tls is not None
        )
        await listener.open(tls)
    except BaseException:
        listening.close()
        raise
    return listener


def _new_listener(
    listening: socket.socket,
    runtime: HttpRuntime,
    storage: HttpStorage,
    sessions: HttpSessions,
    access: HttpAccess,
    status: GatewayStatus,
    new_pages: NewPages | None,
    *,
    is_secure: bool,
) -> HttpListener:
    settings, counters, now_s = runtime.settings, runtime.counters, runtime.now_s

    def pending_bytes_max() -> int:
        return settings().limits.pending_bytes

    limiter, stats = RequestLimiter(), HttpStats()
    client = BrokerClient(sessions.broker, sessions.flush_soon, now_s, runtime.clock.now_ms, status.is_stopping)
    authenticator = Authenticator(
        settings,
        access.logins,
        access.admin_token,
        CookieSessions(now_s, is_secure=is_secure),
        access.audit,
        sessions.broker.access,
        is_local=is_loopback(socket_address(listening).host),
    )
    http = HttpServices(
        authenticator=authenticator,
        limiter=limiter,
        streams=EventStreams(client, storage.recorder, counters, pending_bytes_max),
        lake=LakeQueries(storage.lake, sessions.broker.access, access.audit, now_s),
        tracer=Tracer(storage.folder, storage.lake, storage.state.topics, sessions.broker.access),
        stats=stats,
    )
    routes = [
        *_api_routes(runtime, storage, sessions, access, status, http, client),
        *(() if new_pages is None else new_pages(runtime, storage, sessions, status, http)),
    ]
    request_log = RequestLog(storage.recorder, access.audit, counters, storage.commit_s, status.is_log_behind, now_s)
    new_endpoint = partial(
        PathEndpoint,
        authenticator=authenticator,
        limiter=limiter,
        request_log=request_log,
        stats=stats,
        new_id=runtime.new_id,
    )
    config = ServerConfig(
        build_app(routes, new_endpoint),
        admission=access.admission,
        counters=counters,
        stalls=access.stalls,
        limiter=limiter,
        is_known=authenticator.is_known,
        pending_bytes_max=pending_bytes_max,
    )
    return HttpListener(listening, config, access.new_acceptor, client, http.streams, http.lake, stats)


def _api_routes(
    runtime: HttpRuntime,
    storage: HttpStorage,
    gateway_sessions: HttpSessions,
    access: HttpAccess,
    status: GatewayStatus,
    http: HttpServices,
    client: BrokerClient,
) -> list[BoundRoute]:
    now_s, now_ms, counters = runtime.now_s, runtime.clock.now_ms, runtime.counters
    folder, state, event_log = storage.folder, storage.state, storage.log
    device_sessions, jobs = gateway_sessions.devices, gateway_sessions.jobs
    streams = http.streams
    traffic = TrafficMeter(counters, gateway_sessions.connections, device_sessions, streams)
    open_sessions = OpenSessions(gateway_sessions.connections, device_sessions, streams)
    hasher = tokens.TokenHasher(access.logins.token_key)
    collectors = (
        metrics.ConnectionCollector(counters, access.admission),
        metrics.TrafficCollector(counters, traffic),
        metrics.BrokerCollector(client.broker, state.topics, gateway_sessions.upstreams),
        metrics.StorageCollector(event_log, state, storage.recorder, storage.commit_s),
        metrics.HttpCollector(http.limiter, streams, http.stats, runtime.clock, status.started_ms),
        metrics.PipelineCollector(folder, event_log),
    )
    resources = (
        health.HealthRoutes(status, state),
        metrics.MetricsRoutes(collectors),
        openapi.OpenApiRoutes(ROUTES),
        topics.TopicRoutes(client, state.topics, jobs),
        subscriptions.SubscriptionRoutes(client, streams, state.topics),
        sessions.SessionRoutes(open_sessions, client.broker, jobs),
        identities.IdentityRoutes(
            state, hasher, access.roles, open_sessions, http.authenticator.cookie_sessions, now_ms
        ),
        tokens.TokenRoutes(state.identities, hasher, open_sessions, now_ms),
        roles.RoleRoutes(access.roles, client.broker.access, state.identities, access.logins),
        devices.DeviceRoutes(client, state.devices, device_sessions, jobs, now_s, now_ms),
        services.ServiceRoutes(client),
        decode.DecodeRoutes(),
        messages.MessageRoutes(http.tracer),
        metrics.LedgerRoutes(traffic, client.broker, event_log, status.started_ms, now_ms),
        lake.LakeRoutes(storage.lake, http.lake),
        log.LogRoutes(folder / "log"),
        audit.AuditRoutes(folder / "log"),
        static.StaticRoutes(),
    )
    return [bound for resource in resources for bound in resource.routes()]
