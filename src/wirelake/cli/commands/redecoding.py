"""Implement `wirelake pipeline redecode`: decode history again, and remove secrets from it."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
import msgspec
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn
from rich.table import Table

from wirelake.cli.support.dependencies import require_pipeline
from wirelake.cli.support.options import parse_time, settings_options
from wirelake.cli.support.output import counted, start_logging
from wirelake.cli.support.reassembly import reassembly_rules
from wirelake.cli.support.stores import lake_of
from wirelake.config import load
from wirelake.key_source import state_key
from wirelake.lake.damage import explain_damage
from wirelake.protocols import registry

if TYPE_CHECKING:
    from wirelake.pipeline.redecode.redaction import RedactionResult
    from wirelake.pipeline.redecode.redecode import OnProgress, RedecodeResult

_NAMES: Final = ", ".join((*registry.names(), "http"))


@click.command(
    epilog="""\b
Examples:
  wirelake pipeline redecode --protocol apostol --dry-run
  wirelake pipeline redecode --protocol comet --since 2026-01-31
  wirelake pipeline redecode --redact"""
)
@click.option("--protocol", metavar="NAME", help=f"Protocol of the frames: {_NAMES}.")
@click.option("--since", type=parse_time, metavar="TIME", help="Start time: 2026-01-31T12:30, or 2h, 3d ago.")
@click.option("--redact", is_flag=True, help="First remove secrets from bronze; at the end, old files from disk.")
@click.option("--dry-run", is_flag=True, help="Only report what would change.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@settings_options
def redecode(
    protocol: str | None,
    since: int | None,
    redact: bool,
    dry_run: bool,
    as_json: bool,
    config_file: Path | None,
    data_folder: Path | None,
) -> None:
    """Decode history with the current decoder, and replace the old rows. Can run while the pipeline runs.

    With --redact, the secrets of logins are removed that earlier versions wrote, of all protocols or of one. Run
    `wirelake log redact` before. Old versions of the tables cannot be read any more afterwards.
    """
    if protocol is None and not redact:
        raise click.UsageError("Missing option '--protocol'; only --redact takes all protocols.")
    settings = load(config_file, data_folder)
    data, lake = Path(settings.data), lake_of(settings)
    start_logging("console", "warning")
    require_pipeline("redecoding")
    from wirelake.pipeline.redecode import redaction  # noqa: PLC0415 (an extra)
    from wirelake.pipeline.redecode import redecode as redecoding  # noqa: PLC0415

    rules, key = reassembly_rules(settings), state_key(settings.state.key, data)
    with explain_damage(lake, check_files=True):
        if redact:
            wanted = redaction.RedactionRequest(
                protocol=protocol or "",
                since_us=since or 0,
                dry=dry_run,
                rules=rules,
                history_days=settings.lake.history_days,
            )
            redaction.check(data, wanted, lake)
        else:
            request = redecoding.RedecodeRequest(protocol=protocol or "", since_us=since or 0, dry=dry_run, rules=rules)
            redecoding.check(data, request, lake)
    with _spark() as (spark, on_progress), explain_damage(lake, check_files=True):
        done: RedactionResult | RedecodeResult
        if redact:
            done = redaction.redact_tables(spark, data, wanted, gold=True, on_progress=on_progress, lake=lake, key=key)
        else:
            done = redecoding.redecode(spark, data, request, gold=True, on_progress=on_progress, lake=lake, key=key)
    if as_json:
        click.echo(msgspec.json.encode(done).decode())
    elif isinstance(done, redaction.RedactionResult):
        _print_redacted(done, dry_run)
    else:
        _print_redecoded(done, dry_run)


@contextmanager
def _spark() -> "Iterator[tuple[Any, OnProgress]]":
    """Start Spark, and show the progress of what is done with it."""
    from wirelake.pipeline.spark.session import open_session  # noqa: PLC0415 (an extra)

    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty()) as progress:
        task = progress.add_task("Starting Spark", total=None)

        def on_progress(done: int, rows: int) -> None:
            progress.update(task, description=f"{done} of {rows} rows of bronze", completed=done, total=rows)

        spark = open_session()
        try:
            yield spark, on_progress
        finally:
            spark.stop()


def _print_redacted(done: "RedactionResult", dry_run: bool) -> None:
    table = Table("protocol", "records with bytes", "would be redacted" if dry_run else "redacted", box=None)
    for name in sorted(done.examined):
        table.add_row(name, str(done.examined[name]), str(done.redacted.get(name, 0)))
    for name, count in sorted(done.not_installed.items()):
        table.add_row(name, str(count), "not installed: install its package to redact them")
    Console(highlight=False, soft_wrap=True).print(table)
    changed = {name: each for name, each in done.redecoded.items() if any(map(_changes, each.tables.values()))}
    for name, each in changed.items():
        click.echo(f"{name}:")
        _print_redecoded(each, dry_run)
    if not dry_run:
        click.echo(f"bronze.frames: {counted(done.replaced, 'file')} replaced.")
        click.echo(f"{counted(done.removed, 'old file')} removed from disk.")
    elif not changed:
        click.echo("Nothing was changed.")


def _changes(found: Any) -> bool:
    return bool(found.relabelled or found.changed or found.new or found.removed)


def _print_redecoded(done: "RedecodeResult", dry_run: bool) -> None:
    click.echo(f"{counted(done.frames, 'frame')} in {done.seconds:.1f} s, {done.rows_s:.0f} frames/s.")
    decoded, refused = counted(done.decoded, "quarantined frame"), counted(done.refused, "decoded frame")
    click.echo(f"{decoded} can be decoded now, {refused} no longer can.")
    table = Table(
        "table", "same", "other decoder", "changed", "new", "removed", "skipped", "changes by column", box=None
    )
    for name, found in done.tables.items():
        numbers = (found.same, found.relabelled, found.changed, found.new, found.removed, found.skipped)
        fields = ", ".join(f"{column} {count}" for column, count in sorted(found.fields.items()))
        table.add_row(name, *map(str, numbers), fields)
    Console(highlight=False, soft_wrap=True).print(table)
    if done.waited_for:
        commands = counted(done.waited_for, "incomplete command is", "incomplete commands are")
        click.echo(f"{commands} left to the pipeline, which is waiting for the packets.")
    if done.sealed:
        commands = counted(done.sealed, "command is", "commands are")
        click.echo(f"{commands} unchanged: the current key does not decrypt {'it' if done.sealed == 1 else 'them'}.")
    if dry_run:
        click.echo("Nothing was changed.")
    elif not done.replaced:
        click.echo("No rows changed.")
    for name, (before, after) in done.replaced.items():
        click.echo(f"{name}: {counted(after, 'file')} replaced {before}.")
