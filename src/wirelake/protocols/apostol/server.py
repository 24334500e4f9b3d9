"""The gateway's end of a session."""

from collections.abc import Callable

from msgspec import Struct
from msgspec.structs import replace

from wirelake.errors import SealError, StateError
from wirelake.limits import GATEWAY_UNPUBLISHED_PER_DEVICE_MAX
from wirelake.message import BROADCAST, Credentials, Failure, Kind, Op, control
from wirelake.message import Message as Common
from wirelake.protocols.apostol.assembly import Assembled, State
from wirelake.protocols.apostol.commands import Command, DeviceCommand
from wirelake.protocols.apostol.constants import (
    ANSWER,
    APOSTOL_HELD_BYTES_MAX,
    APOSTOL_HELD_PACKETS_MAX,
    APOSTOL_PACKET_BYTES_MAX,
    BROADCAST_DEVICE,
    FIRST,
    LAST,
    RECEIPT,
    REQUEST_BIT,
    SEALED,
    TO_DEVICE,
)
from wirelake.protocols.apostol.duplicates import Replays, pack_replays, unpack_replays
from wirelake.protocols.apostol.envelope import check_key
from wirelake.protocols.apostol.frames import Packet, Receipt
from wirelake.protocols.apostol.packet_session import PacketSession, SentCommand
from wirelake.protocols.apostol.session import SERVER_MACHINE, ServerState, SessionSettings
from wirelake.protocols.apostol.translation import (
    PROTOCOL_NAME,
    command_bytes,
    command_message,
    device_of,
)
from wirelake.protocols.device_session import (
    DELIVERED,
    KEY_FIELD,
    MEMORY_FIELD,
    Assembling,
    DeviceSession,
)
from wirelake.protocols.frame import Frame, Sender
from wirelake.protocols.reassembly import REPLAYED
from wirelake.protocols.session import Closing, Step


class ServerSession(PacketSession, DeviceSession):
    """The gateway's end. Where a seal is required, it remembers sealed commands, so that none is accepted twice.

    What it remembers survives a restart: see `take_unsaved`. `wall_s` returns the system's time, with which the clocks
    of devices are compared.
    """

    state_machine = SERVER_MACHINE
    forgery_reasons = frozenset({REPLAYED, "unsealed", "bad_seal"})
    __slots__ = (
        "_held",
        "_held_bytes",
        "_is_sealed",
        "_replays",
        "_requests",
        "_unpublished",
        "_unsaved",
        "_wall_s",
        "_was_sealed",
    )

    def __init__(
        self,
        now_s: float,
        random: Callable[[int], bytes],
        settings: SessionSettings = SessionSettings(),
        wall_s: Callable[[], float] = lambda: 0.0,
    ) -> None:
        super().__init__(now_s, random, settings, settings.idle_s)
        self._held: list[Packet] = []
        self._held_bytes = 0
        self._wall_s = wall_s
        self._replays: dict[int, Replays] | None = None  # by device type; None where no seal is required
        self._unsaved: set[int] = set()  # device types whose replays changed
        self._is_sealed = False  # the last packet completed a sealed command
        self._was_sealed = False  # an earlier packet did
        self._requests: dict[int, _Request] = {}  # by command number, in the order of their deadlines
        # Reports that were not published, by device type, serial and command number, until they are repeated.
        self._unpublished: dict[tuple[int, str, int], Common] | None = None

    def receive(self, frame: Frame, now_s: float) -> Step:
        self._is_sealed = False
        step = super().receive(frame, now_s)
        if self._unpublished is not None and isinstance(frame, Packet):
            self._hand_up_again(frame, step)
        return step

    @property
    def has_key(self) -> bool:
        """Return whether the device can seal its commands."""
        return self._key is not None

    @property
    def sealed_only(self) -> bool:
        """Return whether unsealed commands of the device are refused."""
        return self.settings.require_seal and self._key is not None

    @property
    def is_located(self) -> bool:
        """Return whether the last packet shows where the device is.

        Where a seal is required, or once the device sent one, only a valid seal does; else, any packet.
        """
        return self._is_sealed or not (self.has_key and (self.sealed_only or self._was_sealed))

    @property
    def assembling_bytes_max(self) -> int:
        return self.settings.assembling_bytes

    @property
    def assembly_s(self) -> float:
        return self.settings.assembly_s

    def under_way(self) -> list[Assembling]:
        return self.assembler.under_way()

    # Reports

    @property
    def can_batch(self) -> bool:
        """Return whether an unsealed report in one packet only has to be confirmed, remembered and handed up."""
        fits = self.settings.command_bytes_max >= APOSTOL_PACKET_BYTES_MAX
        return self.state is ServerState.READY and not self.sealed_only and fits

    def on_batch(self, now_s: float) -> None:
        """Take note that reports of this device were accepted in a batch."""
        self.last_received_s = now_s
        self._is_sealed = False

    def report(self, device_type: int, command_no: int, data: bytes, now_s: float) -> list[Common]:
        """Return the messages of a report that was accepted in a batch."""
        step = Step()
        assembled = Assembled(State.COMPLETE, device_type, self.serial, command_no, 0, data, 1, 0, 0, now_s, now_s)
        self._hand_up(assembled, step)
        return step.messages

    def is_report(self, frame: Frame) -> bool:
        return isinstance(frame, Packet) and not frame.params & (RECEIPT | ANSWER)

    def withdraw(self, frame: Frame, report: Common) -> None:
        """Forget a report in one packet. Keep any other: the device does not resend packets that have receipts."""
        if not isinstance(frame, Packet):
            return
        if frame.params == FIRST | LAST:
            self.assembler.finished.forget((frame.device_type, frame.serial), frame.command_no)
            return
        if self._unpublished is None:
            self._unpublished = {}
        elif len(self._unpublished) >= GATEWAY_UNPUBLISHED_PER_DEVICE_MAX:
            del self._unpublished[next(iter(self._unpublished))]
        self._unpublished[frame.device_type, frame.serial, frame.command_no] = report

    def _hand_up_again(self, packet: Packet, step: Step) -> None:
        """Hand up a withdrawn report when it is repeated, unless its number is used for a new one."""
        if self._unpublished is None or not self.is_report(packet):
            return
        report = self._unpublished.pop((packet.device_type, packet.serial, packet.command_no), None)
        if report is not None and not any(each.kind is Kind.TELEMETRY for each in step.messages):
            step.messages.append(report)

    # Replays

    @property
    def has_unsaved(self) -> bool:
        return bool(self._unsaved)

    def take_unsaved(self) -> dict[int, bytes]:
        unsaved, self._unsaved = self._unsaved, set()
        return {
            number: pack_replays(self._replays[number])
            for number in unsaved
            if self._replays and number in self._replays
        }

    def keep_unsaved(self, number: int) -> None:
        self._unsaved.add(number)

    # Packets

    def _is_for_us(self, packet: Packet) -> bool:
        """Accept broadcasts too: the listener knows which device sent them, and gives them to its session."""
        return (packet.serial == self.serial or packet.broadcast) and not packet.to_device

    def _receive_first(self, packet: Packet, now_s: float, step: Step) -> None:
        if packet.to_device or packet.broadcast:
            self.ignored.misdirected += 1
            return
        self.state = ServerState.CHECKING
        self.serial = packet.serial
        self.device_type = packet.device_type
        self.deadlines["check"] = now_s + self.settings.check_s
        self._hold(packet, now_s, step)
        step.messages.append(
            control(
                Op.LOGIN,
                name=packet.name,
                protocol=PROTOCOL_NAME,
                source=packet.serial,
                correlation="login",
                credentials=Credentials(packet.serial, ""),
                fields={"device_type": packet.device_type},
            )
        )

    def _ignore_receipt(self, _receipt: Receipt, _now_s: float, _step: Step) -> None:
        self.ignored.unknown_receipts += 1

    def _hold(self, packet: Packet, _now_s: float, _step: Step) -> None:
        size = len(packet.data)
        if len(self._held) >= APOSTOL_HELD_PACKETS_MAX or self._held_bytes + size > APOSTOL_HELD_BYTES_MAX:
            self.ignored.not_held += 1
            return
        self._held.append(packet)
        self._held_bytes += size

    def _decide(self, message: Common, now_s: float, step: Step) -> None:
        key = message.fields.get(KEY_FIELD)
        if key is not None:
            check_key(key)
        self.deadlines.pop("check", None)
        held, self._held = self._held, []
        if message.failure is not None:
            self.state = ServerState.CLOSED
            step.closing = Closing("device_refused", message.failure.text)
            return
        self.state = ServerState.READY
        self._use_key(key)
        if self.sealed_only:
            saved = message.fields.get(MEMORY_FIELD, {})
            self._replays = {device_type: unpack_replays(stored) for device_type, stored in saved.items()}
        self.assembler.sealed_only = self.sealed_only
        for packet in held:
            self._receive_packet(packet, now_s, step)

    def _too_late(self, _event: str, _now_s: float, step: Step) -> None:
        step.closing = Closing("check_timeout", "the device was not looked up in time")

    def _open(self, assembled: Assembled) -> Command:
        """Open a command as either end does, but raise SealError for a sealed one that was received before."""
        command = super()._open(assembled)
        if assembled.params & SEALED:
            if isinstance(command, DeviceCommand) and self._is_replayed(assembled, command):
                raise SealError(REPLAYED, "this sealed command came before, or is too old to tell", 0)
            self._is_sealed = self._was_sealed = True
        return command

    def _is_replayed(self, assembled: Assembled, command: DeviceCommand) -> bool:
        if self._replays is None:
            return False
        device_type = assembled.device_type
        replays = self._replays.setdefault(device_type, Replays())
        if not replays.take(command.time, assembled.data, self._wall_s(), self.settings.replay_window_s):
            return True
        self._unsaved.add(device_type)
        return False

    def _on_command(self, assembled: Assembled, command: Command, step: Step) -> None:
        message = command_message(assembled, command)
        if (assembled.device_type, assembled.serial) == BROADCAST_DEVICE:
            message = replace(message, source=self.serial, headers={**message.headers, BROADCAST: True})
        if not assembled.answer:
            step.messages.append(message)
            return
        request = self._requests.get(assembled.command_no)
        if request is None or request.command_type & ~REQUEST_BIT != command.command_type:
            step.messages.append(replace(message, kind=Kind.EVENT, fields={**message.fields, "state": "unasked"}))
            return
        del self._requests[assembled.command_no]
        self._outbox.drop(assembled.command_no)  # the device answers, so it has the request
        step.messages.append(replace(message, correlation=request.correlation))

    def _send_request(self, message: Common, now_s: float, step: Step) -> None:
        is_broadcast = _is_broadcast(message)
        if not is_broadcast:
            self._check_device(message)
        command = command_bytes(message, Sender.SERVER)
        number = self._next_command_no()
        packets = self._build_packets(message, command, TO_DEVICE, number, BROADCAST_DEVICE if is_broadcast else None)
        self._send_packets(packets, message.correlation, now_s, step)
        due_s = now_s + self.settings.request_s
        self._requests[number] = _Request(message.correlation, command[0], due_s, is_broadcast)
        self._set_deadlines()

    def _send_event(self, message: Common, now_s: float, step: Step) -> None:
        command = command_bytes(message, Sender.SERVER)
        if _is_broadcast(message):
            number = self._next_command_no()
            step.frames.extend(self._build_packets(message, command, TO_DEVICE, number, BROADCAST_DEVICE))
            return
        self._check_device(message)
        packets = self._build_packets(message, command, TO_DEVICE, self._next_command_no())
        self._send_packets(packets, message.correlation, now_s, step)

    def _check_device(self, message: Common) -> None:
        target = device_of(message, Sender.SERVER)
        if target.serial != self.serial:
            raise StateError(f"this is the session of device '{self.serial}', not of '{target.serial}'")

    def _on_delivered(self, sent: SentCommand, step: Step) -> None:
        """Report receipts of a broadcast, which are counted; for a request to one device, only its answer matters."""
        request = self._requests.get(sent.command_no)
        if request is not None and request.is_broadcast:
            step.messages.append(
                Common(
                    kind=Kind.CONTROL,
                    name=DELIVERED,
                    protocol=PROTOCOL_NAME,
                    source=self.serial,
                    correlation=request.correlation,
                )
            )

    def _on_undelivered(self, sent: SentCommand, failure: Failure, _now_s: float, step: Step) -> None:
        request = self._requests.pop(sent.command_no, None)
        if request is not None:
            step.messages.append(self._response(request.correlation, failure))
            return
        step.messages.append(self._undelivered_event(sent, failure))

    def _expire_requests(self, _event: str, now_s: float, step: Step) -> None:
        for number, request in [item for item in self._requests.items() if item[1].due_s <= now_s]:
            del self._requests[number]
            self._outbox.drop(number)
            failure = Failure(f"no answer within {self.settings.request_s:g} s")
            step.messages.append(self._response(request.correlation, failure))
        self._set_deadlines()

    def _is_in_use(self, command_no: int) -> bool:
        return command_no in self._requests or super()._is_in_use(command_no)

    def _set_deadlines(self) -> None:
        super()._set_deadlines()
        due_s = next((request.due_s for request in self._requests.values()), None)
        if due_s is None:
            self.deadlines.pop("request", None)
        else:
            self.deadlines["request"] = due_s

    def _close(self, closing: Closing, now_s: float, step: Step) -> None:
        super()._close(closing, now_s, step)
        requests, self._requests = self._requests, {}
        for request in requests.values():
            step.messages.append(self._response(request.correlation, Failure("the session ended")))

    def _silent(self, _event: str, now_s: float, step: Step) -> None:
        self._close(Closing("idle", f"no data received for {self.settings.idle_s:g} s"), now_s, step)


class _Request(Struct):
    correlation: str
    command_type: int
    due_s: float
    is_broadcast: bool


def _is_broadcast(message: Common) -> bool:
    target = device_of(message, Sender.SERVER)
    return (target.type, target.serial) == BROADCAST_DEVICE
