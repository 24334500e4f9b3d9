"""Run one member of the fleet: perform its actions one after the other, and count the results."""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from wirelake.errors import WirelakeError
from wirelake.simulator.fleet import MemberProfile, SimulatedAction
from wirelake.simulator.limits import SIMULATOR_WAITING_ACTIONS_MAX
from wirelake.simulator.report import SimulationCounts
from wirelake.simulator.world import World

_log = logging.getLogger(__name__)

Perform = Callable[[SimulatedAction], Awaitable[None]]


class Member:
    """Perform actions over a client. A protocol's member connects, and has a method for each kind of action."""

    def __init__(self, world: World, profile: MemberProfile) -> None:
        self.world = world
        self.profile = profile
        self._actions: asyncio.Queue[SimulatedAction] = asyncio.Queue(SIMULATOR_WAITING_ACTIONS_MAX)
        self._tasks: set[asyncio.Task[None]] = set()

    # For a protocol's member to override

    def performers(self) -> dict[str, Perform]:
        """Return the method for each kind of action."""
        raise NotImplementedError

    async def connect(self) -> None:
        raise NotImplementedError

    async def take_pending(self) -> None:
        """Take what is still waiting at the gateway, after the actions of all members."""

    async def disconnect(self) -> None:
        raise NotImplementedError

    # For the simulation

    async def start(self) -> None:
        try:
            await self.connect()
        except WirelakeError as error:
            self.count_failure("connect", error)
            return
        self.start_task(self._perform_all())

    def offer(self, action: SimulatedAction) -> None:
        """Queue an action. If the queue is full, skip and count it: the report shows that the fleet cannot keep up."""
        try:
            self._actions.put_nowait(action)
        except asyncio.QueueFull:
            self.world.report.skipped += 1

    async def finish_actions(self) -> None:
        """Wait until all queued actions are done; return at once if the member never connected."""
        if self._tasks:
            await self._actions.join()

    async def drain(self) -> None:
        """Take what is still waiting, once all members have finished their actions."""
        if self._tasks:
            try:
                await self.take_pending()
            except WirelakeError as error:
                self.count_failure("drain", error)

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.disconnect()

    # For the protocols' members

    def counts(self, kind: str) -> SimulationCounts:
        return self.world.report.counts_of(self.profile.protocol, kind)

    def count_connection(self) -> None:
        self.world.report.connections[self.profile.protocol] += 1

    def count_failure(self, kind: str, error: Exception) -> None:
        self.counts(kind).failed += 1
        self.world.report.add_reason(f"{self.profile.protocol} {kind}: {error}")

    async def count(self, kind: str, work: Awaitable[object]) -> bool:
        """Await the work and count it as sent, then as acknowledged or failed. Return whether it succeeded."""
        counts = self.counts(kind)
        counts.sent += 1
        try:
            await work
        except WirelakeError as error:
            self.count_failure(kind, error)
            return False
        except asyncio.CancelledError:
            counts.failed += 1
            raise
        counts.acknowledged += 1
        return True

    def start_task(self, work: Awaitable[None]) -> asyncio.Task[None]:
        """Run the work in the background until `stop`."""
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._on_task_done)
        return task

    def _on_task_done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        protocol = self.profile.protocol
        if isinstance(error, WirelakeError):
            self.world.report.add_reason(f"{protocol}: {error}")
        elif error is not None:
            _log.error("%s: internal error of the simulator", self.profile.name, exc_info=error)
            self.world.report.add_reason(f"{protocol}: internal error of the simulator, {type(error).__name__}")

    async def _perform_all(self) -> None:
        performers = self.performers()
        while True:
            action = await self._actions.get()
            try:
                await performers[action.kind](action)
            except WirelakeError as error:
                _log.info("%s: %s failed: %s", self.profile.name, action.kind, error)
                self.world.report.add_reason(f"{self.profile.protocol} {action.kind}: {error}")
            finally:
                self._actions.task_done()
