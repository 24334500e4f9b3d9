"""Implement `wirelake state`: look after the state of the gateway, state.db."""

from pathlib import Path

import click

from wirelake.cli.support.options import pass_on, settings_options
from wirelake.cli.support.output import counted
from wirelake.config import load
from wirelake.errors import InUseError
from wirelake.key_source import KeySource, state_key
from wirelake.state.rekey import rekey as rekey_state


@click.group(
    epilog="""\b
Example:
  wirelake state rekey file:/etc/wirelake/state.key"""
)
@settings_options
@click.pass_context
def state(context: click.Context, config_file: Path | None, data_folder: Path | None) -> None:
    """Manage the state of the gateway, which is in state.db."""
    pass_on(context, config_file, data_folder)


@state.command(
    epilog="""\b
Examples:
  wirelake state rekey file:/etc/wirelake/state.key
  wirelake state rekey "command:vault kv get -field=key secret/wirelake"
  wirelake state rekey file:data/keys/state.key --discard"""
)
@click.argument("source")
@click.option("--discard", is_flag=True, help="Remove devices and sessions whose secrets cannot be decrypted.")
@settings_options
def rekey(source: str, discard: bool, config_file: Path | None, data_folder: Path | None) -> None:
    """Encrypt secrets in the state with the key from SOURCE.

    These are the keys of devices, and what resumes lost sessions. SOURCE is file:PATH, env:NAME or command:WORDS, as in
    the setting state.key, which must still name the old key. A file that does not exist is created, with a new key.
    Stop the gateway and the pipeline before.
    """
    settings = load(config_file, data_folder)
    folder = Path(settings.data)
    old, new = state_key(settings.state.key, folder), KeySource.parse(source, "SOURCE")
    try:
        report = rekey_state(folder / "state.db", old, new, discard=discard)
    except InUseError as error:
        raise InUseError(f"{error}: stop the gateway, change the key, and start it again") from error
    for serial in report.discarded:
        click.echo(f"Removed device {serial}: its key could not be decrypted. Add it again.", err=True)
    done = f"{counted(report.device_keys, 'device key')} and {counted(report.sessions, 'session secret')}"
    click.echo(f"Encrypted {done} with the key from {new}.", err=True)
    if (old.kind, old.place) != (new.kind, new.place):
        click.echo(f'Now set key = "{new}" in [state] of the settings, then start the gateway.', err=True)
