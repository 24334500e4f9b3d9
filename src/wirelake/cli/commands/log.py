"""Implement `wirelake log`: inspect the event log, whether or not the gateway is running."""

import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Final

import click
import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from rich.console import Console
from rich.table import Table

from wirelake.cli.commands.log_redaction import redact
from wirelake.cli.main import EXIT_BAD_INPUT
from wirelake.cli.support.options import parse_time, settings_options
from wirelake.cli.support.output import counted
from wirelake.config import load
from wirelake.errors import GoneError, InputError
from wirelake.log.segments.format import list_segments
from wirelake.log.segments.indexer import ensure_index
from wirelake.log.segments.integrity import verify_log
from wirelake.log.segments.lookup import LogLookup
from wirelake.log.segments.lookup_keys import LookupKey, identity_key, session_key
from wirelake.log.segments.reader import LogReader
from wirelake.log.segments.stats import LogStats, read_stats
from wirelake.protocols import registry
from wirelake.protocols.redaction import redact_stored

_HEX_BYTES_SHOWN: Final = 16
_FOLLOW_S: Final = 1.0  # how long to wait at the end of the log at a time
_HTTP: Final = "http"  # has records but no codec
_MB: Final = 1_000_000
_counted: Final = partial(counted, spec=",")


@click.group(
    epilog="""\b
Examples:
  wirelake log tail
  wirelake log cat --protocol comet --since 2026-01-01 --json
  wirelake log index
  wirelake log redact --dry-run
  wirelake log verify"""
)
def log() -> None:
    """Inspect the event log, and remove secrets from it."""


log.add_command(redact)


@log.command(
    epilog="""\b
Examples:
  wirelake log tail -n 20
  wirelake log tail --follow --protocol comet
  wirelake log tail --identity meter-7"""
)
@click.option("-n", "--lines", default=10, show_default=True, type=click.IntRange(0), help="Number of records.")
@click.option("-f", "--follow", is_flag=True, help="Keep printing new records until Ctrl-C.")
@click.option("--protocol", help="Only records of this protocol, also under its earlier names.")
@click.option("--session", help="Only records of this session.")
@click.option("--identity", help="Only records of this identity or device.")
@click.option("--full", is_flag=True, help="Print all bytes of each frame.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per line.")
@settings_options
def tail(
    lines: int,
    follow: bool,
    protocol: str | None,
    session: str | None,
    identity: str | None,
    full: bool,
    as_json: bool,
    config_file: Path | None,
    data_folder: Path | None,
) -> None:
    """Print the last records."""
    folder = _folder(config_file, data_folder)
    reader = LogReader(folder)
    end_seq = reader.next_seq
    wanted = _filters(protocol, session, identity)
    last = _read_last(folder, reader, wanted, lines)
    rows = pa.Table.from_batches(last).to_batches() if last else []
    shown = [row for batch in rows for row in batch.to_pylist()][-lines:] if lines else []
    for row in shown:
        click.echo(_line(row, full, as_json))
    if not last:
        _check(protocol)
    while follow:  # until Ctrl-C
        try:
            for batch in reader.read(end_seq, wait_s=_FOLLOW_S):
                end_seq = batch.column("seq")[-1].as_py() + 1
                for matching in _matching(iter([batch]), wanted):
                    _print(matching, full, as_json)
        except GoneError as gone:  # retention has overtaken us
            click.echo(f"wirelake: {gone}", err=True)
            end_seq = gone.oldest_seq


@log.command(
    epilog="""\b
Examples:
  wirelake log cat --since 10m
  wirelake log cat --protocol apostol --since 2026-01-31T12:30 --json"""
)
@click.option("--protocol", help="Only records of this protocol, also under its earlier names.")
@click.option("--session", help="Only records of this session.")
@click.option("--identity", help="Only records of this identity or device.")
@click.option("--since", type=parse_time, metavar="TIME", help="Start time: 2026-01-31T12:30, or 10m, 2h, 3d ago.")
@click.option("--until", type=parse_time, metavar="TIME", help="End time, exclusive.")
@click.option("--limit", type=click.IntRange(1), help="Maximum number of records.")
@click.option("--full", is_flag=True, help="Print all bytes of each frame.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per line.")
@settings_options
def cat(
    protocol: str | None,
    session: str | None,
    identity: str | None,
    since: int | None,
    until: int | None,
    limit: int | None,
    full: bool,
    as_json: bool,
    config_file: Path | None,
    data_folder: Path | None,
) -> None:
    """Print records, oldest first."""
    folder = _folder(config_file, data_folder)
    reader = LogReader(folder)
    remaining = limit
    matched = False
    wanted = _filters(protocol, session, identity)
    for batch in _read_matching(folder, reader, wanted, since, until):
        matched = True
        part = batch if remaining is None else batch.slice(0, remaining)
        _print(part, full, as_json)
        if remaining is not None:
            remaining -= part.num_rows
            if remaining <= 0:
                break
    if not matched:
        _check(protocol)
    for damage in reader.damages:
        click.echo(f"wirelake: skipped: {damage}", err=True)


@log.command(
    epilog="""\b
Example:
  wirelake log index"""
)
@settings_options
def index(config_file: Path | None, data_folder: Path | None) -> None:
    """Build the lookup indexes that are missing or damaged.

    A running gateway builds them by itself; this is for the log of one that is stopped.
    """
    folder = _folder(config_file, data_folder)
    reader = LogReader(folder)
    sizes = [ensure_index(folder, first_seq, reader.salt) for first_seq in list_segments(folder)]
    indexed = [size for size in sizes if size is not None]
    rest = len(sizes) - len(indexed)
    unsealed = f"; {_counted(rest, 'segment')} not sealed yet" if rest else ""
    click.echo(f"{_counted(len(indexed), 'index', 'indexes')}, {sum(indexed) / _MB:,.1f} MB{unsealed}")


@log.command(
    epilog="""\b
Example:
  wirelake log verify"""
)
@settings_options
def verify(config_file: Path | None, data_folder: Path | None) -> None:
    """Verify all checksums. The exit code is 1 if anything is damaged, and the damaged places are printed."""
    found = verify_log(_folder(config_file, data_folder))
    for damage in found.damages:
        click.echo(f"wirelake: {damage}", err=True)
    if found.rows_lost_before:
        records = _counted(found.rows_lost_before, "record was", "records were")
        click.echo(f"{records} lost earlier; the bytes are in the quarantine")
    counts = (_counted(found.segments, "segment"), _counted(found.blocks, "block"), _counted(found.rows, "record"))
    size = f"{', '.join(counts)}, {found.bytes / _MB:,.1f} MB"
    click.echo(f"{size}: {_counted(len(found.damages), 'damaged place') if found.damages else 'no damage'}")
    if found.damages:
        sys.exit(EXIT_BAD_INPUT)


@log.command(
    epilog="""\b
Examples:
  wirelake log stats
  wirelake log stats --json"""
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@settings_options
def stats(as_json: bool, config_file: Path | None, data_folder: Path | None) -> None:
    """Print sizes, rates, consumers and damage."""
    found = read_stats(_folder(config_file, data_folder))
    if as_json:
        click.echo(msgspec.json.encode(found))
    else:
        _show(found, Console(highlight=False, soft_wrap=True))


def _folder(config_file: Path | None, data_folder: Path | None) -> Path:
    return Path(load(config_file, data_folder).data) / "log"


def _filters(protocol: str | None, session: str | None, identity: str | None) -> dict[str, tuple[str, ...]]:
    """Return the accepted values of each column that is restricted."""
    wanted: dict[str, tuple[str, ...]] = {}
    if protocol:
        wanted["protocol"] = _names_of(protocol)
    if session:
        wanted["session"] = (session,)
    if identity:
        wanted["identity"] = (identity,)
    return wanted


def _key(wanted: dict[str, tuple[str, ...]]) -> LookupKey | None:
    """Return the key by which the records can be looked up: a session has fewer than an identity."""
    if "session" in wanted:
        return session_key(wanted["session"][0])
    return identity_key(wanted["identity"][0]) if "identity" in wanted else None


def _read_matching(
    folder: Path, reader: LogReader, wanted: dict[str, tuple[str, ...]], since_us: int | None, until_us: int | None
) -> Iterator[Any]:
    """Yield the matching records, oldest first."""
    key, end_seq = _key(wanted), reader.next_seq
    if key is None:
        yield from _matching(reader.read(until_seq=end_seq, since_us=since_us, until_us=until_us), wanted)
        return
    for found in LogLookup(folder).ranges([key], until_seq=end_seq, since_us=since_us):
        batches = reader.read(found.first_seq, found.end_seq, since_us=since_us, until_us=until_us)
        yield from _matching(batches, wanted)


def _read_last(folder: Path, reader: LogReader, wanted: dict[str, tuple[str, ...]], lines: int) -> list[Any]:
    """Return batches whose last rows are the last matching records."""
    key, end_seq = _key(wanted), reader.next_seq
    if key is None:
        from_seq = None if wanted else max(reader.oldest_seq, end_seq - lines)
        return _keep_last(_matching(reader.read(from_seq, end_seq), wanted), lines)
    last: list[Any] = []
    for found in LogLookup(folder).ranges([key], until_seq=end_seq, newest_first=True):
        last = _keep_last(_matching(reader.read(found.first_seq, found.end_seq), wanted), lines) + last
        if sum(batch.num_rows for batch in last) >= lines:
            break
    return last


def _keep_last(batches: Iterator[Any], lines: int) -> list[Any]:
    last: list[Any] = []
    for batch in batches:
        last.append(batch)
        while last and sum(later.num_rows for later in last[1:]) >= lines:
            del last[0]
    return last


def _names_of(protocol: str) -> tuple[str, ...]:
    """Return all names that records of the protocol may have: its own, and those that it had earlier."""
    try:
        found = registry.get(protocol)
    except InputError:  # the log may contain records of a protocol that is no longer installed
        return (protocol,)
    return (found.name, *found.aliases)


def _matching(batches: Iterator[Any], wanted: dict[str, tuple[str, ...]]) -> Iterator[Any]:
    for batch in batches:
        rows = batch
        for column, values in wanted.items():
            rows = rows.filter(pc.is_in(rows.column(column), pa.array(values, pa.string())))
        if rows.num_rows:
            yield rows


def _check(protocol: str | None) -> None:
    """Raise if nothing was found because no protocol has this name.

    Checked only then: a log may contain records of protocols that are no longer installed.
    """
    if protocol not in (None, _HTTP):
        registry.get(str(protocol))


def _print(batch: Any, full: bool, as_json: bool) -> None:
    for row in batch.to_pylist():
        click.echo(_line(row, full, as_json))


def _line(row: dict[str, Any], full: bool, as_json: bool) -> str:
    frame = redact_stored(row["protocol"], row["direction"], row["frame"])
    if as_json:
        values = row | {"at": row["at"].isoformat().replace("+00:00", "Z"), "frame": frame.hex()}
        return msgspec.json.encode(values).decode()
    shown = frame if full else frame[:_HEX_BYTES_SHOWN]
    cells = (
        row["at"].strftime("%Y-%m-%d %H:%M:%S.%f"),
        f"{row['protocol']:<8}",
        f"{row['direction']:<3}",
        row["event"],
        *(row[name] or "-" for name in ("session", "identity", "peer")),
        f"{len(frame)} B",
        shown.hex(" ") + ("…" if len(shown) < len(frame) else ""),
        row["note"],
    )
    return f"{row['seq']:>8}  {'  '.join(cell for cell in cells if cell)}"


def _time(at_us: int | None) -> str:
    return "-" if not at_us else datetime.fromtimestamp(at_us / 1e6, UTC).strftime("%Y-%m-%d %H:%M:%S")


def _show(found: LogStats, console: Console) -> None:
    rows = found.next_seq - found.oldest_seq
    console.print(f"records     {rows:,}, from {found.oldest_seq:,} to before {found.next_seq:,}")
    console.print(f"time        {_time(found.oldest_at_us)} to {_time(found.newest_at_us)} UTC")
    console.print(f"on disk     {found.bytes / _MB:,.1f} MB in {_counted(found.segments, 'segment')}")
    for name, rate in found.rates.items():
        console.print(f"last {name:<6} {rate.rows_s:,.1f} records/s, {rate.bytes_s / _MB:,.3f} MB/s")
    damaged, removed = found.quarantine, found.removed
    quarantined = (
        _counted(damaged.places, "place"),
        _counted(damaged.bytes, "byte"),
        _counted(damaged.rows_lost, "record"),
    )
    console.print(f"quarantine  {', '.join(quarantined)} lost")
    console.print(
        f"removed     {_counted(removed.rows, 'record')} in {_counted(removed.segments, 'segment')} by retention"
    )
    if found.consumers:
        table = Table("consumer", "next record", "behind", "committed at (UTC)", box=None, pad_edge=False)
        for name, consumer in found.consumers.items():
            table.add_row(name, f"{consumer.seq:,}", f"{consumer.behind_rows:,}", _time(consumer.committed_at_us))
        console.print(table)
