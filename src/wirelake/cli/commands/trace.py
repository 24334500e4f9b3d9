"""Implement `wirelake trace`: trace a message through the system."""

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import click
from msgspec import to_builtins
from rich.console import Console
from rich.text import Text

from wirelake.cli.support.api import ApiClient, quoted
from wirelake.cli.support.options import settings_options, token_option
from wirelake.cli.support.output import counted
from wirelake.cli.support.stores import lake_of
from wirelake.config import Settings, load
from wirelake.errors import InputError, InUseError
from wirelake.key_source import state_key
from wirelake.protocols.text import write_json
from wirelake.state.store import StateStore
from wirelake.tracing.stored import find_notification
from wirelake.tracing.trace import trace_or_reason

_HEX_BYTES_SHOWN: Final = 16
_CONTENT_CHARS_SHOWN: Final = 200
_VALUE_CHARS_SHOWN: Final = 60


@click.command(
    epilog="""\b
Examples:
  wirelake trace f82a8d91-1-2
  wirelake trace 4711
  wirelake trace 04c5c0-3 --json"""
)
@click.argument("message_id", metavar="ID")
@click.option("--json", "as_json", is_flag=True, help="Print the JSON of the HTTP API.")
@token_option
@settings_options
def trace(
    message_id: str, as_json: bool, token_file: Path | None, config_file: Path | None, data_folder: Path | None
) -> None:
    """Trace a message: its bytes, session, route, deliveries, acks and rows.

    ID is the id of a notification, as `publish` prints it, the number of a log record, or the id of a session.
    Uses the gateway that runs on the data folder or, if none is running, the data folder itself.
    """
    settings = load(config_file, data_folder)
    found = (
        _read_trace(settings, message_id)
        if token_file is None
        else _request_trace(ApiClient(settings, token_file), message_id)
    )
    if as_json:
        click.echo(write_json(found))
    else:
        console = Console(highlight=False, markup=False, soft_wrap=True)
        for part in _format(found):
            console.print(part)


def _request_trace(api: ApiClient, message_id: str) -> Any:
    return api.request("GET", quoted("api", "messages", message_id))


def _read_trace(settings: Settings, message_id: str) -> Any:
    folder = Path(settings.data)
    stored = None
    if (folder / "state.db").exists():
        try:
            store = StateStore(folder / "state.db", key=state_key(settings.state.key, folder))
        except InUseError:
            return _request_trace(ApiClient(settings), message_id)
        try:
            stored = find_notification(store.topics, message_id)
        finally:
            store.close()
    found = trace_or_reason(folder, message_id, stored, lake=lake_of(settings))
    if isinstance(found, str):
        raise InputError(f"no message {message_id!r} in {folder}: it never existed, or retention removed it ({found})")
    return to_builtins(found)


def _format(found: dict[str, Any]) -> Iterator[Text]:
    yield Text(f"{found['kind']} {_plain(found['id'])}", "bold")
    if found["kind"] == "notification":
        yield from _notification(found)
    timeline = found["timeline"]
    if timeline:
        yield Text("")
        yield Text(f"{_time(timeline[0]['at_us'])} UTC", "dim")
        yield from _lines(timeline)
    for name, rows in found["rows"].items():
        yield Text("")
        yield Text(f"{name}: {counted(len(rows), 'row')}", "bold")
        for row in rows:
            yield Text("  " + "  ".join(f"{key}={_value(value)}" for key, value in row.items() if value is not None))
    for caveat in found["caveats"]:
        yield Text(f"note: {_plain(caveat)}", "yellow")


def _notification(found: dict[str, Any]) -> Iterator[Text]:
    by = found["publisher"] or "unknown"
    yield Text(f"on {_plain(found['topic'])}, position {found['position']}, type {found['type']}, by {_plain(by)}")
    content = _plain(found["content"])
    cut = "…" if len(content) > _CONTENT_CHARS_SHOWN else ""
    yield Text(f"content{' (base64)' if found.get('encoding') else ''}: {content[:_CONTENT_CHARS_SHOWN]}{cut}")
    states = [delivery["state"] for delivery in found["deliveries"]]
    counts = ", ".join(f"{states.count(state)} {state}" for state in ("acked", "pending", "expired") if state in states)
    stored = "stored in the topic" if found["kept"] else "no longer stored in the topic"
    yield Text(f"{stored}; subscribers: {found['subscribers']}{f' ({counts})' if counts else ''}")


def _lines(timeline: list[dict[str, Any]]) -> Iterator[Text]:
    offsets = [f"+{event['offset_ms']:,.3f} ms" for event in timeline]
    width, name_width = max(map(len, offsets)), max(len(event["what"]) for event in timeline)
    for offset, event in zip(offsets, timeline, strict=True):
        what = (f"{event['what']:<{name_width}}  ", "cyan")
        yield Text.assemble(f"{offset:>{width}}  ", what, _plain(event["text"]))
        cells = [f"seq {event['seq']}" if event["seq"] is not None else "", _plain(event["session"])]
        cells += [_plain(event["peer"]), f"{event['bytes']} B" if event["bytes"] else "", _hex(event)]
        cells += [f"from {event['source']}" if event["source"] != "log" else ""]
        where = "  ".join(cell for cell in cells if cell)
        if where:
            yield Text(f"{'':{width + name_width + 4}}{where}", "dim")


def _hex(event: dict[str, Any]) -> str:
    shown = bytes.fromhex(event["hex"])[:_HEX_BYTES_SHOWN]
    return shown.hex(" ") + ("…" if event["bytes"] > len(shown) else "")


def _value(value: Any) -> str:
    text = _plain(str(value))
    return text if len(text) <= _VALUE_CHARS_SHOWN else f"{text[:_VALUE_CHARS_SHOWN]}…"


def _plain(text: str) -> str:
    """Replace control characters from the wire, which must not reach the terminal."""
    return "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in text)


def _time(at_us: int) -> str:
    return datetime.fromtimestamp(at_us / 1e6, UTC).strftime("%Y-%m-%d %H:%M:%S.%f")
