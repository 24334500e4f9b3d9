"""Implement `wirelake simulate`: run a fleet of real clients against a gateway."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import click
import msgspec
import uvloop
from msgspec.structs import replace
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bar
from rich.table import Table

from wirelake.address import parse_address
from wirelake.cli.support.api import ApiClient, reachable, tls_context
from wirelake.cli.support.options import settings_options
from wirelake.cli.support.output import counted
from wirelake.config import Settings, load
from wirelake.errors import InputError
from wirelake.simulator.fleet import FLEET, KINDS
from wirelake.simulator.limits import SIMULATOR_DEVICES_MAX
from wirelake.simulator.report import Report
from wirelake.simulator.simulation import Plan
from wirelake.simulator.simulation import simulate as run_simulation
from wirelake.simulator.world import NetworkFaults, World

PROTOCOLS: Final = tuple(KINDS)
_LATE_S: Final = 0.5  # worth reporting
_CHANCE: Final = click.FloatRange(0, 1, max_open=True)


@click.command(
    epilog="""\b
Examples:
  wirelake simulate --devices 200 --rate 500 --seconds 30
  wirelake simulate --fleet other --seconds 600
  wirelake simulate --protocol apostol --loss 0.1 --reorder 0.1 --seed 7
  wirelake simulate --url http://127.0.0.1:7080 --token "$(cat data/keys/admin.token)" --json"""
)
@click.option(
    "--devices", type=click.IntRange(1, SIMULATOR_DEVICES_MAX), default=50, show_default=True, help="Number of clients."
)
@click.option(
    "--rate", type=click.FloatRange(0, min_open=True), default=50.0, show_default=True, help="Actions per second."
)
@click.option("--seconds", type=click.FloatRange(0), default=10.0, show_default=True, help="Duration of the run.")
@click.option(
    "--protocol",
    "protocols",
    type=click.Choice(list(PROTOCOLS)),
    multiple=True,
    help="Protocol to use; may be repeated. Default: all.",
)
@click.option("--seed", type=int, default=0, show_default=True, help="Random seed; the same seed repeats a run.")
@click.option("--loss", type=_CHANCE, default=0.0, help="Share of the meters' packets that are lost: 0 to 1.")
@click.option("--reorder", type=_CHANCE, default=0.0, help="Share that arrive late.")
@click.option("--duplicate", type=_CHANCE, default=0.0, help="Share that arrive twice.")
@click.option("--corrupt", type=_CHANCE, default=0.0, help="Share with a flipped bit (UDP).")
@click.option("--slow-readers", type=click.FloatRange(0, 1), default=0.0, help="Share of slow phones and desks.")
@click.option(
    "--fleet",
    default=FLEET,
    show_default=True,
    callback=lambda _context, _option, name: _check_fleet_name(name),
    help="Name prefix of its identities and devices. Concurrent fleets need different names.",
)
@click.option("--keep", is_flag=True, help="Do not remove the identities and devices.")
@click.option("--url", help="URL of the gateway's HTTP listener, instead of the one in the settings.")
@click.option("--token", default="", help="Admin token, instead of the one in the data folder.")
@click.option("--json", "as_json", is_flag=True, help="Print the counts as JSON instead of a table.")
@settings_options
def simulate(
    devices: int,
    rate: float,
    seconds: float,
    protocols: tuple[str, ...],
    seed: int,
    loss: float,
    reorder: float,
    duplicate: float,
    corrupt: float,
    slow_readers: float,
    fleet: str,
    keep: bool,
    url: str | None,
    token: str,
    as_json: bool,
    config_file: Path | None,
    data_folder: Path | None,
) -> None:
    """Run a fleet of simulated meters, phones, terminals, desks and services against a running gateway.

    Creates the identities and devices that it needs, and removes them at the end. Press Ctrl-C to stop early.
    """
    settings = load(config_file, data_folder)
    if url:
        settings = at_url(settings, url)
    world = world_at(settings, ApiClient(settings, token=token), NetworkFaults(loss, reorder, duplicate, corrupt), seed)
    chosen = tuple(protocols) or PROTOCOLS
    plan = Plan(
        devices=devices,
        rate=rate,
        seconds=seconds,
        protocols=chosen,
        slow_readers=slow_readers,
        seed=seed,
        keep=keep,
        name=fleet,
    )
    with progress_bars() as progress:
        report = uvloop.run(run_simulation(world, plan, progress))
    if as_json:
        click.echo(msgspec.json.format(msgspec.json.encode(report), indent=2))
    else:
        print_report(Console(highlight=False, soft_wrap=True), report)


def _check_fleet_name(fleet: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9_-]{1,32}", fleet):
        raise click.BadParameter("fleet name must have 1 to 32 letters, digits, - or _")
    return fleet


def at_url(settings: Settings, url: str) -> Settings:
    parts = urlsplit(url)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise InputError(f"{url!r} is not of the form http://HOST:PORT")
    if (parts.scheme == "https") != bool(settings.tls.cert):
        raise InputError("--url must use https if the settings have a certificate in [tls], otherwise http")
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    port = parts.port or (443 if parts.scheme == "https" else 80)
    return replace(settings, listen=replace(settings.listen, http=f"{host}:{port}"))


def world_at(settings: Settings, api: ApiClient, faults: NetworkFaults, seed: int) -> World:
    """Return the world of the gateway behind `api`, which reports its listeners in /readyz."""
    listeners = {}
    for name, text in api.request("GET", "/readyz")["listeners"].items():
        address = parse_address(text, name)
        if address is not None:
            everywhere = reachable(address.host) != address.host
            listeners[name] = (reachable(api.address.host) if everywhere else address.host, address.port)
    return World(http=api.request, listeners=listeners, seed=seed, faults=faults, tls=tls_context(settings))


class ProgressBars:
    """Show a progress bar for each phase."""

    def __init__(self, bar: Bar) -> None:
        self._bar = bar
        self._task = TaskID(0)

    def phase(self, name: str, total: int) -> None:
        self._task = self._bar.add_task(name, total=total)

    def step(self) -> None:
        self._bar.advance(self._task)


@contextmanager
def progress_bars() -> Iterator[ProgressBars]:
    """Show progress on a terminal, and nothing elsewhere."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Bar(*columns, console=console, disable=not console.is_terminal) as bar:
        yield ProgressBars(bar)


def print_report(console: Console, report: Report) -> None:
    table = Table("protocol", "members", "connects", box=None, pad_edge=False)
    table.add_column("what", no_wrap=True)
    for name in ("sent", "acked", "received", "failed"):
        table.add_column(name, justify="right", no_wrap=True)
    for protocol, kinds in report.counts.items():
        first = [protocol, str(report.members.get(protocol, "")), str(report.connections[protocol])]
        for kind, counts in kinds.items():
            numbers = [str(value) if value else "·" for value in msgspec.structs.astuple(counts)]
            table.add_row(*first, kind, *numbers)
            first = [""] * 3
    console.print(table)
    total = report.total()
    console.print()
    console.print(
        f"{counted(sum(report.members.values()), 'member')} in {report.seconds:.1f} s, seed {report.seed}: "
        f"{total.sent} sent, {total.acknowledged} acknowledged, {total.received} received, {total.failed} failed."
    )
    if report.skipped:
        console.print(
            f"{counted(report.skipped, 'action was', 'actions were')} skipped because a member was busy: "
            "lower --rate or raise --devices."
        )
    if report.behind_s > _LATE_S:
        console.print(f"Actions were up to {report.behind_s:.1f} s late: this machine is too slow for the rate.")
    if report.faults.total():
        made = ", ".join(f"{count} {name}" for name, count in report.faults.items() if count)
        console.print(f"Injected packet faults: {made}.")
    for reason, count in report.reasons.most_common():
        console.print(f"{count} × {reason}", markup=False)
