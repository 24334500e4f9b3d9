"""What both ends have in common: putting commands together, receipts, sending again."""

from collections.abc import Callable
from functools import partial

from msgspec import Struct
from msgspec.structs import replace

from wirelake.errors import EncodeError, ProtocolError, SealError, StateError, TranslationError
from wirelake.message import Failure, Kind
from wirelake.message import Message as Common
from wirelake.protocols.apostol import crypto
from wirelake.protocols.apostol.assembly import Assembled, Assembler, Bounds, State
from wirelake.protocols.apostol.commands import Command, parse_command
from wirelake.protocols.apostol.envelope import build_packets, open_command
from wirelake.protocols.apostol.finished import DeviceKey
from wirelake.protocols.apostol.frames import Packet, Receipt, receipt_for
from wirelake.protocols.apostol.limits import APOSTOL_ASSEMBLING_PER_DEVICE_BYTES_MAX
from wirelake.protocols.apostol.opcodes import SEALED, TO_DEVICE, ZIPPED
from wirelake.protocols.apostol.outbox import Outbox, Sent
from wirelake.protocols.apostol.session import SessionSettings
from wirelake.protocols.apostol.translation import PROTOCOL_NAME, trouble_message
from wirelake.protocols.session import Closing, Session, Step

_COMMAND_NUMBERS = 256


class Counts(Struct):
    """What was ignored, and why."""

    astray: int = 0  # packets of another device, or in the wrong direction
    unknown_receipts: int = 0  # for packets that wait for none
    not_held: int = 0  # packets beyond what is held while the device is looked up


class Peer(Session):
    """One end. `random` gives that many fresh random bytes: for nonces, and for where the command counter begins."""

    __slots__ = ("_key", "_next_no", "_outbox", "_random", "assembler", "counts", "device_type", "serial", "settings")

    def __init__(
        self, now_s: float, random: Callable[[int], bytes], settings: SessionSettings, idle_s: float | None = None
    ) -> None:
        super().__init__(now_s, idle_s)
        self.settings = settings
        self.counts = Counts()
        self.device_type = 0
        self.serial = ""
        self._key: bytes | None = None
        self._random = random
        # After a restart the other end may still remember the numbers from 0 on, and take ours for repeats.
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
        """Commands of which not all packets are here."""
        return len(self.assembler)

    @property
    def assembling_bytes(self) -> int:
        return self.assembler.bytes

    def relieve(self, now_s: float) -> Step:
        """Give up what is under assembly: all devices together hold too much."""
        step = Step()
        for assembled in self.assembler.refuse_all(now_s, "assembling_bytes_max"):
            self._hand_up(assembled, step)
        self._set_deadlines()
        return step

    def _is_for_us(self, packet: Packet) -> bool:
        raise NotImplementedError

    def _command(self, assembled: Assembled, command: Command, step: Step) -> None:
        """A whole command came, in clear."""
        raise NotImplementedError

    def _delivered(self, sent: Sent, step: Step) -> None:
        """All packets of a command of ours have their receipts."""

    def _given_up(self, sent: Sent, failure: Failure, now_s: float, step: Step) -> None:
        raise NotImplementedError

    def _packet(self, packet: Packet, now_s: float, step: Step) -> None:
        if not self._is_for_us(packet):
            self.counts.astray += 1
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
            step.messages.append(trouble_message(assembled, assembled.state, reason))
            return
        try:
            command = self._opened(assembled)
        except ProtocolError as error:
            step.messages.append(trouble_message(assembled, State.REFUSED, error.code, error.text))
            return
        self._command(assembled, command, step)

    def _opened(self, assembled: Assembled) -> Command:
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
        self.assembler.seal_holds = None if key is None else partial(_seal_holds, key)

    def _receipt(self, receipt: Receipt, now_s: float, step: Step) -> None:
        if not self._is_for_us(receipt):
            self.counts.astray += 1
            return
        try:
            sent = self._outbox.receipt(receipt.command_no, receipt.packet_no)
        except KeyError:
            self.counts.unknown_receipts += 1
            return
        if sent is not None:
            self._delivered(sent, step)
            self._released(sent.command_no, now_s, step)
        self._set_deadlines()

    def _resend(self, _event: str, now_s: float, step: Step) -> None:
        again, given_up = self._outbox.due(now_s)
        step.frames.extend(again)
        for sent in given_up:
            text = f"no receipt after {self.settings.resends_max} repeats"
            self._given_up(sent, Failure(text), now_s, step)
            self._released(sent.command_no, now_s, step)
        self._set_deadlines()

    def _released(self, command_no: int, now_s: float, step: Step) -> None:
        """A command number is free again."""

    def _expire(self, _event: str, now_s: float, step: Step) -> None:
        for assembled in self.assembler.expire(now_s):
            self._hand_up(assembled, step)
        self._set_deadlines()

    def _set_deadlines(self) -> None:
        for event, due_s in (("receipt", self._outbox.deadline_s), ("assembly", self.assembler.deadline_s)):
            if due_s is None:
                self.deadlines.pop(event, None)
            else:
                self.deadlines[event] = due_s

    def _build(
        self, message: Common, command: bytes, params: int, command_no: int, device: tuple[int, str] | None = None
    ) -> list[Packet]:
        """The packets of our own command. With a key they are sealed, unless the header `sealed` says otherwise.

        A broadcast to all devices is in clear: they have no key in common.
        """
        device_type, serial = device or (self.device_type, self.serial)
        can_seal = self._key is not None and not (device is not None and params & TO_DEVICE)
        sealed = bool(message.headers.get("sealed", can_seal))
        if sealed and not can_seal:
            raise TranslationError("there is no key to seal this command with")
        params |= ZIPPED if message.headers.get("zipped") else 0
        params |= SEALED if sealed else 0
        seal_with = (self._key, self._random(crypto.NONCE_BYTES)) if sealed and self._key is not None else None
        try:
            return build_packets(
                command, params, device_type, serial, command_no, self.settings.packet_data_bytes, seal_with
            )
        except EncodeError as error:
            raise TranslationError(str(error)) from error

    def _post(self, packets: list[Packet], correlation: str, now_s: float, step: Step) -> None:
        """Send, and keep until the receipts come."""
        self._outbox.add(packets, correlation, now_s)
        step.frames.extend(packets)
        self._set_deadlines()

    def _free_no(self) -> int:
        """The next command number that nothing waits under."""
        for ahead in range(_COMMAND_NUMBERS):
            number = (self._next_no + ahead) % _COMMAND_NUMBERS
            if not self._is_taken(number):
                self._next_no = (number + 1) % _COMMAND_NUMBERS
                return number
        raise StateError(f"all {_COMMAND_NUMBERS} command numbers are in use")

    def _is_taken(self, command_no: int) -> bool:
        return command_no in self._outbox

    def _response(self, correlation: str, failure: Failure | None = None, name: str = "command") -> Common:
        return Common(kind=Kind.RESPONSE, name=name, protocol=PROTOCOL_NAME, correlation=correlation, failure=failure)

    def _undelivered(self, sent: Sent, failure: Failure) -> Common:
        packet = next(iter(sent.packets.values()))
        told = trouble_message(packet, "undelivered", "no_receipt", failure.text)
        return replace(told, correlation=sent.correlation)

    def _close(self, closing: Closing, _now_s: float, step: Step) -> None:
        step.closing = closing

    def _fail(self, error: ProtocolError, now_s: float, step: Step) -> None:
        self._close(Closing(error.code, str(error)), now_s, step)

    def _goodbye(self, closing: Closing, now_s: float, step: Step) -> None:
        self._close(closing, now_s, step)


def _seal_holds(key: bytes, device: DeviceKey, command_no: int, sealed: bytes) -> bool:
    """Whether a whole command is genuine."""
    try:
        crypto.unseal(sealed, key, crypto.associated_data(*device, command_no))
    except SealError:
        return False
    return True
