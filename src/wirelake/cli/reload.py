"""Implement `wirelake reload`: make a running gateway reload its settings."""

import os
import signal
import sys
import time
from pathlib import Path

import click

from wirelake.cli import pidfile, reloads
from wirelake.cli.limits import CLI_RELOAD_LOOK_S, CLI_RELOAD_S
from wirelake.cli.main import EXIT_BAD_INPUT
from wirelake.cli.options import settings_options
from wirelake.config import load
from wirelake.errors import InputError, LateError


@click.command(
    epilog="""\b
Examples:
  wirelake reload
  wirelake reload --data /var/lib/wirelake"""
)
@settings_options
def command(config_file: Path | None, data_folder: Path | None) -> None:
    """Make the gateway of this data folder reload its settings file, and print what changed.

    Limits, TLS files and settings of new sessions change at once; listen addresses, the data folder and the log's
    settings need a restart. The gateway reads the file it was started with. The exit code is 1 if that file is invalid.
    """
    folder = Path(load(config_file, data_folder).data)
    pid = pidfile.running(folder)
    if pid is None:
        raise InputError(f"no gateway is running on the data folder {folder}")
    outcome = ask(folder, pid)
    for sentence in outcome.sentences():
        click.echo(sentence)
    if outcome.error:
        sys.exit(EXIT_BAD_INPUT)


def ask(folder: Path, pid: int) -> reloads.ReloadOutcome:
    before = reloads.read(folder, pid).count
    os.kill(pid, signal.SIGHUP)
    until_s = time.monotonic() + CLI_RELOAD_S
    while time.monotonic() < until_s:
        outcome = reloads.read(folder, pid)
        if outcome.count > before:
            return outcome
        time.sleep(CLI_RELOAD_LOOK_S)
    raise LateError(f"the gateway (process {pid}) did not report the result of the reload within {CLI_RELOAD_S:g} s")
