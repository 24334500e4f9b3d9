"""Implement `wirelake import`: write what was captured elsewhere to the event log."""

from pathlib import Path
from typing import Final

import click
from rich.console import Console
from rich.table import Table

from wirelake.cli.support.dependencies import require_pcap
from wirelake.cli.support.options import pass_on, settings_options
from wirelake.cli.support.output import counted
from wirelake.cli.support.processes import FOLDER_MODE
from wirelake.config import load
from wirelake.protocols import registry
from wirelake.protocols.text import write_json

_LEFT_OUT_SHOWN: Final = 20
_FILE: Final = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.group(
    name="import",
    epilog="""\b
Example:
  wirelake import pcap capture.pcapng""",
)
@settings_options
@click.pass_context
def import_(context: click.Context, config_file: Path | None, data_folder: Path | None) -> None:
    """Import frames that were captured elsewhere into the event log."""
    pass_on(context, config_file, data_folder)


@import_.command(
    epilog="""\b
Examples:
  wirelake import pcap capture.pcapng
  wirelake import pcap --protocol comet --json port-9000.pcap"""
)
@click.argument("file", type=_FILE)
@click.option("--protocol", help="Protocol of connections whose port says nothing. Default: guess from the bytes.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of text.")
@settings_options
def pcap(file: Path, protocol: str | None, as_json: bool, config_file: Path | None, data_folder: Path | None) -> None:
    """Import the TCP connections and UDP datagrams of a capture: pcap or pcapng.

    Each connection becomes a session whose records have the times of the capture. The gateway must not be running on
    the same data folder, because a log has one writer.
    """
    require_pcap("importing a capture")
    from wirelake.capture.importer import ImportReport, import_capture  # noqa: PLC0415 (an optional package)

    settings = load(config_file, data_folder)
    named = registry.get(protocol) if protocol else None
    folder = Path(settings.data)
    folder.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
    report: ImportReport = import_capture(file, folder, settings, named)
    if as_json:
        click.echo(write_json(report))
        return
    console = Console(highlight=False, soft_wrap=True)
    span = f", captured from {report.captured_from} to {report.captured_until}" if report.packets else ""
    console.print(f"{counted(report.packets, 'packet', spec=',')}{span}")
    if report.protocols:
        names = ("sessions", "frames_in", "frames_out", "unreadable", "gaps")
        table = Table("protocol", *(name.replace("_", " ") for name in names), box=None, pad_edge=False)
        for name, totals in report.protocols.items():
            table.add_row(name, *(f"{totals.get(column, 0):,}" for column in names))
        console.print(table)
        console.print(f"session ids begin with {report.session_prefix}-")
    for reason, count in report.skipped.items():
        console.print(f"skipped: {count:,} {reason}")
    if report.left_out_count:
        console.print(f"left out: {counted(report.left_out_count, 'connection', spec=',')}")
        for each in report.left_out[:_LEFT_OUT_SHOWN]:
            ends = f"{each.first} to {each.second}"
            size = counted(each.bytes, "byte", spec=",")
            console.print(f"  {each.transport} {ends}: {each.reason}; {size}, which begin {each.begins_with}")
        if report.left_out_count > _LEFT_OUT_SHOWN:
            console.print("  … (--json lists more)")
