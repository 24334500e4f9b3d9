"""Devices: one session for each serial, wherever its packets come from.

A device is not a connection: its UDP address may change between two packets, and one TCP connection may carry several
devices. So packets are sorted by serial here, and what is sent to a device goes where it was last heard.
"""

import asyncio
import logging
import os
import ssl
from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, Any, cast

from wirelake.commit import Commit
from wirelake.config import Address
from wirelake.errors import InputError, ProtocolError, StateError, StorageError
from wirelake.gateway.outbox import Outbox
from wirelake.limits import (
    APOSTOL_ASSEMBLING_BYTES_MAX,
    GATEWAY_DATAGRAM_BYTES,
    GATEWAY_DEVICES_MAX,
    QUARANTINE_BYTES_MAX,
)
from wirelake.message import Kind, Message, Op, control_op
from wirelake.protocols.apostol.frames import ApostolSplitter, Packet, decode
from wirelake.protocols.apostol.server import ServerSession
from wirelake.protocols.apostol.session import Settings as SessionSettings
from wirelake.protocols.frame import Sender
from wirelake.protocols.session import Closing, Session, Step

if TYPE_CHECKING:
    from wirelake.gateway.gateway import Gateway

_log = logging.getLogger(__name__)
Link = Callable[[bytes], None]


class Stranger:
    """Whom a record is about when no session is: a device that is not known, or bytes that are no packet."""

    __slots__ = ("address", "id", "identity", "protocol")

    def __init__(self, address: str, identity: str = "") -> None:
        self.protocol = "apostol"
        self.id = ""
        self.identity = identity
        self.address = address


class DevicePeer:
    """A known device, while it is heard from. Also the broker's `Peer`."""

    __slots__ = (
        "_closing",
        "_due_s",
        "_gateway",
        "_link",
        "_outbox",
        "_session",
        "address",
        "bytes_in",
        "bytes_out",
        "congested",
        "frames_in",
        "frames_out",
        "id",
        "identity",
        "opened_at_ms",
        "protocol",
    )

    def __init__(self, gateway: "Gateway", serial: str, link: Link, address: str) -> None:
        self.protocol = "apostol"
        self.identity = serial
        self.id = gateway.new_id()
        self.address = address
        self.congested = False
        self.frames_in = self.frames_out = self.bytes_in = self.bytes_out = 0
        self.opened_at_ms = gateway.now_ms()
        self._gateway = gateway
        self._link = link
        self._closing: Closing | None = None
        self._due_s = float("inf")
        self._outbox = Outbox(gateway.gate, self._send, self._storage_failed, GATEWAY_DATAGRAM_BYTES)
        self._session = ServerSession(gateway.now_s(), os.urandom, gateway.devices.session_settings)

    @property
    def session(self) -> Session:
        return self._session

    @property
    def assembling(self) -> int:
        return self._session.assembling

    @property
    def acknowledges(self) -> bool:
        return False

    @property
    def fetches(self) -> bool:
        return False

    @property
    def audience(self) -> Hashable | None:
        return None

    @property
    def pending_bytes(self) -> int:
        return self._outbox.bytes

    @property
    def assembling_bytes(self) -> int:
        return self._session.assembling_bytes

    def encoded(self, message: Message) -> bytes:
        return self._session.encoded(message)

    def write(self, data: bytes) -> None:
        self._outbox.write(data)

    def say(self, message: Message) -> None:
        """Raises StateError for a request that cannot be made now: whoever asks has to hear of it."""
        if self._closing is None:
            try:
                self._take(self._session.send(message, self._gateway.now_s()))
            except StateError as error:
                if message.kind is Kind.REQUEST:
                    raise
                _log.debug("device %s: %s", self.identity, error)
            self._watch()  # for the receipt, and for the answer

    def end(self, closing: Closing) -> None:
        if self._closing is None:
            self._take(self._session.goodbye(closing, self._gateway.now_s()))
            self._finish(closing)

    def receive(self, raw: bytes, packet: Packet, link: Link, address: str) -> None:
        gateway = self._gateway
        self._link, self.address = link, address
        self.frames_in += 1
        self.bytes_in += len(raw)
        gateway.recorder.frames(self, "in", [raw])
        held = self._session.assembling_bytes
        self._take(self._session.receive(packet, gateway.now_s()))
        if gateway.devices.assembling(self._session.assembling_bytes - held):
            held = self._session.assembling_bytes
            self._take(self._session.relieve(gateway.now_s()))
            gateway.devices.assembling(-held)
        self._watch()

    def tick(self, now_s: float) -> float | None:
        if self._closing is not None:
            return None
        held = self._session.assembling_bytes
        try:
            self._take(self._session.tick(now_s))
            self._gateway.devices.assembling(self._session.assembling_bytes - held)
        except StorageError as error:
            self._storage_failed(error)
        due_s = self._session.deadline_s
        self._due_s = float("inf") if due_s is None else due_s
        return due_s

    def _watch(self) -> None:
        due_s = self._session.deadline_s
        if due_s is not None and due_s < self._due_s:
            self._due_s = due_s
            self._gateway.timers.add(due_s, self)

    def _take(self, step: Step) -> None:
        gateway = self._gateway
        if step.frames:
            wires = [frame.encode() for frame in step.frames]
            self.frames_out += len(wires)
            commit = gateway.recorder.frames(self, "out", wires)
            for wire in wires:
                self._outbox.hold(wire, commit)
        for message in step.messages:
            if control_op(message) is Op.LOGIN:
                device = gateway.state.devices.find(self.identity)
                fields = {"key": device.key} if device is not None and device.key is not None else {}
                self.say(Message(kind=Kind.RESPONSE, correlation=message.correlation, fields=fields))
            else:
                gateway.heard_device(self, message)
        if step.closing is not None:
            self._finish(step.closing)

    def _send(self, data: bytes) -> None:
        self.bytes_out += len(data)
        self._link(data)

    def _finish(self, closing: Closing) -> None:
        if self._closing is None:
            self._closing = closing
            self._gateway.devices.gone(self, closing)

    def _storage_failed(self, error: StorageError) -> None:
        """No receipt: the device sends again."""
        _log.warning("device %s: not durable, no receipt: %s", self.identity, error)


class Devices:
    """All devices heard from, by serial."""

    def __init__(self, gateway: "Gateway") -> None:
        self.peers: dict[str, DevicePeer] = {}
        self.assembling_bytes = 0  # of all devices' packets that wait for others
        self.streams: set[asyncio.Transport] = set()  # TCP connections that carry packets
        self._gateway = gateway
        chosen = gateway.settings.apostol
        self.session_settings = SessionSettings(
            idle_s=chosen.idle_s,
            request_s=chosen.request_s,
            receipt_s=chosen.receipt_s,
            resends_max=chosen.resends_max,
            assembly_s=chosen.assembly_s,
            command_bytes_max=chosen.command_bytes_max,
            inflated_bytes_max=chosen.inflated_bytes_max,
            packet_data_bytes=chosen.packet_data_bytes,
            require_seal=chosen.require_seal,
        )

    def assembling(self, more_bytes: int) -> bool:
        """So many more bytes wait for the rest of their commands; whether that is now too much in all."""
        self.assembling_bytes += more_bytes
        return self.assembling_bytes > APOSTOL_ASSEMBLING_BYTES_MAX

    def receive(self, raw: bytes, packet: Packet, link: Link, address: str) -> None:
        gateway = self._gateway
        gateway.counters.frames_in["apostol"] += 1
        peer = self.peers.get(packet.serial)
        if peer is None:
            peer = self._meet(raw, packet, link, address)
            if peer is None:
                return
        peer.receive(raw, packet, link, address)

    def quarantine(self, data: bytes, error: ProtocolError, address: str) -> Commit:
        self._gateway.counters.frames_in["apostol"] += 1
        return self._gateway.quarantine(Stranger(address), data[:QUARANTINE_BYTES_MAX], error)

    def gone(self, peer: DevicePeer, closing: Closing) -> None:
        if self.peers.get(peer.identity) is peer:
            del self.peers[peer.identity]
        self.assembling(-peer.assembling_bytes)
        self._gateway.device_gone(peer, closing)

    def _meet(self, raw: bytes, packet: Packet, link: Link, address: str) -> DevicePeer | None:
        gateway = self._gateway
        known = gateway.state.devices.find(packet.serial) is not None
        reason = ""
        if packet.broadcast or not (known or gateway.settings.apostol.open) or not packet.serial:
            reason = "unknown_device"
        elif len(self.peers) >= GATEWAY_DEVICES_MAX:
            reason = "devices_max"
        if reason:
            gateway.counters.refused["apostol", reason] += 1
            gateway.recorder.event(Stranger(address, packet.serial), "refuse", {"reason": reason}, "in", raw)
            return None
        peer = self.peers[packet.serial] = DevicePeer(gateway, packet.serial, link, address)
        gateway.device_met(peer)
        return peer


class _Datagrams(asyncio.DatagramProtocol):
    def __init__(self, devices: Devices) -> None:
        self._devices = devices

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.DatagramTransport, transport)

    def datagram_received(self, data: bytes, addr: tuple[str | Any, int]) -> None:
        address = f"{addr[0]}:{addr[1]}"
        send = self._transport.sendto
        splitter = ApostolSplitter()
        frames = splitter.receive(data)
        splitter.finish()
        place = 0
        try:
            for raw in frames:
                try:
                    packet = decode(raw, Sender.CLIENT)
                except ProtocolError as error:
                    self._devices.quarantine(data[place:], error, address)
                    return
                self._devices.receive(raw, packet, lambda out: send(out, addr), address)
                place += len(raw)
            if splitter.failure is not None:
                self._devices.quarantine(data[place:], splitter.failure, address)
        except StorageError as error:
            _log.warning("a datagram from %s is not taken, and gets no receipt: %s", address, error)


class _Stream(asyncio.Protocol):
    """Packets on TCP: the same, but a bad one closes the connection."""

    def __init__(self, devices: Devices, gateway: "Gateway") -> None:
        self._devices = devices
        self._gateway = gateway
        self._splitter = ApostolSplitter()
        self._let_in = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        name = transport.get_extra_info("peername")
        self._address = f"{name[0]}:{name[1]}"
        refusal = self._gateway.admission.enter(self._address)
        self._let_in = not refusal
        self._devices.streams.add(self._transport)
        if refusal:
            self._gateway.counters.refused["apostol", refusal] += 1
            self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._devices.streams.discard(self._transport)
        rest = self._splitter.rest
        if rest and self._splitter.failure is None:
            try:
                self._devices.quarantine(rest, ProtocolError("incomplete", "ends inside a packet", 0), self._address)
            except StorageError as error:
                _log.warning("bytes from %s are not in quarantine: %s", self._address, error)
        if self._let_in:
            self._gateway.admission.leave(self._address)

    def data_received(self, data: bytes) -> None:
        try:
            for raw in self._splitter.receive(data):
                try:
                    packet = decode(raw, Sender.CLIENT)
                except ProtocolError as error:
                    self._refuse(raw, error)
                    return
                self._devices.receive(raw, packet, self._send, self._address)
            if self._splitter.failure is not None:
                self._refuse(self._splitter.rest, self._splitter.failure)
        except StorageError as error:
            _log.warning("packets from %s are not taken, and get no receipt: %s", self._address, error)
            self._transport.abort()

    def _send(self, data: bytes) -> None:
        if not self._transport.is_closing():
            self._transport.write(data)

    def _refuse(self, raw: bytes, error: ProtocolError) -> None:
        """Close, but only behind the receipts of the good packets before it."""
        self._transport.pause_reading()
        self._gateway.gate.wait(self._devices.quarantine(raw, error, self._address), self)

    def released(self) -> None:
        self._transport.close()

    def refused(self, error: StorageError) -> None:
        _log.warning("bad bytes from %s are not in quarantine: %s", self._address, error)
        self._transport.abort()


class DeviceDoor:
    """UDP and TCP on one address."""

    def __init__(self, gateway: "Gateway", address: Address) -> None:
        self.address = address
        self._gateway = gateway
        self._datagrams: asyncio.DatagramTransport | None = None
        self._server: asyncio.Server | None = None

    async def open(self, tls: ssl.SSLContext | None) -> None:
        loop = asyncio.get_running_loop()
        devices, gateway = self._gateway.devices, self._gateway
        host, port = self.address.host, self.address.port
        try:
            self._server = await loop.create_server(lambda: _Stream(devices, gateway), host, port, ssl=tls)
            port = self._server.sockets[0].getsockname()[1]
            self._datagrams, _ = await loop.create_datagram_endpoint(
                lambda: _Datagrams(devices), local_addr=(host, port)
            )
        except OSError as error:
            raise InputError(f"listen.apostol: {self.address} cannot be opened: {error.strerror}") from error
        self.address = Address(host, port)

    @property
    def is_open(self) -> bool:
        return self._server is not None and self._server.is_serving()

    def close(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None
        if self._datagrams is not None:
            self._datagrams.close()
            self._datagrams = None
        for peer in list(self._gateway.devices.peers.values()):
            peer.end(Closing("shutdown", "the gateway is shutting down"))
        for stream in list(self._gateway.devices.streams):
            stream.close()
