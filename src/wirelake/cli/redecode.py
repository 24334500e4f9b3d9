"""Implement `wirelake pipeline redecode`: decode history again and report what changes."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click
import msgspec
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn
from rich.table import Table

from wirelake.cli.dependencies import need_pipeline
from wirelake.cli.log import moment
from wirelake.cli.logformat import start_logging
from wirelake.cli.options import settings_options
from wirelake.cli.rules import rules_of
from wirelake.config import load
from wirelake.lake.damage import explained
from wirelake.protocols import registry

if TYPE_CHECKING:
    from wirelake.pipeline.redecode.redecode import RedecodeResult

_NAMES: Final = ", ".join((*registry.names(), "http"))


@click.command(
    epilog="""\b
Examples:
  wirelake pipeline redecode --protocol apostol --dry-run
  wirelake pipeline redecode --protocol comet --since 2026-01-31"""
)
@click.option("--protocol", required=True, metavar="NAME", help=f"Protocol of the frames: {_NAMES}.")
@click.option("--since", type=moment, metavar="TIME", help="Start time: 2026-01-31T12:30, or 2h, 3d ago.")
@click.option("--dry-run", is_flag=True, help="Only report what would change.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@settings_options
def command(
    protocol: str,
    since: int | None,
    dry_run: bool,
    as_json: bool,
    config_file: Path | None,
    data_folder: Path | None,
) -> None:
    """Decode history with the current decoder, and replace the old rows. Can run while the pipeline runs."""
    settings = load(config_file, data_folder)
    data = Path(settings.data)
    start_logging("console", "warning")
    need_pipeline("redecoding")
    from wirelake.pipeline.gold.refresh import GOLD  # noqa: PLC0415 (an extra)
    from wirelake.pipeline.redecode.redecode import RedecodeRequest, check, redecode  # noqa: PLC0415
    from wirelake.pipeline.spark.session import open_session  # noqa: PLC0415

    request = RedecodeRequest(protocol=protocol, since_us=since or 0, dry=dry_run, rules=rules_of(settings))
    with explained(data / "lake", look_at_data=True):
        check(data, request)
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty()) as progress:
        task = progress.add_task("Starting Spark", total=None)
        spark = open_session()
        try:

            def on_progress(done: int, rows: int) -> None:
                progress.update(task, description=f"{done} of {rows} rows of bronze", completed=done, total=rows)

            with explained(data / "lake", look_at_data=True):
                done = redecode(spark, data, request, [part.refresh for part in GOLD], on_progress)
        finally:
            spark.stop()
    if as_json:
        click.echo(msgspec.json.encode(done).decode())
        return
    _show(done, dry_run)


def _show(done: "RedecodeResult", dry_run: bool) -> None:
    click.echo(f"{done.frames} frames in {done.seconds:.1f} s, {done.rows_s:.0f} frames/s.")
    click.echo(f"{done.decoded} quarantined frames can be decoded now, {done.refused} decoded frames no longer can.")
    table = Table(
        "table", "same", "other decoder", "changed", "new", "removed", "skipped", "changes by column", box=None
    )
    for name, found in done.tables.items():
        numbers = (found.same, found.relabelled, found.changed, found.new, found.gone, found.kept)
        fields = ", ".join(f"{column} {count}" for column, count in sorted(found.fields.items()))
        table.add_row(name, *map(str, numbers), fields)
    Console(highlight=False, soft_wrap=True).print(table)
    if done.waited_for:
        click.echo(
            f"{done.waited_for} incomplete commands are left to the pipeline, which is waiting for their packets."
        )
    if done.sealed:
        click.echo(f"{done.sealed} commands are unchanged: the current key does not open them.")
    if dry_run:
        click.echo("Nothing was changed.")
    elif not done.replaced:
        click.echo("No rows changed.")
    for name, (before, after) in done.replaced.items():
        click.echo(f"{name}: {after} files replaced {before}.")
