"""What both ends of a session share: assembling commands, confirming packets, resending those without a receipt."""

from collections.abc import Callable, Sequence
from functools import partial

from msgspec import Struct
from msgspec.structs import replace

from wirelake.errors import EncodeError, ProtocolError, SealError, StateError, TranslationError
from wirelake.message import Failure, Kind
from wirelake.message import Message as Common
from wirelake.protocols.apostol.assembly import Assembled, Assembler, Bounds, State
from wirelake.protocols.apostol.commands import Command, parse_command
from wirelake.protocols.apostol.constants import (
    APOSTOL_ASSEMBLING_PER_DEVICE_BYTES_MAX,
    APOSTOL_UNRECEIPTED_PACKETS_MAX,
    SEALED,
    TO_DEVICE,
    ZIPPED,
)
from wirelake.protocols.apostol.duplicates import DeviceKey
from wirelake.protocols.apostol.envelope import NONCE_BYTES, associated_data, build_packets, open_command, unseal
from wirelake.protocols.apostol.frames import Packet, Receipt, receipt_for
from wirelake.protocols.apostol.session import SessionSettings
from wirelake.protocols.apostol.translation import PROTOCOL_NAME, failure_event
from wirelake.protocols.session import Closing, Session, Step

_COMMAND_NUMBERS = 256


class SentCommand(Struct):
    """A command that was sent, with those of its packets that have no receipt yet."""

    command_no: int
    packets: dict[int, Packet]
    resends_left: int
    due_s: float
    correlation: str  # of the message that it was made from
    is_answer: bool


class Outbox:
    """Sent commands by number, until all their packets have receipts.

    The packets of a command are sent together, so they share one deadline.
    """

    __slots__ = ("_packets", "_receipt_s", "_resends_max", "_sent")

    def __init__(self, receipt_s: float, resends_max: int) -> None:
        self._receipt_s = receipt_s
        self._resends_max = resends_max
        self._packets = 0
        self._sent: dict[int, SentCommand] = {}  # in the order of their deadlines

    def __contains__(self, command_no: int) -> bool:
        return command_no in self._sent

    @property
    def deadline_s(self) -> float | None:
        """Return when the next command has to be resent or given up."""
        return next((sent.due_s for sent in self._sent.values()), None)

    def add(self, packets: Sequence[Packet], correlation: str, now_s: float) -> None:
        """Keep the packets of one command, which are being sent."""
        if self._packets + len(packets) > APOSTOL_UNRECEIPTED_PACKETS_MAX:
            raise StateError(f"{self._packets} packets wait for their receipts already")
        self._packets += len(packets)
        number = packets[0].command_no
        by_number = {packet.packet_no: packet for packet in packets}
        self._sent[number] = SentCommand(
            number, by_number, self._resends_max, now_s + self._receipt_s, correlation, packets[0].answer
        )

    def confirm(self, command_no: int, packet_no: int) -> SentCommand | None:
        """Drop a packet that has its receipt. Return its command if that was the last one without.

        Raise KeyError if no such packet waits for a receipt.
        """
        sent = self._sent[command_no]
        del sent.packets[packet_no]
        self._packets -= 1
        return None if sent.packets else self._sent.pop(command_no)

    def drop(self, command_no: int) -> None:
        """Resend this command no more."""
        sent = self._sent.pop(command_no, None)
        if sent is not None:
            self._packets -= len(sent.packets)

    def clear(self) -> list[SentCommand]:
        """Drop all commands, and return them."""
        sent, self._sent, self._packets = list(self._sent.values()), {}, 0
        return sent

    def due(self, now_s: float) -> tuple[list[Packet], list[SentCommand]]:
        """Return the packets to resend, and the commands to give up."""
        again: list[Packet] = []
        given_up: list[SentCommand] = []
        for sent in [sent for sent in self._sent.values() if sent.due_s <= now_s]:
            if sent.resends_left:
                del self._sent[sent.command_no]
                sent.resends_left -= 1
                sent.due_s = now_s + self._receipt_s
                self._sent[sent.command_no] = sent
                again += sent.packets.values()
            else:
                self.drop(sent.command_no)
                given_up.append(sent)
        return again, given_up


class IgnoredFrames(Struct):
    """Numbers of ignored frames, by reason."""

    misdirected: int = 0  # packets of another device, or in the wrong direction
    unknown_receipts: int = 0  # for packets that wait for none
    not_held: int = 0  # packets beyond what is held while the device is looked up


class PacketSession(Session):
    """One end of a session.

    `random` returns that many fresh random bytes: for nonces, and for the start of the command counter.
    """

    __slots__ = ("_key", "_next_no", "_outbox", "_random", "assembler", "device_type", "ignored", "serial", "settings")

    def __init__(
        self, now_s: float, random: Callable[[int], bytes], settings: SessionSettings, idle_s: float | None = None
    ) -> None:
        super().__init__(now_s, idle_s)
        self.settings = settings
        self.ignored = IgnoredFrames()
        self.device_type = 0
        self.serial = ""
        self._key: bytes | None = None
        self._random = random
        # After a restart, the other end may still remember the numbers from 0 on, and take ours for duplicates.
        self._next_no = random(1)[0]
        self._outbox = Outbox(settings.receipt_s, settings.resends_max)
        self.assembler = Assembler(
            Bounds(
                timeout_s=settings.assembly_s,
                command_bytes_max=settings.command_bytes_max,
                assembling_per_device_max=settings.assembling_per_device,
                assembling_bytes_max=max(APOSTOL_ASSEMBLING_PER_DEVICE_BYTES_MAX, settings.command_bytes_max),
            )
        )

    @property
    def assembling(self) -> int:
        """Return the number of commands of which packets are missing."""
        return len(self.assembler)

    @property
    def assembling_bytes(self) -> int:
        return self.assembler.bytes

    def relieve(self, now_s: float) -> Step:
        """Give up the commands of which packets are missing: all devices together hold too much."""
        step = Step()
        for assembled in self.assembler.refuse_all(now_s, "assembling_bytes_max"):
            self._hand_up(assembled, step)
        self._set_deadlines()
        return step

    # What a subclass knows

    def _is_for_us(self, packet: Packet) -> bool:
        """Return whether a packet or receipt is for this end of this device's session."""
        raise NotImplementedError

    def _on_command(self, assembled: Assembled, command: Command, step: Step) -> None:
        """Hand up a complete command, which is given in clear."""
        raise NotImplementedError

    def _on_delivered(self, sent: SentCommand, step: Step) -> None:
        """Take note that all packets of a command of ours have their receipts."""

    def _on_undelivered(self, sent: SentCommand, failure: Failure, now_s: float, step: Step) -> None:
        """Report that a command of ours is given up, because packets of it have no receipts."""
        raise NotImplementedError

    def _on_number_released(self, command_no: int, now_s: float, step: Step) -> None:
        """Take note that no command of ours under this number waits for receipts any more."""

    # Receiving

    def _receive_packet(self, packet: Packet, now_s: float, step: Step) -> None:
        if not self._is_for_us(packet):
            self.ignored.misdirected += 1
            return
        step.frames.append(self._receipt_for(packet))
        for assembled in self.assembler.add(packet, now_s):
            self._hand_up(assembled, step)
        self._set_deadlines()

    def _receipt_for(self, packet: Packet) -> Receipt:
        return receipt_for(packet)

    def _hand_up(self, assembled: Assembled, step: Step) -> None:
        if assembled.state is not State.COMPLETE:
            reason = assembled.reason or "assembly_timeout"
            step.messages.append(failure_event(assembled, assembled.state, reason))
            return
        try:
            command = self._open(assembled)
        except ProtocolError as error:
            step.messages.append(failure_event(assembled, State.REFUSED, error.code, error.text))
            return
        self._on_command(assembled, command, step)

    def _open(self, assembled: Assembled) -> Command:
        """Unseal, inflate and parse a complete command. Raise ProtocolError if that fails."""
        if self.settings.require_seal and self._key is not None and not assembled.params & SEALED:
            raise SealError("unsealed", "this device has a key, and its commands have to be sealed", 0)
        clear = open_command(
            assembled.data,
            assembled.params,
            assembled.device_type,
            assembled.serial,
            assembled.command_no,
            self._key,
            self.settings.inflated_bytes_max,
        )
        return parse_command(clear, to_device=assembled.to_device)

    def _use_key(self, key: bytes | None) -> None:
        self._key = key
        self.assembler.is_seal_valid = None if key is None else partial(_is_seal_valid, key)

    def _receive_receipt(self, receipt: Receipt, now_s: float, step: Step) -> None:
        if not self._is_for_us(receipt):
            self.ignored.misdirected += 1
            return
        try:
            sent = self._outbox.confirm(receipt.command_no, receipt.packet_no)
        except KeyError:
            self.ignored.unknown_receipts += 1
            return
        if sent is not None:
            self._on_delivered(sent, step)
            self._on_number_released(sent.command_no, now_s, step)
        self._set_deadlines()

    # Deadlines

    def _resend(self, _event: str, now_s: float, step: Step) -> None:
        again, given_up = self._outbox.due(now_s)
        step.frames.extend(again)
        for sent in given_up:
            text = f"no receipt after {self.settings.resends_max} repeats"
            self._on_undelivered(sent, Failure(text), now_s, step)
            self._on_number_released(sent.command_no, now_s, step)
        self._set_deadlines()

    def _expire_assembly(self, _event: str, now_s: float, step: Step) -> None:
        for assembled in self.assembler.expire(now_s):
            self._hand_up(assembled, step)
        self._set_deadlines()

    def _set_deadlines(self) -> None:
        for event, due_s in (("receipt", self._outbox.deadline_s), ("assembly", self.assembler.deadline_s)):
            if due_s is None:
                self.deadlines.pop(event, None)
            else:
                self.deadlines[event] = due_s

    # Sending

    def _build_packets(
        self, message: Common, command: bytes, params: int, command_no: int, device: DeviceKey | None = None
    ) -> list[Packet]:
        """Return the packets of a command of ours. With a key they are sealed, unless the header `sealed` is false.

        A broadcast to all devices is in clear, because they have no key in common.
        """
        device_type, serial = device or (self.device_type, self.serial)
        can_seal = self._key is not None and not (device is not None and params & TO_DEVICE)
        sealed = bool(message.headers.get("sealed", can_seal))
        if sealed and not can_seal:
            raise TranslationError("there is no key to seal this command with")
        params |= ZIPPED if message.headers.get("zipped") else 0
        params |= SEALED if sealed else 0
        seal_with = (self._key, self._random(NONCE_BYTES)) if sealed and self._key is not None else None
        try:
            return build_packets(
                command, params, device_type, serial, command_no, self.settings.packet_data_bytes, seal_with
            )
        except EncodeError as error:
            raise TranslationError(str(error)) from error

    def _send_packets(self, packets: list[Packet], correlation: str, now_s: float, step: Step) -> None:
        """Send the packets of a command, and resend them until their receipts come."""
        self._outbox.add(packets, correlation, now_s)
        step.frames.extend(packets)
        self._set_deadlines()

    def _next_command_no(self) -> int:
        """Return the next command number that is not in use."""
        for ahead in range(_COMMAND_NUMBERS):
            number = (self._next_no + ahead) % _COMMAND_NUMBERS
            if not self._is_in_use(number):
                self._next_no = (number + 1) % _COMMAND_NUMBERS
                return number
        raise StateError(f"all {_COMMAND_NUMBERS} command numbers are in use")

    def _is_in_use(self, command_no: int) -> bool:
        return command_no in self._outbox

    def _response(self, correlation: str, failure: Failure | None = None, name: str = "command") -> Common:
        return Common(kind=Kind.RESPONSE, name=name, protocol=PROTOCOL_NAME, correlation=correlation, failure=failure)

    def _undelivered_event(self, sent: SentCommand, failure: Failure) -> Common:
        packet = next(iter(sent.packets.values()))
        event = failure_event(packet, "undelivered", "no_receipt", failure.text)
        return replace(event, correlation=sent.correlation)

    # Closing

    def _close(self, closing: Closing, _now_s: float, step: Step) -> None:
        step.closing = closing

    def _fail(self, error: ProtocolError, now_s: float, step: Step) -> None:
        self._close(Closing(error.code, str(error)), now_s, step)

    def _goodbye(self, closing: Closing, now_s: float, step: Step) -> None:
        self._close(closing, now_s, step)


def _is_seal_valid(key: bytes, device: DeviceKey, command_no: int, sealed: bytes) -> bool:
    """Return whether a whole command is genuine."""
    try:
        unseal(sealed, key, associated_data(*device, command_no))
    except SealError:
        return False
    return True
