"""Create the identities and devices of a fleet through the HTTP API, and remove them."""

import asyncio
import secrets
from collections.abc import Callable, Sequence
from typing import Final

from wirelake.errors import AnswerError, InputError
from wirelake.limits import HTTP_LIST_ROWS_MAX
from wirelake.protocols import registry
from wirelake.simulator.fleet import MemberProfile
from wirelake.simulator.limits import SIMULATOR_FREE_POLL_S, SIMULATOR_FREE_S
from wirelake.simulator.world import World

_CONFLICT: Final = 409
_NOT_FOUND: Final = 404
_TOKEN_BYTES: Final = 24
OnStep = Callable[[], object]  # called for each identity and each device


async def check_free(world: World, fleet: Sequence[MemberProfile]) -> None:
    """Raise InputError while another fleet of this name is connected. One that has just ended gets a moment."""
    wanted = set(identities_of(fleet))
    for _ in range(round(SIMULATOR_FREE_S / SIMULATOR_FREE_POLL_S)):
        taken = wanted & await _connected_identities(world)
        if not taken:
            return
        await asyncio.sleep(SIMULATOR_FREE_POLL_S)
    raise InputError(
        f"{min(taken)} is connected: a fleet of this name is running already. Choose another name with --fleet"
    )


async def create(world: World, fleet: Sequence[MemberProfile], on_step: OnStep) -> None:
    """Create the devices and identities, and keep the tokens in `world`."""

    async def create_device(member: MemberProfile) -> None:
        body = {"serial": member.name, "type": 0} | ({"key": member.key.hex()} if member.key else {})
        await _recreate(world, "devices", member.name, body)
        on_step()

    async def create_identity(name: str) -> None:
        world.tokens[name] = secrets.token_urlsafe(_TOKEN_BYTES)
        await _recreate(world, "identities", name, {"name": name, "token": world.tokens[name]})
        on_step()

    await asyncio.gather(*map(create_device, devices_of(fleet)), *map(create_identity, identities_of(fleet)))


async def remove(world: World, fleet: Sequence[MemberProfile], on_step: OnStep) -> None:
    async def remove_one(resource: str, name: str) -> None:
        await _delete(world, resource, name)
        on_step()

    await asyncio.gather(
        *(remove_one("devices", member.name) for member in devices_of(fleet)),
        *(remove_one("identities", name) for name in identities_of(fleet)),
    )


def devices_of(fleet: Sequence[MemberProfile]) -> list[MemberProfile]:
    return [member for member in fleet if member.is_device]


def identities_of(fleet: Sequence[MemberProfile]) -> list[str]:
    return list(dict.fromkeys(member.identity for member in fleet if member.identity))


async def _connected_identities(world: World) -> set[str]:
    device_protocols = {protocol.name for protocol in registry.all_protocols() if protocol.device_of is not None}
    names: set[str] = set()
    after: str | None = ""
    while after is not None:
        page = await world.request("GET", f"/api/sessions?limit={HTTP_LIST_ROWS_MAX}&after={after}")
        names |= {session["identity"] for session in page["sessions"] if session["protocol"] not in device_protocols}
        after = page["next"]
    return names


async def _recreate(world: World, resource: str, name: str, body: dict[str, object]) -> None:
    """Replace what an earlier run left: its token is unknown, and its session remembers our command numbers."""
    try:
        await world.request("POST", f"/api/{resource}", body)
    except AnswerError as error:
        if error.code != _CONFLICT:
            raise
        await _delete(world, resource, name)
        await world.request("POST", f"/api/{resource}", body)


async def _delete(world: World, resource: str, name: str) -> None:
    try:
        await world.request("DELETE", f"/api/{resource}/{name}")
    except AnswerError as error:
        if error.code != _NOT_FOUND:
            raise
