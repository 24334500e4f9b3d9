"""A device's end: for our own client, the simulator and the tests."""

from collections.abc import Callable

from msgspec.structs import replace

from wirelake.message import BROADCAST, Failure, Kind
from wirelake.message import Message as Common
from wirelake.protocols.apostol import crypto
from wirelake.protocols.apostol.assembly import Assembled
from wirelake.protocols.apostol.commands import Command
from wirelake.protocols.apostol.frames import Packet, Receipt, receipt_for
from wirelake.protocols.apostol.opcodes import ANSWER, BROADCAST_DEVICE, REQUEST_BIT
from wirelake.protocols.apostol.outbox import Sent
from wirelake.protocols.apostol.peer import Peer
from wirelake.protocols.apostol.session import CLIENT_MACHINE, SessionSettings
from wirelake.protocols.apostol.translation import command_bytes, command_message
from wirelake.protocols.frame import Sender
from wirelake.protocols.session import Closing, Step


class ClientSession(Peer):
    """Telemetry is answered above, by its correlation, once all its packets have their receipts: it is on disk.

    A receipt does not say whether it is for a report of ours or for an answer that bears the same number; so an answer
    waits while a report under its number is on its way.
    """

    state_machine = CLIENT_MACHINE
    __slots__ = ("_requests", "_waiting")

    def __init__(
        self,
        now_s: float,
        random: Callable[[int], bytes],
        serial: str,
        device_type: int = 0,
        key: bytes | None = None,
        settings: SessionSettings = SessionSettings(),
    ) -> None:
        if key is not None:
            crypto.check_key(key)
        super().__init__(now_s, random, settings)
        self.serial = serial
        self.device_type = device_type
        self._use_key(key)
        self._requests: dict[int, int] = {}  # command number → type of the request that is open under it
        self._waiting: dict[int, list[Packet]] = {}  # answers, by command number

    def _is_for_us(self, packet: Packet) -> bool:
        return packet.to_device and (packet.serial == self.serial or packet.broadcast)

    def _receipt_for(self, packet: Packet) -> Receipt:
        """In our own name, also for a broadcast: it names nobody, and the gateway wants to know who has it."""
        return replace(receipt_for(packet), device_type=self.device_type, serial=self.serial)

    def _command(self, assembled: Assembled, command: Command, step: Step) -> None:
        message = command_message(assembled, command)
        if message.kind in {Kind.REQUEST, Kind.EVENT}:  # an event is a broadcast, which may be answered
            self._requests[assembled.command_no] = command.command_type
        step.messages.append(message)

    def _report(self, message: Common, now_s: float, step: Step) -> None:
        command = command_bytes(message, Sender.CLIENT)
        device = BROADCAST_DEVICE if message.headers.get(BROADCAST) else None
        packets = self._build(message, command, 0, self._free_no(), device)
        self._post(packets, message.correlation, now_s, step)

    def _answer(self, message: Common, now_s: float, step: Step) -> None:
        number = int(message.correlation) if message.correlation.isdecimal() else -1
        asked = self._requests.get(number)
        if asked is None:
            return  # answered already, or never asked
        fields = {"command_type": asked & ~REQUEST_BIT, **message.fields}
        command = command_bytes(replace(message, fields=fields), Sender.CLIENT)
        packets = self._build(message, command, ANSWER, number)
        del self._requests[number]
        if number in self._outbox:
            self._waiting[number] = packets
        else:
            self._post(packets, "", now_s, step)

    def _released(self, command_no: int, now_s: float, step: Step) -> None:
        packets = self._waiting.pop(command_no, None)
        if packets is not None:
            self._post(packets, "", now_s, step)

    def _is_taken(self, command_no: int) -> bool:
        return command_no in self._waiting or super()._is_taken(command_no)

    def _delivered(self, sent: Sent, step: Step) -> None:
        if not sent.answer:
            step.messages.append(self._response(sent.correlation, name="receipt"))

    def _given_up(self, sent: Sent, failure: Failure, _now_s: float, step: Step) -> None:
        if sent.answer:
            step.messages.append(self._undelivered(sent, failure))
        else:
            step.messages.append(self._response(sent.correlation, failure, name="receipt"))

    def _close(self, closing: Closing, now_s: float, step: Step) -> None:
        super()._close(closing, now_s, step)
        for sent in self._outbox.clear():
            self._given_up(sent, Failure("the session ended"), now_s, step)
