"""Implement `wirelake protocol`: list the installed protocols, and create the package of a new one."""

from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from wirelake.cli.support.options import pass_on, settings_options
from wirelake.cli.support.output import counted
from wirelake.cli.support.protocol_package import PORT, create_package
from wirelake.protocols import registry
from wirelake.protocols.protocol import Protocol
from wirelake.protocols.text import write_json


@click.group(
    epilog="""\b
Examples:
  wirelake protocol list
  wirelake protocol new tracker"""
)
@settings_options
@click.pass_context
def protocol(context: click.Context, config_file: Path | None, data_folder: Path | None) -> None:
    """Manage the protocols that Wirelake knows: its own, and those of installed packages."""
    pass_on(context, config_file, data_folder)


@protocol.command(
    name="list",
    epilog="""\b
Examples:
  wirelake protocol list
  wirelake protocol list --json""",
)
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object instead of a table.")
@settings_options
def list_(as_json: bool, **_: Any) -> None:
    """List the protocols that are built in or installed, and those whose packages cannot be loaded.

    The ports are the default ones. A protocol that is installed is served on the address that you set under [listen].
    """
    rows = [_row(each) for each in registry.all_protocols()]
    broken = registry.failures()
    if as_json:
        click.echo(write_json({"protocols": rows, "broken": broken}))
        return
    console = Console(highlight=False, soft_wrap=True)
    table = Table("protocol", "decoder", "transports", "described", "from", box=None, pad_edge=False)
    for row in rows:
        transports = [f"{each['transport']} {each['port']}" for each in row["transports"]]
        served = ", ".join(transports) if row["is_served"] else "decoded only"
        table.add_row(row["name"], row["decoder"], served, "yes" if row["is_described"] else "no", row["from"])
    console.print(table)
    if broken:
        console.print(f"\n{counted(len(broken), 'protocol')} cannot be loaded:")
    for name, reason in broken.items():
        console.print(f"  {name}: {reason}", markup=False)


def _row(found: Protocol) -> dict[str, Any]:
    transports = [
        {"transport": each.carrier, "port": each.port, "setting": f"listen.{each.setting}"} for each in found.transports
    ]
    return {
        "name": found.name,
        "title": found.title,
        "decoder": f"{found.name}/{found.decoder_version}",
        "transports": transports,
        "is_served": bool(found.listeners),
        "is_described": found.layout is not None,
        "from": registry.origin(found.name),
    }


@protocol.command(
    epilog="""\b
Examples:
  wirelake protocol new tracker
  wirelake protocol new tracker --dir ~/protocols"""
)
@click.argument("name")
@click.option(
    "--dir",
    "parent",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path(),
    help="Folder to create it in. Default: the current folder.",
)
@settings_options
def new(name: str, parent: Path, **_: Any) -> None:
    """Create the package of a protocol called NAME, to start from.

    It is complete: devices log in, report, publish, subscribe and answer commands. Change the description of its frames
    to those of your own devices.
    """
    written = create_package(name, parent.expanduser())
    for path in written:
        click.echo(path)
    folder = written[0].parent
    click.echo(
        f"\nInstall it next to Wirelake:  pip install -e '{folder}[test]'\n"
        f"Run its tests:                pytest {folder}\n"
        f"Serve it:                     WIRELAKE_LISTEN_{name.upper()}=127.0.0.1:{PORT} wirelake serve",
        err=True,
    )
