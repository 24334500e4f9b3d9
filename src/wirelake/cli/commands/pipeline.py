"""Implement `wirelake pipeline`: the Spark job that fills the tables, and its status."""

import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
import msgspec
from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from wirelake.cli.commands.redecoding import redecode
from wirelake.cli.support.dependencies import require_pipeline
from wirelake.cli.support.options import pass_on, settings_options
from wirelake.cli.support.output import FORMATS, counted, start_logging
from wirelake.cli.support.reassembly import reassembly_rules
from wirelake.cli.support.stores import lake_of
from wirelake.config import load
from wirelake.errors import InputError, LossError
from wirelake.key_source import state_key
from wirelake.lake.damage import explain_damage
from wirelake.lake.progress import JobProgress
from wirelake.limits import PIPELINE_TRIGGER_S, PIPELINE_TRIGGER_S_MIN
from wirelake.protocols import registry

if TYPE_CHECKING:
    from wirelake.pipeline.job import Job

_FILE: Final = click.Path(exists=True, dir_okay=False, path_type=Path)
_NAMES: Final = ", ".join((*registry.names(), "http"))
_LINE_EVERY_S: Final = 5.0  # when the output is not a terminal


@click.group(
    epilog="""\b
Examples:
  wirelake pipeline run --once
  wirelake pipeline status
  wirelake pipeline compact
  wirelake pipeline redecode --protocol apostol --dry-run"""
)
@settings_options
@click.pass_context
def pipeline(context: click.Context, config_file: Path | None, data_folder: Path | None) -> None:
    """Run and inspect the Spark pipeline that fills the tables from the log."""
    pass_on(context, config_file, data_folder)


pipeline.add_command(redecode)


@pipeline.command(
    epilog="""\b
Examples:
  wirelake pipeline run
  wirelake pipeline run --once --data /var/lib/wirelake
  wirelake pipeline run --master spark://10.0.0.5:7077
  wirelake pipeline run --conf spark.driver.memory=4g"""
)
@click.option("--once", is_flag=True, help="Stop once all current log records are in the tables.")
@click.option("--master", metavar="URL", help="Spark master: spark://HOST:PORT, or sc://HOST:PORT for Spark Connect.")
@click.option("--remote", metavar="URL", help="The same as --master sc://HOST:PORT.")
@click.option("--conf", "conf_pairs", multiple=True, metavar="KEY=VALUE", help="A setting of Spark; can be repeated.")
@click.option("--archive", "archive_file", type=_FILE, help="Archive for the executors: see `pipeline archive`.")
@click.option("--wheel", type=_FILE, help="Wirelake's wheel, for executors that have its packages.")
@click.option(
    "--trigger",
    "trigger_s",
    type=click.FloatRange(PIPELINE_TRIGGER_S_MIN),
    default=PIPELINE_TRIGGER_S,
    show_default=True,
    help="Seconds from the start of one batch to the start of the next.",
)
@click.option(
    "--gone",
    type=click.Choice(("fail", "oldest")),
    default="fail",
    show_default=True,
    help="What to do if retention removed records before they were read.",
)
@click.option("--log-format", type=click.Choice(FORMATS), default="console", show_default=True, help="Log format.")
@click.option(
    "--stop-on-eof",
    is_flag=True,
    hidden=True,
    help="Stop when standard input is closed, and print little.",
)
@settings_options
def run(
    once: bool,
    master: str | None,
    remote: str | None,
    conf_pairs: tuple[str, ...],
    archive_file: Path | None,
    wheel: Path | None,
    trigger_s: float,
    gone: str,
    log_format: str,
    stop_on_eof: bool,
    config_file: Path | None,
    data_folder: Path | None,
) -> None:
    """Fill the tables from the log until Ctrl-C or, with --once, until all records are processed."""
    settings = load(config_file, data_folder)
    data, lake = Path(settings.data), lake_of(settings)
    start_logging(log_format, "info" if log_format == "json" else "warning")  # JSON lines include one for each batch
    if not (data / "log").exists():
        raise InputError(f"no log in {data}: start the gateway first, or choose another data folder with --data")
    require_pipeline("the pipeline")
    from wirelake.pipeline.commit.checkpoint import StreamLock, check_log  # noqa: PLC0415
    from wirelake.pipeline.job import Job, JobSettings, SparkLostError  # noqa: PLC0415 (an extra)
    from wirelake.pipeline.paths import DataPaths  # noqa: PLC0415
    from wirelake.pipeline.spark.session import (  # noqa: PLC0415
        cluster_settings,
        is_connect,
        open_session,
    )
    from wirelake.pipeline.spark.settings import configured_master, parse_conf  # noqa: PLC0415
    from wirelake.pipeline.stateful.device_keys import read_device_keys  # noqa: PLC0415

    conf = parse_conf(conf_pairs)

    key = state_key(settings.state.key, data)
    paths = DataPaths.of(data, lake, key)
    StreamLock(paths).release()  # Spark starts slowly: refuse before, not after
    check_log(paths)
    read_device_keys(paths.database, paths.state_key)
    with ProgressDisplay(sys.stdout.isatty(), once=stop_on_eof) as display:
        started_s = time.monotonic()
        display.print("Starting Spark…")
        if master is not None and is_connect(master):
            master, remote = None, master
        settings_of_cluster = {} if remote else cluster_settings(master or configured_master(), wheel, archive_file)
        spark = open_session(master, settings=settings_of_cluster, conf=conf, remote=remote)
        display.print(f"Spark started in {time.monotonic() - started_s:.1f} s; its UI is at {_ui(spark)}")
        job_settings = JobSettings(
            once=once,
            trigger_s=trigger_s,
            gone=gone,
            history_days=settings.lake.history_days,
            rules=reassembly_rules(settings),
            buckets=settings.pipeline.buckets,
        )
        with explain_damage(lake, check_files=True):
            job = Job(spark, data, job_settings, gold=True, on_progress=display.update, lake=lake, key=key)
        for name in (signal.SIGINT, signal.SIGTERM):
            signal.signal(name, lambda *_: job.stop())
        if stop_on_eof:
            threading.Thread(target=_stop_on_eof, args=[job], daemon=True).start()
        try:
            with explain_damage(lake, check_files=True):
                job.run()
        except SparkLostError as error:
            _restart(display, error)
        display.print(_summary(job.progress))
    spark.stop()


def _stop_on_eof(job: "Job") -> None:
    while os.read(0, 1):
        pass
    job.stop()


def _restart(display: "ProgressDisplay", error: Exception) -> None:
    """Replace this process, whose JVM is gone, with a new one that finishes its work."""
    from wirelake.pipeline.spark.submitted import is_submitted  # noqa: PLC0415 (an extra)

    if is_submitted():  # it is for spark-submit, or what supervises it, to start again
        raise error
    display.print(f"{error}; restarting")
    sys.stdout.flush()
    os.execv(sys.executable, [sys.executable, "-m", "wirelake.cli.main", *sys.argv[1:]])  # noqa: S606


def _ui(spark: Any) -> str:
    from wirelake.pipeline.spark.session import ui_address  # noqa: PLC0415 (an extra)

    return ui_address(spark) or "an unknown address"


@pipeline.command(
    epilog="""\b
Examples:
  wirelake pipeline status
  wirelake pipeline status --json"""
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@settings_options
def status(as_json: bool, config_file: Path | None, data_folder: Path | None) -> None:
    """Print how far the tables are behind the log, in records and seconds, whether or not the pipeline runs.

    The exit code is 1 if the tables do not match the log.
    """
    from wirelake.pipeline.status import status_of  # noqa: PLC0415

    settings = load(config_file, data_folder)
    found = status_of(Path(settings.data), time.time_ns() // 1_000_000, lake_of(settings))
    if as_json:
        click.echo(msgspec.json.encode(found).decode())
        sys.exit(1 if found.problem else 0)
    click.echo(
        f"The pipeline is {'running' if found.running else 'not running'}" + (f", {found.ui}" if found.ui else "") + "."
    )
    if found.migrating:
        click.echo(f"It is migrating the tables of an earlier version: {found.migrating}.")
    table = Table("stage", "up to record", "records behind", "seconds behind", box=None)
    for stage in found.stages:
        table.add_row(stage.name, str(stage.next_seq), str(stage.behind_rows), f"{stage.behind_s:.1f}")
    Console(highlight=False, soft_wrap=True).print(table)
    if found.batch_s:
        click.echo(f"{found.rows_s:.0f} records/s over the last batches; the last one took {found.batch_s:.2f} s.")
        phases = ", ".join(f"{name} {seconds:.2f} s" for name, seconds in found.phases_s.items())
        added = f"It added {counted(found.files, 'file')} of {found.bytes / 1e6:.1f} MB"
        click.echo(f"{added}: {phases}." if phases else f"{added}.")
        open_rows = ", ".join(f"{name} {count}" for name, count in found.open_rows.items() if count) or "none"
        click.echo(f"State: {found.state_bytes / 1e6:.1f} MB; open rows: {open_rows}.")
    else:
        hint = "" if found.running else ": start it with `wirelake up` or `wirelake pipeline run`"
        click.echo(f"No batch completed yet{hint}.")
    for title, counts in (("Dropped", found.dropped), ("Noted", found.noted)):
        if counts:
            click.echo(f"{title} so far: {', '.join(f'{name} {count}' for name, count in counts.items())}.")
    for fault in found.errors:
        click.echo(f"{time.strftime('%Y-%m-%d %H:%M:%S', time.gmtime(fault.at_ms / 1000))} {fault.text}")
    if found.problem:
        raise LossError(found.problem)


@pipeline.command(
    epilog="""\b
Example:
  wirelake pipeline check"""
)
@settings_options
def check(config_file: Path | None, data_folder: Path | None) -> None:
    """Count the rows of all tables again, write the ledger with these counts, and print where it does not balance.

    A running pipeline takes the counts from the logs of the tables, which do not show a file that was changed in place.
    The exit code is 1 if something does not balance.
    """
    require_pipeline("the check")
    from wirelake.pipeline.gold.refresh import GoldTables  # noqa: PLC0415 (an extra)
    from wirelake.pipeline.paths import DataPaths  # noqa: PLC0415
    from wirelake.pipeline.redecode.snapshot import check_tables  # noqa: PLC0415

    settings = load(config_file, data_folder)
    paths = DataPaths.of(Path(settings.data), lake_of(settings))
    with explain_damage(paths.lake, check_files=True):
        wrong = GoldTables(paths.lake, paths.checkpoint, check_tables(paths).app).check().to_pylist()
    for row in wrong:
        click.echo(f"{row['hour']:%Y-%m-%d %H:%M} {row['protocol'] or '(no protocol)'}: {row['why']}")
    if wrong:
        raise LossError(f"{len(wrong)} rows of gold.ledger do not balance")
    click.echo("Every row is where it should be: the ledger balances.")


@pipeline.command(
    epilog="""\b
Example:
  wirelake pipeline compact"""
)
@settings_options
def compact(config_file: Path | None, data_folder: Path | None) -> None:
    """Merge small files, and remove files that no reader needs any more. A running pipeline does this by itself."""
    require_pipeline("compaction")
    from wirelake.pipeline.commit.compaction import compact as compact_lake  # noqa: PLC0415 (an extra)

    table = Table("table", "files before", "after", "removed from disk", box=None)
    settings = load(config_file, data_folder)
    lake = lake_of(settings)
    with explain_damage(lake, check_files=True):
        compacted = compact_lake(lake, history_days=settings.lake.history_days)
    for name, done in compacted.items():
        table.add_row(name, str(done.files_before), str(done.files_after), str(done.files_removed))
    Console(highlight=False).print(table)


@pipeline.command(
    epilog="""\b
Example:
  wirelake pipeline archive wirelake.tar.gz"""
)
@click.argument("file", type=click.Path(dir_okay=False, writable=True, path_type=Path))
@settings_options
def archive(file: Path, **_: Path | None) -> None:
    """Pack what Spark executors need: Wirelake, its packages, installed protocols, compiled kernels.

    Pass FILE to `pipeline run --archive`, or to `spark-submit --archives FILE#wirelake`. Apart from it, executors need
    Spark, and Python of the same minor version.
    """
    require_pipeline("packing an archive")
    from wirelake.pipeline.spark.archive import build_archive  # noqa: PLC0415 (an extra)

    done = build_archive(file)
    plugins = f"the installed protocols of {', '.join(done.plugins)}" if done.plugins else "no installed protocols"
    click.echo(
        f"{file}: {done.bytes / 1e6:.0f} MB, {counted(len(done.packages), 'package')}, {plugins}, "
        f"{counted(done.kernels, 'compiled kernel')}."
    )


@pipeline.command(
    epilog="""\b
Example:
  wirelake pipeline script"""
)
@settings_options
def script(**_: Path | None) -> None:
    """Print the path of the script that spark-submit runs.

    The arguments of the script are the options of `pipeline run`.
    """
    from wirelake.cli import submit  # noqa: PLC0415 (only its path)

    click.echo(submit.__file__)


class ProgressDisplay:
    """Show the job's progress: one updating line on a terminal, a line now and then elsewhere.

    With `once`, report the first batch only: the terminal is shared with the gateway's own lines.
    """

    def __init__(self, terminal: bool, *, once: bool = False) -> None:
        self._once = once
        self._console = Console(highlight=False, soft_wrap=True)
        live = terminal and not once
        self._live = Live(console=self._console, auto_refresh=False, transient=True) if live else None
        self._printed_s = 0.0

    def __enter__(self) -> "ProgressDisplay":
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()

    def print(self, text: str) -> None:
        if self._live is not None:
            self._console.print(Text(text))
        else:
            click.echo(text)

    def update(self, progress: JobProgress) -> None:
        if progress.batch < 0 or (self._once and self._printed_s):  # none completed yet, or reported already
            return
        if self._live is not None:
            self._live.update(Text(_line(progress), "cyan"), refresh=True)
        elif time.monotonic() - self._printed_s >= _LINE_EVERY_S and progress.batches:
            self._printed_s = time.monotonic()
            click.echo(_line(progress))


def _line(progress: JobProgress) -> str:
    restarts = f", {counted(progress.restarts, 'restart')}" if progress.restarts else ""
    return (
        f"batch {progress.batch}: up to record {progress.next_seq}, {progress.rows_s:.0f} records/s, "
        f"last batch took {progress.batch_s:.2f} s{restarts}"
    )


def _summary(progress: JobProgress) -> str:
    poisoned = f", {progress.poisoned} of them crashed the decoder" if progress.poisoned else ""
    counts = f"{counted(progress.rows, 'record')} in {counted(progress.batches, 'batch', 'batches')}{poisoned}"
    return f"{counts}; the tables contain all records before {progress.next_seq}."
