"""The gateway's end of a device's life."""

from collections.abc import Callable

from msgspec import Struct
from msgspec.structs import replace

from wirelake.errors import SealError, StateError
from wirelake.message import BROADCAST, Credentials, Failure, Kind, Op, control
from wirelake.message import Message as Common
from wirelake.protocols.apostol import crypto
from wirelake.protocols.apostol.assembly import Assembled, State
from wirelake.protocols.apostol.commands import Command, DeviceCommand
from wirelake.protocols.apostol.frames import Packet, Receipt
from wirelake.protocols.apostol.limits import APOSTOL_HELD_BYTES_MAX, APOSTOL_HELD_PACKETS_MAX, APOSTOL_PACKET_BYTES_MAX
from wirelake.protocols.apostol.opcodes import BROADCAST_DEVICE, REQUEST_BIT, SEALED, TO_DEVICE
from wirelake.protocols.apostol.outbox import Sent
from wirelake.protocols.apostol.peer import Peer
from wirelake.protocols.apostol.session import SERVER_MACHINE, ServerState, SessionSettings
from wirelake.protocols.apostol.translation import (
    PROTOCOL_NAME,
    command_bytes,
    command_message,
    device_of,
)
from wirelake.protocols.frame import Sender
from wirelake.protocols.session import Closing, Step

IsNew = Callable[[int, int, bytes], bool]  # device_type, device time, the sealed command


class ServerSession(Peer):
    """The answer to the login may bring the device's key, as the field `key`, and as the field `is_new` who is asked,
    where a seal is required, whether a sealed command never came before.
    """

    state_machine = SERVER_MACHINE
    __slots__ = ("_held", "_held_bytes", "_is_new", "_requests", "seals")

    def __init__(
        self, now_s: float, random: Callable[[int], bytes], settings: SessionSettings = SessionSettings()
    ) -> None:
        super().__init__(now_s, random, settings, settings.idle_s)
        self._held: list[Packet] = []
        self._held_bytes = 0
        self._is_new: IsNew | None = None
        self.seals = 0  # how many commands came whose seal holds, and that are new
        self._requests: dict[int, _Request] = {}  # by command number, in the order in which they fall due

    @property
    def has_key(self) -> bool:
        return self._key is not None

    @property
    def sealed_only(self) -> bool:
        """Whether commands of the device in clear are refused."""
        return self.settings.require_seal and self._key is not None

    @property
    def skimmable(self) -> bool:
        """Whether plain reports in one packet need no more than `skimming` does: receipt, memory, message."""
        fits = self.settings.command_bytes_max >= APOSTOL_PACKET_BYTES_MAX
        return self.state is ServerState.READY and not self.sealed_only and fits

    def reported(self, device_type: int, command_no: int, data: bytes, now_s: float) -> Step:
        """What follows from a report that was skimmed, beside its receipt."""
        step = Step()
        whole = Assembled(State.COMPLETE, device_type, self.serial, command_no, 0, data, 1, 0, 0, now_s, now_s)
        self._hand_up(whole, step)
        return step

    def _is_for_us(self, packet: Packet) -> bool:
        """Also a broadcast: whoever sorts packets by device knows which one it came from."""
        return (packet.serial == self.serial or packet.broadcast) and not packet.to_device

    def _first(self, packet: Packet, now_s: float, step: Step) -> None:
        if packet.to_device or packet.broadcast:
            self.counts.astray += 1
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

    def _stray(self, _receipt: Receipt, _now_s: float, _step: Step) -> None:
        self.counts.unknown_receipts += 1

    def _hold(self, packet: Packet, _now_s: float, _step: Step) -> None:
        size = len(packet.data)
        if len(self._held) >= APOSTOL_HELD_PACKETS_MAX or self._held_bytes + size > APOSTOL_HELD_BYTES_MAX:
            self.counts.not_held += 1
            return
        self._held.append(packet)
        self._held_bytes += size

    def _decide(self, message: Common, now_s: float, step: Step) -> None:
        key = message.fields.get("key")
        if key is not None:
            crypto.check_key(key)
        self.deadlines.pop("check", None)
        held, self._held = self._held, []
        if message.failure is not None:
            self.state = ServerState.CLOSED
            step.closing = Closing("device_refused", message.failure.text)
            return
        self.state = ServerState.READY
        self._use_key(key)
        self._is_new = message.fields.get("is_new")
        self.assembler.sealed_only = self.sealed_only
        for packet in held:
            self._packet(packet, now_s, step)

    def _undecided(self, _event: str, _now_s: float, step: Step) -> None:
        step.closing = Closing("check_timeout", "whether the device is known was not decided in time")

    def _opened(self, assembled: Assembled) -> Command:
        """Raises ProtocolError, also for a sealed command that came before: a repeat is none, whoever sends it."""
        command = super()._opened(assembled)
        if assembled.params & SEALED:
            if isinstance(command, DeviceCommand) and self._is_replayed(assembled, command):
                raise SealError("replayed", "this sealed command came before, or is too old to tell", 0)
            self.seals += 1
        return command

    def _is_replayed(self, assembled: Assembled, command: DeviceCommand) -> bool:
        is_new = self._is_new if self.sealed_only else None
        return is_new is not None and not is_new(assembled.device_type, command.time, assembled.data)

    def _command(self, assembled: Assembled, command: Command, step: Step) -> None:
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
        self._outbox.drop(assembled.command_no)  # who answers has read it
        step.messages.append(replace(message, correlation=request.correlation))

    def _ask(self, message: Common, now_s: float, step: Step) -> None:
        is_broadcast = _is_broadcast(message)
        if not is_broadcast:
            self._check_device(message)
        command = command_bytes(message, Sender.SERVER)
        number = self._free_no()
        packets = self._build(message, command, TO_DEVICE, number, BROADCAST_DEVICE if is_broadcast else None)
        self._post(packets, message.correlation, now_s, step)
        due_s = now_s + self.settings.request_s
        self._requests[number] = _Request(message.correlation, command[0], due_s, is_broadcast)
        self._set_deadlines()

    def _tell(self, message: Common, now_s: float, step: Step) -> None:
        command = command_bytes(message, Sender.SERVER)
        if _is_broadcast(message):
            step.frames.extend(self._build(message, command, TO_DEVICE, self._free_no(), BROADCAST_DEVICE))
            return
        self._check_device(message)
        self._post(self._build(message, command, TO_DEVICE, self._free_no()), message.correlation, now_s, step)

    def _check_device(self, message: Common) -> None:
        target = device_of(message, Sender.SERVER)
        if target.serial != self.serial:
            raise StateError(f"this is the session of device '{self.serial}', not of '{target.serial}'")

    def _delivered(self, sent: Sent, step: Step) -> None:
        """Tell who collects the receipts of a broadcast; a request to one device is known by its answer."""
        request = self._requests.get(sent.command_no)
        if request is not None and request.is_broadcast:
            step.messages.append(
                Common(
                    kind=Kind.CONTROL,
                    name=Receipt.name,
                    protocol=PROTOCOL_NAME,
                    source=self.serial,
                    correlation=request.correlation,
                )
            )

    def _given_up(self, sent: Sent, failure: Failure, _now_s: float, step: Step) -> None:
        request = self._requests.pop(sent.command_no, None)
        if request is not None:
            step.messages.append(self._response(request.correlation, failure))
            return
        step.messages.append(self._undelivered(sent, failure))

    def _unanswered(self, _event: str, now_s: float, step: Step) -> None:
        for number, request in [item for item in self._requests.items() if item[1].due_s <= now_s]:
            del self._requests[number]
            self._outbox.drop(number)
            failure = Failure(f"no answer within {self.settings.request_s:g} s")
            step.messages.append(self._response(request.correlation, failure))
        self._set_deadlines()

    def _is_taken(self, command_no: int) -> bool:
        return command_no in self._requests or super()._is_taken(command_no)

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
        self._close(Closing("idle", f"nothing heard for {self.settings.idle_s:g} s"), now_s, step)


class _Request(Struct):
    correlation: str
    command_type: int
    due_s: float
    is_broadcast: bool


def _is_broadcast(message: Common) -> bool:
    target = device_of(message, Sender.SERVER)
    return (target.type, target.serial) == BROADCAST_DEVICE
