"""Define the options that commands share, and parse bytes and times from the command line."""

import re
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import click

from wirelake.cli.support.limits import CLI_INPUT_BYTES_MAX
from wirelake.errors import InputError
from wirelake.protocols.text import parse_hex

_AGO: Final = re.compile(r"(\d+)([smhd])")
_DURATION: Final = re.compile(r"(\d{1,9})([smhd])|0")
_UNITS: Final = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}
_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
_FOLDER = click.Path(file_okay=False, path_type=Path)


def settings_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add `--config FILE` and `--data DIR`, also to commands that need neither, so that scripts can pass them."""
    with_data = click.option(
        "--data", "data_folder", type=_FOLDER, help="Data folder, instead of the one in the settings."
    )
    with_config = click.option("--config", "config_file", type=_FILE, help="Settings file, instead of wirelake.toml.")
    return with_config(with_data(command))


def pass_on(context: click.Context, config_file: Path | None, data_folder: Path | None) -> None:
    """Use the options of a group as defaults of its commands."""
    given = {"config_file": config_file, "data_folder": data_folder}
    group = context.command
    assert isinstance(group, click.Group)  # noqa: S101 (only groups have commands)
    context.default_map = dict.fromkeys(group.commands, given)


def token_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add `--token-file FILE`: a file, because everybody on the machine can see command lines."""
    text = "File with the NAME:TOKEN of an identity to act as. Default: the admin token of the data folder."
    return click.option("--token-file", type=_FILE, help=text)(command)


def read_input(words: tuple[str, ...], *, raw: bool) -> bytes:
    """Return the bytes of the hex words, or of standard input for a single `-`; raise InputError if there are none."""
    data = _read(words, raw=raw)
    if not data:
        raise InputError("no bytes given")
    return data


def _read(words: tuple[str, ...], *, raw: bool) -> bytes:
    if words == ("-",):
        data = sys.stdin.buffer.read(CLI_INPUT_BYTES_MAX + 1)
        if len(data) > CLI_INPUT_BYTES_MAX:
            raise InputError(f"standard input has more than {CLI_INPUT_BYTES_MAX} bytes (CLI_INPUT_BYTES_MAX)")
        if raw:
            return data
        try:
            return parse_hex(data.decode("latin-1"))
        except InputError as error:
            raise InputError(f"{error}; if standard input has raw bytes, use --raw") from error
    if raw:
        raise InputError("--raw reads bytes from standard input: pass '-' instead of hex")
    return parse_hex(" ".join(words))


def parse_duration(text: str) -> float:
    """Return the seconds of 90s, 10m, 2h, 7d, or 0."""
    parts = _DURATION.fullmatch(text)
    if parts is None:
        raise click.BadParameter(f"{text!r} is not a duration: use 90s, 10m, 2h, 7d, or 0")
    return timedelta(**{_UNITS[parts[2]]: int(parts[1])}).total_seconds() if parts[2] else 0.0


def parse_time(text: str) -> int:
    """Return the microseconds since 1970 of 2026-01-31, 2026-01-31T12:30 (UTC by default), or 10m, 2h, 3d ago."""
    ago = _AGO.fullmatch(text)
    if ago is not None:
        time = datetime.now(UTC) - timedelta(**{_UNITS[ago[2]]: int(ago[1])})
    else:
        try:
            time = datetime.fromisoformat(text)
        except ValueError as error:
            raise click.BadParameter(f"{text!r} is not a time: use 2026-01-31T12:30, or 10m, 2h, 3d ago") from error
        if time.tzinfo is None:
            time = time.replace(tzinfo=UTC)
    return (time - datetime.fromtimestamp(0, UTC)) // timedelta(microseconds=1)
