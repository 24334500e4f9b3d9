"""Implement the service `devices`: send a command to a device from any protocol and return its response.

Its one operation is `command`. The serial is the request's object or its field `serial`; `type`, `data` (hex, or bytes;
or else the payload) and `wait_ms` are as in the HTTP API, and so is the answer. A device's own error is an answer like
any other, with `error` and `error_text`; a failure is that there is no answer. The serial `*` is every device.
"""

from collections.abc import Hashable
from typing import TYPE_CHECKING, Annotated, Any, Final

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType
from msgspec.structs import replace

from wirelake.broker.peer import Peer
from wirelake.broker.services import failed, not_found
from wirelake.errors import InputError
from wirelake.limits import HTTP_COMMAND_MS, HTTP_COMMAND_MS_MAX
from wirelake.message import COMMAND, EVERY_DEVICE, Device, FailureCode, Kind, Message, Operation
from wirelake.protocols.hextext import HEX_PATTERN, parse_hex
from wirelake.protocols.session import Closing

if TYPE_CHECKING:
    from wirelake.gateway.devices.broadcast import Broadcasts
    from wirelake.gateway.gateway import Gateway

_DATA_FIELDS: Final = ("status", "readings")  # what is known of an answer's data, by name


class NewCommand(Struct, forbid_unknown_fields=True):
    type: Annotated[int, Meta(ge=128, le=255)]  # bit 7 is set in all that goes to a device
    data: Annotated[str, Meta(extra_json_schema={"pattern": HEX_PATTERN})] = ""
    wait_ms: Annotated[int, Meta(ge=1, le=HTTP_COMMAND_MS_MAX)] = HTTP_COMMAND_MS


class DeviceAnswer(Struct, omit_defaults=True):
    """`status` or `readings` where the data is one of those, `data` in hex where it is not."""

    serial: str
    type: int
    error: int
    device_time: int
    error_text: str | UnsetType = UNSET
    data: str | UnsetType = UNSET
    status: dict[str, Any] | UnsetType = UNSET
    readings: list[dict[str, Any]] | UnsetType = UNSET


def command_message(serial: str, command: NewCommand, **rest: Any) -> Message:
    """InputError where the data is not hex."""
    return Message(
        kind=Kind.REQUEST,
        target=Device(serial),
        headers={"timeout_ms": command.wait_ms},
        fields={"command_type": command.type},
        payload=parse_hex(command.data),
        **rest,
    )


def device_answer(serial: str, answer: Message) -> DeviceAnswer | None:
    """What the device said; None for a failure of the gateway's own, that there is no answer."""
    fields = answer.fields
    if "command_type" not in fields:
        return None
    told = DeviceAnswer(serial, fields["command_type"], fields["error"], fields["device_time"])
    if answer.failure is not None:
        told.error_text = answer.failure.text
    elif not any(name in fields for name in _DATA_FIELDS):
        told.data = answer.payload.hex()
    told.status = fields.get("status", UNSET)
    told.readings = fields.get("readings", UNSET)
    return told


class DeviceCommands:
    """A service of the broker's own."""

    def __init__(self, gateway: "Gateway", broadcasts: "Broadcasts") -> None:
        self._gateway = gateway
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
            self._broadcasts.start(peer, message, _command(fields, message.payload), now_s)
            return
        broker = self._gateway.broker
        device = broker.devices.get(serial)
        if device is None:
            peer.send(failed(message.correlation, f"device {serial[:64]!r} is offline", FailureCode.NOT_FOUND))
            return
        command = _command(fields, message.payload)
        request = command_message(serial, command, source=peer.identity, correlation=message.correlation)
        asker = CommandAsker(peer, serial)
        broker.services.call(asker, replace(request, traced=message.traced), device, now_s, command.wait_ms / 1000)


def _command(fields: dict[str, Any], payload: bytes) -> NewCommand:
    data = fields.setdefault("data", payload)
    if isinstance(data, bytes):
        fields["data"] = data.hex()
    try:
        return msgspec.convert(fields, NewCommand)
    except msgspec.ValidationError as error:
        raise InputError(f"a command has type, data and wait_ms: {error}") from error


class CommandAsker:
    """The broker's `Peer` for one command: tells whoever asked in the form that all protocols share."""

    sends_acks: Final = False
    pulls_backlog: Final = False

    def __init__(self, peer: Peer, serial: str) -> None:
        self.id = peer.id  # so that it leaves with the one who asked
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
