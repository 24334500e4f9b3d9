"""Implement `wirelake protocol`: list the installed protocols, create a new one, check one, and export one."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import click
from rich.console import Console
from rich.table import Table

from wirelake.cli.main import EXIT_BAD_INPUT
from wirelake.cli.support.options import parse_time, pass_on, settings_options
from wirelake.cli.support.output import counted
from wirelake.cli.support.protocol_check import check_history, check_laws, history_values, print_history, print_laws
from wirelake.cli.support.protocol_package import PORT, create_package
from wirelake.cli.support.stores import lake_of
from wirelake.config import load
from wirelake.errors import InputError
from wirelake.layout import FrameSet
from wirelake.layout.export.kaitai import kaitai_struct
from wirelake.layout.export.wireshark import wireshark_dissector
from wirelake.protocols import registry
from wirelake.protocols.protocol import Protocol
from wirelake.protocols.text import write_json

EXIT_ROWS_CHANGE: Final = 3  # 2 is for wrong options
_EXAMPLES: Final = 100


@click.group(
    epilog="""\b
Examples:
  wirelake protocol list
  wirelake protocol new tracker
  wirelake protocol check tracker
  wirelake protocol export tracker --format wireshark --output tracker.lua"""
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
        table.add_row(row["name"], row["decoder"], served, row["described"], row["from"])
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
        "described": _described(found),
        "from": registry.origin(found.name),
    }


def _described(found: Protocol) -> str:
    if found.layout is not None:
        return "yes"
    return "no" if found.part_layout is None else "parts"


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
    folder = written[0].parent if written[0].is_absolute() else f"./{written[0].parent}"
    click.echo(
        f"\nInstall it next to Wirelake:  pip install -e '{folder}[test]'\n"
        f"Run its tests:                pytest {folder}\n"
        f"Serve it:                     WIRELAKE_LISTEN_{name.upper()}=127.0.0.1:{PORT} wirelake serve",
        err=True,
    )


@protocol.command(
    epilog="""\b
Examples:
  wirelake protocol check tracker
  wirelake protocol check tracker --examples 1000 --since 7d"""
)
@click.argument("name")
@click.option(
    "--examples",
    type=click.IntRange(1, 100_000),
    default=_EXAMPLES,
    show_default=True,
    help="How many inputs to try for each law.",
)
@click.option(
    "--since", type=parse_time, metavar="TIME", help="Check frames from this time on: 2026-01-31T12:30, or 2h, 3d ago."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@settings_options
def check(
    name: str, examples: int, since: int | None, as_json: bool, config_file: Path | None, data_folder: Path | None
) -> None:
    """Check the laws that hold for every protocol, and what the current decoder would change in the stored history.

    The frames in the data folder are decoded again, and compared with the rows of silver.messages. Nothing is changed.
    The exit code is 1 if a law does not hold, 3 if stored rows would change, and 0 otherwise.
    """
    found = registry.get(name)
    settings = load(config_file, data_folder)
    data, lake = Path(settings.data), lake_of(settings)
    results = check_laws(found, examples)
    if not as_json:
        print_laws(results)
    history = check_history(data, lake, found, since or 0)
    if as_json:
        values = None if history is None else history_values(history)
        click.echo(write_json({"laws": results, "history": values}))
    elif history is None:
        place = settings.lake.url or data / "lake"
        click.echo(f"There are no tables in {place} yet: no stored history was checked.")
    else:
        print_history(history, found)
    if not all(result.is_ok for result in results):
        sys.exit(EXIT_BAD_INPUT)
    if history is not None and history.is_changing:
        sys.exit(EXIT_ROWS_CHANGE)


_EXPORT_FORMATS: Final[dict[str, Callable[[FrameSet, Protocol], str]]] = {
    "wireshark": lambda frames, found: wireshark_dissector(
        frames, found.title, found.transports, accepts_unknown=frames is found.part_layout
    ),
    "kaitai": lambda frames, found: kaitai_struct(frames, found.title),
}
_output_option = click.option(
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    help="File to write. Default: standard output.",
)


@protocol.command(
    epilog="""\b
Examples:
  wirelake protocol export comet --format wireshark --output comet.lua
  wirelake protocol export comet --format kaitai > comet.ksy"""
)
@click.argument("name")
@click.option(
    "--format",
    "format_",
    type=click.Choice(list(_EXPORT_FORMATS)),
    required=True,
    help="wireshark: a dissector in Lua. kaitai: a Kaitai Struct specification (.ksy).",
)
@_output_option
@settings_options
def export(name: str, format_: str, output: Path | None, **_: Any) -> None:
    """Export the description of the protocol NAME for another tool.

    If only the parts of its frames are described, the other tool shows each part as a frame.
    """
    found = registry.get(name)
    _write(_EXPORT_FORMATS[format_](_layout_of(found), found), output)


@protocol.command(
    epilog="""\b
Example:
  wirelake protocol source comet"""
)
@click.argument("name")
@_output_option
@settings_options
def source(name: str, output: Path | None, **_: Any) -> None:
    """Print the Python that is generated from the description of the protocol NAME: decoder, splitter and encoders."""
    _write(_layout_of(registry.get(name)).source(), output)


def _layout_of(found: Protocol) -> FrameSet:
    layout = found.part_layout or found.layout
    if layout is None:
        described = [each.name for each in registry.all_protocols() if each.layout or each.part_layout]
        raise InputError(
            f"{found.name} has no description of its frames: describe them with wirelake.layout and pass the FrameSet "
            f"as `layout` of its Protocol; these have one: {', '.join(described)}"
        )
    return layout


def _write(text: str, output: Path | None) -> None:
    if output is None:
        click.echo(text, nl=False)
        return
    try:
        output.write_text(text, encoding="utf-8")
    except OSError as error:
        raise InputError(f"{output} cannot be written: {error.strerror}") from error
