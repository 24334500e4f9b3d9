"""Receive frames of devices by UDP and TCP on one address."""

import asyncio
import logging
import ssl
from functools import partial
from time import monotonic
from typing import Any, cast

from msgspec import Struct

from wirelake.address import Address
from wirelake.cleanup import clean_up
from wirelake.errors import InputError, ProtocolError, StorageError
from wirelake.gateway.auth.admission import Slot, address_of, host_of
from wirelake.gateway.devices.driver import Origin
from wirelake.gateway.devices.sessions import DeviceSessions
from wirelake.gateway.transport.acceptor import Acceptor, listen_error
from wirelake.gateway.transport.context import TransportContext
from wirelake.gateway.transport.outbox import Outbox
from wirelake.gateway.transport.read_limiter import ReadLimiter, cut_frames
from wirelake.limits import (
    DEVICE_BATCH_FRAMES_MAX,
    DEVICE_BATCH_FRAMES_MIN,
    GATEWAY_QUOTA_WAIT_S,
    GATEWAY_STREAM_LOOK_S,
    GATEWAY_TURN_S,
    QUARANTINE_BYTES_MAX,
)
from wirelake.protocols.batches import TelemetryReader
from wirelake.protocols.device_session import DeviceSettings
from wirelake.protocols.frame import Frame, Sender
from wirelake.protocols.protocol import Carrier, Protocol
from wirelake.protocols.session import Closing
from wirelake.protocols.splitter import Splitter

_log = logging.getLogger(__name__)


class DeviceListener:
    """Listen for one protocol on one address, by UDP, TCP or both."""

    def __init__(
        self,
        context: TransportContext,
        devices: DeviceSessions,
        protocol: Protocol,
        setting: str,
        address: Address,
        carriers: tuple[Carrier, ...],
    ) -> None:
        if protocol.device_of is None:
            raise InputError(f"{protocol.name} has no device_of, so its frames cannot be assigned to devices")
        self.protocol = protocol
        self.address = address
        self.device_of = protocol.device_of
        self.reader: TelemetryReader | None = protocol.telemetry_reader() if protocol.telemetry_reader else None
        self.devices = devices
        self.streams: set[asyncio.Transport] = set()  # TCP connections
        self._setting = setting
        self._carriers = carriers
        self._context = context
        self._datagrams: asyncio.DatagramTransport | None = None
        self._acceptor = Acceptor(protocol.name, context.admission, context.counters, context.settings, self.new_stream)

    @property
    def settings(self) -> DeviceSettings:
        """Return the current settings of the protocol: a reload applies to new device sessions."""
        section: DeviceSettings = self._context.settings().section(self.protocol)
        return section

    def new_splitter(self, carrier: Carrier) -> Splitter:
        if self.protocol.server_splitter is not None:
            return self.protocol.server_splitter(self.settings, carrier)
        return self.protocol.splitter(Sender.CLIENT, carrier)

    def new_stream(self, slot: Slot | None = None) -> "DeviceStream":
        return DeviceStream(self, self._context, slot)

    def new_datagrams(self) -> "DeviceDatagrams":
        return DeviceDatagrams(self)

    async def open(self, tls: ssl.SSLContext | None) -> None:
        """Start listening. Raise InputError if the address cannot be opened."""
        loop = asyncio.get_running_loop()
        host, port = self.address.host, self.address.port
        try:
            if Carrier.TCP in self._carriers:
                port = (await self._acceptor.open(self.address, tls)).port
            if Carrier.UDP in self._carriers:
                self._datagrams, _ = await loop.create_datagram_endpoint(self.new_datagrams, local_addr=(host, port))
                port = self._datagrams.get_extra_info("sockname")[1]
        except OSError as error:
            raise listen_error(self._setting, self.address, error) from error
        self.address = Address(host, port)

    @property
    def is_open(self) -> bool:
        return self._acceptor.is_serving if Carrier.TCP in self._carriers else self._datagrams is not None

    def close(self) -> None:
        self._acceptor.close()
        if self._datagrams is not None:
            self._datagrams.close()
            self._datagrams = None
        for peer in list(self.devices.of_protocol(self.protocol.name)):
            peer.close(Closing("shutdown", "the gateway is shutting down"))
        for stream in list(self.streams):
            stream.close()


class BatchSize:
    """Adapt how many frames to try as a batch: double while batches are full, start again when one is not."""

    __slots__ = ("frames",)

    def __init__(self) -> None:
        self.frames = DEVICE_BATCH_FRAMES_MIN

    def adapt(self, taken: int, offered: int) -> None:
        if taken < min(self.frames, offered):
            self.frames = DEVICE_BATCH_FRAMES_MIN
        elif taken == self.frames:
            self.frames = min(self.frames * 2, DEVICE_BATCH_FRAMES_MAX)


class DeviceDatagrams(asyncio.DatagramProtocol):
    """Receive frames by UDP. Datagrams that arrive in one turn of the event loop are handled together."""

    def __init__(self, listener: DeviceListener) -> None:
        self._listener = listener
        self._devices = listener.devices
        self._batch_size = BatchSize()
        self._received: list[tuple[bytes, tuple[str | Any, int]]] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.DatagramTransport, transport)

    def datagram_received(self, data: bytes, addr: tuple[str | Any, int]) -> None:
        if not self._received:
            asyncio.get_running_loop().call_soon(self._read)
        self._received.append((data, addr))

    def _read(self) -> None:
        received, self._received = self._received, []
        frames: list[bytes] = []
        origins: list[Origin] = []
        datagrams: list[_Datagram] = []
        for data, addr in received:
            splitter = self._listener.new_splitter(Carrier.UDP)
            found = splitter.receive(data)
            splitter.finish()
            origin = Origin(f"{addr[0]}:{addr[1]}", partial(self._send, addr))
            frames += found
            origins += [origin] * len(found)
            datagrams.append(_Datagram(origin, len(frames), splitter.rest, splitter.failure))
        try:
            self._receive(frames, origins, datagrams)
        except StorageError as error:
            _log.warning("%d datagrams dropped without receipts: %s", len(received), error)

    def _receive(self, frames: list[bytes], origins: list[Origin], datagrams: list["_Datagram"]) -> None:
        listener, devices, place = self._listener, self._devices, 0
        for datagram in datagrams:
            while place < datagram.end:  # else its frames were in an earlier batch
                taken = receive_batch(listener, frames, place, origins, self._batch_size, None)
                if taken:
                    place += taken
                    continue
                raw = frames[place]
                try:
                    frame: Frame = listener.protocol.decode(raw, Sender.CLIENT)
                except ProtocolError as error:
                    datagram.rest = b"".join(frames[place : datagram.end]) + datagram.rest
                    datagram.failure = error
                    place = datagram.end
                else:
                    devices.receive(listener, raw, frame, origins[place])
                    place += 1
            if datagram.failure is not None:
                address = datagram.origin.address
                devices.quarantine_datagram(listener.protocol, datagram.rest, datagram.failure, address)

    def _send(self, addr: tuple[str | Any, int], data: bytes) -> None:
        self._transport.sendto(data, addr)


class _Datagram(Struct):
    """Describe a received datagram. `rest` holds the bytes that are not a frame, `failure` the reason."""

    origin: Origin
    end: int  # of its frames, in the list of the turn
    rest: bytes
    failure: ProtocolError | None


class DeviceStream(asyncio.Protocol):
    """Receive frames by TCP. A connection may multiplex many devices; a malformed frame closes it."""

    def __init__(self, listener: DeviceListener, context: TransportContext, slot: Slot | None = None) -> None:
        """Create the protocol of a connection. `slot` is set if it was admitted before the TLS handshake."""
        self._listener = listener
        self._protocol = listener.protocol.name
        self._devices = listener.devices
        self._context = context
        self._splitter = listener.new_splitter(Carrier.TCP)
        self._outbox = Outbox(context.commit_barrier, self._send, self._on_storage_error)  # replies to batches
        self._batch_size = BatchSize()
        self._slot = slot
        self._is_refused = False
        self._frames: list[bytes] = []  # split from the stream; handled up to `_frames_done`
        self._frames_done = 0
        self._received_s = self._opened_s = context.now_s()
        self._tick_s = float("inf")  # when `tick` is scheduled
        self._incomplete_since_s: float | None = None  # since when a packet is incomplete

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._address = address_of(transport.get_extra_info("peername"))
        self._origin = Origin(self._address, self._send, is_stream=True)
        self._read_limiter = ReadLimiter(self._context.reads, self._transport, self, self._context.now_s())
        if self._slot is None:
            admitted = self._context.admission.enter(self._address, authenticated=self._listener.settings.open)
            if isinstance(admitted, str):
                self._context.counters.refused[self._protocol, admitted] += 1
                self._transport.abort()
                return
            self._slot = admitted
        self._listener.streams.add(self._transport)
        self._schedule(self._deadline()[0])

    def _schedule(self, due_s: float) -> None:
        """Schedule `tick`, unless it is scheduled earlier."""
        if due_s < self._tick_s:
            self._tick_s = due_s
            self._context.timers.add(due_s, self)

    def _deadline(self) -> tuple[float, str]:
        """Return when to close the connection, and the reason for it."""
        settings, slot = self._listener.settings, self._slot
        due_s, reason = self._received_s + settings.idle_s, "idle"
        if slot is not None and not slot.authenticated:
            due_s, reason = min((due_s, reason), (self._opened_s + settings.login_s, "login_timeout"))
        if self._incomplete_since_s is not None:
            due_s, reason = min((due_s, reason), (self._incomplete_since_s + settings.half_packet_s, "half_packet"))
        return due_s, reason

    def tick(self, now_s: float) -> float | None:
        """Close the connection if its deadline has passed. Called by the gateway's timers."""
        if self._slot is None or self._transport.is_closing():
            return None
        due_s, reason = self._deadline()
        if due_s > now_s:
            self._tick_s = min(due_s, now_s + GATEWAY_STREAM_LOOK_S)
            return self._tick_s
        self._abort(reason)
        return None

    def _abort(self, reason: str) -> None:
        self._context.counters.closed[self._protocol, reason] += 1
        _log.info("stream closed", extra={"address": self._address, "reason": reason})
        self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._listener.streams.discard(self._transport)
        self._devices.on_stream_lost(self._origin)
        clean_up(f"the stream from {self._address}", self._quarantine_incomplete, self._discard, self._release_slot)

    def _quarantine_incomplete(self) -> None:
        """Quarantine the received part of an incomplete packet."""
        rest = self._splitter.discard(QUARANTINE_BYTES_MAX)
        if rest and self._splitter.failure is None:
            error = ProtocolError("incomplete", "connection closed inside a packet", 0)
            self._devices.quarantine(self._listener.protocol, rest, error, self._address)

    def _discard(self) -> None:
        """Free buffers."""
        self._outbox.discard()
        self._read_limiter.discard()
        self._frames, self._frames_done = [], 0

    def _release_slot(self) -> None:
        if self._slot is not None:
            self._slot.release()
            self._slot = None

    def data_received(self, data: bytes) -> None:
        slot = self._slot
        if slot is None:
            return
        self._received_s = self._context.now_s()
        self._read_limiter.on_data(data)
        if not slot.authenticated and not slot.hold(self._held_bytes):
            self._abort("unauthenticated_bytes")

    @property
    def _held_bytes(self) -> int:
        return self.pending_bytes + self._splitter.held_bytes + self._read_limiter.unread_bytes

    def resume_writing(self) -> None:
        self._read_limiter.wake()

    # Interface for the read limiter

    @property
    def share(self) -> str:
        return "@" + host_of(self._address)

    @property
    def has_more(self) -> bool:
        return self._frames_done < len(self._frames)

    @property
    def is_blocked(self) -> bool:
        return False

    @property
    def pending_bytes(self) -> int:
        return self._transport.get_write_buffer_size() + self._outbox.bytes

    def disconnect(self, code: str, text: str) -> None:
        self._context.counters.errors[self._protocol, code] += 1
        _log.info("device connection closed", extra={"address": self._address, "reason": code, "text": text})
        self._transport.abort()

    def read(self, data: bytes) -> None:
        """Handle bytes of the stream, in a turn of this connection."""
        if self._is_refused or self._splitter.failure is not None:
            return
        frames, rest = cut_frames(self._splitter, data)
        if rest:
            self._read_limiter.put_back(rest)
        size = len(data) - len(rest)
        self._read_limiter.count_read(size, len(frames), self._context.now_s())
        self._frames, self._frames_done = frames, 0
        self._watch_incomplete(has_frames=bool(frames))
        self.continue_reading()
        if self._slot is not None and not self._slot.authenticated:
            self._charge(len(frames), size)

    def continue_reading(self) -> None:
        if self._is_refused:
            return
        try:
            self._receive()
            if self._splitter.failure is not None and not self._is_refused and not self.has_more:
                self._refuse(self._splitter.rest, self._splitter.failure)
        except StorageError as error:
            _log.warning("packets from %s dropped without receipts: %s", self._address, error)
            self._transport.abort()

    def _watch_incomplete(self, *, has_frames: bool) -> None:
        if not self._splitter.held_bytes:
            self._incomplete_since_s = None
        elif has_frames or self._incomplete_since_s is None:
            self._incomplete_since_s = now_s = self._context.now_s()
            self._schedule(now_s + self._listener.settings.half_packet_s)

    def _charge(self, packets: int, size: int) -> None:
        """Charge the records of a stream without a known device to its quota."""
        pause_s = 0.0 if self._slot is None else self._slot.charge(packets, size)
        if pause_s > GATEWAY_QUOTA_WAIT_S:
            self._abort("unauthenticated_records")
        elif pause_s:
            self._read_limiter.pause(pause_s)

    def _receive(self) -> None:
        """Handle frames until none is left or the turn is over."""
        listener, frames, place = self._listener, self._frames, self._frames_done
        origins = [self._origin] * len(frames)
        ends_s = monotonic() + GATEWAY_TURN_S
        while place < len(frames) and monotonic() < ends_s:
            taken = receive_batch(listener, frames, place, origins, self._batch_size, self._outbox)
            if taken:
                place = self._frames_done = place + taken
                self._authenticate()
                continue
            raw = frames[place]
            place = self._frames_done = place + 1
            try:
                frame = listener.protocol.decode(raw, Sender.CLIENT)
            except ProtocolError as error:
                self._frames, self._frames_done = [], 0
                self._refuse(raw, error)
                return
            if self._devices.receive(listener, raw, frame, self._origin):
                self._authenticate()

    def _authenticate(self) -> None:
        """Mark the connection as authenticated: it sent a frame of a known device."""
        if self._slot is not None and not self._slot.authenticated:
            self._slot.authenticate()

    def _send(self, data: bytes) -> None:
        if not self._transport.is_closing():
            self._transport.write(data)
            if self._read_limiter.is_paused:
                self._read_limiter.wake()
            elif self._transport.get_write_buffer_size() > self._read_limiter.pending_max:
                self._read_limiter.check_output()

    def _refuse(self, raw: bytes, error: ProtocolError) -> None:
        """Quarantine a malformed packet. Close after the receipts of the packets before it are sent."""
        self._is_refused = True
        self._read_limiter.stop()
        quarantined = self._devices.quarantine(self._listener.protocol, raw, error, self._address)
        self._context.commit_barrier.wait(self._devices.publications.closing_commit(quarantined), self)

    def _on_storage_error(self, error: StorageError) -> None:
        """Log the error and send no receipts, so that the devices resend."""
        self._devices.publications.log_error(error)

    def on_durable(self) -> None:
        self._transport.close()

    def on_failed(self, error: StorageError) -> None:
        _log.warning("cannot quarantine bad bytes from %s: %s", self._address, error)
        self._transport.abort()


def receive_batch(
    listener: DeviceListener,
    frames: list[bytes],
    start: int,
    origins: list[Origin],
    size: BatchSize,
    joint: Outbox | None,
) -> int:
    """Accept the reports from `start` on that can be decoded as a batch. Return how many were accepted."""
    if listener.reader is None:
        return 0
    listener.devices.publications.withdraw_failed()
    batch = listener.reader.read(frames, start, size.frames)
    taken = 0 if batch is None else len(batch.streams)
    size.adapt(taken, len(frames) - start)
    if batch is not None:
        listener.devices.receive_batch(listener, batch, origins[start : start + taken], joint)
    return taken
