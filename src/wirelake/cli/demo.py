"""`wirelake demo`: a tour that ends by itself. Everything runs for real, in a folder that is gone afterwards."""

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

from wirelake.cli.api import ApiClient
from wirelake.cli.child_process import ChildProcess
from wirelake.cli.dependencies import need_pipeline
from wirelake.cli.limits import CLI_DEMO_LOOK_S, CLI_DEMO_PIPELINE_S, CLI_DEMO_START_S
from wirelake.cli.options import settings_options
from wirelake.cli.simulate import shown_progress, world_at
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
_WIDE: Final = 1000  # no column is squeezed: a terminal breaks long lines
T = TypeVar("T")
_LEDGER: Final = (
    "SELECT strftime(hour, '%H:%M') AS hour, CASE protocol WHEN '' THEN '(other)' ELSE protocol END AS protocol, "
    "counted, received, decoded, quarantined, waiting, commands, deliveries, balanced "
    "FROM gold.ledger ORDER BY hour, protocol"
)
# What is shown of the gold tables, each with its words.
_SHOWN: Final = {
    "Traffic by minute (gold.traffic_minute)": "SELECT strftime(minute, '%H:%M') AS minute, protocol, "
    "sum(frames) AS frames, sum(bytes) AS bytes, sum(errors) AS errors FROM gold.traffic_minute "
    "GROUP BY ALL ORDER BY minute, protocol LIMIT 16",
    "The newest of each device (gold.device_latest)": "SELECT serial, strftime(at, '%H:%M:%S') AS at, "
    "status->>'$.state' AS state, round((readings->>'$.1')::DOUBLE, 1) AS volts, "
    "round((readings->>'$.3')::DOUBLE, 2) AS hertz FROM gold.device_latest ORDER BY serial LIMIT 5",
    "Questions and answers (gold.call_minute)": "SELECT protocol, service, op, sum(calls) AS calls, "
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
@click.option("--seconds", type=click.FloatRange(1), default=20.0, show_default=True, help="How long the fleet talks.")
@click.option(
    "--devices", type=click.IntRange(6, SIMULATOR_DEVICES_MAX), default=60, show_default=True, help="Clients in all."
)
@click.option(
    "--keep", type=click.Path(file_okay=False, path_type=Path), help="Leave everything in this folder, to look around."
)
@settings_options
def command(
    seconds: float, devices: int, keep: Path | None, config_file: Path | None, data_folder: Path | None
) -> None:
    """Show it all in about two minutes.

    Starts the gateway and the pipeline in a temporary folder, lets a small fleet speak all the protocols over real
    sockets, has Spark fill the tables, and prints the ledger and the gold tables. Exit code 0 only if the ledger
    balances.
    """
    need_pipeline("the tour")
    with _place(keep or data_folder) as folder:
        settings_file = config_file or _settings_file(folder)
        data = folder / "data"
        tour = Tour(load(settings_file, data), settings_file, folder)
        balanced = tour.run(Plan(devices=devices, rate=float(devices), seconds=seconds, keep=True))
        if keep or data_folder:
            tour.say(f"Everything is in {folder}. Look around: wirelake up --config {settings_file} --data {data}")
    if not balanced:
        sys.exit(1)


class Tour:
    def __init__(self, settings: Settings, settings_file: Path, folder: Path) -> None:
        self._settings = settings
        self._folder = folder
        self._lake = Path(settings.data) / "lake"
        self._console = Console(highlight=False, markup=False, soft_wrap=True)
        self._wide = Console(highlight=False, markup=False, soft_wrap=True, width=_WIDE)
        words = ["--config", str(settings_file), "--data", settings.data]
        self._gateway = ChildProcess("serve", *words, output=folder / "gateway.txt")
        self._pipeline = ChildProcess("pipeline", "run", "--beside", *words, output=folder / "pipeline.txt")

    def run(self, plan: Plan) -> bool:
        """Answers whether the ledger balances."""
        started_s = time.monotonic()
        with contextlib.ExitStack() as ending:
            for each in (self._gateway, self._pipeline):
                ending.callback(each.kill)
            self.say("1. The gateway, with a door for every protocol, and beside it the pipeline, on Spark.")
            self._gateway.start()
            api = self._opened()
            self._pipeline.start()
            self.say(
                f"2. {plan.devices} clients talk to it over real sockets for {plan.seconds:g} s, on a bad network."
            )
            world = world_at(self._settings, api, _FAULTS, plan.seed)
            with shown_progress() as progress:
                report = uvloop.run(simulate(world, plan, progress))
            self._tell(report)
            self.say("3. The gateway says goodbye, and the pipeline takes in the rest of its log.")
            _end(self._gateway, GATEWAY_STOP_S)
            records = self._caught_up()
            _end(self._pipeline, CLI_DEMO_PIPELINE_S)
        self.say(f"4. What {records} records of the log became, asked with SQL:")
        for title, sql in _SHOWN.items():
            self._print(title, sql)
        balanced = self._ledger()
        self.say(f"It took {time.monotonic() - started_s:.0f} s.")
        return balanced

    def say(self, text: str) -> None:
        self._console.print(f"\n{text}")

    def _opened(self) -> ApiClient:
        def is_ready() -> ApiClient | None:
            _check(self._gateway)
            with contextlib.suppress(WirelakeError):  # its token file, its door: it is not there yet
                api = ApiClient(self._settings)
                api.ask("GET", "/readyz")
                return api
            return None

        api = _until(is_ready, CLI_DEMO_START_S, "the gateway was not ready")
        for name, address in api.ask("GET", "/readyz")["doors"].items():
            self._console.print(f"   {name:<11}{address}")
        return api

    def _tell(self, report: Report) -> None:
        total = report.total()
        faults = ", ".join(f"{count} {name}" for name, count in report.faults.items() if count) or "none"
        members = ", ".join(f"{count} {name}" for name, count in report.members.items())
        self._console.print(f"   {members}")
        self._console.print(
            f"   {total.sent} things sent, {total.acknowledged} acknowledged, {total.received} received, "
            f"{total.failed} failed; faults made on purpose, in packets: {faults}"
        )

    def _caught_up(self) -> int:
        """The number of records, once all of them are in the tables."""
        data = Path(self._settings.data)
        end = LogReader(data / "log").next_seq

        def is_done() -> int | None:
            _check(self._pipeline)
            progress = read_progress(data)
            return end if progress is not None and progress.next_seq >= end else None

        with self._console.status("   Spark is at work …"):
            return _until(is_done, CLI_DEMO_PIPELINE_S, f"the tables do not have all {end} records")

    def _print(self, title: str, sql: str) -> None:
        answer = query(self._lake, sql)
        self.say(title)
        table = Table(box=None, pad_edge=False)
        for column in answer.columns:
            is_number = any(word in column.type for word in ("INT", "DOUBLE"))
            table.add_column(column.name, justify="right" if is_number else "left")
        for row in answer.rows:
            table.add_row(*["" if value is None else str(value) for value in row])
        self._wide.print(table)

    def _ledger(self) -> bool:
        self._print("The ledger (gold.ledger): from the socket to the tables, does it add up?", _LEDGER)
        rows = query(self._lake, "SELECT balanced, received FROM gold.ledger").rows
        received = sum(row[1] for row in rows)
        balanced = received > 0 and all(row[0] for row in rows)
        verdict = "Every one is in exactly one state: it balances." if balanced else "IT DOES NOT BALANCE."
        self.say(f"{received} frames were received. {verdict}")
        for (why,) in query(self._lake, "SELECT why FROM gold.ledger WHERE NOT balanced").rows:
            self._console.print(f"   {why}")
        return balanced


def _check(beside: ChildProcess) -> None:
    if not beside.is_running:
        raise InputError(f"`{beside.words}` has ended:\n{beside.tail()}")


def _end(beside: ChildProcess, timeout_s: float) -> None:
    """In time and without a fault."""
    code = beside.stop(timeout_s)
    if code is None:
        raise InputError(f"`{beside.words}` did not end within {timeout_s:g} s:\n{beside.tail()}")
    if code:
        raise InputError(f"`{beside.words}` ended with exit code {code}:\n{beside.tail()}")


@contextlib.contextmanager
def _place(wanted: Path | None) -> Iterator[Path]:
    if wanted is None:
        with tempfile.TemporaryDirectory(prefix="wirelake-demo-") as folder:
            yield Path(folder)
        return
    if (wanted / "data" / "log").exists():
        raise InputError(f"{wanted} holds an earlier tour: take another folder")
    wanted.mkdir(parents=True, exist_ok=True)
    yield wanted.absolute()


def _settings_file(folder: Path) -> Path:
    """Every door on a port that is free: a gateway that runs already is not disturbed."""
    names = default_settings().listen.__struct_fields__
    opened = [socket.create_server((_HOST, 0)) for _ in names]
    ports = [each.getsockname()[1] for each in opened]
    for each in opened:
        each.close()
    lines = ["[listen]", *(f'{name} = "{_HOST}:{port}"' for name, port in zip(names, ports, strict=True))]
    file = folder / "wirelake.toml"
    file.write_text("\n".join(lines) + "\n")
    return file


def _until(found: Callable[[], T | None], within_s: float, otherwise: str) -> T:
    deadline_s = time.monotonic() + within_s
    while time.monotonic() < deadline_s:
        value = found()
        if value is not None:
            return value
        time.sleep(CLI_DEMO_LOOK_S)
    raise InputError(f"{otherwise} within {within_s:g} s")
