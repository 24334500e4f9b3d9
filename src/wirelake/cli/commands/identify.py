"""Implement `wirelake identify`: guess the protocol of bytes, and propose how unknown frames are laid out."""

import sys
import time
from pathlib import Path
from typing import Final

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from wirelake.cli.main import EXIT_BAD_INPUT
from wirelake.cli.support.dependencies import require_pcap
from wirelake.cli.support.limits import CLI_INPUT_BYTES_MAX, CLI_PORTS_SHOWN_MAX
from wirelake.cli.support.options import read_input, settings_options
from wirelake.cli.support.output import counted
from wirelake.config import load
from wirelake.errors import InputError
from wirelake.protocols import registry
from wirelake.protocols.inspection import identify as rank_protocols
from wirelake.protocols.text import write_json
from wirelake.tracing.search import Search
from wirelake.workbench.analysis import Analysis, analyse
from wirelake.workbench.evidence import Sample
from wirelake.workbench.limits import WORKBENCH_FRAMES_MAX
from wirelake.workbench.samples import parse_samples

_FILE: Final = click.Path(exists=True, dir_okay=False, path_type=Path, allow_dash=True)
_PCAP_MAGICS: Final = {bytes.fromhex(text) for text in ("a1b2c3d4", "d4c3b2a1", "a1b23c4d", "4d3cb2a1", "0a0d0d0a")}


@click.command(
    epilog="""\b
Examples:
  wirelake identify 1e0103060431323334f000a6530c5e010000000400000000029c530c5e3ec7
  wirelake identify --raw - < capture.bin
  wirelake identify --many frames.hex
  wirelake identify --many capture.pcapng --port 9000 --draft > draft.py
  wirelake identify --quarantine --protocol comet"""
)
@click.argument("hex_words", metavar="[HEX…|-]", nargs=-1)
@click.option("--raw", is_flag=True, help="Read raw bytes instead of hex from standard input.")
@click.option("--many", type=_FILE, help="Analyse unknown frames: a file with a line of hex for each, or a capture.")
@click.option("--quarantine", is_flag=True, help="Analyse the latest bytes in the quarantine of the log.")
@click.option("--port", type=click.IntRange(1, 65535), help="With a capture: only connections with this port.")
@click.option("--protocol", help="With --quarantine: only bytes that came as this protocol.")
@click.option("--draft", is_flag=True, help="With --many or --quarantine: print only the drafted description.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of text.")
@settings_options
def identify(
    hex_words: tuple[str, ...],
    raw: bool,
    many: Path | None,
    quarantine: bool,
    port: int | None,
    protocol: str | None,
    draft: bool,
    as_json: bool,
    config_file: Path | None,
    data_folder: Path | None,
) -> None:
    """Guess which protocol the bytes in HEX belong to: the most likely first, each with its reasons.

    With --many or --quarantine, propose how the frames of an unknown protocol are laid out: lengths, checksums,
    constants, opcodes, counters, times and texts, each with its evidence, and a description to start from.

    The exit code is 1 if no protocol matches, or nothing is found.
    """
    if sum((bool(hex_words), many is not None, quarantine)) != 1:
        raise click.UsageError("pass bytes in hex, --many FILE or --quarantine")
    if hex_words:
        _identify(read_input(hex_words, raw=raw), as_json)
        return
    if many is not None:
        samples, are_segments = _read_many(many, port)
    else:
        samples, are_segments = _read_quarantine(Path(load(config_file, data_folder).data), protocol), True
    found = analyse(samples, time.monotonic, are_segments=are_segments)
    if as_json:
        click.echo(write_json(found))
    elif draft:
        click.echo(found.draft, nl=False)
    else:
        _show(found)
    if not found.findings or (draft and not found.draft):
        if not as_json:
            click.echo("wirelake: nothing is more than chance", err=True)
        sys.exit(EXIT_BAD_INPUT)


def _identify(data: bytes, as_json: bool) -> None:
    guesses = rank_protocols(data, registry.all_protocols())
    if as_json:
        click.echo(write_json(guesses))
    else:
        console = Console(highlight=False, soft_wrap=True)
        for rank, guess in enumerate(guesses, start=1):
            frames = counted(guess.frames, "frame")
            detail = f"  from the {guess.sender}, {guess.carrier}, {frames}, {guess.bits:.0f} bits"
            console.print(Text.assemble(f"{rank}. ", (guess.protocol, "bold green" if rank == 1 else "bold"), detail))
            for reason in guess.reasons:
                console.print(Text(f"     {reason}", "dim"))
    if not guesses:
        if not as_json:
            click.echo("wirelake: no protocol matches; tried: " + ", ".join(registry.names()), err=True)
        sys.exit(EXIT_BAD_INPUT)


# ── many frames


def _read_many(file: Path, port: int | None) -> tuple[list[Sample], bool]:
    """Return the samples of a file, and whether they are segments of streams."""
    if str(file) != "-" and _starts(file) in _PCAP_MAGICS:
        require_pcap("reading a capture")
        from wirelake.capture.samples import capture_samples  # noqa: PLC0415 (an optional package)

        found = capture_samples(file, port)
        if not found.samples:
            where = f" with port {port}" if port is not None else ""
            raise InputError(f"{file} has no data of TCP or UDP{where}")
        servers = [f"{each} ({count})" for each, count in found.ports.most_common(CLI_PORTS_SHOWN_MAX)]
        if port is None and len(found.ports) > 2:
            click.echo(f"wirelake: several connections; choose one with --port: {', '.join(servers)}", err=True)
        return found.samples, found.are_segments
    if port is not None:
        raise InputError("--port needs a capture: lines of hex have no ports")
    stream = sys.stdin.buffer if str(file) == "-" else file.open("rb")
    with stream:
        raw = stream.read(CLI_INPUT_BYTES_MAX + 1)
    if len(raw) > CLI_INPUT_BYTES_MAX:
        raise InputError(f"{file} has more than {CLI_INPUT_BYTES_MAX} bytes (CLI_INPUT_BYTES_MAX)")
    try:
        return parse_samples(raw.decode("ascii", "replace")), False
    except InputError as error:
        raise InputError(f"{file}: {error}") from error


def _starts(file: Path) -> bytes:
    with file.open("rb") as opened:
        return opened.read(4)


def _read_quarantine(data: Path, protocol: str | None) -> list[Sample]:
    records = Search(data / "log").newest({"quarantine", "fault"}, 0, WORKBENCH_FRAMES_MAX)
    samples = [
        Sample(record.frame, f"{record.session} {record.direction}")
        for record in reversed(records)
        if protocol in (None, record.protocol)
    ]
    if not samples:
        raise InputError("the quarantine of the log has no such bytes")
    return samples


def _show(found: Analysis) -> None:
    console = Console(highlight=False, soft_wrap=True)
    cut = ", cut from streams by the length that was found" if found.was_cut else ""
    left_out = f", {found.left_out} left out" if found.left_out else ""
    console.print(f"{counted(found.frames, 'frame')}, {found.distinct} of them different{left_out}{cut}")
    if not found.is_complete:
        console.print("the time was not enough for all searches", style="yellow")
    if not found.findings:
        return
    table = Table("what", "byte", "size", "proposal", "frames", "bits", box=None, pad_edge=False)
    for each in found.findings:
        place = str(each.offset) if each.offset >= 0 else f"end{each.offset}"
        size = str(each.size) if each.size else "any"
        agree = f"{each.agree} of {each.of}"
        table.add_row(each.kind, place, size, Text(each.text), agree, f"{each.bits:.0f}")
    console.print(table)
    if found.draft:
        console.print(f"\nA description to start from; it decodes {found.draft_decodes} of {found.distinct} frames:\n")
        click.echo(found.draft, nl=False)
