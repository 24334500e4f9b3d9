"""Define the options that commands share."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

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
