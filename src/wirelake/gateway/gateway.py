"""Build what runs in `wirelake serve`: the log, the state, the broker and the listeners."""

import asyncio
import contextlib
import itertools
import logging
import os
import time
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from itertools import compress
from pathlib import Path
from typing import Final

from wirelake.broker.broker import Broker
from wirelake.broker.peer import Peer
from wirelake.broker.services import failed
from wirelake.cleanup import clean_up
from wirelake.clock import SteadyClock
from wirelake.commit import Commit
from wirelake.config import Settings
from wirelake.errors import ProtocolError, StorageError
from wirelake.gateway.auth.admission import Admission, host_of
from wirelake.gateway.auth.keys import KeyFiles
from wirelake.gateway.auth.logins import Logins
from wirelake.gateway.auth.resumption import SessionResumption
from wirelake.gateway.builtin_services import BuiltinServices
from wirelake.gateway.counters import Counters
from wirelake.gateway.devices.peer import DevicePeer
from wirelake.gateway.devices.sessions import DeviceSessions
from wirelake.gateway.fetch.fetcher import Fetcher
from wirelake.gateway.http.listener import HttpListener
from wirelake.gateway.http.route import Route
from wirelake.gateway.jobs import Jobs
from wirelake.gateway.recorder import Recorded, Recorder
from wirelake.gateway.stores import Stores, open_stores
from wirelake.gateway.timers import Timers
from wirelake.gateway.transport.commit_barrier import CommitBarrier
from wirelake.gateway.transport.connection import Connection
from wirelake.gateway.transport.fair_queue import FairQueue
from wirelake.gateway.transport.listeners import AnyListener, new_listener
from wirelake.gateway.transport.stalls import Stalls
from wirelake.gateway.transport.tls import tls_context
from wirelake.gateway.upstream.upstreams import Upstreams
from wirelake.limits import (
    GATEWAY_COUNTERS_EVERY_S,
    GATEWAY_LOG_BEHIND,
    GATEWAY_LOGIN_DELAY_MAX_S,
    GATEWAY_STOP_S,
    LOG_BUFFERED_BYTES_MAX,
    LOG_LINGER_S,
    MIB,
)
from wirelake.log.segments.settings import LogSettings
from wirelake.message import TRACE, FailureCode, Kind, Message, Op, Topic, control_op
from wirelake.protocols import registry
from wirelake.protocols.protocol import Refusal, SecondSession
from wirelake.protocols.publish_batch import PublishBatch
from wirelake.protocols.session import LOGIN, Closing
from wirelake.state.store import Sweeper
from wirelake.state.subscriptions import SweepResult

_log = logging.getLogger(__name__)

# One answer to an unknown name and a wrong token: peers must not find out which names there are.
REFUSALS: Final = {
    "unknown": (Refusal.INVALID, "invalid token"),
    "wrong_token": (Refusal.INVALID, "invalid token"),
    "key_lost": (Refusal.INVALID, "invalid token"),
    "unknown_device": (Refusal.INVALID, "unknown device"),
    "busy": (Refusal.BUSY, "too many logins at once; try again"),
    "connected": (Refusal.CONNECTED, "this client is connected already"),
}
QUIET_CLOSINGS: Final = frozenset({"peer_closed", "lost", "logout", "fin_normal", "shutdown", "idle"})  # everyday


class Gateway:
    """Made, then `open`ed inside the event loop, then `close`d. One thread; nothing here blocks."""

    def __init__(self, settings: Settings, pages: Sequence[Route] = (), *, accept_loss: bool = False) -> None:
        """Serve `pages` besides the HTTP API. With `accept_loss`, open a data folder that is incomplete."""
        self.settings = settings
        self._accept_loss = accept_loss
        self.pages = pages
        self.folder = Path(settings.data)
        self.counters = Counters()
        self.connections: dict[str, Connection] = {}
        self.listeners: dict[str, AnyListener | HttpListener] = {}
        self.clock = SteadyClock()
        self.started_ms = self.now_ms()
        self._prefix = os.urandom(3).hex()  # of this run: session ids are never used twice
        self.numbers = itertools.count(1)
        self._flushing = False
        self._broker_due_s = float("inf")
        self._single: dict[tuple[str, str], Connection] = {}  # of protocols with one session for an identity
        self._tasks: set[asyncio.Task[None]] = set()
        self._login_checks: dict[str, set[asyncio.Task[None]]] = {}  # under way, by session
        self._cleanup = contextlib.AsyncExitStack()  # closes what was opened, the last first
        self.stopping = False

    async def open(self) -> None:
        self._loop = loop = asyncio.get_running_loop()
        self.now_s = loop.time
        self.keys = KeyFiles(self.folder / "keys")
        chosen = self.settings.log
        self.log_settings = LogSettings(
            fsync=chosen.fsync,
            segment_bytes=chosen.segment_mb * MIB,
            keep_days=float(chosen.keep_days),
            keep_bytes=chosen.keep_bytes or None,
            disk_bytes_max=chosen.disk_bytes_max or None,
            linger_s=LOG_LINGER_S,
        )
        stores = open_stores(self.folder, self.log_settings, accept_loss=self._accept_loss, now_us=self.clock.now_us)
        self.clock.compare(self.folder, self.settings.broker.expire_s)
        self.log, self.state = stores.log, stores.state
        self._cleanup.push_async_callback(asyncio.to_thread, self.log.close)
        self._cleanup.push_async_callback(self._close_state)
        try:
            self.recorder = Recorder(self.log, lambda: time.time_ns() // 1000)
            self._follow(stores)
            await self._open_rest()
        except BaseException:
            await self.close()
            raise

    async def _open_rest(self) -> None:
        settings = self.settings
        self.commit_barrier = CommitBarrier()
        self.queue = FairQueue(self._loop.call_soon)
        limits = settings.limits
        self.stalls = Stalls(self.later, self.now_s, limits.stall_s, limits.unread_bytes)
        self.timers = Timers(self._loop)
        self._cleanup.callback(self.timers.close)
        self.admission = Admission(settings.limits, self.now_s)
        identities = self.state.identities
        token_key = self.keys.token_key(identities)
        self.logins = Logins(
            identities,
            token_key,
            self.now_s,
            open_to_all=settings.auth.open,
            is_device=lambda serial: self.state.devices.find(serial) is not None,
        )
        self.logins.failures.failed_max = settings.limits.failed_logins
        self.broker = Broker(
            self.state,
            self.recorder.topic,
            conflate=settings.broker.slow == "conflate",
            devices_topic=settings.broker.devices_topic,
            resend_s=settings.broker.resend_s,
            implicit_ack_s=settings.broker.implicit_ack_s,
            call_s=settings.broker.call_s,
            record_published=self.recorder.published,
        )
        self.broker.durable.wake = self.flush_soon
        self.jobs = Jobs(self)
        self.broker.observers.append(self.jobs)
        self.broker.jobs = self.jobs
        self.builtin_services = BuiltinServices(self)
        self.broker.services.hop = self._tell_hop
        self.resumption = SessionResumption(self)
        self.devices = DeviceSessions(self, registry.device_protocol())
        self.spawn(self.devices.seals.run())
        self.upstreams = Upstreams(self)
        self.fetcher = Fetcher(self)
        self.broker.fetch = self.fetcher
        self.keys.admin_token()
        self.sweep = Sweeper(self.state, settings.broker.expire_s)
        self.spawn(self.sweep.run(self.now_ms, self._swept, lambda: not (self.log.refusal or self.log_behind)))
        self.recorder.counters()
        self.spawn(self._count())
        self.tls = tls = tls_context(settings)
        for protocol in registry.all_protocols():
            for setting, carriers in protocol.listeners.items():
                address = settings.address(setting)
                if address is not None:
                    listener = new_listener(self, protocol, setting, address, carriers)
                    await listener.open(tls)
                    self.listeners[setting] = listener
        address = settings.address("http")
        if address is not None:
            http_listener = HttpListener(self, address)
            await http_listener.open(tls)
            self.listeners["http"] = http_listener
        self.upstreams.apply(settings)

    def _follow(self, stores: Stores) -> None:
        """From here on the state keeps how far the log is, and the log what of the state it could not restore."""
        log, batch = self.log, stores.position.batch
        self.state.writer.attach_log(lambda: (log.next_seq, log.committed_seq), self.recorder.state, stores.position)
        if stores.accepted:
            note = {"batch": batch, "tables": [], "lost": stores.accepted, "epoch": stores.epoch}
            self.recorder.topic("state", "", b"", note)
        if stores.unlogged:
            self.recorder.state(batch, stores.unlogged)

    async def close(self) -> None:
        """Say goodbye to everybody, write what waits, end. Within `GATEWAY_STOP_S`, whatever the peers do."""
        self.stopping = True
        for listener in self.listeners.values():
            listener.close()
        for connection in list(self.connections.values()):
            goodbye = partial(connection.close, Closing("shutdown", "the gateway is shutting down"))
            clean_up(f"session {connection.id}", goodbye)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(GATEWAY_STOP_S / 2):
                while self.connections:
                    await asyncio.sleep(0.01)
        for connection in list(self.connections.values()):
            connection.abort()
        http_listener = self.listeners.get("http")
        if isinstance(http_listener, HttpListener):
            await http_listener.finish()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._cleanup.aclose()

    async def _close_state(self) -> None:
        with contextlib.suppress(StorageError):  # the log says itself that it cannot be written
            if not self.log.refusal:
                await self.recorder.counters()  # its last word: the state then keeps where the log ends
            self.clock.save(self.folder)
        await asyncio.to_thread(self.state.close)

    # Time and small things

    def now_ms(self) -> int:
        """Return the time that things expire by: see `SteadyClock`."""
        return self.clock.now_ms()

    def wall_ms(self) -> int:
        """Return the system's time, for comparing it with what others wrote."""
        return time.time_ns() // 1_000_000

    def new_id(self) -> str:
        return f"{self._prefix}-{next(self.numbers):x}"

    def later(self, delay_s: float, call: Callable[[], object]) -> asyncio.TimerHandle:
        return self._loop.call_later(delay_s, call)

    def share_of(self, peer: Peer) -> str:
        """Whose share of the event loop's time a peer uses."""
        connection = self.connections.get(peer.id)
        return peer.identity if connection is None else connection.share

    def spawn(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    @property
    def log_behind(self) -> bool:
        """Whether so much waits for the disk that nothing more should be read."""
        return self.log.buffered_bytes > LOG_BUFFERED_BYTES_MAX * GATEWAY_LOG_BEHIND

    @property
    def ready(self) -> str:
        """Why this gateway cannot take work, or nothing."""
        if self.stopping:
            return "shutting down"
        return self.log.refusal

    # What connections tell

    def on_open(self, connection: Connection) -> None:
        """Begin a session for a connection that was let in. StorageError if that cannot be recorded: then there is
        none.
        """
        connection.id = self.new_id()
        self.recorder.event(connection, "open", {})
        self.connections[connection.id] = connection
        self.counters.accepted[connection.protocol] += 1
        self.counters.connections[connection.protocol] += 1

    def on_close(self, connection: Connection, closing: Closing) -> None:
        """End a session. Every step runs, whatever the log or the state refuse meanwhile."""
        self.connections.pop(connection.id, None)
        for check in self._login_checks.pop(connection.id, ()):
            check.cancel()
        self.counters.connections[connection.protocol] -= 1
        self.counters.closed[connection.protocol, closing.code] += 1
        self.counters.frames_out[connection.protocol] += connection.frames_out
        self.counters.bytes_in[connection.protocol] += connection.bytes_in
        self.counters.bytes_out[connection.protocol] += connection.bytes_out
        single = (connection.protocol, connection.identity)
        if self._single.get(single) is connection:
            del self._single[single]
        quiet = closing.code in QUIET_CLOSINGS
        about = {"session": connection.id, "protocol": connection.protocol, "reason": closing.code}
        _log.log(logging.DEBUG if quiet else logging.INFO, "session closed", extra=about)
        clean_up(
            f"session {connection.id}",
            partial(self.resumption.closed, connection, closing),
            partial(self.broker.on_close, connection),
            partial(self._record_close, connection, closing),
            self.flush_soon,
        )

    def _record_close(self, of: Connection | DevicePeer, closing: Closing) -> None:
        note = {
            "reason": closing.code,
            "text": closing.text,
            "frames_in": of.frames_in,
            "frames_out": of.frames_out,
            "bytes_in": of.bytes_in,
            "bytes_out": of.bytes_out,
        }
        with contextlib.suppress(StorageError):  # the recorder counts it
            self.recorder.event(of, "close", note)

    def quarantine(self, of: Recorded, data: bytes, error: ProtocolError, *, recorded: bool = False) -> Commit:
        """`recorded`: these bytes are in the log as a frame. A second time would be one too many in every sum."""
        self.counters.errors[of.protocol, error.code] += 1
        self.counters.quarantined[of.protocol] += 1
        note = {"code": error.code, "offset": error.offset, "text": error.text}
        return self.recorder.event(of, "fault" if recorded else "quarantine", note, "in", data)

    def on_message(self, peer: Connection, message: Message) -> None:
        """A session handed this up."""
        op = control_op(message)
        if op is Op.LOGIN and message.credentials is not None:
            self._login(peer, message)
            return
        if message.kind is Kind.CONTROL and self.resumption.handle(peer, message):
            return
        self.broker.handle(peer, message, self.now_s(), self.now_ms())
        self.flush_soon()

    def _tell_hop(self, asker: Peer, correlation: str, hop: str, who: str) -> None:
        fields = {"hop": hop, "at_ms": self.now_ms(), "node": who or self.log_settings.node}
        asker.send(Message(kind=Kind.EVENT, name=TRACE, correlation=correlation, fields=fields))

    def on_publish_batch(self, peer: Connection, correlation: str, bundle: PublishBatch) -> None:
        """The same, of many publishes on one durable topic."""
        self.broker.publish_batch(peer, correlation, bundle, self.now_ms())
        self.flush_soon()

    def on_drain(self, peer: Peer) -> None:
        self.broker.on_drain(peer)
        self.flush_soon()

    def flush_soon(self) -> None:
        """At the end of this turn, write what the broker gathered, and look when it wants to be called."""
        if not self._flushing:
            self._flushing = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._flushing = False
        now_s = self.now_s()
        self.broker.flush(now_s)
        due_s = self.broker.due_s
        if due_s is not None and due_s < self._broker_due_s:
            self._broker_due_s = due_s
            self.timers.add(due_s, self)
        if self.broker.waiting:
            self.flush_soon()

    def tick(self, now_s: float) -> float | None:
        """The broker's deadlines."""
        self.broker.tick(now_s)
        self.flush_soon()
        due_s = self.broker.due_s
        self._broker_due_s = float("inf") if due_s is None else due_s
        return due_s

    # Logins

    def _login(self, peer: Connection, message: Message) -> None:
        credentials = message.credentials
        assert credentials is not None  # noqa: S101 (looked at by the caller)
        verdict = self.logins.known(credentials)
        if verdict is not None:
            self._decide(peer, message, verdict.identity, verdict.reason)
        else:
            checks = self._login_checks.setdefault(peer.id, set())
            checks.add(check := self.spawn(self._check(peer, message)))
            check.add_done_callback(checks.discard)

    async def _check(self, peer: Connection, message: Message) -> None:
        """Cancelled when the connection ends: a check that nobody waits for is not computed."""
        assert message.credentials is not None  # noqa: S101 (looked at by the caller)
        left_s = peer.session.deadlines.get(LOGIN, self.now_s() + GATEWAY_LOGIN_DELAY_MAX_S) - self.now_s()
        try:
            verdict = await self.logins.check(message.credentials, host_of(peer.address), max(left_s, 0.0))
        except StorageError as error:
            peer.storage_failed(error)
            return
        self._decide(peer, message, verdict.identity, verdict.reason)

    def _decide(self, peer: Connection, message: Message, identity: str, reason: str) -> None:
        """Answer a login. If that cannot be recorded, the connection is closed and nothing else has changed."""
        if peer.id not in self.connections:
            return  # went away meanwhile
        second = self._second_session(peer)
        if identity and second == "refuse" and self._is_connected(peer, identity):
            reason = "connected"
        user = message.credentials.user if message.credentials else ""
        before = peer.identity
        try:
            if reason:
                self.recorder.event(peer, "refuse", {"reason": reason, "user": user})
            else:
                peer.identity = identity
                self.recorder.event(peer, "login", {})
        except StorageError as error:
            peer.identity = before
            peer.storage_failed(error)
            return
        if reason:
            self.counters.logins[peer.protocol, reason] += 1
            _log.info("login refused", extra={"session": peer.id, "address": peer.address, "reason": reason})
            refusal, text = REFUSALS[reason]
            codes = registry.get(peer.protocol).refusal_codes
            fault = FailureCode.BUSY if refusal is Refusal.BUSY else 0
            peer.send(failed(message.correlation, text, codes.get(refusal, fault)))
            return
        self.counters.logins[peer.protocol, "accepted"] += 1
        if second != "allow":
            self._replace(peer, identity)
        self.resumption.logged_in(peer)
        peer.send(Message(kind=Kind.RESPONSE, correlation=message.correlation))
        self.broker.on_login(peer)
        self.flush_soon()

    def _second_session(self, peer: Connection) -> SecondSession:
        """Return what happens to a second session of one identity."""
        protocol = registry.get(peer.protocol)
        return protocol.second_session(self.settings.section(protocol))

    def _is_connected(self, peer: Connection, identity: str) -> bool:
        other = self._single.get((peer.protocol, identity))
        return other is not None and other.id in self.connections

    def _replace(self, peer: Connection, identity: str) -> None:
        """Close the older session of an identity that may have one."""
        other = self._single.get((peer.protocol, identity))
        self._single[peer.protocol, identity] = peer
        if other is not None and other.id in self.connections:
            self.broker.on_close(other)
            other.close(Closing("replaced", "this client connected elsewhere"))

    # Devices

    def on_device_open(self, peer: DevicePeer) -> None:
        """Begin a device's session. StorageError if that cannot be recorded: then there is none."""
        self.recorder.event(peer, "open", {})
        self.broker.devices[peer.identity] = peer
        self.counters.connections[peer.protocol] += 1
        self.counters.accepted[peer.protocol] += 1

    def on_device_close(self, peer: DevicePeer, closing: Closing) -> None:
        self.counters.connections[peer.protocol] -= 1
        self.counters.closed[peer.protocol, closing.code] += 1
        self.counters.frames_out[peer.protocol] += peer.frames_out
        self.counters.bytes_in[peer.protocol] += peer.bytes_in
        self.counters.bytes_out[peer.protocol] += peer.bytes_out
        about = f"device {peer.identity}"
        clean_up(about, partial(self.broker.on_close, peer), partial(self._record_close, peer, closing))

    def on_device_reports(self, messages: Sequence[tuple[DevicePeer, Message]]) -> Commit | None:
        """What devices said that were not read one by one; mostly telemetry. Return when that is published."""
        broker = self.broker
        together = Topic(broker.devices_topic).is_durable
        telemetry = [message.kind is Kind.TELEMETRY and together for _, message in messages]
        for (peer, message), published in zip(messages, telemetry, strict=True):
            if not published:
                broker.handle(peer, message, self.now_s(), self.now_ms())
        self.flush_soon()
        reports = [(peer.identity, message) for peer, message in compress(messages, telemetry)]
        return broker.publish_reports(reports, self.now_ms())

    def on_device_message(self, peer: DevicePeer, message: Message) -> Commit | None:
        """Return when what it reports is published, if that has to be durable. StorageError if that is refused."""
        self.flush_soon()
        if message.kind is Kind.TELEMETRY:
            return self.broker.publish_report(peer.identity, message, self.now_ms())
        self.broker.handle(peer, message, self.now_s(), self.now_ms())
        return None

    # Housekeeping

    def _swept(self, swept: SweepResult) -> None:
        for expired in swept.expired:
            with contextlib.suppress(StorageError):  # the recorder counts it; the others have their own records
                self.recorder.topic("expire", expired.topic, b"", {"first": expired.first, "last": expired.last})

    async def _count(self) -> None:
        """The counters go to the log, so that the tables can be held against them."""
        while True:
            await asyncio.sleep(GATEWAY_COUNTERS_EVERY_S)
            with contextlib.suppress(StorageError):
                self.recorder.counters()
                self.clock.save(self.folder)
            self.state.writer.write_log_position()
