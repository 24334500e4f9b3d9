"""Regenerate the parts of docs/ between `<!-- generated: … -->` and `<!-- end -->`. Run by `./dev docs`.

Byte diagrams come from the descriptions of frames, state diagrams from the tables that drive the sessions, the tables
of what does not cross from the examples that the tests run, settings and columns from the lines that define them, so
the docs cannot drift from the code; a test checks that they are up to date.
"""

import inspect
import re
import sys
from collections.abc import Callable
from pathlib import Path

from msgspec import Struct
from msgspec.structs import asdict
from reference import reference
from remarks import remarks_on_columns, remarks_on_fields

from wirelake import config
from wirelake.lake import tables
from wirelake.layout.diagram import part_markdown
from wirelake.protocols import registry
from wirelake.protocols.esnp.lines import LINES
from wirelake.protocols.frame import Sender
from wirelake.protocols.protocol import Carrier, Protocol, Transport
from wirelake.protocols.sisnet.binary import AnswerBody, RequestBody
from wirelake.protocols.state_machine import StateMachine
from wirelake.protocols.text import write_json
from wirelake.roles import Role

MANUAL = Path(__file__).resolve().parent.parent / "docs"
DOCS = MANUAL / "protocols"
PART = re.compile(r"(<!-- generated: (?P<what>\w+) -->\n).*?(<!-- end -->)", re.DOTALL)


def generated(protocol: Protocol, page: str) -> str:
    """Return the page with its generated parts up to date."""
    parts: dict[str, Callable[[], str]] = {
        "server": lambda: _states(protocol.state_machines[Sender.SERVER]),
        "client": lambda: _states(protocol.state_machines[Sender.CLIENT]),
        "losses": lambda: _losses(protocol),
        "frames": lambda: protocol.layout.markdown() if protocol.layout is not None else "",
        "lines": LINES.markdown,
        "binary": lambda: "\n\n".join(map(part_markdown, (RequestBody, AnswerBody))) + "\n",
    }
    return PART.sub(lambda found: found[1] + parts[found["what"]]() + found[3], page)


def crossing(page: str) -> str:
    """Return the table of everything that some protocol cannot encode; a test writes the other tables."""
    lines = ["| into | said by | what | then |", "| --- | --- | --- | --- |"]
    for protocol in map(registry.get, registry.BUILT_IN):
        lines += [f"| {protocol.name} | {loss.sender} | {loss.what} | {loss.then} |" for loss in protocol.losses]
    return PART.sub(lambda found: found[1] + "\n".join(lines) + "\n" + found[3], page)


def settings(page: str) -> str:
    """Return a table for each section: every key, its default and its meaning."""
    own = remarks_on_fields(Path(config.__file__))
    listeners = {("ListenSection", transport.setting): _about(transport) for transport in _transports()}
    lines = []
    for name, section in asdict(config.default_settings()).items():
        if name in _NAMED_SECTIONS:
            lines += _table(f"{name}.NAME", _NAMED_SECTIONS[name](), {})
            continue
        if not isinstance(section, Struct):
            lines += [f"`{name}` is {_default(section)} by default: {own['Settings', name]}.", ""]
            continue
        lines += _table(name, section, listeners)
    return PART.sub(lambda found: found[1] + "\n".join(lines) + found[3], page)


def _table(name: str, section: Struct, remarks: dict[tuple[str, str], str]) -> list[str]:
    """Return the lines of a section's table. `remarks` are on keys that the section's own file does not define."""
    remarks = remarks_on_fields(Path(inspect.getfile(type(section)))) | remarks
    lines = [f"| `[{name}]` | default | |", "| --- | --- | --- |"]
    for key in section.__struct_fields__:
        remark = remarks[type(section).__name__, key].replace("True", "`true`").replace("False", "`false`")
        lines.append(f"| `{key}` | {_default(getattr(section, key))} | {remark} |")
    return [*lines, ""]


def _transports() -> list[Transport]:
    return [transport for name in registry.BUILT_IN for transport in registry.get(name).transports]


def _about(transport: Transport) -> str:
    """Name the carriers behind a key of [listen], which may be several."""
    carriers = [each.carrier for each in _transports() if each.setting == transport.setting]
    return " and ".join(_CARRIERS[carrier] for carrier in carriers)


def columns(page: str) -> str:
    """Return for every table what a row is, and its columns."""
    remarks = remarks_on_columns(Path(tables.__file__))
    lines = []
    for table in tables.TABLES.values():
        if table.is_open:
            continue
        row = remarks[table.name, ""]
        grouped = f" Partitioned by {', '.join(table.partition_by)}." if table.partition_by else ""
        if table.has_open_rows:
            grouped += f" Rows that may still change are in `{table.open_table.name}`, with the same columns."
        lines += [
            f"### {table.name}",
            "",
            f"A row is {row}.{grouped}",
            "",
            "| column | type | |",
            "| --- | --- | --- |",
        ]
        for column in table.schema:
            remark = remarks.get((table.name, column.name), "")
            lines.append(f"| `{column.name}` | {_TYPES[str(column.type)]} | {remark} |")
        lines.append("")
    return PART.sub(lambda found: found[1] + "\n".join(lines) + found[3], page)


_NAMED_SECTIONS = {"roles": Role}  # sections [NAME.…] that users name themselves
_CARRIERS = {Carrier.TCP: "TCP", Carrier.UDP: "UDP", Carrier.WEBSOCKET: "WebSocket"}
_TYPES = {
    "binary": "bytes",
    "bool": "flag",
    "date32[day]": "day",
    "double": "number",
    "int64": "integer",
    "string": "text",
    "timestamp[us, tz=UTC]": "time",
}


def _default(value: object) -> str:
    """Return a value as the file would have it."""
    return f"`{write_json(value).decode()}`"


def pages() -> dict[Path, str]:
    """Return every generated page with its up-to-date text."""
    path = DOCS / "crossing.md"
    wanted = {path: crossing(path.read_text())}
    for path, write in ((MANUAL / "settings.md", settings), (MANUAL / "tables.md", columns)):
        wanted[path] = write(path.read_text())
    path = DOCS / "reference.md"
    wanted[path] = reference(path.read_text(), PART)
    for protocol in map(registry.get, registry.BUILT_IN):
        path = DOCS / f"{protocol.name}.md"
        wanted[path] = generated(protocol, path.read_text())
    return wanted


def _states(table: StateMachine) -> str:
    return f"```mermaid\n{table.mermaid()}\n```\n\n{table.markdown()}\n"


def _losses(protocol: Protocol) -> str:
    lines = ["| said by | what | then |", "| --- | --- | --- |"]
    lines += [f"| {loss.sender} | {loss.what} | {loss.then} |" for loss in protocol.losses]
    return "\n".join(lines) + "\n"


def main() -> int:
    for path, text in pages().items():
        if not path.exists() or path.read_text() != text:
            path.write_text(text)
            print(f"wrote {path.name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
