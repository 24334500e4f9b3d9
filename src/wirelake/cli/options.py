"""Options that every command takes."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
_FOLDER = click.Path(file_okay=False, path_type=Path)


def settings_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """`--config FILE` and `--data DIR`. A command that needs neither takes them too: scripts can always pass them."""
    with_data = click.option("--data", "data_folder", type=_FOLDER, help="The data folder, instead of the setting's.")
    with_config = click.option("--config", "config_file", type=_FILE, help="Settings file, instead of wirelake.toml.")
    return with_config(with_data(command))


def pass_on(context: click.Context, config_file: Path | None, data_folder: Path | None) -> None:
    """What was given to a group of commands holds for the one that is called, unless that is given its own."""
    given = {"config_file": config_file, "data_folder": data_folder}
    group = context.command
    assert isinstance(group, click.Group)  # noqa: S101 (only groups have commands to pass it on to)
    context.default_map = dict.fromkeys(group.commands, given)


def token_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """`--token-file FILE`. A file, because what is on a command line can be seen by everybody on the machine."""
    text = "Ask as an identity: a file that holds NAME:TOKEN. Otherwise the admin token of the data folder is used."
    return click.option("--token-file", type=_FILE, help=text)(command)
