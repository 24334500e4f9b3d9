"""Whole commands: their packets are joined, unsealed and inflated.

Times are seconds since 1970 by the device's local clock: 0 means unknown, 1 that the clock failed.
Offsets in errors count from the command's first byte.
"""

from datetime import UTC, datetime
from typing import Annotated, Final, cast

from wirelake.layout import (
    Body,
    Envelope,
    FrameSet,
    LayoutFrame,
    SizedNumber,
    between,
    choice,
    fixed,
    items,
    list8,
    names,
    rest_bytes,
    shown,
    size_of,
    u8,
    u16,
    u32,
)
from wirelake.protocols.apostol.constants import (
    APOSTOL_COMMAND_BYTES_MAX,
    COMMAND_NAMES,
    ERROR_NAMES,
    READING_NAMES,
    REQUEST_BIT,
    TIME_ERROR,
    TIME_SYNC_NAMES,
    TIME_UNKNOWN,
    CommandType,
)
from wirelake.protocols.frame import Sender

_DEVICE_HEAD_BYTES: Final = 6  # time, command_type, error
_U8_MAX: Final = 0xFF


def time_in_words(seconds: int) -> str:
    """Return a time in ISO format, without a zone: it is the device's local time."""
    if seconds == TIME_UNKNOWN:
        return "unknown"
    if seconds == TIME_ERROR:
        return "the clock failed"
    return datetime.fromtimestamp(seconds, UTC).replace(tzinfo=None).isoformat()


def _configured_in_words(seconds: int) -> str:
    return "never" if seconds == 0 else time_in_words(seconds)


def _request_in_words(command_type: int) -> str:
    name = COMMAND_NAMES.get(command_type & ~REQUEST_BIT)
    return "not a known type" if name is None else f"asks for {name}"


class CommandEnvelope(
    Envelope,
    byte_order="little",
    is_datagram=True,
    frame_bytes_max=APOSTOL_COMMAND_BYTES_MAX,
    limit_name="command_bytes_max",
):
    body: Body


class Status(LayoutFrame, frozen=True, forbid_unknown_fields=True, byte_order="little"):
    """The state and the configuration of a device."""

    state: u16
    tariff: u8
    configured_at: Annotated[u32, shown(_configured_in_words)]  # 0: never
    time_sync: Annotated[u8, names(TIME_SYNC_NAMES, "not a known way")]
    synced_at: Annotated[u32, shown(time_in_words)]


class Reading(LayoutFrame, frozen=True, forbid_unknown_fields=True, byte_order="little"):
    """A measured value. One of a size without a meaning stays bytes; with size 0, the smallest that fits is written.

    Three bytes are written only if requested.
    """

    type: Annotated[u8, names({kind: each.title for kind, each in READING_NAMES.items()}, "")]
    value: Annotated[int | float | bytes, SizedNumber((1, 2, 3, 4, 6), floats=(8,), written=(1, 2, 4, 6))]
    size: Annotated[int, size_of("value")] = 0


Data = Status | tuple[Reading, ...] | bytes
_Nothing = Annotated[bytes, fixed(0)]
_Readings = Annotated[list8[Reading], items("reading")]
_ByType = Annotated[
    Data, choice("command_type", {CommandType.STATUS: Status, CommandType.READINGS: _Readings}, rest_bytes)
]


class DeviceCommand(LayoutFrame, frozen=True, envelope=CommandEnvelope, sender=Sender.CLIENT):
    """A command from the device. With an error there is no data; `data` is bytes unless the type is a known one."""

    name = "command"
    time: Annotated[u32, shown(time_in_words)]
    command_type: Annotated[
        u8, between(0, REQUEST_BIT - 1, text="bit 7 is for requests"), names(COMMAND_NAMES, "not a known type")
    ]
    error: Annotated[u8, names(ERROR_NAMES, "not a known code")] = 0
    data: Annotated[Data, choice("error", {0: _ByType}, _Nothing)] = b""


class ServerCommand(LayoutFrame, frozen=True, envelope=CommandEnvelope, sender=Sender.SERVER):
    """A command to the device: bit 7 of its type is set. The answer has the same type without it."""

    name = "command"
    command_type: Annotated[u8, between(REQUEST_BIT, _U8_MAX, text="a request has bit 7"), shown(_request_in_words)]
    data: rest_bytes = b""


Command = DeviceCommand | ServerCommand
COMMANDS: Final = FrameSet("apostol", CommandEnvelope, [DeviceCommand, ServerCommand])


def parse_command(data: bytes, *, to_device: bool) -> Command:
    """Parse a whole command. Raise ProtocolError if it is malformed."""
    return cast(Command, COMMANDS.decode(data, Sender.SERVER if to_device else Sender.CLIENT))


def encode_data(data: Data) -> bytes:
    """Return the data of a command as bytes."""
    if isinstance(data, bytes):
        return data
    command_type = CommandType.STATUS if isinstance(data, Status) else CommandType.READINGS
    return DeviceCommand(0, command_type, 0, data).encode()[_DEVICE_HEAD_BYTES:]
