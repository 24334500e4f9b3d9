"""Apostol devices: their type, the key their commands are sealed with, and what is known of the commands that came so.

Where each was last heard is not kept.
"""

from typing import Final

from msgspec import Struct

from wirelake.commit import Commit
from wirelake.errors import ConflictError, FullError, InputError
from wirelake.limits import STATE_DEVICES_MAX, STATE_SEALS_BYTES_MAX
from wirelake.state.batch import Statement
from wirelake.state.bounds import check_name
from wirelake.state.reader import Reader
from wirelake.state.writer import Writer

_ADD: Final = Statement("devices", "INSERT INTO devices (serial, type, key, added_at_ms) VALUES ", "(?,?,?,?)")
_REMOVE: Final = Statement("devices", "DELETE FROM devices WHERE serial IN (", "?", ")")
_SAVE_SEALS: Final = Statement(
    "device_seals", "INSERT OR REPLACE INTO device_seals (serial, type, seals) VALUES ", "(?,?,?)"
)
_REMOVE_SEALS: Final = Statement("device_seals", "DELETE FROM device_seals WHERE serial IN (", "?", ")")

_KEY_BYTES: Final = 16  # AES-128
_TYPE_MAX: Final = 0xFF
_EVERY_DEVICE: Final = "*"  # what is sent to it goes to all

Address = tuple[str, int]


class Device(Struct, frozen=True):
    serial: str
    type: int
    key: bytes | None
    added_at_ms: int

    def __repr__(self) -> str:
        return f"Device(serial={self.serial!r}, type={self.type}, key={'…' if self.key else None})"


class Devices:
    """All in memory."""

    def __init__(self, writer: Writer, reader: Reader) -> None:
        self._writer = writer
        self._reader = reader
        self._by_serial: dict[str, Device] = {}
        self._addresses: dict[str, Address] = {}  # at most one for each device
        self._seals: dict[str, dict[int, bytes]] = {}  # by serial and type

    def load(self) -> None:
        rows = self._reader.rows("SELECT serial, type, key, added_at_ms FROM devices")
        self._by_serial = {row[0]: Device(*row) for row in rows}
        self._addresses = {serial: at for serial, at in self._addresses.items() if serial in self._by_serial}
        self._seals = {}
        for serial, device_type, seals in self._reader.rows("SELECT serial, type, seals FROM device_seals"):
            self._seals.setdefault(serial, {})[device_type] = seals

    def find(self, serial: str) -> Device | None:
        self._writer.fresh()
        return self._by_serial.get(serial)

    def serials(self) -> list[str]:
        """In no order."""
        self._writer.fresh()
        return list(self._by_serial)

    def list(self) -> list[Device]:
        """By serial."""
        self._writer.fresh()
        return sorted(self._by_serial.values(), key=lambda device: device.serial)

    def add(self, serial: str, type: int, key: bytes | None, now_ms: int) -> Commit:  # noqa: A002 the field's name
        self._writer.ready()
        check_name(serial, "a device's serial")
        if serial == _EVERY_DEVICE:
            raise InputError(f"a device's serial is not {serial!r}, which stands for all devices")
        if not 0 <= type <= _TYPE_MAX:
            raise InputError(f"a device's type is 0 to {_TYPE_MAX}, not {type}")
        if key is not None and len(key) != _KEY_BYTES:
            raise InputError(f"a device's key has {_KEY_BYTES} bytes, not {len(key)}")
        if serial in self._by_serial:
            raise ConflictError(f"there is a device {serial!r} already; for another type or key, remove it first")
        if len(self._by_serial) >= STATE_DEVICES_MAX:
            raise FullError(f"there are {STATE_DEVICES_MAX} devices already")
        self._by_serial[serial] = Device(serial, type, key, now_ms)
        return self._writer.submit(_ADD, (serial, type, key, now_ms))

    def remove(self, serial: str) -> Commit | None:
        """None where there was none."""
        self._writer.ready()
        if self._by_serial.pop(serial, None) is None:
            return None
        self._addresses.pop(serial, None)
        with self._writer.whole():
            if self._seals.pop(serial, None) is not None:
                self._writer.submit(_REMOVE_SEALS, (serial,))
            return self._writer.submit(_REMOVE, (serial,))

    def seals(self, serial: str) -> dict[int, bytes]:
        """What was saved of the sealed commands of a device, by its type."""
        self._writer.fresh()
        return self._seals.get(serial, {}).copy()

    def save_seals(self, serial: str, device_type: int, seals: bytes) -> Commit | None:
        """In place of what was saved before. None where the device is not registered any more."""
        self._writer.ready()
        if serial not in self._by_serial:
            return None
        if len(seals) > STATE_SEALS_BYTES_MAX:
            raise FullError(f"{len(seals)} bytes about the sealed commands of device {serial!r}")
        self._seals.setdefault(serial, {})[device_type] = seals
        row = (serial, device_type, seals)
        return self._writer.submit(_SAVE_SEALS, row, key=(serial, device_type), content_bytes=len(seals))

    def heard(self, serial: str, address: Address) -> None:
        """A packet of the device came from here; commands for it go there. Ignored for an unknown device."""
        if self.find(serial) is not None:
            self._addresses[serial] = address

    def address(self, serial: str) -> Address | None:
        """Where it was last heard since the start of this process."""
        return self._addresses.get(serial)
