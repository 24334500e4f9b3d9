"""Identities and devices for the fleet, made through the HTTP API and taken away again."""

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from wirelake.errors import AnswerError, InputError
from wirelake.limits import HTTP_LIST_ROWS_MAX
from wirelake.simulator.fleet import FleetMember
from wirelake.simulator.limits import SIMULATOR_FREE_LOOK_S, SIMULATOR_FREE_S
from wirelake.simulator.world import World

_CONFLICT: Final = 409
_NOT_FOUND: Final = 404
_TOKEN_BYTES: Final = 24
Step = Callable[[], object]


async def check_free(world: World, places: Sequence[FleetMember]) -> None:
    """Refuses while another fleet has these names. One that has just ended gets a moment to be gone."""
    wanted = set(identities(places))
    for _ in range(round(SIMULATOR_FREE_S / SIMULATOR_FREE_LOOK_S)):
        taken = wanted & await _connected(world)
        if not taken:
            return
        await asyncio.sleep(SIMULATOR_FREE_LOOK_S)
    raise InputError(
        f"{min(taken)} is connected: a fleet of this name is running already. Choose another name with --fleet"
    )


async def _connected(world: World) -> set[str]:
    names: set[str] = set()
    after: str | None = ""
    while after is not None:
        page = await world.ask("GET", f"/api/sessions?limit={HTTP_LIST_ROWS_MAX}&after={after}")
        names |= {session["identity"] for session in page["sessions"] if session["protocol"] != "apostol"}
        after = page["next"]
    return names


async def provide(world: World, places: Sequence[FleetMember], step: Step) -> None:
    """`step` is called for each that is there."""

    async def device(place: FleetMember) -> None:
        body = {"serial": place.name, "type": 0} | ({"key": place.key.hex()} if place.key else {})
        await _anew(world, "devices", place.name, body)
        step()

    async def identity(name: str) -> None:
        world.tokens[name] = secrets.token_urlsafe(_TOKEN_BYTES)
        await _anew(world, "identities", name, {"name": name, "token": world.tokens[name]})
        step()

    await asyncio.gather(*map(device, meters(places)), *map(identity, identities(places)))


async def remove(world: World, places: Sequence[FleetMember], step: Step) -> None:
    async def one(kind: str, name: str) -> None:
        await _gone(world, kind, name)
        step()

    devices: list[Awaitable[None]] = [one("devices", place.name) for place in meters(places)]
    await asyncio.gather(*devices, *(one("identities", name) for name in identities(places)))


def meters(places: Sequence[FleetMember]) -> list[FleetMember]:
    return [place for place in places if place.protocol == "apostol"]


def identities(places: Sequence[FleetMember]) -> list[str]:
    return list(dict.fromkeys(place.identity for place in places if place.identity))


async def _anew(world: World, kind: str, name: str, body: dict[str, object]) -> None:
    """What an earlier run left is not taken over: its token is unknown, and its session would know our numbers."""
    try:
        await world.ask("POST", f"/api/{kind}", body)
    except AnswerError as error:
        if error.code != _CONFLICT:
            raise
        await _gone(world, kind, name)
        await world.ask("POST", f"/api/{kind}", body)


async def _gone(world: World, kind: str, name: str) -> None:
    try:
        await world.ask("DELETE", f"/api/{kind}/{name}")
    except AnswerError as error:
        if error.code != _NOT_FOUND:
            raise
