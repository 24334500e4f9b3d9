"""Save what device sessions have to remember across restarts, for example which sealed commands were received.

This changes with every command, and is saved at most once in `DEVICE_SEALS_SAVE_S`. A crash loses the changes since the
last save; a clean shutdown loses none.
"""

import asyncio
import logging
from typing import TYPE_CHECKING

from wirelake.commit import Commit
from wirelake.errors import StorageError
from wirelake.limits import DEVICE_SEALS_SAVE_S
from wirelake.protocols.device_session import DeviceSession
from wirelake.state.devices import DeviceRegistry

if TYPE_CHECKING:
    from wirelake.gateway.devices.driver import DeviceDriver

_log = logging.getLogger(__name__)


class DeviceMemory:
    """Save the memory of sessions that have changed."""

    def __init__(self, devices: DeviceRegistry) -> None:
        self._devices = devices
        self._unsaved: dict[DeviceSession, str] = {}  # serial by session

    def add(self, driver: "DeviceDriver") -> None:
        session = driver.session
        if isinstance(session, DeviceSession):
            self._unsaved[session] = driver.identity

    async def run(self) -> None:
        while True:
            await asyncio.sleep(DEVICE_SEALS_SAVE_S)
            self.save()

    def save(self) -> None:
        unsaved, self._unsaved = self._unsaved, {}
        for session, serial in unsaved.items():
            try:
                self._save(session, serial)
            except StorageError as error:
                _log.warning("cannot store the replay protection of sealed commands: %s", error)
                self._unsaved |= unsaved
                return

    def _save(self, session: DeviceSession, serial: str) -> None:
        """Save the changes of a session. Raise StorageError if that is refused; the call can be repeated."""
        parts = session.take_unsaved()
        for number in list(parts):
            try:
                commit = self._devices.save_seals(serial, number, parts.pop(number))
            except StorageError:
                for each in (number, *parts):
                    session.keep_unsaved(each)
                raise
            if commit is not None:
                commit.add_done_callback(lambda done, of=number: self._on_saved(session, serial, of, done))  # type: ignore[misc]

    def _on_saved(self, session: DeviceSession, serial: str, number: int, commit: Commit) -> None:
        if commit.error is not None:
            session.keep_unsaved(number)
            self._unsaved[session] = serial
