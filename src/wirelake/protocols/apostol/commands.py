"""Parse and encode whole commands: their packets are joined, unsealed and inflated.

From the device:   ├── u32 time ──┼── u8 command_type ──┼── u8 error ──┼── data … ──┤   with an error there is no data
To the device:     ├── u8 command_type (bit 7 set) ──┼── data … ──┤

status   = u16 state | u8 tariff | u32 configured_at | u8 time_sync | u32 synced_at
readings = u8 count | count × (u8 type | u8 size | value[size]); sizes 1, 2, 3, 4, 6 are unsigned, 8 is a float64

Times are seconds since 1970 by the device's local clock: 0 means unknown, 1 that the clock failed.
Offsets in errors count from the command's first byte.
"""

from datetime import UTC, datetime
from struct import Struct as Layout
from struct import error as struct_error

from msgspec import Struct

from wirelake.errors import EncodeError, ProtocolError
from wirelake.protocols.apostol.constants import REQUEST_BIT, TIME_ERROR, TIME_UNKNOWN, CommandType

_DEVICE_HEAD = Layout("<IBB")
_STATUS = Layout("<HBIBI")
_F64 = Layout("<d")
_U8_MAX = 0xFF

INTEGER_SIZES = frozenset({1, 2, 3, 4, 6})
_SIZES_BY_DEFAULT = (1, 2, 4, 6)  # of readings without a size; 3 bytes are used only if requested


class Status(Struct, frozen=True, forbid_unknown_fields=True):
    """The state and the configuration of a device."""

    state: int
    tariff: int
    configured_at: int  # 0: never
    time_sync: int
    synced_at: int

    def encode(self) -> bytes:
        try:
            return _STATUS.pack(self.state, self.tariff, self.configured_at, self.time_sync, self.synced_at)
        except struct_error as error:
            raise EncodeError(f"status: {error}") from error


class Reading(Struct, frozen=True, forbid_unknown_fields=True):
    """A measured value. One of a size without a meaning stays bytes; with size 0, the smallest that fits is written."""

    type: int
    value: int | float | bytes
    size: int = 0

    def encode(self) -> bytes:
        value = self.value
        if isinstance(value, bytes):
            size = len(value)
            fits = size not in INTEGER_SIZES and size != _F64.size and self.size in (0, size) and size <= _U8_MAX
            packed = value if fits else None
        else:
            size = self.size or _size_for(value)
            packed = _packed(value, size)
        if packed is None or not 0 <= self.type <= _U8_MAX:
            raise EncodeError(f"reading {self.type}: {value!r} does not fit {size} bytes")
        return bytes((self.type, size)) + packed


Data = Status | tuple[Reading, ...] | bytes


class DeviceCommand(Struct, frozen=True):
    """A command from the device. `data` is bytes unless the type is a known one."""

    time: int
    command_type: int
    error: int = 0
    data: Data = b""

    def encode(self) -> bytes:
        data = encode_data(self.data)
        if self.error and data:
            raise EncodeError("with an error there is no data")
        if self.command_type & REQUEST_BIT:
            raise EncodeError(f"command_type {self.command_type:#04x}: bit 7 is for requests")
        try:
            return _DEVICE_HEAD.pack(self.time, self.command_type, self.error) + data
        except struct_error as error:
            raise EncodeError(f"command: {error}") from error


class ServerCommand(Struct, frozen=True):
    """A command to the device."""

    command_type: int
    data: bytes = b""

    def encode(self) -> bytes:
        if not REQUEST_BIT <= self.command_type <= _U8_MAX:
            raise EncodeError(f"command_type {self.command_type:#04x}: a request has one byte, with bit 7")
        return bytes((self.command_type,)) + self.data


Command = DeviceCommand | ServerCommand


def parse_command(data: bytes, *, to_device: bool) -> Command:
    """Parse a whole command. Raise ProtocolError if it is malformed."""
    return _parse_server_command(data) if to_device else _parse_device_command(data)


def encode_data(data: Data) -> bytes:
    """Return the data of a command as bytes."""
    if isinstance(data, bytes):
        return data
    if isinstance(data, Status):
        return data.encode()
    if len(data) > _U8_MAX:
        raise EncodeError(f"{len(data)} readings: one command holds at most {_U8_MAX}")
    return bytes((len(data),)) + b"".join([reading.encode() for reading in data])


def time_in_words(seconds: int) -> str:
    """Return a time in ISO format, without a zone: it is the device's local time."""
    if seconds == TIME_UNKNOWN:
        return "unknown"
    if seconds == TIME_ERROR:
        return "the clock failed"
    return datetime.fromtimestamp(seconds, UTC).replace(tzinfo=None).isoformat()


def _parse_device_command(data: bytes) -> DeviceCommand:
    if len(data) < _DEVICE_HEAD.size:
        raise ProtocolError("short", f"a command needs {_DEVICE_HEAD.size} bytes, this has {len(data)}", len(data))
    time, command_type, error = _DEVICE_HEAD.unpack_from(data)
    if command_type & REQUEST_BIT:
        raise ProtocolError("command_type", f"type {command_type:#04x} from a device: bit 7 is for requests", 4)
    rest = data[_DEVICE_HEAD.size :]
    if error:
        if rest:
            raise ProtocolError("trailing", "with an error there is no data", _DEVICE_HEAD.size)
        return DeviceCommand(time, command_type, error)
    if command_type == CommandType.STATUS:
        return DeviceCommand(time, command_type, 0, _parse_status(rest, _DEVICE_HEAD.size))
    if command_type == CommandType.READINGS:
        return DeviceCommand(time, command_type, 0, _parse_readings(rest, _DEVICE_HEAD.size))
    return DeviceCommand(time, command_type, 0, rest)


def _parse_server_command(data: bytes) -> ServerCommand:
    if not data:
        raise ProtocolError("short", "a command needs its type", 0)
    if not data[0] & REQUEST_BIT:
        raise ProtocolError("command_type", f"type {data[0]:#04x} to a device: a request has bit 7", 0)
    return ServerCommand(data[0], data[1:])


def _parse_status(data: bytes, offset: int) -> Status:
    if len(data) < _STATUS.size:
        raise ProtocolError("short", f"a status has {_STATUS.size} bytes, this {len(data)}", offset + len(data))
    if len(data) > _STATUS.size:
        raise ProtocolError("trailing", f"{len(data) - _STATUS.size} bytes too many", offset + _STATUS.size)
    return Status(*_STATUS.unpack(data))


def _parse_readings(data: bytes, offset: int) -> tuple[Reading, ...]:
    if not data:
        raise ProtocolError("short", "readings need their count", offset)
    readings = []
    position = 1
    for index in range(data[0]):
        start = position + 2
        if start > len(data) or start + data[position + 1] > len(data):
            raise ProtocolError("short", f"reading {index} is cut off", offset + len(data))
        position = start + data[start - 1]
        readings.append(_reading(data[start - 2], data[start:position]))
    if position < len(data):
        raise ProtocolError("trailing", f"{len(data) - position} bytes too many", offset + position)
    return tuple(readings)


def _reading(kind: int, raw: bytes) -> Reading:
    size = len(raw)
    if size in INTEGER_SIZES:
        return Reading(kind, int.from_bytes(raw, "little"), size)
    if size == _F64.size:
        return Reading(kind, _F64.unpack(raw)[0], size)
    return Reading(kind, raw, size)


def _size_for(value: int | float) -> int:
    if isinstance(value, float):
        return _F64.size
    return next((size for size in _SIZES_BY_DEFAULT if 0 <= value < 1 << 8 * size), max(_SIZES_BY_DEFAULT))


def _packed(value: int | float, size: int) -> bytes | None:
    try:
        if size == _F64.size:
            return _F64.pack(value)
        if size in INTEGER_SIZES and isinstance(value, int):
            return value.to_bytes(size, "little")
    except (struct_error, OverflowError):
        return None
    return None
