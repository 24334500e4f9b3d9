"""The program `wirelake`. Commands are imported only when called, so that each starts fast."""

import errno
import os
import sys
from importlib import import_module
from importlib.metadata import version
from typing import Any, Final

import click

from wirelake.errors import WirelakeError

# name → what it does, in one line. The module wirelake.cli.<name> holds it as `command`.
COMMANDS: Final = {
    "up": "Run everything on this machine.",
    "demo": "A tour of everything, in about two minutes.",
    "serve": "Run the gateway: every door, and the HTTP API.",
    "reload": "Let a running gateway read its settings again.",
    "identity": "Who may log in.",
    "device": "Devices that the gateway knows.",
    "publish": "Publish a notification.",
    "subscribe": "Print notifications as they come.",
    "request": "Ask a service.",
    "send": "Send a device a command.",
    "pipeline": "From the log to the tables, on Spark.",
    "simulate": "Let a fleet of simulated clients talk to a running gateway.",
    "trace": "Where is this message?",
    "log": "Look into the event log.",
    "query": "SQL over the tables.",
    "decode": "Take frames apart: a tree of fields with byte offsets.",
    "identify": "Which of the protocols could these bytes be?",
    "config": "Print the settings in force.",
    "doctor": "What is missing or wrong on this machine, in sentences.",
}
EXIT_BAD_INPUT: Final = 1
EXIT_INTERRUPTED: Final = 130  # as shells say it: 128 and the signal's number
# What a disk or the rights on it can do to any command; whatever else an OSError may be is a bug, and shown as one.
_OF_THE_MACHINE: Final = frozenset(
    {errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EMFILE, errno.ENFILE}
)


class LazyCommands(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = import_module(f"wirelake.cli.{cmd_name}").command
        return command

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:  # whoever pressed Ctrl-C knows
            ctx.exit(EXIT_INTERRUPTED)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.group(cls=LazyCommands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(version("wirelake"), prog_name="wirelake")
def wirelake() -> None:
    """One gateway for private wire protocols, a durable log of every frame, and tables you can query."""


def main() -> None:
    try:
        wirelake()
    except WirelakeError as error:
        click.echo(f"wirelake: {error}", err=True)
        sys.exit(EXIT_BAD_INPUT)
    except BrokenPipeError:  # `wirelake … | head` closed our output: not an error
        sys.stderr.close()
    except OSError as error:
        if error.errno not in _OF_THE_MACHINE:
            raise
        place = f"{os.fsdecode(error.filename)}: " if error.filename else ""
        click.echo(f"wirelake: {place}{os.strerror(error.errno)}", err=True)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # what is left for a full disk would fail again at the end
        sys.exit(EXIT_BAD_INPUT)


if __name__ == "__main__":
    main()
