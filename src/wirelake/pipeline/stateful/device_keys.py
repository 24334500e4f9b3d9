"""Read the keys of devices on the driver, for the executors, which do not have the gateway's state."""

from functools import lru_cache
from pathlib import Path

from msgspec import Struct

from wirelake.key_source import KeySource
from wirelake.state.device_key_reader import DeviceKeyReader


class DeviceKeys(Struct, frozen=True):
    """Hold the key of each device that has one. Sent to the executors with the task, and never shown as text."""

    by_serial: dict[str, bytes] = {}

    def __call__(self, serial: str) -> bytes | None:
        return self.by_serial.get(serial)

    def __repr__(self) -> str:
        return f"DeviceKeys({len(self.by_serial)} devices)"  # it may end up in a traceback


def read_device_keys(database: Path, key: KeySource) -> DeviceKeys:
    """Return the keys as the gateway's registry has them now. `database` is its state, `key` says how to decrypt it."""
    return DeviceKeys(_reader(database, key).read())


@lru_cache(maxsize=1)
def _reader(database: Path, key: KeySource) -> DeviceKeyReader:
    """Return the reader of this process, so that a command for the key runs once, and not for each batch."""
    return DeviceKeyReader(database, key)
