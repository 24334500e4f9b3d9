"""Implement `wirelake device`: manage registered devices."""

import time
from pathlib import Path
from typing import Any, Final

import click
from rich.console import Console
from rich.table import Table

from wirelake.cli.support.api import ApiClient, quoted
from wirelake.cli.support.options import pass_on, settings_options
from wirelake.cli.support.output import counted, format_time
from wirelake.cli.support.store import store_or_api
from wirelake.config import load
from wirelake.errors import InputError
from wirelake.limits import STATE_CLOSE_S
from wirelake.protocols.text import parse_hex, write_json
from wirelake.state.devices import DEVICE_KEY_BYTES
from wirelake.state.store import StateStore

_PIPE_COLUMNS: Final = 240  # what is not read on a terminal has one line for each device
_READINGS_MAX: Final = 4  # of a row of the list; `--json` has them all


@click.group(
    epilog="""\b
Examples:
  wirelake device add 1234 --type 6
  wirelake device list"""
)
@settings_options
@click.pass_context
def device(context: click.Context, config_file: Path | None, data_folder: Path | None) -> None:
    """Manage registered devices, by serial.

    Uses the gateway that runs on the data folder or, if none is running, the data folder itself.
    """
    pass_on(context, config_file, data_folder)


@device.command(
    epilog="""\b
Examples:
  wirelake device add 1234
  wirelake device add 1234 --type 6 --key 000102030405060708090a0b0c0d0e0f"""
)
@click.argument("serial")
@click.option("--type", "device_type", type=click.IntRange(0, 255), default=0, show_default=True, help="Device type.")
@click.option("--key", "key_hex", metavar="HEX", help="Key of 16 bytes that seals its commands.")
@settings_options
def add(serial: str, device_type: int, key_hex: str | None, config_file: Path | None, data_folder: Path | None) -> None:
    """Register the device SERIAL."""
    key = None if key_hex is None else parse_hex(key_hex)
    if key is not None and len(key) != DEVICE_KEY_BYTES:
        raise InputError(f"--key has {counted(len(key), 'byte')}: a device key has 16 bytes, which are 32 hex digits")
    with store_or_api(load(config_file, data_folder), create=True) as backend:
        if isinstance(backend, ApiClient):
            body = {"serial": serial, "type": device_type} | ({} if key is None else {"key": key.hex()})
            backend.request("POST", "/api/devices", body)
        else:
            backend.devices.add(serial, device_type, key, time.time_ns() // 1_000_000).wait(STATE_CLOSE_S)
    click.echo(f"Registered device {serial}.", err=True)


@device.command(
    name="list",
    epilog="""\b
Example:
  wirelake device list --json""",
)
@click.option("--json", "as_json", is_flag=True, help="Print a JSON list instead of a table.")
@settings_options
def list_(as_json: bool, config_file: Path | None, data_folder: Path | None) -> None:
    """List the registered devices, without their keys, and devices that reported to the running gateway."""
    with store_or_api(load(config_file, data_folder)) as backend:
        rows = list(backend.pages("/api/devices", "devices")) if isinstance(backend, ApiClient) else _rows(backend)
    if as_json:
        click.echo(write_json(rows))
        return
    table = Table("serial", "type", "key", "added (UTC)", "protocol", "address", "readings", box=None, pad_edge=False)
    for row in rows:
        key = "yes" if row["has_key"] else "no"
        added = format_time(row["added_at_ms"]) if row["added_at_ms"] else "not registered"
        readings = _readings(row["readings"])
        table.add_row(row["serial"], f"0x{row['type']:02x}", key, added, row["protocol"], row["address"], readings)
    console = Console(highlight=False, soft_wrap=True)
    if not console.is_terminal:
        console.width = _PIPE_COLUMNS
    console.print(table if rows else "No devices registered yet.")


def _readings(found: list[dict[str, Any]]) -> str:
    shown = [f"{each['name']} {each['value']:g} {each['unit']}".rstrip() for each in found[:_READINGS_MAX]]
    if len(found) > _READINGS_MAX:
        shown.append(f"and {len(found) - _READINGS_MAX} more")
    return ", ".join(shown)


@device.command(
    epilog="""\b
Example:
  wirelake device remove 1234"""
)
@click.argument("serial")
@settings_options
def remove(serial: str, config_file: Path | None, data_folder: Path | None) -> None:
    """Remove the device SERIAL."""
    with store_or_api(load(config_file, data_folder)) as backend:
        if isinstance(backend, ApiClient):
            backend.request("DELETE", quoted("api", "devices", serial))
        else:
            commit = backend.devices.remove(serial)
            if commit is None:
                raise InputError(f"no device {serial!r}")
            commit.wait(STATE_CLOSE_S)
    click.echo(f"Removed device {serial}.", err=True)


def _rows(store: StateStore) -> list[dict[str, Any]]:
    return [
        {
            "serial": device.serial,
            "type": device.type,
            "has_key": device.key is not None,
            "added_at_ms": device.added_at_ms,
            "heard": False,
            "address": "",
            "protocol": "",
            "readings": [],
        }
        for device in store.devices.list()
    ]
