"""The device's end of a session: for our own client, the simulator and the tests."""

from collections.abc import Callable

from msgspec.structs import replace

from wirelake.message import BROADCAST, Failure, Kind
from wirelake.message import Message as Common
from wirelake.protocols.apostol.assembly import Assembled
from wirelake.protocols.apostol.commands import Command
from wirelake.protocols.apostol.constants import ANSWER, BROADCAST_DEVICE, REQUEST_BIT
from wirelake.protocols.apostol.envelope import check_key
from wirelake.protocols.apostol.frames import Packet, Receipt, receipt_for
from wirelake.protocols.apostol.packet_session import PacketSession, SentCommand
from wirelake.protocols.apostol.session import CLIENT_MACHINE, SessionSettings
from wirelake.protocols.apostol.translation import command_bytes, command_message
from wirelake.protocols.frame import Sender
from wirelake.protocols.session import Closing, Step


class ClientSession(PacketSession):
    """The device's end.

    A report gets a response, by its correlation, once all its packets have receipts: then it is on disk. A receipt does
    not say whether it is for a report of ours or for an answer with the same number; so an answer waits while a report
    under its number has no receipts.
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
            check_key(key)
        super().__init__(now_s, random, settings)
        self.serial = serial
        self.device_type = device_type
        self._use_key(key)
        self._requests: dict[int, int] = {}  # command number → type of the open request
        self._waiting: dict[int, list[Packet]] = {}  # answers, by command number

    def _is_for_us(self, packet: Packet) -> bool:
        return packet.to_device and (packet.serial == self.serial or packet.broadcast)

    def _receipt_for(self, packet: Packet) -> Receipt:
        """Confirm in our own name, also a broadcast: it names no device, and the gateway counts who has it."""
        return replace(receipt_for(packet), device_type=self.device_type, serial=self.serial)

    def _on_command(self, assembled: Assembled, command: Command, step: Step) -> None:
        message = command_message(assembled, command)
        if message.kind in {Kind.REQUEST, Kind.EVENT}:  # an event is a broadcast, which may be answered
            self._requests[assembled.command_no] = command.command_type
        step.messages.append(message)

    def _send_report(self, message: Common, now_s: float, step: Step) -> None:
        command = command_bytes(message, Sender.CLIENT)
        device = BROADCAST_DEVICE if message.headers.get(BROADCAST) else None
        packets = self._build_packets(message, command, 0, self._next_command_no(), device)
        self._send_packets(packets, message.correlation, now_s, step)

    def _send_answer(self, message: Common, now_s: float, step: Step) -> None:
        number = int(message.correlation) if message.correlation.isdecimal() else -1
        request_type = self._requests.get(number)
        if request_type is None:
            return  # answered already, or never requested
        fields = {"command_type": request_type & ~REQUEST_BIT, **message.fields}
        command = command_bytes(replace(message, fields=fields), Sender.CLIENT)
        packets = self._build_packets(message, command, ANSWER, number)
        del self._requests[number]
        if number in self._outbox:
            self._waiting[number] = packets
        else:
            self._send_packets(packets, "", now_s, step)

    def _on_number_released(self, command_no: int, now_s: float, step: Step) -> None:
        packets = self._waiting.pop(command_no, None)
        if packets is not None:
            self._send_packets(packets, "", now_s, step)

    def _is_in_use(self, command_no: int) -> bool:
        return command_no in self._waiting or super()._is_in_use(command_no)

    def _on_delivered(self, sent: SentCommand, step: Step) -> None:
        if not sent.is_answer:
            step.messages.append(self._response(sent.correlation, name="receipt"))

    def _on_undelivered(self, sent: SentCommand, failure: Failure, _now_s: float, step: Step) -> None:
        if sent.is_answer:
            step.messages.append(self._undelivered_event(sent, failure))
        else:
            step.messages.append(self._response(sent.correlation, failure, name="receipt"))

    def _close(self, closing: Closing, now_s: float, step: Step) -> None:
        super()._close(closing, now_s, step)
        for sent in self._outbox.clear():
            self._on_undelivered(sent, Failure("the session ended"), now_s, step)
