"""Where packets come in: UDP and TCP on one address."""

import asyncio
import logging
import ssl
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any, cast

from msgspec import Struct

from wirelake.address import Address
from wirelake.cleanup import clean_up
from wirelake.errors import ProtocolError, StorageError
from wirelake.gateway.auth.admission import Slot, address_of, host_of
from wirelake.gateway.devices.peer import Origin
from wirelake.gateway.devices.sessions import DeviceSessions
from wirelake.gateway.transport.acceptor import Acceptor
from wirelake.gateway.transport.listen_error import listen_error
from wirelake.gateway.transport.outbox import Outbox
from wirelake.gateway.transport.read_limiter import ReadLimiter, cut_frames
from wirelake.limits import (
    DEVICE_BATCH_PACKETS_MIN,
    GATEWAY_QUOTA_WAIT_S,
    GATEWAY_STREAM_LOOK_S,
    GATEWAY_TURN_S,
    QUARANTINE_BYTES_MAX,
)
from wirelake.protocols.apostol.fast_path import next_reach
from wirelake.protocols.apostol.frames import ApostolSplitter, decode
from wirelake.protocols.frame import Sender
from wirelake.protocols.session import Closing

if TYPE_CHECKING:
    from wirelake.gateway.gateway import Gateway

_log = logging.getLogger(__name__)


class DeviceDatagrams(asyncio.DatagramProtocol):
    """Packets on UDP: what comes in one turn of the event loop is looked at together."""

    def __init__(self, devices: DeviceSessions) -> None:
        self._devices = devices
        self._reach = DEVICE_BATCH_PACKETS_MIN
        self._came: list[tuple[bytes, tuple[str | Any, int]]] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.DatagramTransport, transport)

    def datagram_received(self, data: bytes, addr: tuple[str | Any, int]) -> None:
        if not self._came:
            asyncio.get_running_loop().call_soon(self._read)
        self._came.append((data, addr))

    def _read(self) -> None:
        came, self._came = self._came, []
        frames: list[bytes] = []
        origins: list[Origin] = []
        datagrams: list[_Datagram] = []
        for data, addr in came:
            splitter = ApostolSplitter()
            packets = splitter.receive(data)
            splitter.finish()
            origin = Origin(f"{addr[0]}:{addr[1]}", partial(self._send, addr))
            frames += packets
            origins += [origin] * len(packets)
            datagrams.append(_Datagram(origin, len(frames), splitter.rest, splitter.failure))
        try:
            self._receive(frames, origins, datagrams)
        except StorageError as error:
            _log.warning("%d datagrams dropped without receipts: %s", len(came), error)

    def _receive(self, frames: list[bytes], origins: list[Origin], datagrams: list["_Datagram"]) -> None:
        devices, place = self._devices, 0
        for datagram in datagrams:
            while place < datagram.end:  # or it was skimmed together with those before
                skimmed = devices.skim(frames, place, self._reach, origins, None)
                self._reach = next_reach(self._reach, skimmed, len(frames) - place)
                if skimmed:
                    place += skimmed
                    continue
                raw = frames[place]
                try:
                    packet = decode(raw, Sender.CLIENT)
                except ProtocolError as error:
                    datagram.rest = b"".join(frames[place : datagram.end]) + datagram.rest
                    datagram.failure = error
                    place = datagram.end
                else:
                    devices.receive(raw, packet, origins[place])
                    place += 1
            if datagram.failure is not None:
                devices.quarantine_datagram(datagram.rest, datagram.failure, datagram.origin.address)

    def _send(self, addr: tuple[str | Any, int], data: bytes) -> None:
        self._transport.sendto(data, addr)


class _Datagram(Struct):
    """`rest` and `failure` are of what in it is no packet."""

    origin: Origin
    end: int  # of its frames, among those of its turn
    rest: bytes
    failure: ProtocolError | None


class DeviceStream(asyncio.Protocol):
    """Packets on TCP: the same, but a bad one closes the connection."""

    def __init__(self, devices: DeviceSessions, gateway: "Gateway", slot: Slot | None = None) -> None:
        """`slot`: it was admitted already, before it had its transport."""
        self._devices = devices
        self._gateway = gateway
        self._splitter = ApostolSplitter()
        self._outbox = Outbox(
            gateway.commit_barrier, self._send, self._storage_failed
        )  # of what is answered to many at once
        self._reach = DEVICE_BATCH_PACKETS_MIN
        self._slot = slot
        self._refusing = False
        self._frames: list[bytes] = []  # cut out of the stream, and handled up to `_frames_done`
        self._frames_done = 0
        self._heard_s = self._opened_s = gateway.now_s()
        self._watched_s = float("inf")  # when the timers look at it next
        self._half_s: float | None = None  # since when a packet is not whole

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._address = address_of(transport.get_extra_info("peername"))
        self._origin = Origin(self._address, self._send, stream=True)
        self._turns = ReadLimiter(self._gateway, self._transport, self)
        if self._slot is None:
            admitted = self._gateway.admission.enter(self._address, authenticated=self._devices.settings.open)
            if isinstance(admitted, str):
                self._gateway.counters.refused[self._devices.protocol.name, admitted] += 1
                self._transport.abort()
                return
            self._slot = admitted
        self._devices.streams.add(self._transport)
        self._watch(self._due()[0])

    def _watch(self, due_s: float) -> None:
        if due_s < self._watched_s:
            self._watched_s = due_s
            self._gateway.timers.add(due_s, self)

    def _due(self) -> tuple[float, str]:
        """When it is to be closed, and why."""
        chosen, slot = self._devices.settings, self._slot
        due_s, why = self._heard_s + chosen.idle_s, "idle"
        if slot is not None and not slot.authenticated:
            due_s, why = min((due_s, why), (self._opened_s + chosen.login_s, "login_timeout"))
        if self._half_s is not None:
            due_s, why = min((due_s, why), (self._half_s + chosen.half_packet_s, "half_packet"))
        return due_s, why

    def tick(self, now_s: float) -> float | None:
        """Close it if nothing of what it has to send came in time; called by the gateway's timers."""
        if self._slot is None or self._transport.is_closing():
            return None
        due_s, why = self._due()
        if due_s > now_s:
            self._watched_s = min(due_s, now_s + GATEWAY_STREAM_LOOK_S)
            return self._watched_s
        self._end(why)
        return None

    def _end(self, why: str) -> None:
        self._gateway.counters.closed[self._devices.protocol.name, why] += 1
        _log.info("stream closed", extra={"address": self._address, "reason": why})
        self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._devices.streams.discard(self._transport)
        self._devices.stream_lost(self._origin)
        clean_up(f"the stream from {self._address}", self._keep_unfinished, self._discard, self._leave)

    def _keep_unfinished(self) -> None:
        """Quarantine the beginning of a packet whose end never came."""
        rest = self._splitter.discard(QUARANTINE_BYTES_MAX)
        if rest and self._splitter.failure is None:
            self._devices.quarantine(rest, ProtocolError("incomplete", "ends inside a packet", 0), self._address)

    def _discard(self) -> None:
        """Let go of everything that takes memory."""
        self._outbox.discard()
        self._turns.discard()
        self._frames, self._frames_done = [], 0

    def _leave(self) -> None:
        if self._slot is not None:
            self._slot.release()
            self._slot = None

    def data_received(self, data: bytes) -> None:
        slot = self._slot
        if slot is None:
            return
        self._heard_s = self._gateway.now_s()
        self._turns.on_data(data)
        if not slot.authenticated and not slot.hold(self._held_bytes):
            self._end("unauthenticated_bytes")

    @property
    def _held_bytes(self) -> int:
        return self.pending_bytes + self._splitter.held_bytes + self._turns.unread_bytes

    def resume_writing(self) -> None:
        self._turns.wake()

    # The turns' view

    @property
    def share(self) -> str:
        return "@" + host_of(self._address)

    @property
    def has_more(self) -> bool:
        return self._frames_done < len(self._frames)

    @property
    def is_held(self) -> bool:
        return False

    @property
    def pending_bytes(self) -> int:
        return self._transport.get_write_buffer_size() + self._outbox.bytes

    def give_up(self, code: str, text: str) -> None:
        self._gateway.counters.errors[self._devices.protocol.name, code] += 1
        _log.info("device connection closed", extra={"address": self._address, "reason": code, "text": text})
        self._transport.abort()

    def read(self, data: bytes) -> None:
        """Bytes of the stream, in their turn."""
        if self._refusing or self._splitter.failure is not None:
            return
        frames, rest = cut_frames(self._splitter, data)
        if rest:
            self._turns.put_back(rest)
        size = len(data) - len(rest)
        self._turns.count_read(size, len(frames), self._gateway.now_s())
        self._frames, self._frames_done = frames, 0
        self._watch_half_packets(had_whole=bool(frames))
        self.read_on()
        if self._slot is not None and not self._slot.authenticated:
            self._charge(len(frames), size)

    def read_on(self) -> None:
        if self._refusing:
            return
        try:
            self._receive()
            if self._splitter.failure is not None and not self._refusing and not self.has_more:
                self._refuse(self._splitter.rest, self._splitter.failure)
        except StorageError as error:
            _log.warning("packets from %s dropped without receipts: %s", self._address, error)
            self._transport.abort()

    def _watch_half_packets(self, *, had_whole: bool) -> None:
        if not self._splitter.held_bytes:
            self._half_s = None
        elif had_whole or self._half_s is None:
            self._half_s = now_s = self._gateway.now_s()
            self._watch(now_s + self._devices.settings.half_packet_s)

    def _charge(self, packets: int, size: int) -> None:
        """Count the records of what a stream without a known device sent."""
        pause_s = 0.0 if self._slot is None else self._slot.charge(packets, size)
        if pause_s > GATEWAY_QUOTA_WAIT_S:
            self._end("unauthenticated_records")
        elif pause_s:
            self._turns.pause(pause_s)

    def _receive(self) -> None:
        """Until there are no more packets, or the turn is over."""
        devices, frames, place = self._devices, self._frames, self._frames_done
        origins = [self._origin] * len(frames)
        ends_s = monotonic() + GATEWAY_TURN_S
        while place < len(frames) and monotonic() < ends_s:
            skimmed = devices.skim(frames, place, self._reach, origins, self._outbox)
            self._reach = next_reach(self._reach, skimmed, len(frames) - place)
            if skimmed:
                place = self._frames_done = place + skimmed
                self._known()
                continue
            raw = frames[place]
            place = self._frames_done = place + 1
            try:
                packet = decode(raw, Sender.CLIENT)
            except ProtocolError as error:
                self._frames, self._frames_done = [], 0
                self._refuse(raw, error)
                return
            if devices.receive(raw, packet, self._origin):
                self._known()

    def _known(self) -> None:
        """It brought a packet of a known device."""
        if self._slot is not None and not self._slot.authenticated:
            self._slot.authenticate()

    def _send(self, data: bytes) -> None:
        if not self._transport.is_closing():
            self._transport.write(data)
            if self._turns.stopped:
                self._turns.wake()
            elif self._transport.get_write_buffer_size() > self._turns.pending_max:
                self._turns.output_grew()

    def _refuse(self, raw: bytes, error: ProtocolError) -> None:
        """Close, but only behind the receipts of the good packets before it."""
        self._refusing = True
        self._turns.stop()
        quarantined = self._devices.quarantine(raw, error, self._address)
        self._gateway.commit_barrier.wait(self._devices.publications.promise(quarantined, None), self)

    def _storage_failed(self, error: StorageError) -> None:
        """No receipts: the devices send again."""
        self._devices.publications.log_refusal(error)

    def released(self) -> None:
        self._transport.close()

    def refused(self, error: StorageError) -> None:
        _log.warning("cannot quarantine bad bytes from %s: %s", self._address, error)
        self._transport.abort()


class DeviceListener:
    """UDP and TCP on one address."""

    def __init__(self, gateway: "Gateway", address: Address) -> None:
        self.address = address
        self._gateway = gateway
        self._datagrams: asyncio.DatagramTransport | None = None
        self._listener = Acceptor(
            gateway, gateway.devices.protocol.name, lambda slot: DeviceStream(gateway.devices, gateway, slot)
        )

    async def open(self, tls: ssl.SSLContext | None) -> None:
        loop = asyncio.get_running_loop()
        devices, host = self._gateway.devices, self.address.host
        try:
            port = (await self._listener.open(self.address, tls)).port
            self._datagrams, _ = await loop.create_datagram_endpoint(
                lambda: DeviceDatagrams(devices), local_addr=(host, port)
            )
        except OSError as error:
            raise listen_error(self._gateway.devices.protocol.name, self.address, error) from error
        self.address = Address(host, port)

    @property
    def is_open(self) -> bool:
        return self._listener.is_serving

    def close(self) -> None:
        self._listener.close()
        if self._datagrams is not None:
            self._datagrams.close()
            self._datagrams = None
        for peer in list(self._gateway.devices.peers.values()):
            peer.close(Closing("shutdown", "the gateway is shutting down"))
        for stream in list(self._gateway.devices.streams):
            stream.close()
