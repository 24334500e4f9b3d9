"""A small fleet of every protocol against a real gateway; what it says it did is held against the event log."""

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import pytest
from gateway.running_gateway import HOST, Running, running_gateway, until

from wirelake.cli.support.api import ApiClient
from wirelake.errors import AnswerError, InputError
from wirelake.simulator.fleet import make_fleet, schedule
from wirelake.simulator.limits import SIMULATOR_TOPICS
from wirelake.simulator.member_kinds import MEMBERS
from wirelake.simulator.report import Report, SimulationCounts
from wirelake.simulator.simulation import Plan, listener_of, simulate
from wirelake.simulator.world import NetworkFaults, World, topic

ALL_LISTENERS = (*map(listener_of, MEMBERS), "sisnet_tcp", "http")
BAD_WEATHER = NetworkFaults(loss=0.1, reorder=0.1, duplicate=0.1, corrupt=0.03)


class Unwatched:
    def phase(self, name: str, total: int) -> None: ...

    def step(self) -> None: ...


class Watched:
    """A progress that only remembers."""

    def __init__(self) -> None:
        self.phases: list[str] = []
        self.left = 0

    def phase(self, name: str, total: int) -> None:
        assert self.left == 0, f"{self.phases[-1:]} was not done"
        self.phases.append(name)
        self.left = total

    def step(self) -> None:
        self.left -= 1


def world_of(running: Running, **rest: Any) -> World:
    settings = running.gateway.settings
    listen = msgspec.structs.replace(settings.listen, http=f"{HOST}:{running.port('http')}")
    api = ApiClient(msgspec.structs.replace(settings, listen=listen))
    listeners = {name: (HOST, running.port(name)) for name in running.gateway.listeners}
    return World(http=api.request, listeners=listeners, **rest)


def planned(plan: Plan) -> Counter[tuple[str, str]]:
    fleet = make_fleet(plan.devices, plan.protocols, plan.seed, plan.slow_readers)
    return Counter(
        (fleet[action.member].protocol, action.kind) for action in schedule(fleet, plan.rate, plan.seconds, plan.seed)
    )


def of(report: Report, kind: str) -> SimulationCounts:
    """Of all protocols together."""
    every = [kinds[kind] for kinds in report.counts.values() if kind in kinds]
    return SimulationCounts(
        *(sum(getattr(each, name) for each in every) for name in SimulationCounts.__struct_fields__)
    )


def check_against_the_log(running: Running, report: Report, plan: Plan) -> None:
    published = Counter(row["note"]["topic"] for row in running.records("publish"))
    news = {topic(number): published[topic(number)] for number in range(SIMULATOR_TOPICS)}
    assert sum(news.values()) == of(report, "publish").acknowledged
    reports = sum(count for name, count in published.items() if name.startswith("@devices/sim-meter-"))
    acknowledged = (
        report.counts_of("apostol", "status").acknowledged + report.counts_of("apostol", "readings").acknowledged
    )
    assert reports == acknowledged, "each report once, whatever the network did to its packets"
    phones = [member for member in make_fleet(plan.devices, plan.protocols, plan.seed) if member.protocol == "comet"]
    due = sum(news[name] for phone in phones for name in {topic(phone.number), topic(phone.number + 3)})
    notifications = report.counts_of("comet", "notification")
    assert (notifications.received, notifications.acknowledged) == (due, due)
    acked = {
        (row["note"]["identity"], each)
        for row in running.records("ack")
        for each in row["note"].get("acked", ())
        if row["note"]["identity"].startswith("sim-phone")
    }
    assert len(acked) == due
    logins = Counter(row["protocol"] for row in running.records("login"))
    for protocol in report.members.keys() - {"apostol"}:
        assert report.connections[protocol] == logins[protocol]
    sets = [row for row in running.records("frame", protocol="sisnet", direction="in") if b"set" in row["frame"]]
    assert len(sets) >= report.counts_of("sisnet", "set").acknowledged


@pytest.mark.parametrize("faults", [NetworkFaults(), BAD_WEATHER], ids=["fair", "bad"])
async def test_a_fleet_of_every_protocol(tmp_path: Path, faults: NetworkFaults) -> None:
    plan = Plan(devices=16, rate=60, seconds=2, seed=5, keep=True)
    async with running_gateway(tmp_path, *ALL_LISTENERS, apostol={"receipt_s": 0.4, "resends_max": 12}) as running:
        progress = Watched()
        report = await simulate(world_of(running, seed=5, faults=faults), plan, progress)
        assert progress.phases == [
            "creating identities and devices",
            "connecting",
            "running",
            "waiting for the last responses",
            "disconnecting",
        ]
        assert progress.left == 0
        assert report.members.keys() == MEMBERS.keys()
        assert report.total().failed == 0, report.reasons
        assert not report.reasons
        assert report.skipped == 0
        for (protocol, kind), count in planned(plan).items():
            if kind != "away":
                first = report.members["apostol"] if (protocol, kind) == ("apostol", "status") else 0
                assert report.counts_of(protocol, kind).sent == count + first, (protocol, kind)
        assert report.counts_of("comet", "subscribe").acknowledged == report.connections["comet"]
        assert report.counts_of("magline", "resume").acknowledged > 0
        assert of(report, "ask").acknowledged == of(report, "served").received
        assert all(bool(count) == bool(faults.loss) for count in report.faults.values())
        check_against_the_log(running, report, plan)


async def test_what_it_made_is_taken_away_and_made_anew(tmp_path: Path) -> None:
    plan = Plan(devices=4, rate=20, seconds=0.5, protocols=("apostol", "comet"), seed=1)
    async with running_gateway(tmp_path, "apostol", "comet", "http") as running:
        state = running.gateway.state
        await running.add_identity("somebody", "secret")
        for keep in (True, True, False):
            report = await simulate(world_of(running), msgspec.structs.replace(plan, keep=keep), Watched())
            assert report.total().failed == 0, report.reasons
            names = {identity.name for identity in state.identities.list()}
            assert names == {"somebody"} | ({"sim-phone-0000"} if keep else set())
            assert len(state.devices.list()) == (3 if keep else 0)


async def test_two_fleets_at_once_need_two_names(tmp_path: Path) -> None:
    plan = Plan(devices=4, rate=20, seconds=600, protocols=("apostol", "redis"), seed=1)
    short = msgspec.structs.replace(plan, seconds=0.5)
    async with running_gateway(tmp_path, "apostol", "redis", "http") as running:
        first = asyncio.create_task(simulate(world_of(running), plan, Unwatched()))
        try:
            await until(lambda: any(each.identity == "sim-redis" for each in running.gateway.connections.values()))
            with pytest.raises(InputError, match="sim-redis is connected: a fleet of this name is running already"):
                await simulate(world_of(running), short, Watched())
            other = await simulate(world_of(running), msgspec.structs.replace(short, name="other"), Watched())
            assert other.total().failed == 0, other.reasons
            names = {identity.name for identity in running.gateway.state.identities.list()}
            assert names == {"sim-redis"}, "it is as it was"
            assert not first.done()
        finally:
            first.cancel()
            await asyncio.gather(first, return_exceptions=True)


async def test_a_fleet_that_is_refused_says_why(tmp_path: Path) -> None:
    def refuse() -> None:
        raise AnswerError("not today", 403)

    async with running_gateway(tmp_path, "comet", "http") as running:
        with pytest.raises(InputError, match="no apostol listener"):
            await simulate(world_of(running), Plan(protocols=("apostol",)), Watched())
        with pytest.raises(InputError, match="rate"):
            await simulate(world_of(running), Plan(rate=0, protocols=("comet",)), Watched())
        world = world_of(running)
        world.http = lambda *_: refuse()
        with pytest.raises(AnswerError, match="not today"):
            await simulate(world, Plan(protocols=("comet",), devices=1, keep=True), Watched())


async def test_members_that_cannot_keep_up_are_counted(tmp_path: Path) -> None:
    plan = Plan(devices=1, rate=50_000, seconds=0.1, protocols=("redis",), seed=1)
    async with running_gateway(tmp_path, "redis", "http") as running:
        report = await simulate(world_of(running), plan, Watched())
        assert report.skipped > 0
        assert report.total().sent + report.skipped == 5000
        assert report.total().failed == 0


async def test_slow_readers_get_everything_in_the_end(tmp_path: Path) -> None:
    plan = Plan(devices=6, rate=60, seconds=1, protocols=("comet", "sisnet"), slow_readers=1.0, seed=2)
    async with running_gateway(tmp_path, "comet", "sisnet", "sisnet_tcp", "http") as running:
        report = await simulate(world_of(running), plan, Watched())
        assert report.total().failed == 0, report.reasons
        check_against_the_log(running, report, plan)
