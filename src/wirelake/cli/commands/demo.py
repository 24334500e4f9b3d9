"""Implement `wirelake demo`: a tour with a real gateway and pipeline in a temporary folder."""

import contextlib
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, TypeVar

import click
import uvloop
from rich.console import Console
from rich.table import Table

from wirelake.cli.commands.simulate import progress_bars, world_at
from wirelake.cli.support.api import ApiClient
from wirelake.cli.support.dependencies import require_pipeline
from wirelake.cli.support.limits import CLI_DEMO_LOOK_S, CLI_DEMO_PIPELINE_S, CLI_DEMO_START_S
from wirelake.cli.support.options import settings_options
from wirelake.cli.support.processes import ChildProcess
from wirelake.cli.support.stores import lake_of
from wirelake.config import Settings, default_settings, load
from wirelake.errors import InputError, WirelakeError
from wirelake.lake.progress import read_progress
from wirelake.lake.query import query
from wirelake.limits import GATEWAY_STOP_S
from wirelake.log.segments.reader import LogReader
from wirelake.simulator.limits import SIMULATOR_DEVICES_MAX
from wirelake.simulator.report import Report
from wirelake.simulator.simulation import Plan, simulate
from wirelake.simulator.world import NetworkFaults

_FAULTS: Final = NetworkFaults(loss=0.02, reorder=0.02, duplicate=0.02, corrupt=0.005)
_HOST: Final = "127.0.0.1"
_WIDE: Final = 1000  # do not squeeze columns: the terminal wraps long lines
T = TypeVar("T")
_LEDGER: Final = (
    "SELECT strftime(hour, '%H:%M') AS hour, CASE protocol WHEN '' THEN '(other)' ELSE protocol END AS protocol, "
    "counted, received, decoded, quarantined, waiting, commands, deliveries, balanced "
    "FROM gold.ledger ORDER BY hour, protocol"
)
# Queries over the gold tables, by title.
_QUERIES: Final = {
    "Traffic by minute (gold.traffic_minute)": "SELECT strftime(minute, '%H:%M') AS minute, protocol, "
    "sum(frames) AS frames, sum(bytes) AS bytes, sum(errors) AS errors FROM gold.traffic_minute "
    "GROUP BY ALL ORDER BY minute, protocol LIMIT 16",
    "Latest state of each device (gold.device_latest)": "SELECT serial, "
    "strftime(received_at, '%H:%M:%S') AS at, "
    "status->>'$.state' AS state, round((readings->>'$.1')::DOUBLE, 1) AS volts, "
    "round((readings->>'$.3')::DOUBLE, 2) AS hertz FROM gold.device_latest ORDER BY serial LIMIT 5",
    "Service calls (gold.call_minute)": "SELECT protocol, service, op, sum(calls) AS calls, "
    "sum(failed) AS failed, round(max(p95_ms), 2) AS p95_ms FROM gold.call_minute "
    "WHERE service <> 'wirelake' GROUP BY ALL ORDER BY calls DESC LIMIT 6",
    "Notifications delivered (gold.delivery_minute)": "SELECT topic, sum(deliveries) AS deliveries, "
    "sum(acked) AS acked, sum(pending) AS pending, round(max(p95_ms), 2) AS p95_ms FROM gold.delivery_minute "
    "GROUP BY topic ORDER BY deliveries DESC LIMIT 5",
    "Prices (gold.bars_minute)": "SELECT strftime(minute, '%H:%M') AS minute, key, open, high, low, \"close\", count "
    "FROM gold.bars_minute ORDER BY key, minute LIMIT 5",
}


@click.command(
    epilog="""\b
Examples:
  wirelake demo
  wirelake demo --devices 200 --seconds 40 --keep ./tour"""
)
@click.option("--seconds", type=click.FloatRange(1), default=20.0, show_default=True, help="How long the fleet runs.")
@click.option(
    "--devices", type=click.IntRange(6, SIMULATOR_DEVICES_MAX), default=60, show_default=True, help="Number of clients."
)
@click.option(
    "--keep",
    type=click.Path(file_okay=False, path_type=Path),
    help="Keep all data in this folder.",
)
@settings_options
def demo(seconds: float, devices: int, keep: Path | None, config_file: Path | None, data_folder: Path | None) -> None:
    """Take a tour of Wirelake, in about two minutes.

    Starts the gateway and the pipeline in a temporary folder, runs a small fleet that speaks all protocols over real
    sockets, fills the tables with Spark, and prints the ledger and the gold tables. The exit code is 0 only if the
    ledger balances.
    """
    require_pipeline("the demo")
    with _tour_folder(keep or data_folder) as folder:
        settings_file = config_file or _settings_file(folder)
        data = folder / "data"
        tour = Tour(load(settings_file, data), settings_file, folder)
        balanced = tour.run(Plan(devices=devices, rate=float(devices), seconds=seconds, keep=True))
        if keep or data_folder:
            tour.print(f"All data is in {folder}. To explore it: wirelake up --config {settings_file} --data {data}")
    if not balanced:
        sys.exit(1)


class Tour:
    def __init__(self, settings: Settings, settings_file: Path, folder: Path) -> None:
        self._settings = settings
        self._folder = folder
        self._lake = lake_of(settings)
        self._console = Console(highlight=False, markup=False, soft_wrap=True)
        self._wide = Console(highlight=False, markup=False, soft_wrap=True, width=_WIDE)
        words = ["--config", str(settings_file), "--data", settings.data]
        self._gateway = ChildProcess("serve", *words, output=folder / "gateway.txt")
        self._pipeline = ChildProcess("pipeline", "run", "--stop-on-eof", *words, output=folder / "pipeline.txt")

    def run(self, plan: Plan) -> bool:
        """Run the tour and return whether the ledger balances."""
        started_s = time.monotonic()
        with contextlib.ExitStack() as cleanup:
            for process in (self._gateway, self._pipeline):
                cleanup.callback(process.kill)
            self.print("1. Start the gateway, with a listener for every protocol, and the Spark pipeline.")
            self._gateway.start()
            api = self._wait_until_ready()
            self._pipeline.start()
            self.print(f"2. Run {plan.devices} clients over real sockets for {plan.seconds:g} s, on a lossy network.")
            world = world_at(self._settings, api, _FAULTS, plan.seed)
            with progress_bars() as progress:
                report = uvloop.run(simulate(world, plan, progress))
            self._print_report(report)
            self.print("3. Stop the gateway; the pipeline processes the rest of its log.")
            _stop(self._gateway, GATEWAY_STOP_S)
            records = self._wait_until_processed()
            _stop(self._pipeline, CLI_DEMO_PIPELINE_S)
        self.print(f"4. Query the tables built from {records} log records:")
        for title, sql in _QUERIES.items():
            self._print_query(title, sql)
        balanced = self._print_ledger()
        self.print(f"It took {time.monotonic() - started_s:.0f} s.")
        return balanced

    def print(self, text: str) -> None:
        self._console.print(f"\n{text}")

    def _wait_until_ready(self) -> ApiClient:
        def is_ready() -> ApiClient | None:
            _check_running(self._gateway)
            with contextlib.suppress(WirelakeError):  # no token file or listener yet
                api = ApiClient(self._settings)
                api.request("GET", "/readyz")
                return api
            return None

        api = _poll(is_ready, CLI_DEMO_START_S, "the gateway was not ready")
        for name, address in api.request("GET", "/readyz")["listeners"].items():
            self._console.print(f"   {name:<11}{address}")
        return api

    def _print_report(self, report: Report) -> None:
        total = report.total()
        faults = ", ".join(f"{count} {name}" for name, count in report.faults.items() if count) or "none"
        members = ", ".join(f"{count} {name}" for name, count in report.members.items())
        self._console.print(f"   {members}")
        self._console.print(
            f"   {total.sent} messages sent, {total.acknowledged} acknowledged, {total.received} received, "
            f"{total.failed} failed; injected packet faults: {faults}"
        )

    def _wait_until_processed(self) -> int:
        """Wait until all records are in the tables, and return their number."""
        data = Path(self._settings.data)
        end = LogReader(data / "log").next_seq

        def is_done() -> int | None:
            _check_running(self._pipeline)
            progress = read_progress(data)
            return end if progress is not None and progress.next_seq >= end else None

        with self._console.status("   Waiting for Spark…"):
            return _poll(is_done, CLI_DEMO_PIPELINE_S, f"the tables do not have all {end} records")

    def _print_query(self, title: str, sql: str) -> None:
        result = query(self._lake, sql)
        self.print(title)
        table = Table(box=None, pad_edge=False)
        for column in result.columns:
            is_number = any(word in column.type for word in ("INT", "DOUBLE"))
            table.add_column(column.name, justify="right" if is_number else "left")
        for row in result.rows:
            table.add_row(*["" if value is None else str(value) for value in row])
        self._wide.print(table)

    def _print_ledger(self) -> bool:
        self._print_query("Ledger (gold.ledger): frames from the socket to the tables", _LEDGER)
        rows = query(self._lake, "SELECT balanced, received FROM gold.ledger").rows
        received = sum(row[1] for row in rows)
        balanced = received > 0 and all(row[0] for row in rows)
        verdict = "Each is in exactly one state: the ledger balances." if balanced else "THE LEDGER DOES NOT BALANCE."
        self.print(f"{received} frames were received. {verdict}")
        for (why,) in query(self._lake, "SELECT why FROM gold.ledger WHERE NOT balanced").rows:
            self._console.print(f"   {why}")
        return balanced


def _check_running(process: ChildProcess) -> None:
    if not process.is_running:
        raise InputError(f"`{process.words}` exited:\n{process.tail()}")


def _stop(process: ChildProcess, timeout_s: float) -> None:
    """Stop the process; raise InputError unless it stops in time and without an error."""
    code = process.stop(timeout_s)
    if code is None:
        raise InputError(f"`{process.words}` did not stop within {timeout_s:g} s:\n{process.tail()}")
    if code:
        raise InputError(f"`{process.words}` exited with code {code}:\n{process.tail()}")


@contextlib.contextmanager
def _tour_folder(chosen: Path | None) -> Iterator[Path]:
    if chosen is None:
        with tempfile.TemporaryDirectory(prefix="wirelake-demo-") as folder:
            yield Path(folder)
        return
    if (chosen / "data" / "log").exists():
        raise InputError(f"{chosen} contains an earlier demo: use another folder")
    chosen.mkdir(parents=True, exist_ok=True)
    yield chosen.absolute()


def _settings_file(folder: Path) -> Path:
    """Write settings with every listener on a free port, so that a running gateway is not disturbed."""
    names = default_settings().listen.__struct_fields__
    opened = [socket.create_server((_HOST, 0)) for _ in names]
    ports = [each.getsockname()[1] for each in opened]
    for each in opened:
        each.close()
    lines = ["[listen]", *(f'{name} = "{_HOST}:{port}"' for name, port in zip(names, ports, strict=True))]
    file = folder / "wirelake.toml"
    file.write_text("\n".join(lines) + "\n")
    return file


def _poll(probe: Callable[[], T | None], timeout_s: float, failure: str) -> T:
    deadline_s = time.monotonic() + timeout_s
    while time.monotonic() < deadline_s:
        value = probe()
        if value is not None:
            return value
        time.sleep(CLI_DEMO_LOOK_S)
    raise InputError(f"{failure} within {timeout_s:g} s")
