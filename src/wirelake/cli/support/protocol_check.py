"""Check a protocol: its laws, and what its current decoder would change in the stored history."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from msgspec import Struct
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn
from rich.table import Table
from rich.text import Text

from wirelake.cli.support.dependencies import require_hypothesis, require_redecode
from wirelake.cli.support.limits import CLI_CELL_CHARS_MAX
from wirelake.cli.support.output import counted
from wirelake.lake.damage import explain_damage
from wirelake.lake.store import Store
from wirelake.lake.tables import FRAMES
from wirelake.lake.views import is_written
from wirelake.protocols.protocol import Protocol
from wirelake.protocols.text import write_json

if TYPE_CHECKING:
    from wirelake.pipeline.redecode.preview import RedecodePreview


class LawResult(Struct, frozen=True):
    """Whether a law holds; if not, the reason and the smallest bytes that show it."""

    law: str
    text: str
    is_ok: bool
    reason: str = ""
    hex: str = ""
    sender: str = ""


def check_laws(protocol: Protocol, examples: int) -> list[LawResult]:
    """Try that many examples of every law."""
    require_hypothesis("checking the laws")
    from wirelake.protocols.testing import LawError, laws  # noqa: PLC0415 (needs Hypothesis)

    found = []
    for law in laws(protocol):
        try:
            law.run(examples)
        except LawError as error:
            found.append(LawResult(law.name, law.text, False, error.reason, error.data.hex(), error.sender))
        except Exception as error:  # noqa: BLE001 (the protocol's own code may raise anything)
            found.append(LawResult(law.name, law.text, False, f"{type(error).__name__}: {error}"))
        else:
            found.append(LawResult(law.name, law.text, True))
    return found


def print_laws(results: list[LawResult]) -> None:
    console = Console(highlight=False, soft_wrap=True)
    for result in results:
        mark = ("✓ ", "green") if result.is_ok else ("✗ ", "bold red")
        console.print(Text.assemble(mark, f"{result.law}: {result.text}"))
        if not result.is_ok:
            console.print(Text(f"    {result.reason}"))
        if result.sender:
            size = counted(len(result.hex) // 2, "byte")
            console.print(Text(f"    the smallest: {size} from the {result.sender}: {result.hex or '(none)'}"))


def check_history(data: Path, lake: Store, protocol: Protocol, since_us: int) -> "RedecodePreview | None":
    """Decode the stored frames again and compare; None if there are no tables."""
    if not is_written(lake, FRAMES):
        return None
    require_redecode("checking the stored history")
    from wirelake.pipeline.redecode.preview import preview  # noqa: PLC0415 (an extra)

    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty()) as progress:
        task = progress.add_task("Decoding", total=None)

        def on_progress(done: int, rows: int) -> None:
            progress.update(task, description=f"{done} of {rows} rows of bronze", completed=done, total=rows)

        with explain_damage(lake, check_files=True):
            return preview(data, protocol.name, since_us, on_progress, lake)


def print_history(found: "RedecodePreview", protocol: Protocol) -> None:
    console = Console(highlight=False, soft_wrap=True)
    decoder = f"{protocol.name}/{protocol.decoder_version}"
    console.print(f"\nStored history: {counted(found.frames, 'frame', spec=',')}, decoded again by {decoder}.")
    table = Table("table", "same", "other decoder", "changed", "new", "removed", box=None, pad_edge=False)
    for name, each in (("silver.messages", found.messages), ("silver.quarantine", found.quarantine)):
        table.add_row(name, *map(str, (each.same, each.relabelled, each.changed, each.new, each.removed)))
    console.print(table)
    for kind, changes in sorted(found.changes.items(), key=lambda item: -item[1].count):
        console.print(Text(f"{counted(changes.count, 'row', spec=',')}  {kind}", "bold"))
        for example in changes.examples:
            for column, (before, after) in example.columns.items():
                console.print(Text(f"    seq {example.seq}  {column}: {_shown(before)} → {_shown(after)}"))
    if not found.is_changing:
        again = " Only the decoder's version changes." if found.messages.relabelled else ""
        click.echo(f"No stored row would change.{again}")
        return
    if decoder in found.decoders:
        click.echo(f"Rows of {decoder} would change: raise decoder_version, so that rows say which decoder made them.")
    click.echo(f"To change them, and the tables made from them: wirelake pipeline redecode --protocol {protocol.name}")


def history_values(found: "RedecodePreview") -> dict[str, Any]:
    """Return a preview as plain values for JSON, with bytes as hex."""
    tables = {"silver.messages": found.messages, "silver.quarantine": found.quarantine}
    counts = ("same", "relabelled", "changed", "new", "removed")
    return {
        "frames": found.frames,
        "decoded": found.decoded,
        "refused": found.refused,
        "tables": {name: {count: getattr(each, count) for count in counts} for name, each in tables.items()},
        "changes": [
            {
                "what": kind,
                "rows": changes.count,
                "examples": [
                    {"seq": each.seq, "columns": {name: [*map(_plain, pair)] for name, pair in each.columns.items()}}
                    for each in changes.examples
                ],
            }
            for kind, changes in found.changes.items()
        ],
    }


def _plain(value: Any) -> Any:
    return value.hex() if isinstance(value, bytes) else value


def _shown(value: Any) -> str:
    if value is None:
        return "—"
    text = value.hex() if isinstance(value, bytes) else value if isinstance(value, str) else write_json(value).decode()
    return text if len(text) <= CLI_CELL_CHARS_MAX else f"{text[: CLI_CELL_CHARS_MAX - 1]}…"
