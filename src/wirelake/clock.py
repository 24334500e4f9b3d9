"""Wall time that cannot jump: what expiry is decided by.

A system clock may be set wrong and right again, by hand, by NTP or by a virtual machine's host. Whatever was given a
time to live must not be thrown away because of that. So this clock starts with the system's and then runs with the
monotonic one; it follows the system's clock, but gains or loses at most `CLOCK_CATCH_UP` of the time that passes.
"""

import logging
import time
from collections.abc import Callable
from pathlib import Path
from threading import Lock
from typing import Final

from wirelake.errors import StorageError
from wirelake.limits import CLOCK_CATCH_UP, CLOCK_CHECK_S, CLOCK_STEP_S

_log = logging.getLogger(__name__)
_S: Final = 1_000_000_000
_MS: Final = 1_000_000
_CHECK_NS: Final = int(CLOCK_CHECK_S * _S)
_STEP_NS: Final = int(CLOCK_STEP_S * _S)
_FILE: Final = "clock"  # in the data folder: what time it was when the gateway was last there


def _monotonic_ns() -> int:
    """Count the time that the machine sleeps too, where the system can tell."""
    return time.clock_gettime_ns(_MONOTONIC)


_MONOTONIC: Final[int] = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class SteadyClock:
    """May be asked from any thread. Never goes back."""

    def __init__(
        self, wall_ns: Callable[[], int] = time.time_ns, monotonic_ns: Callable[[], int] = _monotonic_ns
    ) -> None:
        self.steps = 0  # of the system's clock that were seen
        self._wall_ns = wall_ns
        self._monotonic_ns = monotonic_ns
        self._lock = Lock()
        self._anchor = (wall_ns(), monotonic_ns())  # this clock's time, and when it had it
        self._offset_ns = 0  # how far the system's clock was ahead at the last look

    def now_ms(self) -> int:
        at_ns, since_ns = self._anchor
        passed_ns = self._monotonic_ns() - since_ns
        if passed_ns >= _CHECK_NS:
            return self._look() // _MS
        return (at_ns + passed_ns) // _MS

    def now_us(self) -> int:
        return self.now_ms() * 1000

    @property
    def offset_s(self) -> float:
        """How far the system's clock is ahead of this one."""
        return self._offset_ns / _S

    def _look(self) -> int:
        """Follow the system's clock a little."""
        with self._lock:
            at_ns, since_ns = self._anchor
            monotonic_ns = self._monotonic_ns()
            passed_ns = monotonic_ns - since_ns
            offset_ns = self._wall_ns() - at_ns - passed_ns
            step_ns = offset_ns - self._offset_ns
            bound_ns = int(passed_ns * CLOCK_CATCH_UP)
            follow_ns = max(-bound_ns, min(offset_ns, bound_ns))
            self._offset_ns = offset_ns - follow_ns
            now_ns = at_ns + passed_ns + follow_ns
            self._anchor = (now_ns, monotonic_ns)
        if abs(step_ns) >= _STEP_NS:
            self.steps += 1
            _log.warning(
                "the system's clock stepped by %+.0f s and is %+.0f s off: expiry goes on by the time that really"
                " passes, and follows it slowly",
                step_ns / _S,
                self.offset_s,
            )
        return now_ns

    # Across restarts

    def save(self, folder: Path) -> None:
        """Leave the time for the next start. StorageError if that is not possible."""
        try:
            (folder / _FILE).write_text(f"{self.now_ms()}\n")
        except OSError as error:
            raise StorageError(f"the time cannot be written to {folder / _FILE}: {error}") from error

    def compare(self, folder: Path, keep_s: float) -> None:
        """Report where the system's clock does not fit the time of the last run. Which of both was wrong is unknown."""
        try:
            last_ms = int((folder / _FILE).read_text())
        except (OSError, ValueError):
            return  # a new folder, or one of before this file
        gone_s = (self.now_ms() - last_ms) / 1000
        if gone_s <= -CLOCK_STEP_S:
            self.steps += 1
            _log.warning(
                "the system's clock is %.0f s behind the time of the last run: is it set right? What was kept then"
                " expires that much later",
                -gone_s,
            )
        elif gone_s >= keep_s:
            _log.warning(
                "the last run was %.0f s ago by the system's clock: is it set right? What was published before"
                " expires now",
                gone_s,
            )
