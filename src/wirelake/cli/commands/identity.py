"""Implement `wirelake identity`: manage the identities that can log in."""

import time
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from wirelake.cli.support.api import ApiClient, quoted
from wirelake.cli.support.options import parse_duration, pass_on, settings_options
from wirelake.cli.support.output import format_time
from wirelake.cli.support.store import store_or_api
from wirelake.config import load
from wirelake.errors import ConflictError, InputError
from wirelake.gateway.auth.keys import KeyFiles
from wirelake.limits import STATE_CLOSE_S, STATE_TOKEN_LIFE_S_MAX
from wirelake.protocols.text import write_json
from wirelake.roles import BUILT_IN, MEMBER, check_role_names
from wirelake.state.identities import Identity
from wirelake.state.store import StateStore
from wirelake.state.tokens import later_ms, new_token

_ADMIN = "admin"  # reserved for the admin token

_expires_option = click.option(
    "--expires",
    "expires_s",
    type=parse_duration,
    metavar="DURATION",
    help="Time after which the token expires, as 12h or 90d. Default: never.",
)


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
  wirelake identity add erp --token "$(cat erp.token)"
  wirelake identity add guest --expires 7d"""
)
@click.argument("name")
@click.option("--token", help="Token to use instead of a new random one.")
@click.option("--role", "roles", multiple=True, help="Role of the identity (repeatable); without one, it is a member.")
@_expires_option
@settings_options
def add(
    name: str,
    token: str | None,
    roles: tuple[str, ...],
    expires_s: float | None,
    config_file: Path | None,
    data_folder: Path | None,
) -> None:
    """Add the identity NAME and print its token, which is not shown again."""
    settings = load(config_file, data_folder)
    _check_life(expires_s)
    with store_or_api(settings, create=True) as backend:
        if isinstance(backend, ApiClient):
            body = _given(name=name, roles=list(roles), token=token, expires_s=expires_s)
            token = backend.request("POST", "/api/identities", body)["token"]
        else:
            check_role_names(roles, [*BUILT_IN, *settings.roles])
            token = _add(backend, KeyFiles(Path(settings.data) / "keys"), name, token, roles, expires_s)
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
    table = Table("name", "added (UTC)", "topics", "tokens", "expires (UTC)", "roles", box=None, pad_edge=False)
    for row in rows:
        roles, tokens = ", ".join(row["roles"]) or MEMBER, row["tokens"]
        expires = _format_expiry(row["expires_at_ms"]) if tokens else "no valid token"
        added = format_time(row["added_at_ms"])
        table.add_row(row["name"], added, str(row["topics"]), str(tokens), expires, roles)
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


@identity.command(
    epilog="""\b
Examples:
  wirelake identity rotate phone-1
  wirelake identity rotate erp --keep 7d --expires 90d"""
)
@click.argument("name")
@click.option("--token", help="Token to use instead of a new random one.")
@click.option(
    "--keep",
    "keep_s",
    type=parse_duration,
    metavar="DURATION",
    default="1h",
    show_default=True,
    help="For how long the tokens that the identity has stay valid, as 30m or 7d; 0: they expire at once.",
)
@_expires_option
@settings_options
def rotate(
    name: str,
    token: str | None,
    keep_s: float,
    expires_s: float | None,
    config_file: Path | None,
    data_folder: Path | None,
) -> None:
    """Give the identity NAME a new token and print it; it is not shown again. Open sessions go on."""
    settings = load(config_file, data_folder)
    _check_life(expires_s)
    _check_life(keep_s or None)
    with store_or_api(settings) as backend:
        if isinstance(backend, ApiClient):
            body = _given(token=token, keep_s=keep_s, expires_s=expires_s)
            token = backend.request("POST", quoted("api", "identities", name, "tokens"), body)["token"]
        else:
            token = _rotate(backend, KeyFiles(Path(settings.data) / "keys"), name, token, expires_s, keep_s)
    end = format_time(_now_ms() + int(keep_s * 1000))
    rest = f"expire at {end} UTC, unless they expire earlier" if keep_s else "have expired"
    click.echo(f"{name} can log in with this token, which is not stored and not shown again.", err=True)
    click.echo(f"Its other tokens {rest}.", err=True)
    click.echo(token)


@identity.command(
    epilog="""\b
Example:
  wirelake identity tokens phone-1"""
)
@click.argument("name")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON list instead of a table.")
@settings_options
def tokens(name: str, as_json: bool, config_file: Path | None, data_folder: Path | None) -> None:
    """List the tokens of the identity NAME: their ids and when they expire, never the tokens themselves."""
    with store_or_api(load(config_file, data_folder)) as backend:
        if isinstance(backend, ApiClient):
            rows = backend.request("GET", quoted("api", "identities", name, "tokens"))["tokens"]
        else:
            rows = _token_rows(_find(backend, name))
    if as_json:
        click.echo(write_json(rows))
        return
    table = Table("id", "kind", "added (UTC)", "expires (UTC)", box=None, pad_edge=False)
    for row in rows:
        table.add_row(row["id"], row["kind"], format_time(row["added_at_ms"]), _format_expiry(row["expires_at_ms"]))
    Console(highlight=False, soft_wrap=True).print(table if rows else f"{name} has no tokens.")


@identity.command(
    epilog="""\b
Example:
  wirelake identity revoke phone-1 9f86d081"""
)
@click.argument("name")
@click.argument("token_id")
@settings_options
def revoke(name: str, token_id: str, config_file: Path | None, data_folder: Path | None) -> None:
    """Remove the token TOKEN_ID of the identity NAME, and close the sessions that logged in with it."""
    with store_or_api(load(config_file, data_folder)) as backend:
        if isinstance(backend, ApiClient):
            backend.request("DELETE", quoted("api", "identities", name, "tokens", token_id))
        else:
            commit = backend.identities.remove_token(_find(backend, name).name, token_id)
            if commit is None:
                raise InputError(f"identity {name!r} has no token {token_id!r}")
            commit.wait(STATE_CLOSE_S)
    click.echo(f"Revoked token {token_id} of {name}.", err=True)


def _add(
    store: StateStore, keys: KeyFiles, name: str, token: str | None, roles: tuple[str, ...], expires_s: float | None
) -> str:
    if name == _ADMIN:
        raise ConflictError(f"{_ADMIN!r} is reserved for the admin token: choose another name")
    token = new_token() if token is None else token
    secret, now_ms = keys.token_key(store.identities).hash(token), _now_ms()
    store.identities.add(name, secret, now_ms, roles, later_ms(now_ms, expires_s)).wait(STATE_CLOSE_S)
    return token


def _rotate(
    store: StateStore, keys: KeyFiles, name: str, token: str | None, expires_s: float | None, keep_s: float
) -> str:
    identity = _find(store, name)
    token = new_token() if token is None else token
    secret, now_ms = keys.token_key(store.identities).hash(token, identity.chosen_hash), _now_ms()
    expires_at_ms, keep_until_ms = later_ms(now_ms, expires_s), later_ms(now_ms, keep_s)
    added = store.identities.add_token(name, secret, now_ms, expires_at_ms, keep_until_ms)
    if added is not None:
        added[1].wait(STATE_CLOSE_S)
    return token


def _find(store: StateStore, name: str) -> Identity:
    identity = store.identities.find(name)
    if identity is None:
        raise InputError(f"no identity {name!r}")
    return identity


def _check_life(life_s: float | None) -> None:
    if life_s is not None and not 0 < life_s <= STATE_TOKEN_LIFE_S_MAX:
        days = STATE_TOKEN_LIFE_S_MAX // (24 * 3600)
        raise InputError(f"a token expires after 1s to {days:.0f}d")


def _given(**fields: Any) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _format_expiry(at_ms: int | None) -> str:
    if at_ms is None:
        return "never"
    return f"{format_time(at_ms)}{' (expired)' if at_ms <= _now_ms() else ''}"


def _token_rows(identity: Identity) -> list[dict[str, Any]]:
    return [
        {"id": each.id, "kind": each.kind, "added_at_ms": each.added_at_ms, "expires_at_ms": each.expires_at_ms}
        for each in identity.tokens
    ]


def _rows(store: StateStore) -> list[dict[str, Any]]:
    now_ms = _now_ms()
    return [
        {
            "name": each.name,
            "added_at_ms": each.added_at_ms,
            "topics": len(store.topics.topics_of(each.name)),
            "roles": list(each.roles),
            "tokens": len(each.valid_tokens(now_ms)),
            "expires_at_ms": each.expires_at_ms(now_ms),
        }
        for each in store.identities.list()
    ]
