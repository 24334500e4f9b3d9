"""Read the keys of devices on the driver, for the executors, which do not have the gateway's state."""

import sqlite3
from contextlib import closing
from pathlib import Path

from msgspec import Struct


class DeviceKeys(Struct, frozen=True):
    """Hold the key of each device that has one. Sent to the executors with the task, and never shown as text."""

    by_serial: dict[str, bytes] = {}

    def __call__(self, serial: str) -> bytes | None:
        return self.by_serial.get(serial)

    def __repr__(self) -> str:
        return f"DeviceKeys({len(self.by_serial)} devices)"  # it may end up in a traceback


def read_device_keys(database: Path) -> DeviceKeys:
    """Return the keys as the gateway's registry has them now. `database` is its state."""
    if not database.exists():
        return DeviceKeys()
    with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as connection:
        return DeviceKeys(dict(connection.execute("SELECT serial, key FROM devices WHERE key IS NOT NULL")))
