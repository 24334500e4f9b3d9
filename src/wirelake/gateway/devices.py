"""Devices: one session for each serial, wherever its packets come from.

A device is not a connection: its UDP address may change between two packets, and one TCP connection may carry several
devices. So packets are sorted by serial here. Receipts go where their packet came from. Commands go where the device
was last heard; a device that has a key is known by its seal, because anybody can send packets in its name: see
`_follow`.
"""

import asyncio
import logging
import os
from collections.abc import Callable, Hashable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from wirelake.commit import Commit
from wirelake.errors import ProtocolError, StateError, StorageError
from wirelake.gateway.outbox import Outbox
from wirelake.gateway.recorder import Recorded
from wirelake.gateway.seals import SealGuard, Seals
from wirelake.limits import (
    GATEWAY_DATAGRAM_BYTES,
    GATEWAY_DEVICES_MAX,
    QUARANTINE_BYTES_MAX,
)
from wirelake.log.alike import Alike
from wirelake.message import Kind, Message, Op, control_op
from wirelake.protocols.apostol.assembly import Assembling
from wirelake.protocols.apostol.frames import Packet, Receipt
from wirelake.protocols.apostol.server import ServerSession
from wirelake.protocols.apostol.session import Settings as SessionSettings
from wirelake.protocols.apostol.skimming import PARAMS, Reports, Run, skim
from wirelake.protocols.session import Closing, Session, Step

if TYPE_CHECKING:
    from wirelake.gateway.gateway import Gateway

_log = logging.getLogger(__name__)
Link = Callable[[bytes], None]
_REPLAYED: Final = "replayed"
_FORGED: Final = frozenset({_REPLAYED, "unsealed", "bad_seal"})  # why commands are refused that may not be the device's


class Origin(Struct, frozen=True):
    """Where a packet came from, and how to answer there."""

    address: str
    link: Link
    stream: bool = False  # of a TCP connection: there is one of these for all of its packets

    def is_same(self, other: "Origin") -> bool:
        return self is other or (self.address == other.address and not self.stream and not other.stream)


class Stranger:
    """Whom a record is about when no session is: a device that is not known, or bytes that are no packet."""

    __slots__ = ("address", "id", "identity", "protocol")

    def __init__(self, address: str, identity: str = "") -> None:
        self.protocol = "apostol"
        self.id = ""
        self.identity = identity
        self.address = address


class _Elsewhere:
    """A device, in the record of a packet that came from somewhere else than where its commands go."""

    __slots__ = ("address", "id", "identity", "protocol")

    def __init__(self, peer: "DevicePeer", address: str) -> None:
        self.protocol, self.id, self.identity = peer.protocol, peer.id, peer.identity
        self.address = address


class Line(Reports):
    """The plain reports of one device, and where they belong."""

    __slots__ = ("id", "identity", "peer")

    def __init__(self, peer: "DevicePeer", device_type: int, session: ServerSession) -> None:
        super().__init__(device_type, peer.identity, session.assembler)
        self.peer = peer
        self.id = peer.id
        self.identity = peer.identity


class DevicePeer:
    """A known device, while it is heard from. Also the broker's `Peer`."""

    __slots__ = (
        "_closing",
        "_due_s",
        "_gateway",
        "_guard",
        "_heard_from",
        "_heard_sealed",
        "_lines",
        "_link",
        "_outbox",
        "_receipts",
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

    def __init__(self, gateway: "Gateway", serial: str, origin: Origin) -> None:
        self.protocol = "apostol"
        self.identity = serial
        self.id = gateway.new_id()
        self.address = origin.address
        self.congested = False
        self.frames_in = self.frames_out = self.bytes_in = self.bytes_out = 0
        self.opened_at_ms = gateway.now_ms()
        self._gateway = gateway
        self._lines: dict[int, Line] = {}  # by device type
        self._link: Link | None = None  # where commands go; `address` is where that is
        self._heard_from = origin  # the last packet
        self._heard_sealed = False
        self._guard: SealGuard | None = None
        self._closing: Closing | None = None
        self._due_s = float("inf")
        self._outbox = Outbox(gateway.gate, self._send, self._storage_failed, GATEWAY_DATAGRAM_BYTES)
        self._receipts = self._receipts_to(origin)
        self._session = ServerSession(gateway.now_s(), os.urandom, gateway.devices.session_settings)

    @property
    def session(self) -> Session:
        return self._session

    @property
    def assembling(self) -> int:
        return self._session.assembling

    @property
    def device_type(self) -> int:
        """By its own word."""
        return self._session.device_type

    @property
    def heard_s(self) -> float:
        return self._session.heard_s

    def under_way(self) -> list[Assembling]:
        """The commands of which packets are missing."""
        return self._session.assembler.under_way()

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
        return self._outbox.bytes + self._receipts.bytes

    @property
    def bytes_written(self) -> int:
        return self.bytes_out + self._outbox.bytes

    @property
    def bytes_drained(self) -> int:
        return self.bytes_out

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
            if message.kind is Kind.REQUEST and self._link is None:
                raise StateError(f"nothing sealed came from device {self.identity!r} yet: it is not known where it is")
            try:
                self._take(self._session.send(message, self._gateway.now_s()))
            except StateError as error:
                if message.kind is Kind.REQUEST:
                    raise
                _log.debug("device %s: %s", self.identity, error)
            self._watch()  # for the receipt, and for the answer

    def end(self, closing: Closing) -> None:
        if self._closing is None:
            try:
                self._take(self._session.goodbye(closing, self._gateway.now_s()))
            except StorageError as error:
                self._storage_failed(error)
            self._finish(closing)

    def receive(self, raw: bytes, packet: Packet, origin: Origin) -> None:
        gateway = self._gateway
        gateway.recorder.frames(self._at(origin), "in", [raw])
        self._answer_to(origin)
        self.frames_in += 1
        self.bytes_in += len(raw)
        seals = self._session.seals
        held = self._session.assembling_bytes
        self._take(self._session.receive(packet, gateway.now_s()))
        if gateway.devices.assembling(self._session.assembling_bytes - held):
            held = self._session.assembling_bytes
            self._take(self._session.relieve(gateway.now_s()))
            gateway.devices.assembling(-held)
        self._follow(origin, sealed=self._session.seals > seals)
        self._watch()
        if packet.params == PARAMS and packet.device_type not in self._lines and self._session.skimmable:
            line = self._lines[packet.device_type] = Line(self, packet.device_type, self._session)
            gateway.devices.lines[line.head] = line

    def hold(self, receipt: bytes, commit: Commit, origin: Origin) -> None:
        """Send this back once that is on disk."""
        self._answer_to(origin)
        self._receipts.hold(receipt, commit)

    def skimmed(self, count: int, bytes_in: int, bytes_out: int, origin: Origin, now_s: float) -> None:
        """So many of its reports came and will be answered, without having been read one by one."""
        self._follow(origin, sealed=False)
        self.frames_in += count
        self.frames_out += count
        self.bytes_in += bytes_in
        self.bytes_out += bytes_out
        self._session.heard_s = now_s

    def reported(self, line: Line, command_no: int, content: bytes, now_s: float) -> list[Message]:
        """What a skimmed report says."""
        return self._session.reported(line.device_type, command_no, content, now_s).messages

    def heads(self) -> list[bytes]:
        """What its reports are known by."""
        return [line.head for line in self._lines.values()]

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
        receipts = [frame.encode() for frame in step.frames if isinstance(frame, Receipt)]
        commands = [frame.encode() for frame in step.frames if not isinstance(frame, Receipt)]
        if receipts:
            self._write(receipts, self._at(self._heard_from), self._receipts)
        if commands:
            self._write(commands, self, self._outbox)
        for message in step.messages:
            if control_op(message) is Op.LOGIN:
                self.say(Message(kind=Kind.RESPONSE, correlation=message.correlation, fields=self._known()))
            else:
                self._count_refusal(message)
                gateway.heard_device(self, message)
        if step.closing is not None:
            self._finish(step.closing)

    def _write(self, wires: list[bytes], to: Recorded, outbox: Outbox) -> None:
        self.frames_out += len(wires)
        commit = self._gateway.recorder.frames(to, "out", wires)
        for wire in wires:
            outbox.hold(wire, commit)

    def _known(self) -> dict[str, object]:
        """What the registry has about it, for its session."""
        gateway = self._gateway
        device = gateway.state.devices.find(self.identity)
        if device is None or device.key is None:
            return {}
        settings = self._session.settings
        if not settings.require_seal:
            return {"key": device.key}
        self._guard = SealGuard(gateway, gateway.devices.seals, self.identity, settings.replay_window_s)
        return {"key": device.key, "is_new": self._guard.is_new}

    def _count_refusal(self, message: Message) -> None:
        """A command that is not what it pretends to be."""
        reason = message.fields.get("reason")
        if message.kind is Kind.EVENT and reason in _FORGED:
            self._gateway.counters.errors["apostol", reason] += 1
            if reason == _REPLAYED:
                note = {"reason": reason, "command_no": message.correlation}
                self._gateway.recorder.event(self._at(self._heard_from), "refuse", note, "in")

    # Where it is

    def _follow(self, origin: Origin, *, sealed: bool) -> None:
        """Send commands to where this came from, unless the device has a key and something else may have sent it.

        Where a seal is required, only a seal that holds moves the address, and before the first nothing is sent.
        Where none is required, the same holds once the device was heard sealed; until then it is where it was heard.
        """
        session = self._session
        if sealed:
            self._heard_sealed = True
        elif session.has_key and (session.sealed_only or self._heard_sealed):
            return
        self._link, self.address = origin.link, origin.address

    def _answer_to(self, origin: Origin) -> None:
        """Receipts go there from now on; those on their way go where they were to go."""
        if not origin.is_same(self._heard_from):
            self._receipts = self._receipts_to(origin)
        self._heard_from = origin

    def _receipts_to(self, origin: Origin) -> Outbox:
        return Outbox(
            self._gateway.gate, partial(self._send_back, origin.link), self._storage_failed, GATEWAY_DATAGRAM_BYTES
        )

    def _at(self, origin: Origin) -> "DevicePeer | _Elsewhere":
        return self if origin.address == self.address else _Elsewhere(self, origin.address)

    def _send(self, data: bytes) -> None:
        if self._link is None:
            _log.debug("device %s: nothing sealed came from it yet, so nothing is sent to it", self.identity)
            return
        self._send_back(self._link, data)

    def _send_back(self, link: Link, data: bytes) -> None:
        self.bytes_out += len(data)
        link(data)

    def _finish(self, closing: Closing) -> None:
        if self._closing is None:
            self._closing = closing
            self._gateway.devices.gone(self, closing)
            self._gateway.devices.seals.save()

    def _storage_failed(self, error: StorageError) -> None:
        """No receipt: the device sends again."""
        _log.warning("device %s: not durable, no receipt: %s", self.identity, error)


class Devices:
    """All devices heard from, by serial."""

    def __init__(self, gateway: "Gateway") -> None:
        self.peers: dict[str, DevicePeer] = {}
        self.lines: dict[bytes, Line] = {}  # by what their reports begin with: those that can be skimmed
        self.assembling_bytes = 0  # of all devices' packets that wait for others
        self.streams: set[asyncio.Transport] = set()  # TCP connections that carry packets
        self.seals = Seals()
        self._gateway = gateway

    @property
    def session_settings(self) -> SessionSettings:
        """Looked up for each device: a reload holds for those that are heard from then on."""
        chosen = self._gateway.settings.apostol
        return SessionSettings(
            idle_s=chosen.idle_s,
            request_s=chosen.request_s,
            receipt_s=chosen.receipt_s,
            resends_max=chosen.resends_max,
            assembly_s=chosen.assembly_s,
            command_bytes_max=chosen.command_bytes_max,
            inflated_bytes_max=chosen.inflated_bytes_max,
            assembling_max=chosen.assembling_per_device,
            packet_data_bytes=chosen.packet_data_bytes,
            require_seal=chosen.require_seal,
            replay_window_s=chosen.replay_window_s,
        )

    def assembling(self, more_bytes: int) -> bool:
        """So many more bytes wait for the rest of their commands; whether that is now too much in all."""
        self.assembling_bytes += more_bytes
        return self.assembling_bytes > self._gateway.settings.apostol.assembling_bytes

    def receive(self, raw: bytes, packet: Packet, origin: Origin) -> None:
        gateway = self._gateway
        gateway.counters.frames_in["apostol"] += 1
        peer = self.peers.get(packet.serial)
        if peer is None:
            peer = self._meet(raw, packet, origin)
            if peer is None:
                return
        peer.receive(raw, packet, origin)

    def skim(
        self, frames: Sequence[bytes], start: int, reach: int, origins: Sequence[Origin], together: Outbox | None
    ) -> int:
        """Take the reports from `start` on, `reach` at most, that need no reading one by one; answers how many.

        `origins` says of each frame where it came from. Their receipts go `together`, or else as each device's own.
        """
        run = skim(frames, start, reach, self.lines)
        if run is None:
            return 0
        recorder, count = self._gateway.recorder, len(run.of)
        sessions, identities = tuple([line.id for line in run.of]), tuple([line.identity for line in run.of])
        came_from = origins[start : start + count]
        one = came_from.count(came_from[0]) == count  # a stream has one origin, datagrams each their own
        addresses = came_from[0].address if one else tuple([origin.address for origin in came_from])
        receipts = Alike(run.receipts(), run.receipt_bytes)
        # Both before anything is changed: what the log refuses has not come.
        recorder.rows("apostol", "in", sessions, identities, addresses, Alike(run.joined, run.frame_bytes))
        commit = recorder.rows("apostol", "out", sessions, identities, addresses, receipts)
        if together is not None:
            together.hold(receipts.joined, commit)
        else:
            for line, receipt, origin in zip(run.of, receipts.cut(), came_from, strict=True):
                line.peer.hold(receipt, commit, origin)
        self._count(run, came_from, sent=together is not None)
        return count

    def _count(self, run: Run[Line], came_from: Sequence[Origin], *, sent: bool) -> None:
        """They are in the log, and their receipts on the way."""
        gateway = self._gateway
        gateway.counters.frames_in["apostol"] += len(run.of)
        now_s, frame_bytes = gateway.now_s(), run.frame_bytes
        repeats = set(run.finish(now_s))
        last = dict(zip(run.of, came_from, strict=True))
        for line, count in run.counts.items():
            bytes_out = count * run.receipt_bytes if sent else 0
            line.peer.skimmed(count, count * frame_bytes, bytes_out, last[line], now_s)
        if gateway.broker.devices_topic:
            reports = zip(range(len(run.of)), run.of, run.numbers, run.contents, strict=True)
            gateway.heard_reports(
                [
                    (line.peer, message)
                    for place, line, command_no, content in reports
                    if place not in repeats
                    for message in line.peer.reported(line, command_no, content, now_s)
                ]
            )

    def quarantine(self, data: bytes, error: ProtocolError, address: str) -> Commit:
        self._gateway.counters.frames_in["apostol"] += 1
        return self._gateway.quarantine(Stranger(address), data[:QUARANTINE_BYTES_MAX], error)

    def gone(self, peer: DevicePeer, closing: Closing) -> None:
        """End a device's session. Every step runs, whatever the log refuses meanwhile."""
        if self.peers.get(peer.identity) is peer:
            del self.peers[peer.identity]
        for head in peer.heads():
            self.lines.pop(head, None)
        self.assembling(-peer.assembling_bytes)
        self._gateway.device_gone(peer, closing)

    def _meet(self, raw: bytes, packet: Packet, origin: Origin) -> DevicePeer | None:
        gateway = self._gateway
        known = gateway.state.devices.find(packet.serial) is not None
        reason = ""
        if packet.broadcast or not (known or gateway.settings.apostol.open) or not packet.serial:
            reason = "unknown_device"
        elif len(self.peers) >= GATEWAY_DEVICES_MAX:
            reason = "devices_max"
        if reason:
            gateway.counters.refused["apostol", reason] += 1
            gateway.recorder.event(Stranger(origin.address, packet.serial), "refuse", {"reason": reason}, "in", raw)
            return None
        peer = DevicePeer(gateway, packet.serial, origin)
        gateway.device_met(peer)
        self.peers[packet.serial] = peer
        return peer
