"""Implement `wirelake identity`: manage the identities that can log in."""

import time
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from wirelake.cli.support.api import ApiClient, quoted
from wirelake.cli.support.options import pass_on, settings_options
from wirelake.cli.support.output import format_time
from wirelake.cli.support.store import store_or_api
from wirelake.config import load
from wirelake.errors import ConflictError, InputError
from wirelake.gateway.auth.keys import KeyFiles
from wirelake.limits import STATE_CLOSE_S
from wirelake.protocols.text import write_json
from wirelake.roles import BUILT_IN, MEMBER, check_role_names
from wirelake.state.identities import new_token
from wirelake.state.store import StateStore

_ADMIN = "admin"  # reserved for the admin token


@click.group(
    epilog="""\b
Examples:
  wirelake identity add phone-1
  wirelake identity list"""
)
@settings_options
@click.pass_context
def identity(context: click.Context, config_file: Path | None, data_folder: Path | None) -> None:
    """Manage the identities that can log in, each with a name and a token for all protocols.

    Uses the gateway that runs on the data folder or, if none is running, the data folder itself.
    """
    pass_on(context, config_file, data_folder)


@identity.command(
    epilog="""\b
Examples:
  wirelake identity add phone-1
  wirelake identity add erp --token "$(cat erp.token)" """
)
@click.argument("name")
@click.option("--token", help="Token to use instead of a new random one.")
@click.option("--role", "roles", multiple=True, help="Role of the identity (repeatable); without one, it is a member.")
@settings_options
def add(
    name: str, token: str | None, roles: tuple[str, ...], config_file: Path | None, data_folder: Path | None
) -> None:
    """Add the identity NAME and print its token, which is not shown again."""
    settings = load(config_file, data_folder)
    with store_or_api(settings, create=True) as backend:
        if isinstance(backend, ApiClient):
            body = {"name": name, "roles": list(roles)} | ({} if token is None else {"token": token})
            token = backend.request("POST", "/api/identities", body)["token"]
        else:
            check_role_names(roles, [*BUILT_IN, *settings.roles])
            token = _add(backend, KeyFiles(Path(settings.data) / "keys"), name, token, roles)
    click.echo(f"{name} can log in with this token, which is not stored and not shown again:", err=True)
    click.echo(token)


@identity.command(
    name="list",
    epilog="""\b
Example:
  wirelake identity list --json""",
)
@click.option("--json", "as_json", is_flag=True, help="Print a JSON list instead of a table.")
@settings_options
def list_(as_json: bool, config_file: Path | None, data_folder: Path | None) -> None:
    """List the identities, without their tokens."""
    with store_or_api(load(config_file, data_folder)) as backend:
        rows = (
            list(backend.pages("/api/identities", "identities")) if isinstance(backend, ApiClient) else _rows(backend)
        )
    if as_json:
        click.echo(write_json(rows))
        return
    table = Table("name", "added (UTC)", "topics", "roles", box=None, pad_edge=False)
    for row in rows:
        roles = ", ".join(row["roles"]) or MEMBER
        table.add_row(row["name"], format_time(row["added_at_ms"]), str(row["topics"]), roles)
    Console(highlight=False, soft_wrap=True).print(table if rows else "No identities yet.")


@identity.command(
    epilog="""\b
Example:
  wirelake identity remove phone-1"""
)
@click.argument("name")
@settings_options
def remove(name: str, config_file: Path | None, data_folder: Path | None) -> None:
    """Remove the identity NAME, close its sessions and delete its subscriptions."""
    with store_or_api(load(config_file, data_folder)) as backend:
        if isinstance(backend, ApiClient):
            backend.request("DELETE", quoted("api", "identities", name))
        else:
            commit = backend.remove_identity(name)
            if commit is None:
                raise InputError(f"no identity {name!r}")
            commit.wait(STATE_CLOSE_S)
    click.echo(f"Removed identity {name}.", err=True)


@identity.command(
    name="roles",
    epilog="""\b
Examples:
  wirelake identity roles phone-1 phone
  wirelake identity roles phone-1 member""",
)
@click.argument("name")
@click.argument("roles", nargs=-1, required=True)
@settings_options
def set_roles(name: str, roles: tuple[str, ...], config_file: Path | None, data_folder: Path | None) -> None:
    """Give the identity NAME these ROLES instead of those it had."""
    settings = load(config_file, data_folder)
    with store_or_api(settings) as backend:
        if isinstance(backend, ApiClient):
            backend.request("PUT", quoted("api", "identities", name, "roles"), {"roles": list(roles)})
        else:
            check_role_names(roles, [*BUILT_IN, *settings.roles])
            commit = backend.identities.set_roles(name, roles)
            if commit is None:
                raise InputError(f"no identity {name!r}")
            commit.wait(STATE_CLOSE_S)
    click.echo(f"{name}: {', '.join(roles)}", err=True)


def _add(store: StateStore, keys: KeyFiles, name: str, token: str | None, roles: tuple[str, ...]) -> str:
    if name == _ADMIN:
        raise ConflictError(f"{_ADMIN!r} is reserved for the admin token: choose another name")
    token = new_token() if token is None else token
    secret = keys.token_key(store.identities).hash(token)
    store.identities.add(name, secret, time.time_ns() // 1_000_000, roles).wait(STATE_CLOSE_S)
    return token


def _rows(store: StateStore) -> list[dict[str, Any]]:
    return [
        {
            "name": each.name,
            "added_at_ms": each.added_at_ms,
            "topics": len(store.topics.topics_of(each.name)),
            "roles": list(each.roles),
        }
        for each in store.identities.list()
    ]
