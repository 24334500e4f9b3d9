"""Translate apostol packets to common messages, and back.

A packet that is a whole command, not zipped and not sealed, becomes that command, with its values as fields. Any other
has its data as payload, and its fields say which part of a command it is. The session makes the same messages of the
commands that it assembled.

The device is the source of a message from it and the target of a message to it. A source has no device type, so that
is a header.
"""

from typing import Any

import msgspec
from msgspec.structs import asdict

from wirelake.errors import EncodeError, ProtocolError, TranslationError
from wirelake.message import BROADCAST_DEVICE_TYPE, Device, Failure, Kind
from wirelake.message import Message as Common
from wirelake.protocols.apostol.assembly import Assembled
from wirelake.protocols.apostol.commands import (
    Command,
    Data,
    DeviceCommand,
    Reading,
    ServerCommand,
    Status,
    parse_command,
)
from wirelake.protocols.apostol.constants import (
    ANSWER,
    ERROR_NAMES,
    FIRST,
    LAST,
    LENGTH_MAX,
    LENGTH_MIN,
    RECEIPT,
    REQUEST_BIT,
    SEALED,
    TO_DEVICE,
    VERSION,
    ZIPPED,
    CommandType,
    ErrorCode,
)
from wirelake.protocols.apostol.frames import Packet, Receipt
from wirelake.protocols.frame import Frame, Sender
from wirelake.protocols.translation import Loss

PROTOCOL_NAME = "apostol"
_DATA_FIELDS = {CommandType.STATUS.value: "status", CommandType.READINGS.value: "readings"}
_PART_FIELDS = {"packet_no", "first", "last", "malformed"}
_DEVICE_FIELDS = {"command_type", "error", "device_time", *_DATA_FIELDS.values()}
_U8_MAX = 0xFF


def to_message(frame: Frame, _sender: Sender) -> Common:
    """Return the message of one packet. The direction is in the packet itself."""
    if not isinstance(frame, Packet):
        raise TypeError(f"{type(frame).__name__} is not a packet")
    if frame.receipt:
        return _message(frame, Kind.CONTROL, frame.name, fields={"packet_no": frame.packet_no})
    fields: dict[str, Any] = {"packet_no": frame.packet_no, "first": frame.first, "last": frame.last}
    if frame.single and not frame.zipped and not frame.sealed:
        try:
            return command_message(frame, parse_command(frame.data, to_device=frame.to_device), frame.name)
        except ProtocolError as error:
            fields["malformed"] = str(error)
    return _message(frame, _kind(frame), frame.name, fields=fields, payload=frame.data)


def command_message(head: Packet | Assembled, command: Command, name: str = "command") -> Common:
    """Return the message of a whole command, given in clear. `head` has its device and direction."""
    if isinstance(command, ServerCommand):
        fields: dict[str, Any] = {"command_type": command.command_type}
        return _message(head, _kind(head), name, fields=fields, payload=command.data)
    fields = {"command_type": command.command_type, "error": command.error, "device_time": command.time}
    payload = b""
    if isinstance(command.data, bytes):
        payload = command.data
    else:
        fields[_DATA_FIELDS[command.command_type]] = _plain(command.data)
    failure = failure_of(command.error) if head.answer and command.error else None
    return _message(head, _kind(head), name, fields=fields, payload=payload, failure=failure)


def _plain(data: Status | tuple[Reading, ...]) -> Any:
    if isinstance(data, Status):
        return asdict(data)
    return [asdict(reading) for reading in data]


def failure_event(head: Packet | Assembled, state: str, reason: str, text: str = "") -> Common:
    """Return an event that says why a command was refused, expired or not delivered."""
    fields: dict[str, Any] = {"state": state, "reason": reason}
    if text:
        fields["text"] = text
    if isinstance(head, Assembled):
        fields["packets"] = head.packets
    return _message(head, Kind.EVENT, "command", fields=fields)


def failure_of(error: int) -> Failure:
    """Return the failure that a device reports by this number."""
    return Failure(ERROR_NAMES.get(error, "not a known code"), error)


def from_message(message: Common, sender: Sender) -> Packet:
    """Return the packet with which `sender` sends this. Only a session can split, zip or seal a command."""
    device = device_of(message, sender)
    params = TO_DEVICE if sender is Sender.SERVER else 0
    command_no = _command_no(message)
    if message.kind is Kind.CONTROL and message.name == Receipt.name:
        packet_no = _number(message, "packet_no", _U8_MAX)
        return _fitting(Receipt(VERSION, params | RECEIPT, device.type, device.serial, command_no, packet_no, b""))
    if message.kind is Kind.RESPONSE:
        params |= ANSWER
    if "packet_no" in message.fields:
        return _fitting(_part(message, params, device, command_no))
    if message.headers.get("zipped") or message.headers.get("sealed"):
        raise TranslationError("only a session can zip or seal a command")
    data = command_bytes(message, sender)
    return _fitting(Packet(VERSION, params | FIRST | LAST, device.type, device.serial, command_no, 0, data))


def device_of(message: Common, sender: Sender) -> Device:
    """Return the device of a message: the target of the gateway's, the source of a device's."""
    if sender is Sender.SERVER:
        if not isinstance(message.target, Device):
            raise TranslationError("the target of a message to apostol must be a device")
        return message.target
    device_type = message.headers.get("device_type", 0)
    if not isinstance(device_type, int) or not 0 <= device_type <= _U8_MAX:
        raise TranslationError(f"device_type {device_type!r} does not fit one byte")
    return Device(message.source, device_type)


def command_bytes(message: Common, sender: Sender) -> bytes:
    """Return the command with which `sender` sends this, before zlib and AES."""
    allowed = (Kind.REQUEST, Kind.EVENT) if sender is Sender.SERVER else (Kind.TELEMETRY, Kind.RESPONSE)
    if message.kind not in allowed:
        raise TranslationError(f"an apostol {sender} has no command for a {message.kind}")
    known = {"command_type"} if sender is Sender.SERVER else _DEVICE_FIELDS
    unknown = message.fields.keys() - known
    if unknown:
        raise TranslationError(f"an apostol command has no field '{min(unknown)}'")
    try:
        if sender is Sender.SERVER:
            return ServerCommand(_number(message, "command_type", _U8_MAX), message.payload).encode()
        return _device_command(message).encode()
    except EncodeError as error:
        raise TranslationError(str(error)) from error


def _device_command(message: Common) -> DeviceCommand:
    command_type = _number(message, "command_type", _U8_MAX & ~REQUEST_BIT)
    default_time = min(max(message.at_ms // 1000, 0), 0xFFFF_FFFF)
    time = _number(message, "device_time", 0xFFFF_FFFF, default_time)
    error = _number(message, "error", _U8_MAX, 0)
    if message.failure is not None and not error:
        known = message.failure.code in ERROR_NAMES and message.failure.code != ErrorCode.NONE
        error = message.failure.code if known else ErrorCode.UNSPECIFIED
    return DeviceCommand(time, command_type, int(error), b"" if error else _data(message, command_type))


def _data(message: Common, command_type: int) -> Data:
    given = [name for name in _DATA_FIELDS.values() if name in message.fields]
    if not given:
        return message.payload
    if given != [_DATA_FIELDS.get(command_type)] or message.payload:
        raise TranslationError(f"a command of type {command_type} cannot have {given[0]}, or not with other data")
    try:
        if given == ["status"]:
            return msgspec.convert(message.fields["status"], Status)
        return msgspec.convert(message.fields["readings"], tuple[Reading, ...])
    except msgspec.ValidationError as error:
        raise TranslationError(f"{given[0]}: {error}") from error


def _part(message: Common, params: int, device: Device, command_no: int) -> Packet:
    unknown = message.fields.keys() - _PART_FIELDS
    if unknown:
        raise TranslationError(f"a part of an apostol command has no field '{min(unknown)}'")
    for holder, name, bit in (
        (message.fields, "first", FIRST),
        (message.fields, "last", LAST),
        (message.headers, "zipped", ZIPPED),
        (message.headers, "sealed", SEALED),
    ):
        params |= bit if holder.get(name) else 0
    packet_no = _number(message, "packet_no", _U8_MAX)
    return Packet(VERSION, params, device.type, device.serial, command_no, packet_no, message.payload)


def _fitting(packet: Packet) -> Packet:
    serial_size = len(packet.serial.encode())
    if serial_size > _U8_MAX:
        raise TranslationError(f"a serial of {serial_size} bytes exceeds the limit of {_U8_MAX}")
    if LENGTH_MIN + serial_size + len(packet.data) > LENGTH_MAX:
        raise TranslationError(f"a command of {len(packet.data)} bytes does not fit one packet")
    return packet


def _command_no(message: Common) -> int:
    text = message.correlation or "0"
    if not (text.isascii() and text.isdigit() and len(text) <= 3 and int(text) <= _U8_MAX):
        raise TranslationError(f"correlation '{text[:64]}' is not a command number")
    return int(text)


def _number(message: Common, name: str, most: int, default: int | None = None) -> int:
    value = message.fields.get(name, default)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= most:
        raise TranslationError(f"{name} must be a number from 0 to {most}, not {value!r}")
    return value


def _kind(head: Packet | Assembled) -> Kind:
    if head.answer:
        return Kind.RESPONSE
    if not head.to_device:
        return Kind.TELEMETRY
    is_broadcast = head.device_type == BROADCAST_DEVICE_TYPE and not head.serial
    return Kind.EVENT if is_broadcast else Kind.REQUEST


def _message(head: Packet | Assembled, kind: Kind, name: str, **rest: Any) -> Common:
    headers: dict[str, Any] = {}
    if head.params & ZIPPED:
        headers["zipped"] = True
    if head.params & SEALED:
        headers["sealed"] = True
    if head.to_device:
        rest["target"] = Device(head.serial, head.device_type)
    else:
        rest["source"] = head.serial
        headers["device_type"] = head.device_type
    number = str(head.command_no)
    return Common(kind=kind, name=name, protocol=PROTOCOL_NAME, correlation=number, headers=headers, **rest)


_METER = Device("1234", 6)
LOSSES = (
    Loss(
        "headers, source and id of a request",
        "are left out",
        Common(
            kind=Kind.REQUEST,
            id="7",
            source="erp",
            target=_METER,
            correlation="9",
            headers={"lang": "de"},
            fields={"command_type": 0x82},
            payload=b"hi",
        ),
        Common(
            kind=Kind.REQUEST,
            name="packet",
            protocol="apostol",
            target=_METER,
            correlation="9",
            fields={"command_type": 0x82},
            payload=b"hi",
        ),
    ),
    Loss(
        "an event for one device",
        "is a command like a request; only a broadcast is an event on the wire",
        Common(kind=Kind.EVENT, target=_METER, correlation="9", fields={"command_type": 0x82}),
        Common(
            kind=Kind.REQUEST,
            name="packet",
            protocol="apostol",
            target=_METER,
            correlation="9",
            fields={"command_type": 0x82},
        ),
    ),
    Loss(
        "a time in milliseconds",
        "becomes the device's time in seconds",
        Common(
            kind=Kind.TELEMETRY,
            source="1234",
            at_ms=1_577_866_150_999,
            correlation="9",
            headers={"device_type": 6},
            fields={"command_type": 2},
            payload=b"hi",
        ),
        Common(
            kind=Kind.TELEMETRY,
            name="packet",
            protocol="apostol",
            source="1234",
            correlation="9",
            headers={"device_type": 6},
            fields={"command_type": 2, "error": 0, "device_time": 1_577_866_150},
            payload=b"hi",
        ),
        Sender.CLIENT,
    ),
    Loss(
        "a failure's text, and a code that apostol does not know",
        "become the nearest of its own: 1, unspecified; fields and payload go",
        Common(
            kind=Kind.RESPONSE,
            source="1234",
            correlation="9",
            headers={"device_type": 6},
            fields={"command_type": 2},
            payload=b"hi",
            failure=Failure("no such thing", 404),
        ),
        Common(
            kind=Kind.RESPONSE,
            name="packet",
            protocol="apostol",
            source="1234",
            correlation="9",
            headers={"device_type": 6},
            fields={"command_type": 2, "error": 1, "device_time": 0},
            failure=Failure("unspecified", 1),
        ),
        Sender.CLIENT,
    ),
    Loss(
        "fields other than those of a command",
        "are refused",
        Common(kind=Kind.REQUEST, target=_METER, fields={"command_type": 0x82, "a": 1}),
        None,
    ),
    Loss(
        "a request without a command_type of 128 or more",
        "is refused",
        Common(kind=Kind.REQUEST, target=_METER, fields={"command_type": 2}, payload=b"hi"),
        None,
    ),
    Loss(
        "a message for a service or a topic",
        "is refused: apostol speaks to devices",
        Common(kind=Kind.REQUEST, fields={"command_type": 0x82}),
        None,
    ),
    Loss(
        "a notification",
        "is refused: devices do not subscribe",
        Common(kind=Kind.NOTIFICATION, target=_METER, payload=b"hi"),
        None,
    ),
    Loss(
        "a command beyond 32 KiB",
        "is refused as one packet; a session sends it as several",
        Common(kind=Kind.REQUEST, target=_METER, fields={"command_type": 0x82}, payload=bytes(LENGTH_MAX)),
        None,
    ),
)
