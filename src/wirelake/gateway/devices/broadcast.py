"""Send a command to all online devices, and collect their answers in one response.

Each device is called as for a single command, but with the packets of a broadcast: they are resent until the device
sends its receipt, and its answer is matched by the command number that its session assigned.
"""

from collections.abc import Callable
from typing import Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from wirelake.broker.broker import Broker
from wirelake.broker.peer import Job, Peer
from wirelake.broker.services import ANSWERED, TIMED_OUT, Services, failed
from wirelake.errors import EncodeError, InputError, StorageError, TranslationError
from wirelake.gateway.devices.commands import CommandRequester, DeviceAnswer, NewCommand, command_message, device_answer
from wirelake.gateway.jobs import SlicedJobRunner
from wirelake.limits import (
    BROADCAST_ANSWERS_BYTES_MAX,
    BROADCAST_DEVICES_AT_ONCE,
    BROADCAST_DEVICES_MAX,
    BROADCAST_SERIALS_AT_ONCE,
    BROADCAST_UNANSWERED_BYTES_MAX,
    BROADCASTS_OPEN_MAX,
)
from wirelake.message import BROADCAST_DEVICE_TYPE, EVERY_DEVICE, Device, FailureCode, Kind, Message
from wirelake.roles import Action
from wirelake.state.devices import DeviceRegistry

_ALL_DEVICES: Final = Device("", BROADCAST_DEVICE_TYPE)
_NOT_ONLINE: Final = "not heard from"


class UnansweredDevice(Struct):
    """A device that did not answer, and why. `receipt` says whether it confirmed the command."""

    serial: str
    receipt: bool
    reason: str


class BroadcastAnswer(Struct):
    """`devices` counts the known devices: registered or online. `receipts` counts those that confirmed the command, by
    a receipt or an answer; `answered` those that answered; `omitted` those left out of the lists to limit their size.
    """

    devices: int
    receipts: int
    answered: int
    omitted: int
    answers: list[DeviceAnswer]
    unanswered: list[UnansweredDevice]


class Broadcasts:
    """Manage the open broadcasts. Observes the broker, to drop the broadcasts of a peer that disconnects."""

    def __init__(
        self, broker: Broker, registry: DeviceRegistry, jobs: SlicedJobRunner, now_s: Callable[[], float]
    ) -> None:
        self._broker = broker
        self._registry = registry
        self._jobs = jobs
        self._now_s = now_s
        self._open: dict[_Broadcast, None] = {}
        broker.add_observer(self)

    def start(self, peer: Peer, message: Message, command: NewCommand) -> None:
        """Send a command to all devices. Respond to the peer when all have answered or the timeout has expired."""
        self._broker.access.authorize_all(peer, Action.COMMAND, EVERY_DEVICE)
        if len(self._open) >= BROADCASTS_OPEN_MAX:
            text = f"{BROADCASTS_OPEN_MAX} broadcasts to devices are open; try again"
            peer.send(failed(message.correlation, text, FailureCode.BUSY))
            return
        count = len(self._broker.devices)
        if count > BROADCAST_DEVICES_MAX:
            raise InputError(
                f"a broadcast goes to at most {BROADCAST_DEVICES_MAX} devices, and {count} are online: "
                "send the command to each by its serial"
            )
        broadcast = _Broadcast(self._broker, self._registry, self._now_s, self._open, peer, message, command)
        self._broker.on_command(peer, EVERY_DEVICE, broadcast.request)
        self._jobs.start(peer, message, broadcast.send())

    def on_close(self, peer: Peer) -> None:
        for broadcast in [each for each in self._open if each.peer.id == peer.id]:
            del self._open[broadcast]

    def on_drain(self, peer: Peer) -> None:
        """Do nothing: the response to a broadcast is a single message."""


class _Broadcast:
    """Track one broadcast and the answers received so far."""

    def __init__(
        self,
        broker: Broker,
        registry: DeviceRegistry,
        now_s: Callable[[], float],
        open_broadcasts: "dict[_Broadcast, None]",
        peer: Peer,
        message: Message,
        command: NewCommand,
    ) -> None:
        """Raise InputError if the command's data is not hex."""
        self.peer = peer
        self._broker = broker
        self._registry = registry
        self._now_s = now_s
        self._open = open_broadcasts
        self._message = message
        self.request = replace(command_message("", command, source=peer.identity), target=_ALL_DEVICES)
        self._due_s = now_s() + command.wait_ms / 1000
        self._awaited = 0  # devices that may still answer
        self._is_sending = True
        self._result = BroadcastAnswer(0, 0, 0, 0, [], [])
        self._answers_bytes = self._unanswered_bytes = 0

    def send(self) -> Job:
        """Call every online device, and list the registered devices that are offline as unanswered."""
        self._open[self] = None
        try:
            yield from self._call_all()
            self._is_sending = False
        finally:
            if self._is_sending:  # it failed or was cancelled
                self._open.pop(self, None)
        self._finish_if_done()

    def _call_all(self) -> Job:
        online = sorted(self._broker.devices)
        for place, serial in enumerate(online):
            self._call(serial)
            if place % BROADCAST_DEVICES_AT_ONCE == 0:
                yield None
        called = set(online)
        for place, serial in enumerate(self._registry.serials()):
            if serial not in called:
                self._add_unanswered(serial, _NOT_ONLINE, has_receipt=False)
            if place % BROADCAST_SERIALS_AT_ONCE == 0:
                yield None

    def _call(self, serial: str) -> None:
        broker, now_s = self._broker, self._now_s()
        device = broker.devices.get(serial)
        if device is None or now_s >= self._due_s:
            self._add_unanswered(serial, _NOT_ONLINE if device is None else TIMED_OUT, has_receipt=False)
            return
        self._awaited += 1
        try:
            request = self.request if device.takes_broadcasts else replace(self.request, target=Device(serial))
            broker.command(
                _BroadcastRequester(self, serial), request, serial, now_s, self._due_s - now_s, is_broadcast=True
            )
        except StorageError as error:  # the call was not made
            self._awaited -= 1
            self._add_unanswered(serial, str(error), has_receipt=False)

    def on_answer(self, serial: str, message: Message, *, has_receipt: bool) -> None:
        """Add the answer of a device, or the reason why there is none."""
        self._awaited -= 1
        answer = device_answer(serial, message)
        if answer is None:
            reason = "" if message.failure is None else message.failure.text
            self._add_unanswered(serial, reason, has_receipt=has_receipt)
        else:
            self._add_answer(answer)
        self._finish_if_done()

    def _add_answer(self, answer: DeviceAnswer) -> None:
        result = self._result
        result.devices += 1
        result.receipts += 1
        result.answered += 1
        self._answers_bytes += len(msgspec.json.encode(answer))
        if self._answers_bytes <= BROADCAST_ANSWERS_BYTES_MAX:
            result.answers.append(answer)
        else:
            result.omitted += 1

    def _add_unanswered(self, serial: str, reason: str, *, has_receipt: bool) -> None:
        result, unanswered = self._result, UnansweredDevice(serial, has_receipt, reason)
        result.devices += 1
        result.receipts += has_receipt
        if self._unanswered_bytes < BROADCAST_UNANSWERED_BYTES_MAX:
            self._unanswered_bytes += len(msgspec.json.encode(unanswered))
        if self._unanswered_bytes < BROADCAST_UNANSWERED_BYTES_MAX:
            result.unanswered.append(unanswered)
        else:
            result.omitted += 1

    def _finish_if_done(self) -> None:
        if self._is_sending or self._awaited or self not in self._open:
            return
        del self._open[self]
        result, message = self._result, self._message
        result.answers.sort(key=lambda each: each.serial)
        result.unanswered.sort(key=lambda each: each.serial)
        if message.traced:
            self._broker.services.hop(self.peer, message.correlation, ANSWERED, "")
        fields = msgspec.to_builtins(result)
        try:
            self.peer.send(Message(kind=Kind.RESPONSE, correlation=message.correlation, fields=fields))
        except (EncodeError, TranslationError) as error:
            text = f"the response cannot be encoded: {error}"
            self.peer.send(failed(message.correlation, text, FailureCode.UNENCODABLE))


class _BroadcastRequester(CommandRequester):
    """Pass the answer of one device to its broadcast, as the broker's `Peer`."""

    def __init__(self, broadcast: _Broadcast, serial: str) -> None:
        super().__init__(broadcast.peer, serial)
        self.has_receipt = False
        self._broadcast = broadcast

    def send(self, message: Message) -> None:
        self._broadcast.on_answer(self._serial, message, has_receipt=self.has_receipt)


def on_receipt(services: Services, correlation: str) -> None:
    """Mark the device of this call as having confirmed all packets, if the call is part of a broadcast."""
    call = services.find(correlation)
    if call is not None and isinstance(call.requester, _BroadcastRequester):
        call.requester.has_receipt = True
