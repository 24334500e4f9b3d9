"""Implement `wirelake audit`: print who did what, whether or not the gateway is running."""

import sys
from pathlib import Path
from typing import Any, Final

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from wirelake.cli.support.options import parse_time, settings_options
from wirelake.config import load
from wirelake.log.audit import OUTCOMES
from wirelake.log.audit_search import AuditFilter, search
from wirelake.log.segments.reader import LogReader
from wirelake.protocols.text import read_json, write_json

_COLUMNS: Final = ("identity", "peer", "protocol", "action", "target", "outcome", "detail")


@click.command(
    epilog="""\b
Examples:
  wirelake audit
  wirelake audit --action login --outcome refused --since 1d
  wirelake audit --identity admin --json"""
)
@click.option("--identity", default="", help="Only what this identity did; admin is the admin token.")
@click.option(
    "--action", default="", help="Only this action: login, sql, identity.add …; with ! before it, all others."
)
@click.option("--outcome", type=click.Choice(OUTCOMES), help="Only this outcome.")
@click.option("--target", default="", help="Only with this target; of a failed login, the name that was claimed.")
@click.option("--since", type=parse_time, metavar="TIME", help="Start time: 2026-01-31T12:30, or 10m, 2h, 3d ago.")
@click.option("--until", type=parse_time, metavar="TIME", help="End time, exclusive.")
@click.option("--limit", default=50, show_default=True, type=click.IntRange(1), help="Number of events, the newest.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per line.")
@settings_options
def audit(
    identity: str,
    action: str,
    outcome: str | None,
    target: str,
    since: int | None,
    until: int | None,
    limit: int,
    as_json: bool,
    config_file: Path | None,
    data_folder: Path | None,
) -> None:
    """Print who did what, and from where, oldest first: logins, refusals, administration, SQL.

    Reads the event log of the data folder; the table silver.audit has what retention has removed from it.
    """
    reader = LogReader(Path(load(config_file, data_folder).data) / "log")
    wanted = AuditFilter(identity, action, outcome or "", target, since, until)
    rows = search(reader, wanted, limit, None, reader.next_seq).rows
    if as_json:
        for row in reversed(rows):
            values = row | {"received_at": row["received_at"].isoformat().replace("+00:00", "Z")}
            values["detail"] = read_json(row["detail"].encode()) if row["detail"] else {}
            click.echo(write_json(values))
        return
    if not rows:
        click.echo("No such event in the log.", err=True)
        return
    table = Table("time (UTC)", *_COLUMNS, box=None, pad_edge=False)
    for row in reversed(rows):
        table.add_row(row["received_at"].strftime("%Y-%m-%d %H:%M:%S"), *(_cell(row, name) for name in _COLUMNS))
    width = None if sys.stdout.isatty() else sys.maxsize // 2
    Console(highlight=False, soft_wrap=True, width=width).print(table)


def _cell(row: dict[str, Any], name: str) -> Text:
    """Return a text as it is: it may come from a client."""
    return Text("".join(each if each.isprintable() else "\N{REPLACEMENT CHARACTER}" for each in row[name]) or "–")
