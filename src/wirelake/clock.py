"""Provide wall time that never jumps, to decide what has expired.

The system clock may be set wrong and right again, by hand, by NTP or by the host of a virtual machine. Nothing may
expire because of that. So this clock starts with the system clock and then runs with the monotonic one; it follows the
system clock, but gains or loses at most `CLOCK_CATCH_UP` of the time that passes.
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
_FILE: Final = "clock"  # in the data folder: the time when the gateway last ran


def _monotonic_ns() -> int:
    """Return monotonic time that includes sleep, if the system provides it."""
    return time.clock_gettime_ns(_MONOTONIC)


_MONOTONIC: Final[int] = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class SteadyClock:
    """Return the time to any thread. It never goes back."""

    def __init__(
        self, wall_ns: Callable[[], int] = time.time_ns, monotonic_ns: Callable[[], int] = _monotonic_ns
    ) -> None:
        self.steps = 0  # of the system clock that were detected
        self._wall_ns = wall_ns
        self._monotonic_ns = monotonic_ns
        self._lock = Lock()
        self._anchor = (wall_ns(), monotonic_ns())  # time of this clock, and the monotonic time it belongs to
        self._offset_ns = 0  # how far the system clock was ahead at the last check

    def now_ms(self) -> int:
        at_ns, since_ns = self._anchor
        passed_ns = self._monotonic_ns() - since_ns
        if passed_ns >= _CHECK_NS:
            return self._check() // _MS
        return (at_ns + passed_ns) // _MS

    def now_us(self) -> int:
        return self.now_ms() * 1000

    @property
    def offset_s(self) -> float:
        """Return how far the system clock is ahead of this one."""
        return self._offset_ns / _S

    def _check(self) -> int:
        """Follow the system clock within the bound. Return the time in nanoseconds."""
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
                "the system clock stepped by %+.0f s and is %+.0f s off; expiry ignores the step and follows slowly:"
                " check that the clock is right",
                step_ns / _S,
                self.offset_s,
            )
        return now_ns

    # Across restarts

    def save(self, folder: Path) -> None:
        """Store the time for the next start. Raise StorageError if that fails."""
        try:
            (folder / _FILE).write_text(f"{self.now_ms()}\n")
        except OSError as error:
            raise StorageError(f"cannot write the time to {folder / _FILE}: {error}") from error

    def compare(self, folder: Path, keep_s: float) -> None:
        """Warn if the system clock contradicts the time of the last run. Which of the two was wrong is unknown."""
        try:
            last_ms = int((folder / _FILE).read_text())
        except (OSError, ValueError):
            return  # a new folder, or one of a version without this file
        gone_s = (self.now_ms() - last_ms) / 1000
        if gone_s <= -CLOCK_STEP_S:
            self.steps += 1
            _log.warning(
                "the system clock is %.0f s behind the time of the last run, so what was stored then expires that much"
                " later: check that the clock is right",
                -gone_s,
            )
        elif gone_s >= keep_s:
            _log.warning(
                "the last run was %.0f s ago by the system clock, so what was published before expires now: check that"
                " the clock is right",
                gone_s,
            )
