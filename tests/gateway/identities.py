"""Identities with roles, for tests of what one may do to the things of another."""

from gateway.running_gateway import Running

ALICE, EVE = ("alice", "a-token"), ("eve", "e-token")


async def assign(running: Running, name: str, *roles: str) -> None:
    """Give an identity these roles."""
    commit = running.gateway.roles.assign(name, roles)
    assert commit is not None
    await commit
