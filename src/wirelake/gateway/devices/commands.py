"""Implement the service `devices`: send a command to a device from any protocol and return its response.

The only operation is `command`. The serial is the object of the request or its field `serial`; `type`, `fields`,
`data` (hex or bytes; by default the payload), `wait_ms` and the response are as in the HTTP API. An error of the device
is a response with `error` and `error_text`; the request fails only if the device does not answer. The serial `*` means
all devices.

The session of a device gets a command as a request whose target is the device. A type that is a name is the `name` of
this request, a number is its field `command_type`. The session responds with fields, a payload, or a failure whose code
is the device's own number for the error: neither 0 nor a `FailureCode`.
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
from wirelake.limits import DEVICE_COMMAND_CHARS_MAX, HTTP_COMMAND_MS, HTTP_COMMAND_MS_MAX
from wirelake.message import COMMAND, EVERY_DEVICE, Device, FailureCode, Kind, Message, Operation
from wirelake.protocols import registry
from wirelake.protocols.readings import TYPED
from wirelake.protocols.session import Closing
from wirelake.protocols.text import HEX_PATTERN, parse_hex

if TYPE_CHECKING:
    from wirelake.gateway.devices.broadcast import Broadcasts

COMMAND_TYPE: Final = "command_type"  # field of a command and its answer, in protocols that number commands
_DATA_FIELDS: Final = ("status", TYPED)  # decoded data of an answer
_GATEWAY_CODES: Final = frozenset({0, *FailureCode})  # of failures without an answer of the device


# Bit 7 is set in all commands that have a number. JSON has no integers of its own: 130.0 is one.
_Number = Annotated[float, Meta(ge=128, le=255, multiple_of=1)]
_Name = Annotated[str, Meta(min_length=1, max_length=DEVICE_COMMAND_CHARS_MAX)]


class NewCommand(Struct, forbid_unknown_fields=True):
    """A command, by the number or the name that the protocol of the device has for it."""

    type: _Number | _Name
    data: Annotated[str, Meta(extra_json_schema={"pattern": HEX_PATTERN})] = ""
    wait_ms: Annotated[int, Meta(ge=1, le=HTTP_COMMAND_MS_MAX)] = HTTP_COMMAND_MS
    fields: dict[str, Any] = {}  # parameters by name


class DeviceAnswer(Struct, omit_defaults=True, kw_only=True):
    """The answer of a device: `fields`, or `data` in hex if it has none.

    Of a protocol that numbers commands, it has `type` and `device_time`, and `status` or `readings` if the data could
    be decoded. `error` is the device's own number, 0 if there was no error.
    """

    serial: str
    type: int | UnsetType = UNSET
    error: int
    device_time: int | UnsetType = UNSET
    error_text: str | UnsetType = UNSET
    data: str | UnsetType = UNSET
    fields: dict[str, Any] | UnsetType = UNSET
    status: dict[str, Any] | UnsetType = UNSET
    readings: list[dict[str, Any]] | UnsetType = UNSET


def command_message(serial: str, command: NewCommand, **rest: Any) -> Message:
    """Create the request for a command. Raise InputError if the data is not hex."""
    name, fields = "", command.fields
    if isinstance(command.type, str):
        name = command.type
    else:
        fields = fields | {COMMAND_TYPE: int(command.type)}
    return Message(
        kind=Kind.REQUEST,
        target=Device(serial),
        name=name,
        headers={"timeout_ms": command.wait_ms},
        fields=fields,
        payload=parse_hex(command.data),
        **rest,
    )


def device_answer(serial: str, answer: Message) -> DeviceAnswer | None:
    """Return the answer of a device; None if the message is an error of the gateway, so that there is no answer."""
    fields, failure = answer.fields, answer.failure
    if COMMAND_TYPE not in fields:
        if failure is not None:
            is_own = failure.code not in _GATEWAY_CODES
            return DeviceAnswer(serial=serial, error=failure.code, error_text=failure.text) if is_own else None
        result = DeviceAnswer(serial=serial, error=0, fields=fields or UNSET)
        if answer.payload or not fields:
            result.data = answer.payload.hex()
        return result
    result = DeviceAnswer(
        serial=serial, type=fields[COMMAND_TYPE], error=fields["error"], device_time=fields["device_time"]
    )
    if failure is not None:
        result.error_text = failure.text
    elif not any(name in fields for name in _DATA_FIELDS):
        result.data = answer.payload.hex()
    result.status = fields.get("status", UNSET)
    if TYPED in fields:
        result.readings = [_named(answer.protocol, each) for each in fields[TYPED]]
    return result


def _named(protocol: str, reading: dict[str, Any]) -> dict[str, Any]:
    """Return a numbered reading with its name and unit."""
    known = registry.get(protocol).reading_name(reading["type"])
    return reading | {"name": known.name, "unit": known.unit}


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
        command = _command(fields, message.payload)
        request = command_message(serial, command, source=peer.identity, correlation=message.correlation)
        requester = CommandRequester(peer, serial)
        self._broker.command(requester, replace(request, traced=message.traced), serial, now_s, command.wait_ms / 1000)


def _command(fields: dict[str, Any], payload: bytes) -> NewCommand:
    data = fields.setdefault("data", payload)
    if isinstance(data, bytes):
        fields["data"] = data.hex()
    try:
        return msgspec.convert(fields, NewCommand)
    except msgspec.ValidationError as error:
        raise InputError(f"a command has type, fields, data and wait_ms: {error}") from error


class CommandRequester:
    """Pass the answer of a device to the requester in the common form of all protocols, as the broker's `Peer`."""

    sends_acks: Final = False
    takes_commands: Final = False
    takes_broadcasts: Final = False
    pulls_backlog: Final = False

    def __init__(self, peer: Peer, serial: str) -> None:
        self.id = peer.id  # so that the broker drops the call when the requester disconnects
        self.protocol = peer.protocol
        self.identity = peer.identity
        self.is_admin = peer.is_admin
        self.address = peer.address
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
