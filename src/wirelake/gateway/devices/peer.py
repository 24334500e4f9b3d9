"""A device that is known, while it is heard from: its session, where it is, and what is on its way to it.

Receipts go where their packet came from. Commands go where the device was last heard; a device that has a key is known
by its seal, because anybody can send packets in its name: see `_follow`.
"""

import logging
import os
from collections.abc import Callable, Hashable
from functools import partial
from typing import TYPE_CHECKING, Final

from msgspec import Struct
from msgspec.structs import asdict

from wirelake.commit import Commit
from wirelake.errors import StateError, StorageError
from wirelake.gateway.devices.broadcast import note_receipt
from wirelake.gateway.devices.publications import Unpublished
from wirelake.gateway.devices.seals import SealGuard
from wirelake.gateway.transport.outbox import Outbox
from wirelake.limits import (
    GATEWAY_DATAGRAM_BYTES,
)
from wirelake.message import Kind, Message, Op, Topic, control_op
from wirelake.protocols.apostol.assembly import Assembling, State
from wirelake.protocols.apostol.fast_path import PARAMS, Reports
from wirelake.protocols.apostol.frames import Packet, Receipt
from wirelake.protocols.apostol.opcodes import ANSWER, RECEIPT
from wirelake.protocols.apostol.server import ServerSession
from wirelake.protocols.apostol.session import SessionSettings
from wirelake.protocols.session import Closing, Session, Step

if TYPE_CHECKING:
    from wirelake.gateway.gateway import Gateway

_log = logging.getLogger(__name__)
Link = Callable[[bytes], None]
_REPLAYED: Final = "replayed"
_FAILED: Final = frozenset({State.EXPIRED.value, State.REFUSED.value})  # what commands end in that say nothing
_FORGED: Final = frozenset({_REPLAYED, "unsealed", "bad_seal"})  # why commands are refused that may not be the device's


class Origin(Struct, frozen=True):
    """Where a packet came from, and how to answer there."""

    address: str
    link: Link
    stream: bool = False  # of a TCP connection: there is one of these for all of its packets

    @property
    def key(self) -> tuple[str, bool]:
        """Tell apart whoever sends by UDP and by TCP from one address and port."""
        return self.address, self.stream

    def is_same(self, other: "Origin") -> bool:
        return self is other or (self.address == other.address and not self.stream and not other.stream)


class Stranger:
    """Whom a record is about when no session is: a device that is not known, or bytes that are no packet."""

    __slots__ = ("address", "id", "identity", "protocol")

    def __init__(self, protocol: str, address: str, identity: str = "") -> None:
        self.protocol = protocol
        self.id = ""
        self.identity = identity
        self.address = address


class _Elsewhere:
    """A device, in the record of a packet that came from somewhere else than where its commands go."""

    __slots__ = ("address", "id", "identity", "protocol")

    def __init__(self, peer: "DevicePeer", address: str) -> None:
        self.protocol, self.id, self.identity = peer.protocol, peer.id, peer.identity
        self.address = address


class ReportStream(Reports):
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
        "_commands_to",
        "_due_s",
        "_gateway",
        "_guard",
        "_heard_from",
        "_heard_sealed",
        "_lines",
        "_outbox",
        "_packet",
        "_receipts",
        "_session",
        "_unpublished",
        "address",
        "bytes_in",
        "bytes_out",
        "frames_in",
        "frames_out",
        "id",
        "identity",
        "is_congested",
        "opened_at_ms",
        "protocol",
    )

    def __init__(self, gateway: "Gateway", serial: str, origin: Origin) -> None:
        self.protocol: str = gateway.devices.protocol.name
        self.identity: str = serial
        self.id: str = gateway.new_id()
        self.address = origin.address
        self.is_congested = False
        self.frames_in = self.frames_out = self.bytes_in = self.bytes_out = 0
        self.opened_at_ms = gateway.now_ms()
        self._gateway = gateway
        self._lines: dict[int, ReportStream] = {}  # by device type
        self._commands_to: Origin | None = None  # where commands go; `address` is where that is
        self._heard_from = origin  # the last packet
        self._heard_sealed = False
        self._guard: SealGuard | None = None
        self._closing: Closing | None = None
        self._due_s = float("inf")
        self._packet: Packet | None = None  # the one that is being received
        self._unpublished: Unpublished | None = None
        self._outbox = Outbox(gateway.commit_barrier, self._send, self._storage_failed, GATEWAY_DATAGRAM_BYTES)
        self._receipts = self._receipts_to(origin)
        settings = SessionSettings(**asdict(gateway.devices.settings))
        self._session = ServerSession(gateway.now_s(), os.urandom, settings)

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
    def last_received_s(self) -> float:
        return self._session.last_received_s

    def under_way(self) -> list[Assembling]:
        """The commands of which packets are missing."""
        return self._session.assembler.under_way()

    @property
    def sends_acks(self) -> bool:
        return False

    @property
    def pulls_backlog(self) -> bool:
        return False

    @property
    def encoding_key(self) -> Hashable | None:
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

    def encode_notification(self, message: Message) -> bytes:
        return self._session.encode_notification(message)

    def write(self, data: bytes) -> None:
        self._outbox.write(data)

    def send(self, message: Message) -> None:
        """Raises StateError for a request that cannot be made now: whoever asks has to hear of it."""
        if self._closing is None:
            if message.kind is Kind.REQUEST and self._commands_to is None:
                raise StateError(f"no sealed packet received from device {self.identity!r} yet: its address is unknown")
            try:
                self._take(self._session.send(message, self._gateway.now_s()))
            except StateError as error:
                if message.kind is Kind.REQUEST:
                    raise
                _log.debug("device %s: %s", self.identity, error)
            self._watch()  # for the receipt, and for the answer

    def close(self, closing: Closing) -> None:
        if self._closing is None:
            try:
                self._take(self._session.close(closing, self._gateway.now_s()))
            except StorageError as error:
                self._storage_failed(error)
            self._finish(closing)

    def receive(self, raw: bytes, packet: Packet, origin: Origin) -> None:
        gateway = self._gateway
        gateway.recorder.frames(self._at(origin), "in", [raw])
        self._answer_to(origin)
        self.frames_in += 1
        self.bytes_in += len(raw)
        gateway.devices.publications.settle()
        if not packet.params & (RECEIPT | ANSWER) and gateway.devices.refuses(1):
            return
        seals = self._session.seals
        held = self._session.assembling_bytes
        self._packet = packet
        step = self._session.receive(packet, gateway.now_s())
        if self._unpublished is not None:
            self._unpublished.add_to(step, packet)
        self._take(step)
        self._packet = None
        if gateway.devices.assembling(self._session.assembling_bytes - held):
            held = self._session.assembling_bytes
            self._take(self._session.relieve(gateway.now_s()))
            gateway.devices.assembling(-held)
        self._follow(origin, sealed=self._session.seals > seals)
        self._watch()
        if (
            packet.params == PARAMS
            and packet.device_type not in self._lines
            and not packet.broadcast
            and self._skimmable
        ):
            line = self._lines[packet.device_type] = ReportStream(self, packet.device_type, self._session)
            gateway.devices.lines[line.head] = line

    @property
    def _skimmable(self) -> bool:
        """A device whose topic cannot be made is read alone: it must not keep the others' reports from being taken."""
        broker = self._gateway.broker
        has_topic = not Topic(broker.devices_topic).is_durable or broker.durable.topics.head(
            f"{broker.devices_topic}/{self.identity}"
        )
        return bool(has_topic) and self._session.skimmable

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
        self._session.last_received_s = now_s

    def reported(self, line: ReportStream, command_no: int, content: bytes, now_s: float) -> list[Message]:
        """What a skimmed report says."""
        messages = self._session.reported(line.device_type, command_no, content, now_s).messages
        for message in messages:
            self._count_failure(message)
        return messages

    def forget_lines(self) -> None:
        """Read its packets one by one from now on."""
        for line in self._lines.values():
            self._gateway.devices.lines.pop(line.head, None)
        self._lines.clear()

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
        published: Commit | None = None
        for message in step.messages:
            if control_op(message) is Op.LOGIN:
                self.send(Message(kind=Kind.RESPONSE, correlation=message.correlation, fields=self._known()))
            elif message.kind is Kind.TELEMETRY and self._packet is not None:
                published = self._publish(self._packet, message)
            elif message.kind is Kind.CONTROL and message.name == Receipt.name:
                note_receipt(gateway.broker.services, message.correlation)
            else:
                self._count_failure(message)
                gateway.on_device_message(self, message)
        receipts = [frame.encode() for frame in step.frames if isinstance(frame, Receipt)]
        commands = [frame.encode() for frame in step.frames if not isinstance(frame, Receipt)]
        if receipts:
            self.frames_out += len(receipts)
            recorded = gateway.recorder.frames(self._at(self._heard_from), "out", receipts)
            _hold(receipts, self._receipts, gateway.devices.publications.promise(recorded, published))
        if commands:
            self.frames_out += len(commands)
            _hold(commands, self._outbox, gateway.recorder.frames(self, "out", commands))
        if step.closing is not None:
            self._finish(step.closing)

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

    def _count_failure(self, message: Message) -> None:
        """Count a command that was not complete in time, or was refused, by its reason."""
        reason, state = message.fields.get("reason"), message.fields.get("state")
        if message.kind is not Kind.EVENT or not isinstance(reason, str):
            return
        if state in _FAILED:
            self._gateway.counters.device_commands[state, reason] += 1
        if reason in _FORGED:
            self._gateway.counters.errors[self.protocol, reason] += 1
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
        self._gateway.devices.locate(self, self._commands_to, origin)
        self._commands_to, self.address = origin, origin.address

    def _answer_to(self, origin: Origin) -> None:
        """Receipts go there from now on; those on their way go where they were to go."""
        if not origin.is_same(self._heard_from):
            self._receipts = self._receipts_to(origin)
        self._heard_from = origin

    def _receipts_to(self, origin: Origin) -> Outbox:
        return Outbox(
            self._gateway.commit_barrier,
            partial(self._send_back, origin.link),
            self._storage_failed,
            GATEWAY_DATAGRAM_BYTES,
        )

    def _at(self, origin: Origin) -> "DevicePeer | _Elsewhere":
        return self if origin.address == self.address else _Elsewhere(self, origin.address)

    def _publish(self, packet: Packet, message: Message) -> Commit | None:
        """Publish the command that this packet completed; return what its receipt waits for."""
        try:
            commit = self._gateway.on_device_message(self, message)
        except StorageError as error:
            self._withdraw(packet, message)
            return Commit.resolved(error)
        if commit is not None:
            self._gateway.devices.publications.add(commit, partial(self._withdraw, packet, message))
        return commit

    def _withdraw(self, packet: Packet, message: Message) -> None:
        """Its publication failed. Other packets of the command may have their receipts, and will not come again."""
        if packet.params == PARAMS:
            self._session.assembler.finished.forget((packet.device_type, packet.serial), packet.command_no)
            return
        if self._unpublished is None:
            self._unpublished = Unpublished()
        self._unpublished.keep(packet, message)

    def _send(self, data: bytes) -> None:
        if self._commands_to is None:
            _log.debug("device %s: nothing sent, because no sealed packet was received from it yet", self.identity)
            return
        self._send_back(self._commands_to.link, data)

    def _send_back(self, link: Link, data: bytes) -> None:
        self.bytes_out += len(data)
        link(data)

    def _finish(self, closing: Closing) -> None:
        if self._closing is None:
            self._closing = closing
            self._gateway.devices.gone(self, closing, self._commands_to)
            self._gateway.devices.seals.save()

    def _storage_failed(self, error: StorageError) -> None:
        """No receipt: the device sends again."""
        self._gateway.devices.publications.log_refusal(error)


def _hold(wires: list[bytes], outbox: Outbox, commit: Commit) -> None:
    for wire in wires:
        outbox.hold(wire, commit)
