"""Implement `wirelake publish`, `subscribe`, `request` and `send`, through the HTTP API of a running gateway."""

import base64
import sys
from itertools import islice
from pathlib import Path
from typing import Any

import click
import msgspec

from wirelake.cli.main import EXIT_BAD_INPUT
from wirelake.cli.support.api import ApiClient, quoted
from wirelake.cli.support.limits import CLI_ANSWER_S
from wirelake.cli.support.options import read_input, settings_options, token_option
from wirelake.config import load
from wirelake.errors import InputError, ProtocolError
from wirelake.limits import BROKER_CALL_S, HTTP_ACKS_MAX, HTTP_COMMAND_MS
from wirelake.protocols.text import parse_hex, read_json, write_json

_COMMAND_TYPES = range(128, 256)  # bit 7 is set in all commands to devices


@click.command(
    epilog="""\b
Examples:
  wirelake publish @news "the shop opens at nine"
  wirelake publish @pictures - < logo.png"""
)
@click.argument("topic")
@click.argument("content")
@click.option(
    "--type", "type_", type=click.IntRange(0, 255), default=0, show_default=True, help="Type of the notification."
)
@click.option("--retain", is_flag=True, help="Store it as the topic's last value, for later subscribers.")
@click.option("--json", "as_json", is_flag=True, help="Print the whole response as JSON.")
@token_option
@settings_options
def publish(
    topic: str,
    content: str,
    type_: int,
    retain: bool,
    as_json: bool,
    token_file: Path | None,
    config_file: Path | None,
    data_folder: Path | None,
) -> None:
    """Publish CONTENT to TOPIC, and print the notification's id once it is on disk.

    Use - as CONTENT to read it from standard input. A topic that starts with @ is durable: it stores notifications
    for every subscriber. Any other topic reaches current subscribers only.
    """
    data = read_input(("-",), raw=True) if content == "-" else content.encode("utf-8", "surrogateescape")
    api = ApiClient(load(config_file, data_folder), token_file)
    body = {**_content(data), "type": type_, "retain": retain}
    response = api.request("POST", quoted("api", "topics", topic, "notifications"), body)
    click.echo(write_json(response) if as_json else response["id"])


def _content(data: bytes) -> dict[str, Any]:
    """Return the content as the API expects it: text if it is UTF-8, otherwise base64."""
    try:
        return {"content": data.decode()}
    except UnicodeDecodeError:
        return {"content": base64.b64encode(data).decode(), "encoding": "base64"}


@click.command(
    epilog="""\b
Examples:
  wirelake subscribe @news
  wirelake subscribe @news prices --json --count 10"""
)
@click.argument("topics", metavar="TOPIC…", nargs=-1, required=True)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per line, with id, type and time.")
@click.option("--count", type=click.IntRange(1), help="Stop after this many.")
@click.option(
    "--keep", is_flag=True, help="Stay subscribed afterwards: later notifications are stored for the next time."
)
@token_option
@settings_options
def subscribe(
    topics: tuple[str, ...],
    as_json: bool,
    count: int | None,
    keep: bool,
    token_file: Path | None,
    config_file: Path | None,
    data_folder: Path | None,
) -> None:
    """Print what is published to each TOPIC until Ctrl-C: one line each, with the topic, a tab and the content.

    Content that is not text is printed in base64. With --keep, printed notifications are not delivered again.
    """
    api = ApiClient(load(config_file, data_folder), token_file)
    query = [("topic", topic) for topic in topics] + [("keep", "true" if keep else "false")]
    printed: list[str] = []
    try:
        for event in islice(api.events("/api/subscribe", query), count):
            click.echo(write_json(event) if as_json else f"{event['topic']}\t{event['content']}")
            if keep and event["id"]:
                printed.append(event["id"])
            if len(printed) == HTTP_ACKS_MAX:
                api.request("POST", "/api/acks", {"ids": printed})
                printed.clear()
    except KeyboardInterrupt:
        pass  # the usual way to stop
    if printed:
        api.request("POST", "/api/acks", {"ids": printed})


@click.command(
    epilog="""\b
Examples:
  wirelake request calculator/add '{"a": 2, "b": 3}'
  wirelake request wirelake/ping"""
)
@click.argument("target", metavar="SERVICE/OP")
@click.argument("fields", metavar="[JSON]", default="{}")
@click.option("--object", "object_", default="", help="Object of the request, if the service needs one.")
@click.option("--wait-ms", type=click.IntRange(1), default=int(BROKER_CALL_S * 1000), show_default=True)
@token_option
@settings_options
def request(
    target: str,
    fields: str,
    object_: str,
    wait_ms: int,
    token_file: Path | None,
    config_file: Path | None,
    data_folder: Path | None,
) -> None:
    """Call OP of SERVICE with the fields in JSON (bytes as "payload" in base64), and print the response as JSON."""
    service, slash, op = target.rpartition("/")  # a service's name may contain slashes: magline/16
    if not slash or not service or not op:
        raise InputError(f"{target!r} is not SERVICE/OP")
    body = _json_object(fields)
    query = [("timeout_ms", str(wait_ms))] + ([("object", object_)] if object_ else [])
    api = ApiClient(load(config_file, data_folder), token_file)
    response = api.request("POST", quoted("api", "services", service, op), body, query, wait_ms / 1000 + CLI_ANSWER_S)
    click.echo(msgspec.json.format(write_json(response), indent=2))


@click.command(
    epilog="""\b
Examples:
  wirelake send 1234 0x81
  wirelake send 1234 130 0a0b0c
  wirelake send pump-7 set_speed --fields '{"rpm": 900}'
  wirelake send '*' 0x81"""
)
@click.argument("serial")
@click.argument("command", metavar="TYPE")
@click.argument("data_hex", metavar="[HEX]", default="")
@click.option("--fields", "fields_json", metavar="JSON", default="{}", help="Parameters of the command, by name.")
@click.option("--wait-ms", type=click.IntRange(1), default=HTTP_COMMAND_MS, show_default=True)
@token_option
@settings_options
def send(
    serial: str,
    command: str,
    data_hex: str,
    fields_json: str,
    wait_ms: int,
    token_file: Path | None,
    config_file: Path | None,
    data_folder: Path | None,
) -> None:
    """Send a command of TYPE (128 to 255, or 0x80 to 0xff) with the data HEX to the device SERIAL.

    A device whose protocol has names for commands takes a name as TYPE. Any connected device can be sent commands that
    its session accepts, whatever protocol it speaks.

    Prints the device's response as JSON. The exit code is 1 if the response is an error. Use * as SERIAL to send to
    every device: the JSON then has all responses and the devices that did not respond, and the exit code is 1 if there
    are any such devices or errors.
    """
    body = _command(command) | {"data": parse_hex(data_hex).hex(), "wait_ms": wait_ms}
    if fields := _json_object(fields_json):
        body["fields"] = fields
    api = ApiClient(load(config_file, data_folder), token_file)
    response = api.request(
        "POST", quoted("api", "devices", serial, "commands"), body, wait_s=wait_ms / 1000 + CLI_ANSWER_S
    )
    click.echo(msgspec.json.format(write_json(response), indent=2))
    if (
        response.get("error")
        or response.get("unanswered")
        or any(each["error"] for each in response.get("answers", []))
    ):
        sys.exit(EXIT_BAD_INPUT)


def _command(given: str) -> dict[str, Any]:
    """Return the type of a command, a number or a name, as the API expects it."""
    try:
        number = int(given, 0)
    except ValueError:
        return {"type": given}
    if number not in _COMMAND_TYPES:
        raise InputError(f"command type must be from {_COMMAND_TYPES[0]} to {_COMMAND_TYPES[-1]}, not {number}")
    return {"type": number}


def _json_object(text: str) -> dict[str, Any]:
    try:
        fields = read_json(text.encode("utf-8", "surrogateescape"))
    except ProtocolError as error:
        raise InputError(f"invalid JSON fields: {error}") from error
    if not isinstance(fields, dict):
        raise InputError("fields must be a JSON object, as in '{\"a\": 1}'")
    return fields
