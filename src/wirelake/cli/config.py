"""Implement `wirelake config`: print the effective settings."""

from pathlib import Path
from typing import Any

import click
import msgspec

from wirelake.cli.options import settings_options
from wirelake.config import load


@click.command(
    epilog="""\b
Examples:
  wirelake config
  WIRELAKE_LISTEN_COMET=0.0.0.0:7334 wirelake config
  wirelake config > wirelake.toml"""
)
@settings_options
def command(config_file: Path | None, data_folder: Path | None) -> None:
    """Print the effective settings in the format of wirelake.toml."""
    click.echo(as_toml(msgspec.to_builtins(load(config_file, data_folder))))


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
