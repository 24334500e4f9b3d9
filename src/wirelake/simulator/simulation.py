"""A run from its first identity to its last goodbye."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Final, Protocol

from msgspec import Struct

from wirelake.errors import InputError
from wirelake.simulator.desk import Desk
from wirelake.simulator.fleet import FLEET, FleetMember, fleet
from wirelake.simulator.habits import acts
from wirelake.simulator.limits import (
    SIMULATOR_DEVICES_MAX,
    SIMULATOR_DRAIN_S,
    SIMULATOR_ENTERING_MAX,
    SIMULATOR_LEAVE_S,
    SIMULATOR_RATE_MAX,
)
from wirelake.simulator.member import Member
from wirelake.simulator.meter import Meter
from wirelake.simulator.pacing import Pacer
from wirelake.simulator.phone import Phone
from wirelake.simulator.provisioning import check_free, identities, meters, provide, remove
from wirelake.simulator.publisher import Publisher
from wirelake.simulator.report import Report
from wirelake.simulator.station import Station
from wirelake.simulator.terminal import Terminal
from wirelake.simulator.world import World

# protocol → its members, and the listener that they need
MEMBERS: Final[dict[str, Callable[[World, FleetMember], Member]]] = {
    "apostol": Meter,
    "comet": Phone,
    "magline": Terminal,
    "sisnet": Desk,
    "esnp": Station,
    "redis": Publisher,
}
LISTENERS: Final = {
    "apostol": "apostol",
    "comet": "comet",
    "magline": "magline",
    "sisnet": "sisnet",
    "esnp": "esnp",
    "redis": "redis",
}


class Plan(Struct, frozen=True, kw_only=True):
    devices: int = 50
    rate: float = 50.0  # acts a second, of the whole fleet
    seconds: float = 10.0
    protocols: tuple[str, ...] = tuple(MEMBERS)
    slow_readers: float = 0.0
    seed: int = 0
    keep: bool = False  # identities and devices stay
    name: str = FLEET  # two fleets at one gateway have different ones


class SimulationProgress(Protocol):
    """Who wants to know how far it is."""

    def phase(self, name: str, total: int) -> None: ...

    def step(self) -> None: ...


async def simulate(world: World, plan: Plan, progress: SimulationProgress) -> Report:
    if plan.devices > SIMULATOR_DEVICES_MAX:
        raise InputError(f"at most {SIMULATOR_DEVICES_MAX} devices in one process")
    if not 0 < plan.rate <= SIMULATOR_RATE_MAX:
        raise InputError(f"rate must be above 0 and at most {SIMULATOR_RATE_MAX:g} per second")
    for protocol in plan.protocols:
        world.address(LISTENERS.get(protocol, protocol))
    places = fleet(plan.devices, plan.protocols, plan.seed, plan.slow_readers, plan.name)
    report = world.report
    report.seed = plan.seed
    for place in places:
        report.members[place.protocol] = report.members.get(place.protocol, 0) + 1
    world.provider = next((name for name in ("esnp", "sisnet") if name in report.members), "")
    try:
        async with _provided(world, places, plan, progress):
            await _run(world, places, plan, progress)
    finally:
        world.threads.shutdown(wait=False, cancel_futures=True)
    return report


@asynccontextmanager
async def _provided(
    world: World, places: Sequence[FleetMember], plan: Plan, progress: SimulationProgress
) -> AsyncIterator[None]:
    await check_free(world, places)
    many = len(meters(places)) + len(identities(places))
    progress.phase("creating identities and devices", many)
    try:
        await provide(world, places, progress.step)
        yield
    finally:
        if not plan.keep:
            progress.phase("removing identities and devices", many)
            await remove(world, places, progress.step)


async def _run(world: World, places: Sequence[FleetMember], plan: Plan, progress: SimulationProgress) -> None:
    members = [MEMBERS[place.protocol](world, place) for place in places]
    loop = asyncio.get_running_loop()
    try:
        progress.phase("connecting", len(members))
        # Who provides goes first, so that nobody asks in vain.
        first = [member for member in members if member.place.protocol == world.provider]
        rest = [member for member in members if member.place.protocol != world.provider]
        for group in (first, rest):
            await _each(group, Member.enter, progress)
        progress.phase("running", round(plan.rate * plan.seconds))
        begun_s = loop.time()
        pacer = Pacer(loop.time, asyncio.sleep)
        async for act in pacer.run(acts(places, plan.rate, plan.seconds, plan.seed)):
            members[act.member].offer(act)
            progress.step()
        world.report.behind_s = pacer.behind_s
        progress.phase("waiting for the last responses", 2 * len(members))
        await _within(SIMULATOR_DRAIN_S, "waiting for open actions", _drain(members, progress), world.report)
        world.report.seconds = loop.time() - begun_s
    finally:
        progress.phase("disconnecting", len(members))
        await _within(SIMULATOR_LEAVE_S, "a goodbye", _each(members, Member.leave, progress), world.report)


async def _drain(members: Sequence[Member], progress: SimulationProgress) -> None:
    for do in (Member.finish, Member.take_the_rest):
        await _each(members, do, progress, together=len(members))


async def _each(
    members: Sequence[Member],
    do: Callable[[Member], Awaitable[None]],
    progress: SimulationProgress,
    together: int = SIMULATOR_ENTERING_MAX,
) -> None:
    room = asyncio.Semaphore(max(together, 1))

    async def one(member: Member) -> None:
        async with room:
            await do(member)
        progress.step()

    await asyncio.gather(*map(one, members))


async def _within(seconds: float, what: str, work: Awaitable[None], report: Report) -> None:
    try:
        async with asyncio.timeout(seconds):
            await work
    except TimeoutError:
        report.blame(f"{what} timed out")
