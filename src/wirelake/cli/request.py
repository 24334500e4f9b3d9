"""Implement `wirelake request`: call a service, whatever protocol its provider speaks."""

from pathlib import Path

import click
import msgspec

from wirelake.cli.api import ApiClient, quoted
from wirelake.cli.limits import CLI_ANSWER_S
from wirelake.cli.options import settings_options, token_option
from wirelake.config import load
from wirelake.errors import InputError, ProtocolError
from wirelake.limits import BROKER_CALL_S
from wirelake.protocols.jsontext import read_json, write_json


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
def command(
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
    try:
        body = read_json(fields.encode("utf-8", "surrogateescape"))
    except ProtocolError as error:
        raise InputError(f"invalid JSON fields: {error}") from error
    if not isinstance(body, dict):
        raise InputError("fields must be a JSON object, as in '{\"a\": 1}'")
    query = [("timeout_ms", str(wait_ms))] + ([("object", object_)] if object_ else [])
    api = ApiClient(load(config_file, data_folder), token_file)
    answer = api.ask("POST", quoted("api", "services", service, op), body, query, wait_ms / 1000 + CLI_ANSWER_S)
    click.echo(msgspec.json.format(write_json(answer), indent=2))
