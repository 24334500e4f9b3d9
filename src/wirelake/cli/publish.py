"""Implement `wirelake publish`: publish one notification."""

import base64
from pathlib import Path
from typing import Any

import click

from wirelake.cli.api import ApiClient, quoted
from wirelake.cli.hextext import read_input
from wirelake.cli.options import settings_options, token_option
from wirelake.config import load
from wirelake.protocols.jsontext import write_json


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
def command(
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
    body = {**_as_json(data), "type": type_, "retain": retain}
    answer = api.ask("POST", quoted("api", "topics", topic, "notifications"), body)
    click.echo(write_json(answer) if as_json else answer["id"])


def _as_json(data: bytes) -> dict[str, Any]:
    try:
        return {"content": data.decode()}
    except UnicodeDecodeError:
        return {"content": base64.b64encode(data).decode(), "encoding": "base64"}
