"""Implement `wirelake log redact`: remove secrets that earlier versions wrote from the event log."""

import sys
import time
from functools import partial
from pathlib import Path
from typing import Any, Final

import click
import msgspec
from rich.console import Console
from rich.table import Table

from wirelake.cli.main import EXIT_BAD_INPUT
from wirelake.cli.support.options import parse_time, settings_options
from wirelake.cli.support.output import counted
from wirelake.cli.support.stores import lake_of
from wirelake.config import load
from wirelake.lake.store import LocalStore, Store
from wirelake.log.segments.integrity import QUARANTINE_FOLDER, read_quarantine
from wirelake.log.segments.redaction import LogRedaction, preview_redaction, redact_log
from wirelake.protocols.record_redaction import RecordRedactor

_counted: Final = partial(counted, spec=",")


@click.command(
    epilog="""\b
Examples:
  wirelake log redact --dry-run
  wirelake log redact
  wirelake log redact --protocol comet --until 2026-01-31"""
)
@click.option("--protocol", help="Only records of this protocol, also under its earlier names.")
@click.option("--since", type=parse_time, metavar="TIME", help="Start time: 2026-01-31T12:30, or 10m, 2h, 3d ago.")
@click.option("--until", type=parse_time, metavar="TIME", help="End time, exclusive.")
@click.option("--dry-run", is_flag=True, help="Only report what would change.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@settings_options
def redact(
    protocol: str | None,
    since: int | None,
    until: int | None,
    dry_run: bool,
    as_json: bool,
    config_file: Path | None,
    data_folder: Path | None,
) -> None:
    """Blank the secrets of logins in records that earlier versions wrote.

    The gateway must be stopped, except for a dry run. Everything but the secrets stays as it is. The exit code is 1 if
    a damaged place could not be read. The tables: `wirelake pipeline redecode --redact`.
    """
    settings = load(config_file, data_folder)
    folder = Path(settings.data) / "log"
    redactor = RecordRedactor(protocol or "")
    if dry_run:
        found = preview_redaction(folder, redactor.redact, since, until)
    else:
        found = redact_log(folder, redactor.redact, time.time_ns() // 1000, since, until)
    copies = 0 if dry_run else _renew_copies(folder, lake_of(settings))
    if as_json:
        click.echo(msgspec.json.encode(_redaction_values(redactor, found, copies)))
    else:
        _show_redaction(redactor, found, copies, dry_run)
    for damage in found.damages:
        click.echo(f"wirelake: not redacted: {damage}", err=True)
    kept = [damage.kept_as for damage in read_quarantine(folder)]
    if kept:
        where, files = folder / QUARANTINE_FOLDER, _counted(len(kept), "file")
        click.echo(f"wirelake: {where} has {files} of damaged bytes, which may contain secrets: remove them", err=True)
    if found.damages:
        sys.exit(EXIT_BAD_INPUT)


def _renew_copies(folder: Path, lake: Store) -> int:
    """Replace the copies of the log beside tables in an object store. Return how many there were."""
    if isinstance(lake, LocalStore):
        return 0
    from wirelake.pipeline.ingest.log_copies import FOLDER, LogCopies  # noqa: PLC0415 (an extra)

    return LogCopies(folder, lake.at(FOLDER)).renew()


def _redaction_values(redactor: RecordRedactor, found: LogRedaction, copies: int) -> dict[str, Any]:
    return {
        "examined": redactor.examined,
        "redacted": redactor.changed,
        "not_installed": redactor.unknown,
        "segments": found.segments,
        "rewritten": found.rewritten,
        "copies": copies,
        "damages": found.damages,
    }


def _show_redaction(redactor: RecordRedactor, found: LogRedaction, copies: int, dry_run: bool) -> None:
    title = "would be redacted" if dry_run else "redacted"
    table = Table("protocol", "records with bytes", title, box=None, pad_edge=False)
    for name in sorted(redactor.examined):
        table.add_row(name, f"{redactor.examined[name]:,}", f"{redactor.changed[name]:,}")
    for name, count in sorted(redactor.unknown.items()):
        table.add_row(name, f"{count:,}", "not installed: install its package to redact them")
    if table.row_count:
        Console(highlight=False, soft_wrap=True).print(table)
    what = "to be written anew" if dry_run else "written anew"
    click.echo(f"segments {what}: {len(found.rewritten):,} of {found.segments:,}")
    if copies:
        click.echo(f"copies of the log beside the tables, replaced or removed: {copies:,}")
