"""Remember the sealed commands of devices, so that nobody sends one a second time; across restarts, too.

What is known changes with every sealed command and is stored at most once in `DEVICE_SEALS_SAVE_S`, with whatever else
goes into the state then. After a crash, a command of that last moment could be sent again; after a clean end, none.
"""

import asyncio
import logging
from typing import TYPE_CHECKING

from wirelake.commit import Commit
from wirelake.errors import StorageError
from wirelake.limits import DEVICE_SEALS_SAVE_S
from wirelake.protocols.apostol.replays import Replays, pack, unpack

if TYPE_CHECKING:
    from wirelake.gateway.gateway import Gateway

_log = logging.getLogger(__name__)


class SealGuard:
    """Judges the sealed commands of one device."""

    __slots__ = ("_by_type", "_changed", "_gateway", "_seals", "_serial", "_window_s")

    def __init__(self, gateway: "Gateway", seals: "Seals", serial: str, window_s: float) -> None:
        self._gateway = gateway
        self._seals = seals
        self._serial = serial
        self._window_s = window_s
        stored = gateway.state.devices.seals(serial)
        self._by_type: dict[int, Replays] = {device_type: unpack(each) for device_type, each in stored.items()}
        self._changed: set[int] = set()

    def is_new(self, device_type: int, device_time: int, sealed: bytes) -> bool:
        """Whether this command never came before. If so, it is remembered."""
        replays = self._by_type.get(device_type)
        if replays is None:
            replays = self._by_type[device_type] = Replays()
        if not replays.take(device_time, sealed, self._gateway.wall_ms() / 1000, self._window_s):
            return False
        self._changed.add(device_type)
        self._seals.unsaved.add(self)
        return True

    def save(self) -> None:
        """Store what changed. Raises StorageError, and can be called again then."""
        devices = self._gateway.state.devices
        for device_type in tuple(self._changed):
            commit = devices.save_seals(self._serial, device_type, pack(self._by_type[device_type]))
            self._changed.discard(device_type)
            if commit is not None:
                commit.add_done_callback(lambda done, of=device_type: self._saved(of, done))  # type: ignore[misc]

    def _saved(self, device_type: int, commit: Commit) -> None:
        if commit.error is not None:
            self._changed.add(device_type)
            self._seals.unsaved.add(self)


class Seals:
    """Those of all devices that have something to store."""

    def __init__(self) -> None:
        self.unsaved: set[SealGuard] = set()

    async def run(self) -> None:
        while True:
            await asyncio.sleep(DEVICE_SEALS_SAVE_S)
            self.save()

    def save(self) -> None:
        unsaved, self.unsaved = self.unsaved, set()
        for guard in unsaved:
            try:
                guard.save()
            except StorageError as error:
                _log.warning("cannot store the replay protection of sealed commands: %s", error)
                self.unsaved |= unsaved
                return
