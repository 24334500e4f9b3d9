"""Implement `wirelake role` and `wirelake access`: what identities may do."""

from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from wirelake.broker.access import AccessPolicy, everybody_is_member
from wirelake.cli.support.api import ApiClient
from wirelake.cli.support.options import pass_on, settings_options
from wirelake.cli.support.store import store_or_api
from wirelake.config import load
from wirelake.errors import InputError
from wirelake.protocols.text import write_json
from wirelake.roles import BUILT_IN, Action, Role, check_role_names

EXIT_REFUSED = 1


@click.group(
    epilog="""\b
Examples:
  wirelake role list
  wirelake role show member"""
)
@settings_options
@click.pass_context
def role(context: click.Context, config_file: Path | None, data_folder: Path | None) -> None:
    """Show the roles: the built-in ones, and those of the sections [roles.NAME] of the settings."""
    pass_on(context, config_file, data_folder)


@role.command(
    name="list",
    epilog="""\b
Example:
  wirelake role list --json""",
)
@click.option("--json", "as_json", is_flag=True, help="Print a JSON list instead of a table.")
@settings_options
def list_(as_json: bool, config_file: Path | None, data_folder: Path | None) -> None:
    """List the roles."""
    roles = _roles(config_file, data_folder)
    rows = [{"name": name, "built_in": name in BUILT_IN, "rules": each.rules()} for name, each in roles.items()]
    if as_json:
        click.echo(write_json(rows))
        return
    table = Table("role", "", "allows", box=None, pad_edge=False)
    for row in rows:
        table.add_row(str(row["name"]), "built in" if row["built_in"] else "", ", ".join(row["rules"]))  # type: ignore[arg-type]
    Console(highlight=False, soft_wrap=True).print(table)


@role.command(
    epilog="""\b
Example:
  wirelake role show observer"""
)
@click.argument("name")
@settings_options
def show(name: str, config_file: Path | None, data_folder: Path | None) -> None:
    """Show what the role NAME allows: for each action, the patterns of its targets."""
    roles = _roles(config_file, data_folder)
    check_role_names([name], roles)
    table = Table("action", "targets", box=None, pad_edge=False)
    for action, patterns in roles[name].rules().items():
        table.add_row(action, "  ".join(patterns))
    Console(highlight=False, soft_wrap=True).print(table)


@click.command(
    epilog="""\b
Examples:
  wirelake access phone-1 subscribe @news/today
  wirelake access phone-1 command 0042"""
)
@click.argument("name")
@click.argument("action", type=click.Choice([each.value for each in Action]))
@click.argument("target")
@settings_options
def access(name: str, action: str, target: str, config_file: Path | None, data_folder: Path | None) -> None:
    """Say whether the identity NAME may perform ACTION on TARGET, and which rule says so. Exit with 1 if not."""
    settings = load(config_file, data_folder)
    with store_or_api(settings) as backend:
        if isinstance(backend, ApiClient):
            query = [("identity", name), ("action", action), ("target", target)]
            answer: dict[str, Any] = backend.request("GET", "/api/access", query=query)
            allowed, text = answer["allowed"], answer["text"]
        else:
            if backend.identities.find(name) is None and not settings.auth.open:
                raise InputError(f"no identity {name!r}")
            roles_of = everybody_is_member if settings.auth.open else backend.identities.roles_of
            decision = AccessPolicy(roles_of, settings.roles).decide(name, Action(action), target)
            allowed, text = decision.is_allowed, str(decision)
    click.echo(text)
    if not allowed:
        raise SystemExit(EXIT_REFUSED)


def _roles(config_file: Path | None, data_folder: Path | None) -> dict[str, Role]:
    return {**BUILT_IN, **load(config_file, data_folder).roles}
