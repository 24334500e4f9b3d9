"""Implement `wirelake identify`: rank the protocols that some bytes may belong to."""

import sys
from typing import Any

import click
from rich.console import Console
from rich.text import Text

from wirelake.cli.hextext import read_input
from wirelake.cli.main import EXIT_BAD_INPUT
from wirelake.cli.options import settings_options
from wirelake.protocols import registry
from wirelake.protocols.identify import identify
from wirelake.protocols.jsontext import write_json


@click.command(
    epilog="""\b
Examples:
  wirelake identify 1e0103060431323334f000a6530c5e010000000400000000029c530c5e3ec7
  wirelake identify --raw - < capture.bin"""
)
@click.argument("hex_words", metavar="HEX…|-", nargs=-1, required=True)
@click.option("--raw", is_flag=True, help="Read raw bytes instead of hex from standard input.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON list instead of text.")
@settings_options
def command(hex_words: tuple[str, ...], raw: bool, as_json: bool, **_: Any) -> None:
    """Guess which protocol the bytes in HEX belong to: the most likely first, each with its reasons.

    The exit code is 1 if no protocol matches.
    """
    guesses = identify(read_input(hex_words, raw=raw), registry.all_protocols())
    if as_json:
        click.echo(write_json(guesses))
    else:
        console = Console(highlight=False, soft_wrap=True)
        for rank, guess in enumerate(guesses, start=1):
            frames = f"{guess.frames} frame{'s' if guess.frames != 1 else ''}"
            detail = f"  from the {guess.sender}, {guess.carrier}, {frames}, {guess.bits:.0f} bits"
            console.print(Text.assemble(f"{rank}. ", (guess.protocol, "bold green" if rank == 1 else "bold"), detail))
            for reason in guess.reasons:
                console.print(Text(f"     {reason}", "dim"))
    if not guesses:
        if not as_json:
            click.echo("wirelake: no protocol matches; tried: " + ", ".join(registry.names()), err=True)
        sys.exit(EXIT_BAD_INPUT)
