"""A command to every device: sent to all that were heard from, with one answer that has what each of them said.

Each device is called as for a command of its own, with the packets of a broadcast: so they are sent again until its
receipt comes, and its answer is known by the command number that its session gave out.
"""

from typing import TYPE_CHECKING, Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from wirelake.broker.jobs import Job
from wirelake.broker.peer import Peer
from wirelake.broker.services import ANSWERED, TIMED_OUT, Services, failed
from wirelake.errors import EncodeError, InputError, StorageError, TranslationError
from wirelake.gateway.devices.commands import CommandAsker, DeviceAnswer, NewCommand, command_message, device_answer
from wirelake.gateway.limits import (
    BROADCAST_ANSWERS_BYTES_MAX,
    BROADCAST_DEVICES_AT_ONCE,
    BROADCAST_DEVICES_MAX,
    BROADCAST_SERIALS_AT_ONCE,
    BROADCAST_UNANSWERED_BYTES_MAX,
    BROADCASTS_OPEN_MAX,
)
from wirelake.message import BROADCAST_DEVICE_TYPE, Device, FailureCode, Kind, Message

if TYPE_CHECKING:
    from wirelake.gateway.gateway import Gateway

_EVERYBODY: Final = Device("", BROADCAST_DEVICE_TYPE)
_NOT_HEARD: Final = "not heard from"


class UnansweredDevice(Struct):
    """A device without an answer, and why. `receipt`: it confirmed that the command arrived."""

    serial: str
    receipt: bool
    reason: str


class BroadcastAnswer(Struct):
    """`devices` counts the known ones: registered, or heard from. `receipts` counts those that confirmed the command,
    by a receipt or an answer; `answered` those that answered; `omitted` those that the two lists had no room for.
    """

    devices: int
    receipts: int
    answered: int
    omitted: int
    answers: list[DeviceAnswer]
    unanswered: list[UnansweredDevice]


class Broadcasts:
    """Those under way. Also a watcher of the broker's: a peer that goes away takes its broadcasts with it."""

    def __init__(self, gateway: "Gateway") -> None:
        self._gateway = gateway
        self._open: dict[_Broadcast, None] = {}
        gateway.broker.observers.append(self)

    def start(self, peer: Peer, message: Message, command: NewCommand, now_s: float) -> None:
        """Send a command to all devices. The peer is answered when all have answered, or when the time is over."""
        if len(self._open) >= BROADCASTS_OPEN_MAX:
            text = f"{BROADCASTS_OPEN_MAX} broadcasts to devices are open; try again"
            peer.send(failed(message.correlation, text, FailureCode.BUSY))
            return
        count = len(self._gateway.broker.devices)
        if count > BROADCAST_DEVICES_MAX:
            raise InputError(
                f"a broadcast goes to at most {BROADCAST_DEVICES_MAX} devices, and {count} are online: "
                "send the command to each by its serial"
            )
        broadcast = _Broadcast(self._gateway, self._open, peer, message, command, now_s)
        self._gateway.jobs.start(peer, message, broadcast.send())

    def on_close(self, peer: Peer) -> None:
        for broadcast in [each for each in self._open if each.peer.id == peer.id]:
            del self._open[broadcast]

    def on_drain(self, peer: Peer) -> None:
        """Nothing of a broadcast waits for a slow reader: its answer is one message."""


class _Broadcast:
    """One command to all, and what came back so far."""

    def __init__(
        self,
        gateway: "Gateway",
        under_way: "dict[_Broadcast, None]",
        peer: Peer,
        message: Message,
        command: NewCommand,
        now_s: float,
    ) -> None:
        """InputError where the command's data is not hex."""
        self.peer = peer
        self._gateway = gateway
        self._open = under_way
        self._message = message
        self._request = replace(command_message("", command, source=peer.identity), target=_EVERYBODY)
        self._due_s = now_s + command.wait_ms / 1000
        self._waiting = 0  # devices that may still answer
        self._is_sending = True
        self._answer = BroadcastAnswer(0, 0, 0, 0, [], [])
        self._answers_bytes = self._unanswered_bytes = 0

    def send(self) -> Job:
        """Call every device that was heard from, and list the registered ones that were not."""
        self._open[self] = None
        try:
            yield from self._call_all()
            self._is_sending = False
        finally:
            if self._is_sending:  # it failed, or nobody wants it any more
                self._open.pop(self, None)
        self._finish_when_done()

    def _call_all(self) -> Job:
        heard = sorted(self._gateway.broker.devices)
        for place, serial in enumerate(heard):
            self._call(serial)
            if place % BROADCAST_DEVICES_AT_ONCE == 0:
                yield None
        called = set(heard)
        for place, serial in enumerate(self._gateway.state.devices.serials()):
            if serial not in called:
                self._add_unanswered(serial, _NOT_HEARD, has_receipt=False)
            if place % BROADCAST_SERIALS_AT_ONCE == 0:
                yield None

    def _call(self, serial: str) -> None:
        broker, now_s = self._gateway.broker, self._gateway.now_s()
        device = broker.devices.get(serial)
        if device is None or now_s >= self._due_s:
            self._add_unanswered(serial, _NOT_HEARD if device is None else TIMED_OUT, has_receipt=False)
            return
        self._waiting += 1
        try:
            broker.services.call(_Member(self, serial), self._request, device, now_s, self._due_s - now_s)
        except StorageError as error:  # there is no such call
            self._waiting -= 1
            self._add_unanswered(serial, str(error), has_receipt=False)

    def on_answer(self, serial: str, message: Message, *, has_receipt: bool) -> None:
        """Take a device's answer, or why there is none."""
        self._waiting -= 1
        answer = device_answer(serial, message)
        if answer is None:
            reason = "" if message.failure is None else message.failure.text
            self._add_unanswered(serial, reason, has_receipt=has_receipt)
        else:
            self._add_answer(answer)
        self._finish_when_done()

    def _add_answer(self, answer: DeviceAnswer) -> None:
        told = self._answer
        told.devices += 1
        told.receipts += 1
        told.answered += 1
        self._answers_bytes += len(msgspec.json.encode(answer))
        if self._answers_bytes <= BROADCAST_ANSWERS_BYTES_MAX:
            told.answers.append(answer)
        else:
            told.omitted += 1

    def _add_unanswered(self, serial: str, reason: str, *, has_receipt: bool) -> None:
        told, unanswered = self._answer, UnansweredDevice(serial, has_receipt, reason)
        told.devices += 1
        told.receipts += has_receipt
        if self._unanswered_bytes < BROADCAST_UNANSWERED_BYTES_MAX:
            self._unanswered_bytes += len(msgspec.json.encode(unanswered))
        if self._unanswered_bytes < BROADCAST_UNANSWERED_BYTES_MAX:
            told.unanswered.append(unanswered)
        else:
            told.omitted += 1

    def _finish_when_done(self) -> None:
        if self._is_sending or self._waiting or self not in self._open:
            return
        del self._open[self]
        told, message = self._answer, self._message
        told.answers.sort(key=lambda each: each.serial)
        told.unanswered.sort(key=lambda each: each.serial)
        if message.traced:
            self._gateway.broker.services.hop(self.peer, message.correlation, ANSWERED, "")
        fields = msgspec.to_builtins(told)
        try:
            self.peer.send(Message(kind=Kind.RESPONSE, correlation=message.correlation, fields=fields))
        except (EncodeError, TranslationError) as error:
            text = f"the response cannot be encoded: {error}"
            self.peer.send(failed(message.correlation, text, FailureCode.UNENCODABLE))


class _Member(CommandAsker):
    """The broker's `Peer` for one device of a broadcast."""

    def __init__(self, broadcast: _Broadcast, serial: str) -> None:
        super().__init__(broadcast.peer, serial)
        self.has_receipt = False
        self._broadcast = broadcast

    def send(self, message: Message) -> None:
        self._broadcast.on_answer(self._serial, message, has_receipt=self.has_receipt)


def note_receipt(services: Services, correlation: str) -> None:
    """A device confirmed all packets of a broadcast, which is this call for it."""
    call = services.find(correlation)
    if call is not None and isinstance(call.asker, _Member):
        call.asker.has_receipt = True
