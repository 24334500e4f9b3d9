"""Implement `wirelake config` and `reload`: print the effective settings, make a running gateway reload them."""

import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import click
import msgspec

from wirelake.cli.main import EXIT_BAD_INPUT
from wirelake.cli.support.limits import CLI_RELOAD_LOOK_S, CLI_RELOAD_S
from wirelake.cli.support.options import settings_options
from wirelake.cli.support.processes import ReloadOutcome, gateway_pid, read_reload_outcome
from wirelake.config import load, public_values
from wirelake.errors import InputError, LateError


@click.command(
    epilog="""\b
Examples:
  wirelake config
  WIRELAKE_LISTEN_COMET=0.0.0.0:7334 wirelake config
  wirelake config > wirelake.toml"""
)
@settings_options
def config(config_file: Path | None, data_folder: Path | None) -> None:
    """Print the effective settings in the format of wirelake.toml, without the credentials of an object store."""
    click.echo(as_toml(public_values(load(config_file, data_folder))))


def as_toml(settings: dict[str, Any]) -> str:
    lines = [f"{key} = {_value(value)}" for key, value in settings.items() if not isinstance(value, dict)]
    for section, values in settings.items():
        if isinstance(values, dict):
            lines += [f"[{section}]", *(f"{key} = {_value(value)}" for key, value in values.items())]
    return "\n".join(lines)


def _value(value: Any) -> str:
    """Encode a value as TOML, which shares strings, numbers, booleans and lists with JSON, but not objects."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key} = {_value(each)}" for key, each in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_value(each) for each in value) + "]"
    return msgspec.json.encode(value).decode()


@click.command(
    epilog="""\b
Examples:
  wirelake reload
  wirelake reload --data /var/lib/wirelake"""
)
@settings_options
def reload(config_file: Path | None, data_folder: Path | None) -> None:
    """Make the gateway of this data folder reload its settings file, and print what changed.

    Limits, TLS files and settings of new sessions change at once; listen addresses, the data folder and the log's
    settings need a restart. The gateway reads the file it was started with. The exit code is 1 if that file is invalid.
    """
    folder = Path(load(config_file, data_folder).data)
    pid = gateway_pid(folder)
    if pid is None:
        raise InputError(f"no gateway is running on the data folder {folder}")
    outcome = _request_reload(folder, pid)
    for sentence in outcome.sentences():
        click.echo(sentence)
    if outcome.error:
        sys.exit(EXIT_BAD_INPUT)


def _request_reload(folder: Path, pid: int) -> ReloadOutcome:
    before = read_reload_outcome(folder, pid).count
    os.kill(pid, signal.SIGHUP)
    until_s = time.monotonic() + CLI_RELOAD_S
    while time.monotonic() < until_s:
        outcome = read_reload_outcome(folder, pid)
        if outcome.count > before:
            return outcome
        time.sleep(CLI_RELOAD_LOOK_S)
    raise LateError(f"the gateway (process {pid}) did not report the result of the reload within {CLI_RELOAD_S:g} s")
