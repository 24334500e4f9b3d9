"""Store registered devices: their type, the key that seals their commands, and which sealed commands were received."""

from contextlib import closing
from typing import Final

from msgspec import Struct

from wirelake.commit import Commit
from wirelake.errors import ConflictError, FullError, InputError
from wirelake.limits import STATE_DEVICES_MAX, STATE_SEALS_BYTES_MAX
from wirelake.state.batch import Statement
from wirelake.state.database import StateReader
from wirelake.state.encryption import DEVICE_KEY, SecretCipher
from wirelake.state.schema import check_name
from wirelake.state.writer import StateWriter

_ADD: Final = Statement("devices", "INSERT INTO devices (serial, type, key, added_at_ms) VALUES ", "(?,?,?,?)")
_REMOVE: Final = Statement("devices", "DELETE FROM devices WHERE serial IN (", "?", ")")
_SAVE_SEALS: Final = Statement(
    "device_seals", "INSERT OR REPLACE INTO device_seals (serial, type, seals) VALUES ", "(?,?,?)"
)
_REMOVE_SEALS: Final = Statement("device_seals", "DELETE FROM device_seals WHERE serial IN (", "?", ")")

DEVICE_KEY_BYTES: Final = 16  # AES-128
_TYPE_MAX: Final = 0xFF
_EVERY_DEVICE: Final = "*"  # what is sent to it goes to all


class RegisteredDevice(Struct, frozen=True):
    serial: str
    type: int
    key: bytes | None
    added_at_ms: int

    def __repr__(self) -> str:
        return f"Device(serial={self.serial!r}, type={self.type}, key={'…' if self.key else None})"


class DeviceRegistry:
    """Keep all registered devices in memory, with their keys in clear text."""

    def __init__(self, writer: StateWriter, reader: StateReader, cipher: SecretCipher) -> None:
        self._writer = writer
        self._reader = reader
        self._cipher = cipher
        self._by_serial: dict[str, RegisteredDevice] = {}
        self._seals: dict[str, dict[int, bytes]] = {}  # by serial and type

    def load(self) -> None:
        decrypt = self._cipher.decrypt
        with closing(self._reader.rows("SELECT serial, type, key, added_at_ms FROM devices")) as rows:
            self._by_serial = {
                serial: RegisteredDevice(
                    serial, device_type, None if key is None else decrypt(DEVICE_KEY, serial, key), added_at_ms
                )
                for serial, device_type, key, added_at_ms in rows
            }
        self._seals = {}
        for serial, device_type, seals in self._reader.rows("SELECT serial, type, seals FROM device_seals"):
            self._seals.setdefault(serial, {})[device_type] = seals

    def find(self, serial: str) -> RegisteredDevice | None:
        self._writer.reload_if_stale()
        return self._by_serial.get(serial)

    def serials(self) -> list[str]:
        """Return all serials, in no particular order."""
        self._writer.reload_if_stale()
        return list(self._by_serial)

    def list(self) -> list[RegisteredDevice]:
        """Return all devices, ordered by serial."""
        self._writer.reload_if_stale()
        return sorted(self._by_serial.values(), key=lambda device: device.serial)

    def add(self, serial: str, type: int, key: bytes | None, now_ms: int) -> Commit:  # noqa: A002 (the field's name)
        """Register a device."""
        self._writer.check_writable()
        check_name(serial, "a device's serial")
        if serial == _EVERY_DEVICE:
            raise InputError(f"a device's serial is not {serial!r}, which stands for all devices")
        if not 0 <= type <= _TYPE_MAX:
            raise InputError(f"a device's type must be 0 to {_TYPE_MAX}, not {type}")
        if key is not None and len(key) != DEVICE_KEY_BYTES:
            raise InputError(f"a device's key must have {DEVICE_KEY_BYTES} bytes, not {len(key)}")
        if serial in self._by_serial:
            raise ConflictError(f"device {serial!r} exists already: to change its type or key, remove it first")
        if len(self._by_serial) >= STATE_DEVICES_MAX:
            raise FullError(f"cannot add device {serial!r}: the limit is {STATE_DEVICES_MAX} devices")
        self._by_serial[serial] = RegisteredDevice(serial, type, key, now_ms)
        encrypted = None if key is None else self._cipher.encrypt(DEVICE_KEY, serial, key)
        return self._writer.submit(_ADD, (serial, type, encrypted, now_ms))

    def remove(self, serial: str) -> Commit | None:
        """Remove a device. Return None if there is none."""
        self._writer.check_writable()
        if self._by_serial.pop(serial, None) is None:
            return None
        with self._writer.transaction():
            if self._seals.pop(serial, None) is not None:
                self._writer.submit(_REMOVE_SEALS, (serial,))
            return self._writer.submit(_REMOVE, (serial,))

    def seals(self, serial: str) -> dict[int, bytes]:
        """Return what was saved about the sealed commands of a device, by its type."""
        self._writer.reload_if_stale()
        return self._seals.get(serial, {}).copy()

    def save_seals(self, serial: str, device_type: int, seals: bytes) -> Commit | None:
        """Replace what was saved about sealed commands. Return None if the device is not registered any more."""
        self._writer.check_writable()
        if serial not in self._by_serial:
            return None
        if len(seals) > STATE_SEALS_BYTES_MAX:
            raise FullError(
                f"{len(seals)} bytes about the sealed commands of device {serial!r} exceed {STATE_SEALS_BYTES_MAX}"
            )
        self._seals.setdefault(serial, {})[device_type] = seals
        row = (serial, device_type, seals)
        return self._writer.submit(_SAVE_SEALS, row, key=(serial, device_type), content_bytes=len(seals))
