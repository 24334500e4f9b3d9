"""Implement `wirelake serve` and `up`: run the gateway as a process, alone or with the pipeline as a child process."""

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

import click
import uvloop

from wirelake.cli.support.dependencies import missing_for_pipeline
from wirelake.cli.support.limits import CLI_PIPELINE_STOP_S, CLI_SHUTDOWN_MARGIN_S
from wirelake.cli.support.options import settings_options
from wirelake.cli.support.output import FORMATS, LEVELS, counted, start_logging
from wirelake.cli.support.processes import ChildProcess, PidFile, ReloadOutcome, write_reload_outcome
from wirelake.config import Settings, load
from wirelake.console.pages import console_pages
from wirelake.errors import WirelakeError
from wirelake.gateway.gateway import Gateway
from wirelake.limits import GATEWAY_STOP_S, GATEWAY_THREAD_SWITCH_S

_log = logging.getLogger(__name__)


@click.command(
    epilog="""\b
Examples:
  wirelake serve
  WIRELAKE_LISTEN_HTTP=127.0.0.1:8080 wirelake serve --data /var/lib/wirelake --log-format json"""
)
@click.option("--log-format", type=click.Choice(FORMATS), default="console", show_default=True, help="Log format.")
@click.option("--log-level", type=click.Choice(LEVELS), default="info", show_default=True, help="Lowest level to log.")
@click.option("--accept-loss", is_flag=True, help="Start even though confirmed data is missing from the data folder.")
@settings_options
def serve(
    log_format: str, log_level: str, accept_loss: bool, config_file: Path | None, data_folder: Path | None
) -> None:
    """Run the gateway until Ctrl-C or SIGTERM. SIGHUP, or `wirelake reload`, reloads the settings."""
    start_logging(log_format, log_level)
    _exit(run_gateway(config_file, data_folder, accept_loss=accept_loss))


def run_gateway(
    config_file: Path | None,
    data_folder: Path | None,
    on_open: Callable[[], None] = lambda: None,
    *,
    accept_loss: bool = False,
) -> bool:
    """Serve until a signal arrives, and return whether shutdown finished in time.

    `on_open` is called once every listener is open.
    """
    settings = load(config_file, data_folder)
    pid_file = PidFile(Path(settings.data))
    sys.setswitchinterval(GATEWAY_THREAD_SWITCH_S)
    try:
        gateway = Gateway(settings, console_pages, accept_loss=accept_loss)
        return uvloop.run(GatewayProcess(gateway, lambda: load(config_file, data_folder), on_open).run())
    finally:
        pid_file.release()


def _exit(in_time: bool) -> None:
    """End the process after serving."""
    if not in_time:
        # A thread is still writing, and Python would wait for it. Everything confirmed is on disk.
        sys.stderr.flush()
        os._exit(1)


class GatewayProcess:
    """Run the gateway once, from open to close."""

    def __init__(self, gateway: Gateway, load_settings: Callable[[], Settings], on_open: Callable[[], None]) -> None:
        self._gateway = gateway
        self._load_settings = load_settings
        self._on_open = on_open
        self._stop = asyncio.Event()
        self._reloads = 0

    async def run(self) -> bool:
        """Serve until a signal arrives, and return whether shutdown finished in time."""
        loop = asyncio.get_running_loop()
        for name in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(name, self._on_stop_signal, name)
        loop.add_signal_handler(signal.SIGHUP, lambda: None)  # until there is something to reload
        await self._gateway.open()
        loop.add_signal_handler(signal.SIGHUP, self._reload)
        for line in self._greeting():
            click.echo(line)
        self._on_open()
        await self._stop.wait()
        try:
            async with asyncio.timeout(GATEWAY_STOP_S - CLI_SHUTDOWN_MARGIN_S):
                await self._gateway.close()
        except TimeoutError:
            _log.error("the gateway did not stop within %g s; exiting anyway", GATEWAY_STOP_S)
            return False
        _log.info("stopped")
        return True

    def _greeting(self) -> list[str]:
        gateway = self._gateway
        scheme = "http" if gateway.tls is None else "https"
        lines = [f"wirelake {version('wirelake')}, data in {gateway.folder}"]
        for name, listener in gateway.listeners.items():
            address = f"{scheme}://{listener.address}" if name == "http" else str(listener.address)
            lines.append(f"  {name.ljust(10)} {address}")
        lines.append(f"The admin token is in {gateway.keys.admin_token_file}. Press Ctrl-C to stop.")
        return lines

    def _on_stop_signal(self, name: signal.Signals) -> None:
        _log.info("%s: closing %s", name.name, counted(len(self._gateway.connections), "connection"))
        self._stop.set()

    def _reload(self) -> None:
        self._reloads += 1
        outcome = ReloadOutcome(os.getpid(), self._reloads)
        try:
            reloaded = self._gateway.reload(self._load_settings())
        except WirelakeError as error:
            outcome.error = str(error)
            self._gateway.audit.reload_failed(outcome.error)
        else:
            outcome.applied, outcome.needs_restart, outcome.tls = reloaded.applied, reloaded.kept, reloaded.tls
        for sentence in outcome.sentences():
            _log.log(logging.ERROR if outcome.error else logging.INFO, "reload: %s", sentence)
        write_reload_outcome(self._gateway.folder, outcome)


def _run_with_pipeline(
    log_format: str, log_level: str, accept_loss: bool, config_file: Path | None, data_folder: Path | None
) -> None:
    start_logging(log_format, log_level)
    missing = missing_for_pipeline()
    if missing:
        click.echo(
            f"The pipeline is not installed (missing: {', '.join(missing)}). Run `pip install wirelake[pipeline]`."
        )
        _exit(run_gateway(config_file, data_folder, accept_loss=accept_loss))
        return
    # The job restarts itself after a failure; if it ends all the same, the gateway keeps running.
    words = ["--config", str(config_file)] if config_file is not None else []
    words += ["--data", str(data_folder)] if data_folder is not None else []
    pipeline = ChildProcess("pipeline", "run", "--stop-on-eof", "--log-format", log_format, *words)
    try:
        # Started once there is a log to read.
        in_time = run_gateway(config_file, data_folder, pipeline.start, accept_loss=accept_loss)
    finally:
        if pipeline.stop(CLI_PIPELINE_STOP_S) is None:
            _log.error("the pipeline did not stop within %g s and was killed", CLI_PIPELINE_STOP_S)
    _exit(in_time)


up = click.Command(
    "up",
    callback=_run_with_pipeline,
    params=serve.params,
    help="Run the gateway, with all listeners and the HTTP API, and the pipeline that fills the tables, until Ctrl-C. "
    "Data is in ./data unless set otherwise.",
    epilog="""\b
Example:
  wirelake up --data ./data""",
)
