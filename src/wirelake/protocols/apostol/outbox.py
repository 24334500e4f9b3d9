"""Packets that were sent and wait for their receipts, to be sent again until these come."""

from collections.abc import Sequence

from msgspec import Struct

from wirelake.errors import StateError
from wirelake.protocols.apostol.frames import Packet
from wirelake.protocols.apostol.limits import APOSTOL_UNRECEIPTED_PACKETS_MAX


class Sent(Struct):
    """A command on its way, with those of its packets that have no receipt yet."""

    command_no: int
    packets: dict[int, Packet]
    resends_left: int
    due_s: float
    correlation: str  # of the message above that it was made from
    answer: bool


class Outbox:
    """By command number. All packets of a command are sent together, so they share a clock."""

    __slots__ = ("_packets", "_receipt_s", "_resends_max", "_sent")

    def __init__(self, receipt_s: float, resends_max: int) -> None:
        self._receipt_s = receipt_s
        self._resends_max = resends_max
        self._packets = 0
        self._sent: dict[int, Sent] = {}  # in the order in which they fall due

    def __contains__(self, command_no: int) -> bool:
        return command_no in self._sent

    @property
    def deadline_s(self) -> float | None:
        """When something has to be sent again, or given up."""
        return next((sent.due_s for sent in self._sent.values()), None)

    def add(self, packets: Sequence[Packet], correlation: str, now_s: float) -> None:
        """These, all of one command, are being sent."""
        if self._packets + len(packets) > APOSTOL_UNRECEIPTED_PACKETS_MAX:
            raise StateError(f"{self._packets} packets wait for their receipts already")
        self._packets += len(packets)
        number = packets[0].command_no
        by_number = {packet.packet_no: packet for packet in packets}
        self._sent[number] = Sent(
            number, by_number, self._resends_max, now_s + self._receipt_s, correlation, packets[0].answer
        )

    def receipt(self, command_no: int, packet_no: int) -> Sent | None:
        """The packet arrived; answers its command once that was the last one. Raises KeyError for an unknown one."""
        sent = self._sent[command_no]
        del sent.packets[packet_no]
        self._packets -= 1
        return None if sent.packets else self._sent.pop(command_no)

    def drop(self, command_no: int) -> None:
        """No more need to send this again."""
        sent = self._sent.pop(command_no, None)
        if sent is not None:
            self._packets -= len(sent.packets)

    def clear(self) -> list[Sent]:
        """Nothing more is sent; answers what had not all its receipts."""
        sent, self._sent, self._packets = list(self._sent.values()), {}, 0
        return sent

    def due(self, now_s: float) -> tuple[list[Packet], list[Sent]]:
        """The packets to send again, and the commands to give up."""
        again: list[Packet] = []
        given_up: list[Sent] = []
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
