"""Drive the session of a device that is identified by its frames, and track the address of the device.

A reply is sent to the origin of the frame that it answers. Everything else is sent to the location of the device: the
origin of its last frame, unless that may be forged (`DeviceSession.is_located`).
"""

import logging
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final

from msgspec import Struct
from msgspec.structs import replace

from wirelake.commit import Commit
from wirelake.errors import InputError, StateError, StorageError
from wirelake.gateway.devices.broadcast import on_receipt
from wirelake.gateway.transport.context import TransportContext
from wirelake.gateway.transport.driver import GatewayDriver
from wirelake.gateway.transport.outbox import Outbox
from wirelake.limits import GATEWAY_DATAGRAM_BYTES
from wirelake.message import Kind, Message, Op, Topic, control_op
from wirelake.protocols.device_session import DELIVERED, KEY_FIELD, MEMORY_FIELD, Assembling, DeviceSession
from wirelake.protocols.frame import Frame
from wirelake.protocols.reassembly import EXPIRED, REFUSED, REPLAYED
from wirelake.protocols.session import Closing, Step
from wirelake.protocols.splitter import DatagramSplitter

if TYPE_CHECKING:
    from wirelake.gateway.devices.listener import DeviceListener
    from wirelake.gateway.devices.sessions import DeviceSessions

_log = logging.getLogger(__name__)
SendBytes = Callable[[bytes], None]
_FAILED: Final = frozenset({EXPIRED, REFUSED})  # states of commands without content
_WHOLE_FRAMES: Final = DatagramSplitter(0)  # the listener has split the frames already


class Origin(Struct, frozen=True):
    """Describe where a frame came from, and how to send bytes there."""

    address: str
    send: SendBytes
    is_stream: bool = False  # a TCP connection: one object for all of its frames

    @property
    def key(self) -> tuple[str, bool]:
        """Return a key that distinguishes UDP and TCP senders with the same address and port."""
        return self.address, self.is_stream

    def is_same(self, other: "Origin") -> bool:
        return self is other or (self.address == other.address and not self.is_stream and not other.is_stream)


class UnknownSender:
    """Name the sender in a record without a session: an unregistered device, or bytes that are not a frame."""

    __slots__ = ("address", "id", "identity", "protocol")

    def __init__(self, protocol: str, address: str, identity: str = "", session: str = "") -> None:
        self.protocol = protocol
        self.id = session
        self.identity = identity
        self.address = address


class DeviceDriver(GatewayDriver):
    """Drive the session of one device for as long as its frames arrive."""

    __slots__ = ("_devices", "_frame", "_listener", "_location", "_origin", "_replies")
    _session: DeviceSession

    def __init__(
        self,
        context: TransportContext,
        devices: "DeviceSessions",
        listener: "DeviceListener",
        serial: str,
        origin: Origin,
    ) -> None:
        super().__init__(context, listener.protocol)
        self._listener = listener
        self.identity = serial
        self.id = context.sessions.new_id()
        self.address = origin.address
        self.opened_at_ms = context.now_ms()
        self._devices = devices
        self._location: Origin | None = None  # of the device; `address` is the same
        self._origin = origin  # of the last frame
        self._frame: Frame | None = None  # being received
        self._outbox = Outbox(
            context.commit_barrier, self._send_to_device, self.on_storage_error, GATEWAY_DATAGRAM_BYTES
        )
        self._replies = self._replies_to(origin)
        self._splitter = _WHOLE_FRAMES
        session = context.factory.new_session(listener.protocol, listener.address, context.now_s(), is_stream=False)
        if not isinstance(session, DeviceSession):
            raise InputError(f"{self.protocol}: a protocol with device_of must create sessions of type DeviceSession")
        self._session = session

    # Interface for the API

    @property
    def assembling(self) -> int:
        return self._session.assembling

    @property
    def assembling_bytes(self) -> int:
        return self._session.assembling_bytes

    @property
    def assembly_s(self) -> float:
        return self._session.assembly_s

    @property
    def device_type(self) -> int:
        """Return the type that the device reports."""
        return self._session.device_type

    @property
    def pending_bytes(self) -> int:
        return self._outbox.bytes + self._replies.bytes

    def under_way(self) -> list[Assembling]:
        """Return the commands that are incomplete."""
        return list(self._session.under_way())

    # Interface for the broker

    @property
    def encoding_key(self) -> None:
        """Return None: no two devices receive the same bytes."""
        return

    @property
    def takes_broadcasts(self) -> bool:
        return self._protocol.device_codes is not None

    @property
    def bytes_drained(self) -> int:
        return self.bytes_out

    def send(self, message: Message) -> None:
        if message.kind is Kind.REQUEST and self._location is None and self._closing is None:
            raise StateError(f"no sealed packet received from device {self.identity!r} yet: its address is unknown")
        super().send(message)

    def close(self, closing: Closing) -> None:
        try:
            super().close(closing)
        except StorageError as error:
            self.on_storage_error(error)
            self._finish(closing)

    def tick(self, now_s: float) -> float | None:
        before = self._session.assembling_bytes
        try:
            due_s = super().tick(now_s)
            self._devices.count_assembling(self._session.assembling_bytes - before)
        except StorageError as error:
            self.on_storage_error(error)
            due_s = self._session.deadline_s
            self._due_s = float("inf") if due_s is None else due_s
        return due_s

    def on_storage_error(self, error: StorageError) -> None:
        """Log the error and send no reply, so that the device resends its report."""
        self._devices.publications.log_error(error)

    # Frames

    def receive(self, raw: bytes, frame: Frame, origin: Origin) -> None:
        context, devices, session = self._context, self._devices, self._session
        context.recorder.frames(self._sender_at(origin), "in", self._protocol.redact_all([raw], self._remote))
        self._reply_to(origin)
        self.frames_in += 1
        self.bytes_in += len(raw)
        devices.publications.withdraw_failed()
        if session.is_report(frame) and devices.refuses(self.protocol, 1):
            return
        now_s, before = context.now_s(), session.assembling_bytes
        self._frame = frame
        try:
            self._apply(session.receive(frame, now_s))
        finally:
            self._frame = None
            if session.has_unsaved:
                devices.memory.add(self)
        if devices.count_assembling(session.assembling_bytes - before) > session.assembling_bytes_max:
            before = session.assembling_bytes
            self._apply(session.relieve(now_s))
            devices.count_assembling(session.assembling_bytes - before)
        self._locate(origin)
        self._watch()
        reader = self._listener.reader
        if reader is not None and reader.can_add(self, frame) and session.can_batch and self._has_topic:
            reader.add(self, session, frame)

    def read_one_by_one(self) -> None:
        """Decode the reports of this device one by one from now on, not in batches."""
        if self._listener.reader is not None:
            self._listener.reader.remove(self)

    def on_batch(self, count: int, bytes_in: int, bytes_out: int, origin: Origin) -> None:
        """Count reports that were accepted in a batch."""
        self._locate(origin)
        self.frames_in += count
        self.frames_out += count
        self.bytes_in += bytes_in
        self.bytes_out += bytes_out

    def hold_reply(self, reply: bytes, commit: Commit, origin: Origin) -> None:
        """Send a reply to the origin once the commit is durable."""
        self._reply_to(origin)
        self._replies.hold(reply, commit)

    def count_failure(self, message: Message) -> None:
        """Count a command that expired or was refused, by its reason."""
        reason, state = message.fields.get("reason"), message.fields.get("state")
        if message.kind is not Kind.EVENT or not isinstance(reason, str):
            return
        if state in _FAILED:
            self._context.counters.device_commands[state, reason] += 1
        if reason in self._session.forgery_reasons:
            self._context.counters.errors[self.protocol, reason] += 1
            if reason == REPLAYED:
                note = {"reason": reason, "command_no": message.correlation}
                self._context.recorder.event(self._sender_at(self._origin), "refuse", note, "in")

    @property
    def _has_topic(self) -> bool:
        """Return whether the topic of its reports exists: a topic that cannot be created must not fail a batch."""
        broker = self._context.broker
        return not Topic(broker.devices_topic).is_durable or bool(
            broker.durable.topics.head(f"{broker.devices_topic}/{self.identity}")
        )

    # Steps

    def _publish(self, report: Message) -> Commit | None:
        """Publish a report of this device. If that fails, now or later, withdraw it so that its repeat is accepted."""
        frame, own = self._frame, report
        if report.source != self.identity:  # a device speaks for nobody else
            own = replace(report, source=self.identity)
        if frame is None:
            return super()._publish(own)
        try:
            commit = super()._publish(own)
        except StorageError as error:
            self._session.withdraw(frame, report)
            return Commit.resolved(error)
        if commit is not None:
            self._devices.publications.add(commit, partial(self._session.withdraw, frame, report))
        return commit

    def _apply(self, step: Step) -> None:
        """Apply a step. Raise StorageError if the log or the state refuses something: no reply goes out then."""
        messages, published = self._publish_telemetry(step.messages)
        if step.frames:
            self._write_frames(step.frames, published)
        for message in messages:
            if control_op(message) is Op.LOGIN:
                self.send(
                    Message(kind=Kind.RESPONSE, correlation=message.correlation, fields=self._registered_fields())
                )
            elif message.kind is Kind.CONTROL and message.name == DELIVERED:
                on_receipt(self._context.broker.services, message.correlation)
            else:
                self.count_failure(message)
                self._context.dispatcher.on_device_message(self, message)
        if step.closing is not None:
            self._finish(step.closing)

    def _registered_fields(self) -> dict[str, object]:
        """Return the registered key and memory of the device, for its session."""
        registry = self._devices.registry
        device = registry.find(self.identity)
        if device is None or device.key is None:
            return {}
        return {KEY_FIELD: device.key, MEMORY_FIELD: registry.seals(self.identity)}

    def _write_frames(self, frames: list[Frame], published: Commit | None) -> None:
        """Write replies to the origin and other frames to the device, one by one: datagrams hold whole frames."""
        replies = [frame.encode() for frame in frames if frame.is_reply]
        others = [frame.encode() for frame in frames if not frame.is_reply]
        recorder, sender = self._context.recorder, self._remote.other
        self.frames_out += len(frames)
        if replies:
            logged = recorder.frames(self._sender_at(self._origin), "out", self._protocol.redact_all(replies, sender))
            commit = self._devices.publications.receipt_commit(logged, published)
            for reply in replies:
                self._replies.hold(reply, commit)
        if others:
            logged = recorder.frames(self, "out", self._protocol.redact_all(others, sender))
            for other in others:
                self._outbox.hold(other, logged)

    def _finish(self, closing: Closing) -> None:
        if self._closing is None:
            self._closing = closing
            self._devices.on_close(self, closing, self._location)
            self._devices.memory.save()

    # Location

    def _locate(self, origin: Origin) -> None:
        if self._session.is_located:
            self._devices.locate(self, self._location, origin)
            self._location, self.address = origin, origin.address

    def _reply_to(self, origin: Origin) -> None:
        """Send replies to this origin from now on. Replies that are held keep their destination."""
        if not origin.is_same(self._origin):
            self._replies = self._replies_to(origin)
        self._origin = origin

    def _replies_to(self, origin: Origin) -> Outbox:
        send = partial(self._send_bytes, origin.send)
        return Outbox(self._context.commit_barrier, send, self.on_storage_error, GATEWAY_DATAGRAM_BYTES)

    def _sender_at(self, origin: Origin) -> "DeviceDriver | UnknownSender":
        """Return the sender to record for a frame from or to this origin."""
        if origin.address == self.address:
            return self
        return UnknownSender(self.protocol, origin.address, self.identity, self.id)

    def _send_to_device(self, data: bytes) -> None:
        if self._location is None:
            _log.debug("device %s: nothing sent, because no sealed packet was received from it yet", self.identity)
            return
        self._send_bytes(self._location.send, data)

    def _send_bytes(self, send: SendBytes, data: bytes) -> None:
        self.bytes_out += len(data)
        send(data)
