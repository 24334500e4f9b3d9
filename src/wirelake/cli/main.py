"""Define the program `wirelake`. Import the module of a command only when it is called, so that each starts fast."""

import errno
import os
import sys
from importlib import import_module
from importlib.metadata import version
from keyword import iskeyword
from typing import Any, Final

import click

from wirelake.errors import WirelakeError

# The module in wirelake.cli.commands that defines each command, as a function or group of the command's name.
_MODULES: Final = {
    "up": "serve",
    "demo": "demo",
    "serve": "serve",
    "reload": "config",
    "identity": "identity",
    "role": "role",
    "access": "role",
    "device": "device",
    "publish": "messaging",
    "subscribe": "messaging",
    "request": "messaging",
    "send": "messaging",
    "pipeline": "pipeline",
    "simulate": "simulate",
    "trace": "trace",
    "log": "log",
    "audit": "audit",
    "import": "import_capture",
    "query": "query",
    "decode": "decode",
    "identify": "identify",
    "protocol": "protocol",
    "state": "state",
    "config": "config",
    "doctor": "doctor",
}
# The help of each command in one line, so that the overview imports none of them.
COMMANDS: Final = {
    "up": "Run the gateway and the pipeline on this machine.",
    "demo": "Take a tour of Wirelake, in about two minutes.",
    "serve": "Run the gateway: all listeners and the HTTP API.",
    "reload": "Make a running gateway reload its settings.",
    "identity": "Manage the identities that can log in.",
    "role": "Show the roles of identities.",
    "access": "Say whether an identity may do something, and why.",
    "device": "Manage registered devices.",
    "publish": "Publish a notification.",
    "subscribe": "Print notifications as they arrive.",
    "request": "Send a request to a service.",
    "send": "Send a command to a device.",
    "pipeline": "Run and inspect the Spark pipeline that fills the tables.",
    "simulate": "Run a fleet of simulated clients against a gateway.",
    "trace": "Trace a message through the system.",
    "log": "Inspect the event log.",
    "audit": "Print who did what, and from where.",
    "import": "Import frames that were captured elsewhere into the event log.",
    "query": "Run SQL over the tables.",
    "decode": "Decode frames into a tree of fields with byte offsets.",
    "identify": "Guess the protocol of bytes, or the layout of unknown frames.",
    "protocol": "Manage the protocols that Wirelake knows.",
    "state": "Change the key that encrypts secrets in the state.",
    "config": "Print the effective settings.",
    "doctor": "Check this machine and the settings for problems.",
}
EXIT_BAD_INPUT: Final = 1
EXIT_INTERRUPTED: Final = 130  # by shell convention: 128 plus the signal's number
# Disk and permission errors that any command may meet; any other OSError is a bug and is shown with its traceback.
_MACHINE_ERRORS: Final = frozenset(
    {errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EMFILE, errno.ENFILE}
)


class LazyCommands(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        name = f"{cmd_name}_" if iskeyword(cmd_name) else cmd_name
        command: click.Command = getattr(import_module(f"wirelake.cli.commands.{_MODULES[cmd_name]}"), name)
        return command

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:  # the user pressed Ctrl-C: no message needed
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
        if error.errno not in _MACHINE_ERRORS:
            raise
        place = f"{os.fsdecode(error.filename)}: " if error.filename else ""
        click.echo(f"wirelake: {place}{os.strerror(error.errno)}", err=True)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # flushing the rest to a full disk would fail again on exit
        sys.exit(EXIT_BAD_INPUT)


if __name__ == "__main__":
    main()
