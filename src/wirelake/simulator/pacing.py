"""Acts at their times. Each is due from the beginning, not from the one before, so lateness does not add up."""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable

from wirelake.simulator.habits import Act
from wirelake.simulator.limits import SIMULATOR_GRAIN_S, SIMULATOR_TURN_ACTS


class Pacer:
    def __init__(self, clock: Callable[[], float], sleep: Callable[[float], Awaitable[None]]) -> None:
        self.behind_s = 0.0  # how late an act was at most
        self._clock = clock
        self._sleep = sleep

    async def run(self, acts: Iterable[Act]) -> AsyncIterator[Act]:
        """Acts that fall due within the grain of each other go together; others still get their turn in between."""
        begun_s = self._clock()
        together = 0
        for act in acts:
            wait_s = begun_s + act.at_s - self._clock()
            self.behind_s = max(self.behind_s, -wait_s)
            together += 1
            if wait_s > SIMULATOR_GRAIN_S or together >= SIMULATOR_TURN_ACTS:
                together = 0
                await self._sleep(max(wait_s, 0.0))
            yield act
