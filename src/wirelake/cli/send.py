"""Implement `wirelake send`: send a command to a device and print its response."""

import sys
from pathlib import Path

import click
import msgspec

from wirelake.cli.api import ApiClient, quoted
from wirelake.cli.limits import CLI_ANSWER_S
from wirelake.cli.main import EXIT_BAD_INPUT
from wirelake.cli.options import settings_options, token_option
from wirelake.config import load
from wirelake.errors import InputError
from wirelake.limits import HTTP_COMMAND_MS
from wirelake.protocols.hextext import parse_hex
from wirelake.protocols.jsontext import write_json

_TYPES = range(128, 256)  # bit 7 is set in all commands to devices


@click.command(
    epilog="""\b
Examples:
  wirelake send 1234 0x81
  wirelake send 1234 130 0a0b0c
  wirelake send '*' 0x81"""
)
@click.argument("serial")
@click.argument("command_type", metavar="TYPE")
@click.argument("data_hex", metavar="[HEX]", default="")
@click.option("--wait-ms", type=click.IntRange(1), default=HTTP_COMMAND_MS, show_default=True)
@token_option
@settings_options
def command(
    serial: str,
    command_type: str,
    data_hex: str,
    wait_ms: int,
    token_file: Path | None,
    config_file: Path | None,
    data_folder: Path | None,
) -> None:
    """Send a command of TYPE (128 to 255, or 0x80 to 0xff) with the data HEX to the device SERIAL.

    Prints the device's response as JSON. The exit code is 1 if the response is an error. Use * as SERIAL to send to
    every device: the JSON then has all responses and the devices that did not respond, and the exit code is 1 if there
    are any such devices or errors.
    """
    try:
        number = int(command_type, 0)
    except ValueError as error:
        raise InputError(f"{command_type!r} is not a number such as 130 or 0x82") from error
    if number not in _TYPES:
        raise InputError(f"command type must be from {_TYPES[0]} to {_TYPES[-1]}, not {number}")
    body = {"type": number, "data": parse_hex(data_hex).hex(), "wait_ms": wait_ms}
    api = ApiClient(load(config_file, data_folder), token_file)
    answer = api.ask("POST", quoted("api", "devices", serial, "commands"), body, wait_s=wait_ms / 1000 + CLI_ANSWER_S)
    click.echo(msgspec.json.format(write_json(answer), indent=2))
    if answer.get("error") or answer.get("unanswered") or any(each["error"] for each in answer.get("answers", [])):
        sys.exit(EXIT_BAD_INPUT)
