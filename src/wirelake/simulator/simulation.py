"""Run a simulation: create identities and devices, connect the members, perform their actions, clean up."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Final, Protocol

from msgspec import Struct

from wirelake.errors import InputError
from wirelake.protocols import registry
from wirelake.simulator.fleet import FLEET, MemberProfile, Pacer, make_fleet, schedule
from wirelake.simulator.limits import (
    SIMULATOR_CONNECTING_MAX,
    SIMULATOR_DEVICES_MAX,
    SIMULATOR_DISCONNECT_S,
    SIMULATOR_DRAIN_S,
    SIMULATOR_RATE_MAX,
)
from wirelake.simulator.member import Member
from wirelake.simulator.member_kinds import MEMBERS
from wirelake.simulator.provisioning import check_free, create, devices_of, identities_of, remove
from wirelake.simulator.report import Report
from wirelake.simulator.world import World

_PROVIDERS: Final = ("esnp", "sisnet")  # protocols whose members can provide the services, best first


class Plan(Struct, frozen=True, kw_only=True):
    devices: int = 50
    rate: float = 50.0  # actions per second of the whole fleet
    seconds: float = 10.0
    protocols: tuple[str, ...] = tuple(MEMBERS)
    slow_readers: float = 0.0
    seed: int = 0
    keep: bool = False  # do not remove identities and devices
    name: str = FLEET  # fleets that run at the same time need different names


class SimulationProgress(Protocol):
    """Receive the progress of a simulation."""

    def phase(self, name: str, total: int) -> None: ...

    def step(self) -> None: ...


async def simulate(world: World, plan: Plan, progress: SimulationProgress) -> Report:
    """Run the plan against a gateway and return the report. InputError if the plan is not possible there."""
    if plan.devices > SIMULATOR_DEVICES_MAX:
        raise InputError(f"at most {SIMULATOR_DEVICES_MAX} devices in one process")
    if not 0 < plan.rate <= SIMULATOR_RATE_MAX:
        raise InputError(f"rate must be above 0 and at most {SIMULATOR_RATE_MAX:g} per second")
    for protocol in plan.protocols:
        world.address(listener_of(protocol))
    fleet = make_fleet(plan.devices, plan.protocols, plan.seed, plan.slow_readers, plan.name)
    report = world.report
    report.seed = plan.seed
    for member in fleet:
        report.members[member.protocol] = report.members.get(member.protocol, 0) + 1
    world.provider = next((name for name in _PROVIDERS if name in report.members), "")
    try:
        async with _provisioned(world, fleet, plan, progress):
            await _run(world, fleet, plan, progress)
    finally:
        world.threads.shutdown(wait=False, cancel_futures=True)
    return report


def listener_of(protocol: str) -> str:
    """Return the key under [listen] that members of this protocol need."""
    return next(iter(registry.get(protocol).listeners))


@asynccontextmanager
async def _provisioned(
    world: World, fleet: Sequence[MemberProfile], plan: Plan, progress: SimulationProgress
) -> AsyncIterator[None]:
    await check_free(world, fleet)
    total = len(devices_of(fleet)) + len(identities_of(fleet))
    progress.phase("creating identities and devices", total)
    try:
        await create(world, fleet, progress.step)
        yield
    finally:
        if not plan.keep:
            progress.phase("removing identities and devices", total)
            await remove(world, fleet, progress.step)


async def _run(world: World, fleet: Sequence[MemberProfile], plan: Plan, progress: SimulationProgress) -> None:
    members = [MEMBERS[profile.protocol](world, profile) for profile in fleet]
    loop = asyncio.get_running_loop()
    try:
        progress.phase("connecting", len(members))
        # Providers connect first, so that no request finds its service missing.
        providers = [member for member in members if member.profile.protocol == world.provider]
        others = [member for member in members if member.profile.protocol != world.provider]
        for group in (providers, others):
            await _each(group, Member.start, progress)
        progress.phase("running", round(plan.rate * plan.seconds))
        started_s = loop.time()
        pacer = Pacer(loop.time, asyncio.sleep)
        async for action in pacer.run(schedule(fleet, plan.rate, plan.seconds, plan.seed)):
            members[action.member].offer(action)
            progress.step()
        world.report.behind_s = pacer.behind_s
        progress.phase("waiting for the last responses", 2 * len(members))
        await _within(SIMULATOR_DRAIN_S, "waiting for open actions", _drain(members, progress), world.report)
        world.report.seconds = loop.time() - started_s
    finally:
        progress.phase("disconnecting", len(members))
        stopping = _each(members, Member.stop, progress)
        await _within(SIMULATOR_DISCONNECT_S, "disconnecting", stopping, world.report)


async def _drain(members: Sequence[Member], progress: SimulationProgress) -> None:
    for step in (Member.finish_actions, Member.drain):
        await _each(members, step, progress, concurrency=len(members))


async def _each(
    members: Sequence[Member],
    do: Callable[[Member], Awaitable[None]],
    progress: SimulationProgress,
    concurrency: int = SIMULATOR_CONNECTING_MAX,
) -> None:
    slots = asyncio.Semaphore(max(concurrency, 1))

    async def one(member: Member) -> None:
        async with slots:
            await do(member)
        progress.step()

    await asyncio.gather(*map(one, members))


async def _within(seconds: float, what: str, work: Awaitable[None], report: Report) -> None:
    try:
        async with asyncio.timeout(seconds):
            await work
    except TimeoutError:
        report.add_reason(f"{what} timed out")
