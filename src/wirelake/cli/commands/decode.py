"""Implement `wirelake decode`: show bytes as a packet analyser does."""

import sys
from typing import Any

import click
from rich.console import Console
from rich.text import Text

from wirelake.cli.main import EXIT_BAD_INPUT
from wirelake.cli.support.options import read_input, settings_options
from wirelake.cli.support.output import counted
from wirelake.errors import ProtocolError
from wirelake.protocols import registry
from wirelake.protocols.frame import Sender
from wirelake.protocols.inspection import Inspection, as_values, inspect
from wirelake.protocols.protocol import Carrier
from wirelake.protocols.text import write_json
from wirelake.protocols.tree import Field

_SENDERS = click.Choice([sender.value for sender in Sender])
_CARRIERS = click.Choice([carrier.value for carrier in Carrier])
_HEX_BYTES_SHOWN = 8
_VALUE_CHARS_SHOWN = 64
_NAME_COLUMN = 36


@click.command(
    epilog="""\b
Examples:
  wirelake decode comet 000c030200024061000440622f63
  wirelake decode apostol --json 1e0103060431323334f000a6530c5e010000000400000000029c530c5e3ec7
  xxd -p capture.bin | wirelake decode esnp --from server -"""
)
@click.argument("protocol")
@click.argument("hex_words", metavar="HEX…|-", nargs=-1, required=True)
@click.option(
    "--from",
    "sender",
    type=_SENDERS,
    default="client",
    help="Which side sent the bytes.",
)
@click.option(
    "--transport",
    type=_CARRIERS,
    help="Transport the bytes were sent over, where that matters.",
)
@click.option("--raw", is_flag=True, help="Read raw bytes instead of hex from standard input.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of the tree.")
@settings_options
def decode(
    protocol: str, hex_words: tuple[str, ...], sender: str, transport: str | None, raw: bool, as_json: bool, **_: Any
) -> None:
    """Decode the frames of PROTOCOL in HEX, field by field, with byte offsets.

    If the bytes are not valid in the protocol, the offset is printed and the exit code is 1.
    """
    data = read_input(hex_words, raw=raw)
    carrier = Carrier(transport) if transport else None
    found = inspect(data, registry.get(protocol), Sender(sender), carrier)
    if as_json:
        click.echo(write_json(as_values(found)))
    else:
        _show(found, data, Console(highlight=False, soft_wrap=True))
    if found.failure is not None:
        if not as_json:
            click.echo(f"wirelake: {protocol}: byte {found.failure.offset}: {found.failure.text}", err=True)
        sys.exit(EXIT_BAD_INPUT)


def _show(found: Inspection, data: bytes, console: Console) -> None:
    for tree in found.trees:
        size = counted(tree.root.size, "byte")
        console.print(Text.assemble((tree.root.name, "bold"), (f"  {size} from the {found.sender}", "dim")))
        for child in tree.root.children:
            _show_field(child, data, console, depth=1)
        if tree.error is not None:
            _show_error(tree.error, data, console)
    if found.rest:
        console.print(Text(f"{counted(len(found.rest), 'byte')} of an incomplete frame", "bold red"))
        if found.failure is not None:
            _show_error(found.failure, data, console)


def _show_field(field: Field, data: bytes, console: Console, depth: int) -> None:
    raw = data[field.offset : field.offset + field.size]
    hex_ = "" if field.children else raw[:_HEX_BYTES_SHOWN].hex(" ") + ("…" if len(raw) > _HEX_BYTES_SHOWN else "")
    line = Text.assemble(
        (f"{field.offset:06x}", "dim"),
        "  ",
        (f"{hex_:<{_HEX_BYTES_SHOWN * 3}} ", "cyan"),
        (f"{'  ' * depth + field.name:<{_NAME_COLUMN}} ", "bold" if field.children else ""),
        (_value_text(field), "green"),
    )
    if field.note:
        line.append(f"  {field.note}", "dim italic")
    line.rstrip()
    console.print(line)
    for child in field.children:
        _show_field(child, data, console, depth + 1)


def _show_error(error: ProtocolError, data: bytes, console: Console) -> None:
    at = data[error.offset : error.offset + _HEX_BYTES_SHOWN].hex(" ") or "(end)"
    console.print(
        Text.assemble(
            (f"{error.offset:06x}", "bold red"),
            "  ",
            (f"{at:<{_HEX_BYTES_SHOWN * 3}} ", "red"),
            (f"  ✗ {error.text}", "bold red"),
        )
    )


def _value_text(field: Field) -> str:
    value = field.value
    if value is None:
        return ""
    text = value.hex() if isinstance(value, bytes) else value if isinstance(value, str) else repr(value)
    if isinstance(value, str):
        text = text if text.isprintable() and text == text.strip() and text else repr(text)
    return text if len(text) <= _VALUE_CHARS_SHOWN else text[: _VALUE_CHARS_SHOWN - 1] + "…"
