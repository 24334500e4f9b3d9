"""Build the parts of `wirelake serve` and connect them: the log, the state, the broker, the sessions, the listeners."""

import asyncio
import contextlib
import time
from functools import partial
from pathlib import Path

from wirelake.address import Address
from wirelake.broker.access import AccessPolicy
from wirelake.broker.broker import Broker
from wirelake.broker.peer import Peer
from wirelake.clock import SteadyClock
from wirelake.config import Settings
from wirelake.gateway.auth.admission import Admission
from wirelake.gateway.auth.audit import AuditLog
from wirelake.gateway.auth.keys import KeyFiles
from wirelake.gateway.auth.login_flow import LoginFlow
from wirelake.gateway.auth.logins import Logins
from wirelake.gateway.auth.resumption import SessionResumption
from wirelake.gateway.auth.role_enforcement import RoleEnforcement
from wirelake.gateway.builtin_services import BuiltinServices
from wirelake.gateway.devices.broadcast import Broadcasts
from wirelake.gateway.devices.commands import DeviceCommands
from wirelake.gateway.devices.sessions import DeviceSessions
from wirelake.gateway.dispatch import HopReporter, MessageDispatcher
from wirelake.gateway.fetch.fetcher import Fetcher
from wirelake.gateway.http.assembly import HttpAccess, HttpRuntime, HttpSessions, HttpStorage, NewPages, open_http
from wirelake.gateway.http.listener import HttpListener
from wirelake.gateway.http.routes.health import GatewayStatus
from wirelake.gateway.jobs import SlicedJobRunner
from wirelake.gateway.lifecycle import PeriodicWork, attach_log_to_state, close_sessions
from wirelake.gateway.metrics import Counters
from wirelake.gateway.recorder import Recorder
from wirelake.gateway.reload import Reloaded, Reloader
from wirelake.gateway.scheduling import BackgroundTasks, BrokerScheduler, Timers
from wirelake.gateway.sessions import SessionIds, SessionRegistry
from wirelake.gateway.stores import Stores, log_settings, open_stores
from wirelake.gateway.transport.acceptor import Acceptor
from wirelake.gateway.transport.commit_barrier import CommitBarrier
from wirelake.gateway.transport.connection import Connection
from wirelake.gateway.transport.context import SessionFactory, TransportContext
from wirelake.gateway.transport.fair_queue import FairQueue
from wirelake.gateway.transport.listeners import AnyListener, new_listener
from wirelake.gateway.transport.origins import OriginPolicy
from wirelake.gateway.transport.read_limiter import ReadScheduler
from wirelake.gateway.transport.stalls import StallMonitor
from wirelake.gateway.transport.tls import tls_context
from wirelake.gateway.upstream.upstreams import UpstreamContext, Upstreams
from wirelake.key_source import state_key
from wirelake.lake.row_filters import check_row_patterns
from wirelake.lake.store import open_lake
from wirelake.limits import GATEWAY_LOG_BEHIND, LOG_BUFFERED_BYTES_MAX
from wirelake.protocols import registry
from wirelake.roles import Action
from wirelake.state.store import Sweeper


class Gateway:
    """Own the parts of a gateway, from `open` to `close`. They run in one event loop, and none of them blocks it.

    No part takes this object: each is built from the parts that it uses.
    """

    def __init__(
        self,
        settings: Settings,
        new_pages: NewPages | None = None,
        *,
        accept_loss: bool = False,
        clock: SteadyClock | None = None,
    ) -> None:
        """Serve the pages of `new_pages` besides the API. With `accept_loss`, open an incomplete data folder."""
        self.settings = settings
        self._new_pages = new_pages
        self.folder = Path(settings.data)
        self.clock = clock or SteadyClock()
        self.now_ms = self.clock.now_ms  # decides what has expired
        self.started_ms = self.now_ms()
        self.counters = Counters()
        self.connections: dict[str, Connection] = {}  # by id
        self.listeners: dict[str, AnyListener | HttpListener] = {}  # by key under [listen]
        self.stopping = False
        self._accept_loss = accept_loss
        self._cleanup = contextlib.AsyncExitStack()  # closes what was opened, the last first

    async def open(self) -> None:
        """Open the data folder and the listeners. If something fails, close what is open already."""
        self.log_settings = log_settings(self.settings.log)
        self.keys = KeyFiles(self.folder / "keys")
        stores = open_stores(
            self.folder,
            self.log_settings,
            key=state_key(self.settings.state.key, self.folder),
            accept_loss=self._accept_loss,
            now_us=self.clock.now_us,
        )
        self.clock.compare(self.folder, self.settings.broker.expire_s)
        self.log, self.state = stores.log, stores.state
        self._cleanup.push_async_callback(asyncio.to_thread, self.log.close)
        self._cleanup.push_async_callback(asyncio.to_thread, self.state.close)
        try:
            self._build_base(stores)
            self._build_auth()
            self._build_broker()
            self._build_sessions()
            self._build_services()
            self._start_tasks()
            await self._open_listeners()
            self.upstreams.apply(self.settings)
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """Close all sessions, write what waits, and stop. Take at most `GATEWAY_STOP_S`, whatever the peers do."""
        self.stopping = True
        await close_sessions(self.listeners.values(), self.connections)
        http_listener = self.listeners.get("http")
        if isinstance(http_listener, HttpListener):
            await http_listener.finish()
        await self._cleanup.aclose()

    def reload(self, new: Settings) -> Reloaded:
        """Apply new settings, and return what changed. Raise InputError if they cannot be used."""
        self.settings, reloaded = self._reloader.reload(self.settings, new)
        self.audit.reload(reloaded.applied, reloaded.kept)
        return reloaded

    @property
    def ready(self) -> str:
        """Return why this gateway cannot take work, or "" if it can."""
        if self.stopping:
            return "shutting down"
        return self.log.refusal

    # Building, from the parts that need no others to those that need all

    def _build_base(self, stores: Stores) -> None:
        """Build the recorder, and what runs work on the event loop."""
        loop, limits = asyncio.get_running_loop(), self.settings.limits
        self.now_s = loop.time
        self.later = loop.call_later
        self.recorder = Recorder(self.log, lambda: time.time_ns() // 1000)
        self.sweeper = Sweeper(self.state, self.settings.broker.expire_s)
        self.periodic_work = PeriodicWork(
            self.sweeper, self.recorder, self.log, self.state, self.clock, self.folder, self._is_log_behind
        )
        self._cleanup.push_async_callback(self.periodic_work.finish)
        attach_log_to_state(stores, self.recorder)
        self.timers = Timers(loop)
        self._cleanup.callback(self.timers.close)
        self._tasks = BackgroundTasks(loop)
        self._cleanup.push_async_callback(self._tasks.close)
        self.spawn = self._tasks.spawn
        self.commit_barrier = CommitBarrier()
        self.queue = FairQueue(loop.call_soon)
        self.stalls = StallMonitor(self.later, self.now_s, limits.stall_s, limits.unread_bytes)
        self.jobs = SlicedJobRunner(self.connections, self.queue, self.later, self._is_log_behind)

    def _build_auth(self) -> None:
        settings, identities, devices = self.settings, self.state.identities, self.state.devices
        self.tls = tls_context(settings)
        self.keys.admin_token()
        self.admission = Admission(settings.limits, self.now_s)
        self.audit = AuditLog(self.recorder, self.counters, self.admission, self.now_s)
        self.logins = Logins(
            identities,
            self.keys.token_key(identities),
            self.now_s,
            self.now_ms,
            open_to_all=settings.auth.open,
            is_device=lambda serial: devices.find(serial) is not None,
            failed_max=settings.limits.failed_logins,
        )

    def _build_broker(self) -> None:
        settings = self.settings.broker
        check_row_patterns(self.settings.roles)
        access = AccessPolicy(
            self._roles_of,
            self.settings.roles,
            self.audit.denied,
        )
        self.fetcher = Fetcher(self.settings.fetch, self.spawn, self._is_stopping, access)
        self.broker = Broker(
            self.state,
            self.recorder.topic,
            conflate=settings.slow == "conflate",
            devices_topic=settings.devices_topic,
            resend_s=settings.resend_s,
            implicit_ack_s=settings.implicit_ack_s,
            call_s=settings.call_s,
            record_published=self.recorder.published,
            jobs=self.jobs,
            fetch=self.fetcher,
            on_hop=HopReporter(self.log_settings.node, self.now_ms),
            on_release=lambda: self.flush_soon(),
            on_command=self.audit.command,
            access=access,
        )
        self._scheduler = BrokerScheduler(self.broker, self.timers, asyncio.get_running_loop().call_soon, self.now_s)
        self.flush_soon = self._scheduler.flush_soon
        self.broker.add_observer(self.jobs)
        self.roles = RoleEnforcement(self.broker, self.state.identities, self._open_peers, self._subscribed)

    def _build_sessions(self) -> None:
        ids = SessionIds()
        resumption = SessionResumption(
            self.state.sessions,
            self.logins,
            self.broker,
            self.audit,
            self.counters,
            self.connections,
            self.flush_soon,
            self.now_ms,
            self._is_stopping,
            self._settings_in_force,
        )
        self._login_flow = LoginFlow(
            self.settings,
            self.logins,
            resumption,
            self.broker,
            self.audit,
            self.counters,
            self.connections,
            self.flush_soon,
            self.spawn,
            self.now_s,
        )
        self.sessions = SessionRegistry(
            self.connections,
            ids,
            self.recorder,
            self.counters,
            self.broker,
            self._login_flow,
            resumption,
            self.flush_soon,
        )
        dispatcher = MessageDispatcher(
            self.broker, self._login_flow, resumption, self.flush_soon, self.now_s, self.now_ms
        )
        self.transport = TransportContext(
            now_s=self.now_s,
            now_ms=self.now_ms,
            later=self.later,
            settings=self._settings_in_force,
            tls=self.tls,
            recorder=self.recorder,
            counters=self.counters,
            timers=self.timers,
            commit_barrier=self.commit_barrier,
            reads=ReadScheduler(
                self.queue,
                self.stalls,
                self.later,
                lambda: self.settings.limits,
                self._is_log_behind,
            ),
            admission=self.admission,
            origins=OriginPolicy(self._http_port, lambda: self.settings.auth.open, has_tls=self.tls is not None),
            factory=SessionFactory(
                self._settings_in_force,
                self.keys,
                ids.numbers,
                self.log_settings.node,
                has_tls=self.tls is not None,
            ),
            broker=self.broker,
            sessions=self.sessions,
            dispatcher=dispatcher,
        )
        self.devices = DeviceSessions(self.transport, self.state)

    def _build_services(self) -> None:
        self.builtin_services = BuiltinServices(
            self.settings,
            self.broker,
            self.state,
            DeviceCommands(self.broker, Broadcasts(self.broker, self.state.devices, self.jobs, self.now_s)),
            self.jobs,
            self.queue,
            self.connections,
            self.flush_soon,
            self._is_log_behind,
            self.audit,
            self.now_s,
            self.now_ms,
            self.later,
        )
        self.upstreams = Upstreams(UpstreamContext(self.transport, self.spawn, self._is_stopping))
        self.broker.add_observer(self.upstreams)
        self._reloader = Reloader(
            tls=self.tls,
            log=self.log,
            sweeper=self.sweeper,
            admission=self.admission,
            stalls=self.stalls,
            logins=self.logins,
            login_flow=self._login_flow,
            broker=self.broker,
            builtin_services=self.builtin_services,
            upstreams=self.upstreams,
            fetcher=self.fetcher,
            roles=self.roles,
        )

    def _start_tasks(self) -> None:
        self.spawn(self.devices.memory.run())
        self.spawn(self.periodic_work.sweep())
        self.recorder.counters()
        self.spawn(self.periodic_work.record_counters())

    async def _open_listeners(self) -> None:
        for protocol in registry.all_protocols():
            for setting, carriers in protocol.listeners.items():
                address = self.settings.address(setting)
                if address is not None:
                    listener = new_listener(self.transport, self.devices, protocol, setting, address, carriers)
                    await listener.open(self.tls)
                    self.listeners[setting] = listener
        address = self.settings.address("http")
        if address is not None:
            self.listeners["http"] = await self._open_http(address)

    async def _open_http(self, address: Address) -> HttpListener:
        section = self.settings.lake
        lake = open_lake(self.folder, section.url, section.options)
        return await open_http(
            address,
            self.tls,
            HttpRuntime(self._settings_in_force, self.clock, self.now_s, self.sessions.new_id, self.counters),
            HttpStorage(self.folder, lake, self.state, self.log, self.recorder, self.commit_barrier.commit_s),
            HttpSessions(self.connections, self.devices, self.upstreams, self.broker, self.flush_soon, self.jobs),
            HttpAccess(
                self.admission,
                self.audit,
                self.stalls,
                self.logins,
                self.keys.admin_token(),
                self.roles,
                partial(Acceptor, "http", self.admission, self.counters, self._settings_in_force),
            ),
            GatewayStatus(self.started_ms, self._is_stopping, lambda: self.ready, self._is_log_behind, self.listeners),
            self._new_pages,
        )

    def _roles_of(self, identity: str) -> tuple[str, ...]:
        """Return the roles of an identity. Where everybody is admitted, a name proves nothing: all are members."""
        return () if self.logins.open_to_all else self.state.identities.roles_of(identity)

    def _open_peers(self) -> list[Peer]:
        """Return the sessions of identities: connections, and streams of HTTP."""
        http = self.listeners.get("http")
        return [*self.connections.values(), *(http.streams if isinstance(http, HttpListener) else ())]

    def _subscribed(self, peer: Peer) -> list[tuple[Action, str]]:
        """Return what a session is subscribed to besides topics: services, here and at upstreams, and data sets."""
        calls = [*self.broker.services.subscriptions.calls_of(peer), *self.upstreams.calls_of(peer)]
        series = self.builtin_services.records.subscriptions.targets_of(peer)
        return [(Action.CALL, call) for call in calls] + [(Action.READ, target) for target in series]

    def _settings_in_force(self) -> Settings:
        return self.settings

    def _http_port(self) -> int | None:
        listener = self.listeners.get("http")
        return None if listener is None else listener.address.port

    def _is_stopping(self) -> bool:
        return self.stopping

    def _is_log_behind(self) -> bool:
        return self.log.buffered_bytes > LOG_BUFFERED_BYTES_MAX * GATEWAY_LOG_BEHIND
