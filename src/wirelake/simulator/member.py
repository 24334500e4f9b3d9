"""One member of the fleet at work: does its acts one after the other, and keeps the books."""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from wirelake.errors import WirelakeError
from wirelake.simulator.fleet import FleetMember
from wirelake.simulator.habits import Act
from wirelake.simulator.limits import SIMULATOR_WAITING_ACTS_MAX
from wirelake.simulator.report import SimulationCounts
from wirelake.simulator.world import World

_log = logging.getLogger(__name__)


class Member:
    """A protocol's own says how it connects, and has a method for each kind of act."""

    def __init__(self, world: World, place: FleetMember) -> None:
        self.world = world
        self.place = place
        self._acts: asyncio.Queue[Act] = asyncio.Queue(SIMULATOR_WAITING_ACTS_MAX)
        self._tasks: set[asyncio.Task[None]] = set()

    # What a protocol's member says

    def doing(self) -> dict[str, Callable[[Act], Awaitable[None]]]:
        """By the kind of the act."""
        raise NotImplementedError

    async def connect(self) -> None:
        raise NotImplementedError

    async def settle(self) -> None:
        """The acts of all are over: take what is still on its way."""

    async def disconnect(self) -> None:
        raise NotImplementedError

    # For the simulation

    async def enter(self) -> None:
        try:
            await self.connect()
        except WirelakeError as error:
            self.failed("connect", error)
            return
        self.begin(self._work())

    def offer(self, act: Act) -> None:
        """Acts that find no room are skipped and counted: a fleet that cannot keep up says so."""
        try:
            self._acts.put_nowait(act)
        except asyncio.QueueFull:
            self.world.report.skipped += 1

    async def finish(self) -> None:
        """Until all that was offered is done; at once where it never connected."""
        if self._tasks:
            await self._acts.join()

    async def take_the_rest(self) -> None:
        """When all have finished: nobody says anything more."""
        if self._tasks:
            try:
                await self.settle()
            except WirelakeError as error:
                self.failed("settle", error)

    async def leave(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.disconnect()

    # For the protocols' members

    def counts(self, kind: str) -> SimulationCounts:
        return self.world.report.of(self.place.protocol, kind)

    def connected(self) -> None:
        self.world.report.connections[self.place.protocol] += 1

    def begin(self, work: Awaitable[None]) -> asyncio.Task[None]:
        """In the background, until the end."""
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    async def count(self, kind: str, work: Awaitable[object]) -> bool:
        """One thing of this kind: sent, and then acknowledged or failed. Answers which."""
        counts = self.counts(kind)
        counts.sent += 1
        try:
            await work
        except WirelakeError as error:
            self.failed(kind, error)
            return False
        except asyncio.CancelledError:
            counts.failed += 1
            raise
        counts.acknowledged += 1
        return True

    def failed(self, kind: str, error: Exception) -> None:
        self.counts(kind).failed += 1
        self.world.report.blame(f"{self.place.protocol} {kind}: {error}")

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if isinstance(error, WirelakeError):
            self.world.report.blame(f"{self.place.protocol}: {error}")
        elif error is not None:
            _log.error("%s: internal error of the simulator", self.place.name, exc_info=error)
            self.world.report.blame(f"{self.place.protocol}: internal error of the simulator, {type(error).__name__}")

    async def _work(self) -> None:
        doing = self.doing()
        while True:
            act = await self._acts.get()
            try:
                await doing[act.kind](act)
            except WirelakeError as error:
                _log.info("%s: %s failed: %s", self.place.name, act.kind, error)
                self.world.report.blame(f"{self.place.protocol} {act.kind}: {error}")
            finally:
                self._acts.task_done()
