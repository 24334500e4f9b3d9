"""`wirelake publish`: one notification, from the shell."""

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
@click.option("--type", "type_", type=click.IntRange(0, 255), default=0, show_default=True, help="Its type number.")
@click.option("--retain", is_flag=True, help="Keep it as the topic's last value, for those who subscribe later.")
@click.option("--json", "as_json", is_flag=True, help="The whole answer, as JSON.")
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
    """Publish CONTENT on TOPIC, and print the notification's id once it is on disk.

    CONTENT - is standard input, as it is. A topic that starts with @ is kept for every subscriber; any other
    reaches those who listen now.
    """
    data = read_input(("-",), raw=True) if content == "-" else content.encode("utf-8", "surrogateescape")
    api = ApiClient(load(config_file, data_folder), token_file)
    asked = {**_as_json(data), "type": type_, "retain": retain}
    answer = api.ask("POST", quoted("api", "topics", topic, "notifications"), asked)
    click.echo(write_json(answer) if as_json else answer["id"])


def _as_json(data: bytes) -> dict[str, Any]:
    try:
        return {"content": data.decode()}
    except UnicodeDecodeError:
        return {"content": base64.b64encode(data).decode(), "encoding": "base64"}
