"""Implement `wirelake subscribe`: print notifications as they arrive."""

from itertools import islice
from pathlib import Path

import click

from wirelake.cli.api import ApiClient
from wirelake.cli.options import settings_options, token_option
from wirelake.config import load
from wirelake.limits import HTTP_ACKS_MAX
from wirelake.protocols.jsontext import write_json


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
def command(
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
                api.ask("POST", "/api/acks", {"ids": printed})
                printed.clear()
    except KeyboardInterrupt:
        pass  # the usual way to stop
    if printed:
        api.ask("POST", "/api/acks", {"ids": printed})
