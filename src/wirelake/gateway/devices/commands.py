"""Implement the service `devices`: send a command to a device from any protocol and return its response.

The only operation is `command`. The serial is the object of the request or its field `serial`; `type`, `data` (hex or
bytes; by default the payload), `wait_ms` and the response are as in the HTTP API. An error of the device is a response
with `error` and `error_text`; the request fails only if the device does not answer. The serial `*` means all devices.
"""

from collections.abc import Hashable
from typing import TYPE_CHECKING, Annotated, Any, Final

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType
from msgspec.structs import replace

from wirelake.broker.broker import Broker
from wirelake.broker.peer import Peer
from wirelake.broker.services import failed, not_found
from wirelake.errors import InputError
from wirelake.limits import HTTP_COMMAND_MS, HTTP_COMMAND_MS_MAX
from wirelake.message import COMMAND, EVERY_DEVICE, Device, FailureCode, Kind, Message, Operation
from wirelake.protocols.session import Closing
from wirelake.protocols.text import HEX_PATTERN, parse_hex

if TYPE_CHECKING:
    from wirelake.gateway.devices.broadcast import Broadcasts

_DATA_FIELDS: Final = ("status", "readings")  # decoded data of an answer


class NewCommand(Struct, forbid_unknown_fields=True):
    type: Annotated[int, Meta(ge=128, le=255)]  # bit 7 is set in all commands to a device
    data: Annotated[str, Meta(extra_json_schema={"pattern": HEX_PATTERN})] = ""
    wait_ms: Annotated[int, Meta(ge=1, le=HTTP_COMMAND_MS_MAX)] = HTTP_COMMAND_MS


class DeviceAnswer(Struct, omit_defaults=True):
    """The answer of a device. It has `status` or `readings` if the data could be decoded, else `data` in hex."""

    serial: str
    type: int
    error: int
    device_time: int
    error_text: str | UnsetType = UNSET
    data: str | UnsetType = UNSET
    status: dict[str, Any] | UnsetType = UNSET
    readings: list[dict[str, Any]] | UnsetType = UNSET


def command_message(serial: str, command: NewCommand, **rest: Any) -> Message:
    """Create the request for a command. Raise InputError if the data is not hex."""
    return Message(
        kind=Kind.REQUEST,
        target=Device(serial),
        headers={"timeout_ms": command.wait_ms},
        fields={"command_type": command.type},
        payload=parse_hex(command.data),
        **rest,
    )


def device_answer(serial: str, answer: Message) -> DeviceAnswer | None:
    """Return the answer of a device; None if the message is an error of the gateway, so that there is no answer."""
    fields = answer.fields
    if "command_type" not in fields:
        return None
    result = DeviceAnswer(serial, fields["command_type"], fields["error"], fields["device_time"])
    if answer.failure is not None:
        result.error_text = answer.failure.text
    elif not any(name in fields for name in _DATA_FIELDS):
        result.data = answer.payload.hex()
    result.status = fields.get("status", UNSET)
    result.readings = fields.get("readings", UNSET)
    return result


class DeviceCommands:
    """Handle requests to the service `devices`."""

    def __init__(self, broker: Broker, broadcasts: "Broadcasts") -> None:
        self._broker = broker
        self._broadcasts = broadcasts

    def __call__(self, peer: Peer, message: Message, now_s: float) -> None:
        target = message.target
        if not isinstance(target, Operation) or target.op != COMMAND:
            operation = target if isinstance(target, Operation) else Operation("")
            peer.send(failed(message.correlation, not_found(operation), FailureCode.NOT_FOUND))
            return
        fields = dict(message.fields)
        serial = fields.pop("serial", "") or target.object
        if not isinstance(serial, str) or not serial:
            raise InputError("no device given: pass its serial as the object, or in a field named serial")
        if serial == EVERY_DEVICE:
            self._broadcasts.start(peer, message, _command(fields, message.payload))
            return
        broker = self._broker
        device = broker.devices.get(serial)
        if device is None:
            peer.send(failed(message.correlation, f"device {serial[:64]!r} is offline", FailureCode.NOT_FOUND))
            return
        command = _command(fields, message.payload)
        request = command_message(serial, command, source=peer.identity, correlation=message.correlation)
        requester = CommandRequester(peer, serial)
        broker.services.call(requester, replace(request, traced=message.traced), device, now_s, command.wait_ms / 1000)


def _command(fields: dict[str, Any], payload: bytes) -> NewCommand:
    data = fields.setdefault("data", payload)
    if isinstance(data, bytes):
        fields["data"] = data.hex()
    try:
        return msgspec.convert(fields, NewCommand)
    except msgspec.ValidationError as error:
        raise InputError(f"a command has type, data and wait_ms: {error}") from error


class CommandRequester:
    """Pass the answer of a device to the requester in the common form of all protocols, as the broker's `Peer`."""

    sends_acks: Final = False
    pulls_backlog: Final = False

    def __init__(self, peer: Peer, serial: str) -> None:
        self.id = peer.id  # so that the broker drops the call when the requester disconnects
        self.protocol = peer.protocol
        self.identity = peer.identity
        self._peer = peer
        self._serial = serial

    def send(self, message: Message) -> None:
        answer = device_answer(self._serial, message) if message.kind is Kind.RESPONSE else None
        if answer is not None:
            fields = msgspec.to_builtins(answer)
            message = Message(kind=Kind.RESPONSE, correlation=message.correlation, fields=fields)
        self._peer.send(message)

    @property
    def encoding_key(self) -> Hashable | None:
        return self._peer.encoding_key

    @property
    def is_congested(self) -> bool:
        return self._peer.is_congested

    @property
    def bytes_in(self) -> int:
        return self._peer.bytes_in

    @property
    def bytes_written(self) -> int:
        return self._peer.bytes_written

    @property
    def bytes_drained(self) -> int:
        return self._peer.bytes_drained

    def encode_notification(self, message: Message) -> bytes:
        return self._peer.encode_notification(message)

    def write(self, data: bytes) -> None:
        self._peer.write(data)

    def close(self, closing: Closing) -> None:
        self._peer.close(closing)
