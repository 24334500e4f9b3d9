"""`wirelake up`: everything in one go. Today that is what `serve` runs: the gateway with every door, and its API."""

import click

from wirelake.cli import serve

command = click.Command(
    "up",
    callback=serve.command.callback,
    params=serve.command.params,
    help="Run everything on this machine, data in ./data, until Ctrl-C: the gateway with every door, and its HTTP API.",
    epilog="""\b
Example:
  wirelake up --data ./data""",
)
