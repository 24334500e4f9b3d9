"""Look-ups in a long log: a notification, a session and a device, found and not found, with and without the indexes.

    ./dev bench lookup [-- --records 5000000] [--old SRC] [--folder DIR]

Half of the records are reports of 50,000 devices, half are notifications on their way: the frame, the publish, the
delivery, the frame to the subscriber, its ack. A million records are made; longer logs repeat them with other ids.
Every figure is `trace` as the command line and the HTTP API run it, without tables. "cold" drops the log from the page
cache first. "scan" is the same search of the same log without its indexes and without a limit. `--old` is the `src`
folder of an earlier version: it traces the same log, within its limits. The last table is the cost of the indexes:
bytes and time for a record, and the rate of a writer with and without the thread that builds them, in turn, in one run.
"""

import argparse
import asyncio
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import log as log_benchmark
import pyarrow as pa
import pyarrow.compute as pc
from rich.console import Console
from rich.table import Table

from wirelake.files import FileSystem
from wirelake.log.interface import SCHEMA
from wirelake.log.segments import log as segment_log
from wirelake.log.segments.format import BlockKind, encode_block, list_segments, segment_path
from wirelake.log.segments.high_watermark import HighWatermark
from wirelake.log.segments.indexer import SegmentIndexer, ensure_index
from wirelake.log.segments.lookup_index import index_path
from wirelake.log.segments.settings import LogSettings
from wirelake.log.segments.writer import SegmentWriter
from wirelake.tracing import search
from wirelake.tracing.trace import trace

FLOWS = 683  # notifications of a block
FLOW_ROWS = 6  # records of one notification
BLOCK_ROWS = 2 * FLOWS * FLOW_ROWS
BLOCKS = 122  # that are made: about a million records
DEVICES = 50_000
TOPICS = 1000
SUBSCRIBERS = 2000
SALT = 4711
START_US = 1_900_000_000_000_000
ROUNDS = 5
WRITE_ROUNDS = 6
EPOCH = "f82a8d91"
FIRST_COPY = 0x1000  # in the number of each topic: the copies of the million differ in it
GOAL_S = 1.0
DEVICE_RECORDS = 200  # the newest of a device

Row = tuple[str, str, str, str, str, bytes, str]  # event, direction, protocol, session, identity, frame, note


def notification_id(number: int, copy: int = 0) -> str:
    return f"{EPOCH}-{FIRST_COPY + copy:x}{number % TOPICS:03x}-{number // TOPICS + 1:x}"


def publisher_session(number: int, copy: int = 0) -> str:
    return f"{EPOCH}-{FIRST_COPY + copy:x}{number // 50:x}"


def flow(number: int) -> Iterator[Row]:
    """The records of one notification, from the frame that brings it to its ack."""
    id_, topic = notification_id(number), f"@topic/{number % TOPICS}"
    position = number // TOPICS + 1
    publisher, subscriber = f"publisher-{number % 97}", f"subscriber-{number * 7 % SUBSCRIBERS}"
    session = f"04c5c0-{number * 7 % SUBSCRIBERS:x}"
    ids = id_[: id_.rindex("-") + 1]
    content = b'{"temperature": %d}' % number
    yield "frame", "in", "comet", publisher_session(number), publisher, b"\x00\x13pub " + content, ""
    note = f'{{"topic":"{topic}","id":"{id_}","position":{position},"type":0,"by":"{publisher}"}}'
    yield "publish", "", "", "", "", content, note
    to = f'[["{session}","{subscriber}","comet"]]'.encode()
    note = f'{{"topic":"{topic}","ids":"{ids}","first":{position},"last":{position},"attempt":1}}'
    yield "deliver", "out", "", "", "", to, note
    yield "frame", "out", "comet", session, subscriber, b"\x00\x2a%b %b" % (id_.encode(), content), ""
    yield "frame", "in", "comet", session, subscriber, b"\x00\x0eack %b" % id_.encode(), ""
    yield "ack", "", "comet", session, subscriber, b"", f'{{"identity":"{subscriber}","acked":["{id_}"]}}'


def block_rows(block: int) -> Iterator[Row]:
    half = BLOCK_ROWS // 2
    frames = log_benchmark.FRAMES
    for number in range(half):
        device = (block * half + number) * 7919 % DEVICES
        yield "frame", "in", "apostol", f"d{device:x}-{device % 7}", f"{device:016d}", frames[number % 4096], ""
    for number in range(FLOWS):
        yield from flow(block * FLOWS + number)


def make_block(block: int) -> pa.RecordBatch:
    rows = list(zip(*block_rows(block), strict=True))
    event, direction, protocol, session, identity = [pa.array(texts, pa.string()) for texts in rows[:5]]
    node, peer = [pa.array([text] * BLOCK_ROWS) for text in ("local", "203.0.113.7:51234")]
    frame, note = pa.array(rows[5], pa.binary()), pa.array(rows[6], pa.string())
    return renumbered([None, None, node, protocol, event, direction, session, identity, peer, frame, note], 0)


def renumbered(columns: list[Any], seq: int) -> pa.RecordBatch:
    """These records from this seq on, a microsecond apart."""
    seqs = pa.array(range(seq, seq + BLOCK_ROWS), pa.int64())
    at = pc.add(seqs, START_US).cast(SCHEMA.field("at").type)
    return pa.record_batch([seqs, at, *columns[2:]], SCHEMA)


def write_log(folder: Path, records: int) -> int:
    """Write a log of about so many records; return how many."""
    folder.mkdir(parents=True)
    files = FileSystem()
    writer = SegmentWriter(folder, SALT, LogSettings(fsync=False), files, lambda: START_US)
    made = [make_block(block) for block in range(min(BLOCKS, records // BLOCK_ROWS))]
    for block in range(records // BLOCK_ROWS):
        copy, number = divmod(block, BLOCKS)
        seq = block * BLOCK_ROWS
        body = bytes(renumbered(made[number].columns, seq).serialize())
        body = body.replace(f"{EPOCH}-{FIRST_COPY:x}".encode(), f"{EPOCH}-{FIRST_COPY + copy:x}".encode())
        times = (START_US + seq, START_US + seq + BLOCK_ROWS - 1)
        encoded = encode_block(BlockKind.DATA, seq, BLOCK_ROWS, times, body, SALT)
        if writer.must_seal_before(encoded):
            writer.seal()
        writer.write(encoded, range(seq, seq + BLOCK_ROWS), times)
    # The last segment stays open: a log that is being written has one without an index.
    written = records // BLOCK_ROWS * BLOCK_ROWS
    HighWatermark.create(folder, written, SALT, files)
    return written


def drop_cache(folder: Path) -> None:
    for path in folder.iterdir():
        with path.open("rb") as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def wanted_ids(records: int) -> dict[str, str]:
    blocks = records // BLOCK_ROWS
    (middle_copy, middle), (last_copy, last) = divmod(blocks // 2, BLOCKS), divmod(blocks - 1, BLOCKS)
    return {
        "notification, oldest": notification_id(0),
        "notification, middle": notification_id(middle * FLOWS, middle_copy),
        "notification, newest": notification_id(last * FLOWS, last_copy),
        "notification, unknown": f"{EPOCH}-1-ffffffff",
        "session of 300 records": publisher_session(middle * FLOWS, middle_copy),
        "session of a device": "d64-2",
        "session, everywhere": "04c5c0-7",
        "session, unknown": "04c5c0-zz",
        "record, middle": str(records // 2),
    }


def timed(action: Callable[[], object]) -> float:
    started_s = time.perf_counter()
    action()
    return time.perf_counter() - started_s


def trace_seconds(data: Path, id_: str) -> float:
    return statistics.median(timed(lambda: trace(data, id_)) for _ in range(ROUNDS))


def cold_seconds(data: Path, id_: str) -> float:
    drop_cache(data / "log")
    return timed(lambda: trace(data, id_))


def device_seconds(data: Path, serial: str) -> float:
    return statistics.median(
        timed(lambda: search.Search(data / "log").identity(serial, DEVICE_RECORDS)) for _ in range(ROUNDS)
    )


def scan_seconds(data: Path, id_: str) -> float:
    """Seconds of the same search without indexes and limits."""
    with (
        patch.object(search, "TRACE_SEARCHED_MAX", 10**12),
        patch.object(search, "TRACE_SEARCH_S", 1e9),
        patch("wirelake.log.segments.lookup.LookupIndex.open", return_value=None),
    ):
        return timed(lambda: trace(data, id_))


OLD = """
import sys, time
from pathlib import Path
from wirelake.tracing.trace import trace
started_s = time.perf_counter()
found = trace(Path(sys.argv[1]), sys.argv[2])
seconds = time.perf_counter() - started_s
print(seconds, "found" if found is not None and not found.caveats else "gave up" if found is None else "incomplete")
"""


def old_seconds(source: Path, data: Path, id_: str) -> str:
    environment = os.environ | {"PYTHONPATH": str(source)}
    command = [sys.executable, "-c", OLD, str(data), id_]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    seconds, outcome = done.stdout.strip().split(" ", 1)
    return f"{float(seconds):.3f} {outcome}"


def command_seconds(data: Path, id_: str) -> float:
    main = "import sys; from wirelake.cli.main import main; sys.exit(main())"
    command = [sys.executable, "-c", main, "trace", id_, "--data", str(data)]
    return timed(lambda: subprocess.run(command, capture_output=True, check=False))


class NoIndexer:
    """Stands in for the thread that builds indexes."""

    def __init__(self, folder: Path, salt: int) -> None: ...
    def wake(self) -> None: ...
    def close(self) -> None: ...


def write_rate(folder: Path, seconds: float, *, has_indexer: bool) -> float:
    chosen = SegmentIndexer if has_indexer else NoIndexer
    with patch.object(segment_log, "SegmentIndexer", chosen):
        opened = segment_log.SegmentLog(folder / "log")
        rate = asyncio.run(log_benchmark.Filling(opened, 4096, seconds, log_benchmark.RUN).go())
        opened.close()
    shutil.rmtree(folder / "log")
    return rate


def show_lookups(console: Console, data: Path, records: int, old: Path | None, scan: bool) -> None:
    table = Table(title=f"look-ups among {records:,} records, seconds", title_justify="left")
    for heading in ("", "trace", "cold", "with the command", "scan", "before"):
        table.add_column(heading, justify="right" if heading else "left")
    for name, id_ in wanted_ids(records).items():
        warm, cold, command = trace_seconds(data, id_), cold_seconds(data, id_), command_seconds(data, id_)
        scanned = f"{scan_seconds(data, id_):.2f}" if scan else "–"
        before = old_seconds(old, data, id_) if old is not None else "–"
        mark = "✓" if max(warm, cold) < GOAL_S else "✗"
        table.add_row(name, f"{warm:.3f} {mark}", f"{cold:.3f}", f"{command:.2f}", scanned, before)
    for name, serial in (("device", f"{4711:016d}"), ("device, unknown", "nobody")):
        table.add_row(name, f"{device_seconds(data, serial):.3f}", *["–"] * 4)
    console.print(table)


def show_costs(console: Console, data: Path, records: int, build_s: float, seconds: float) -> None:
    log_folder = data / "log"
    firsts = list_segments(log_folder)
    segment_bytes = sum(segment_path(log_folder, first).stat().st_size for first in firsts)
    index_bytes = sum(index_path(log_folder, first).stat().st_size for first in firsts[:-1])
    with_thread: list[float] = []
    without: list[float] = []
    with tempfile.TemporaryDirectory(dir=data) as folder:
        for _ in range(WRITE_ROUNDS):
            without.append(write_rate(Path(folder), seconds, has_indexer=False))
            with_thread.append(write_rate(Path(folder), seconds, has_indexer=True))
    ratio = statistics.median(with_thread) / statistics.median(without)
    table = Table(title="cost of the indexes", title_justify="left", show_header=False)
    table.add_row("segments", f"{len(firsts)}, {segment_bytes / records:,.0f} bytes for a record")
    share = index_bytes / segment_bytes
    table.add_row("indexes", f"{index_bytes / records:.2f} bytes for a record, {share:.1%} of the segments")
    table.add_row(
        "to build", f"{build_s / records * 1e9:,.0f} ns for a record, {build_s / len(firsts):.3f} s a segment"
    )
    rates = f"{statistics.median(with_thread):,.0f} records/s with it, {statistics.median(without):,.0f} without"
    table.add_row("writer", f"{rates}: {ratio:.3f} (≥ 0.97 {'✓' if ratio >= 0.97 else '✗'})")
    console.print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=5_000_000)
    parser.add_argument("--seconds", type=float, default=3.0, help="for each round of the writer")
    parser.add_argument("--old", type=Path, help="src folder of an earlier version")
    parser.add_argument("--no-scan", action="store_true", help="leave out the searches without an index")
    parser.add_argument("--folder", type=Path, help="where to make the log; it is removed afterwards")
    options = parser.parse_args()
    console = Console()
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        data = Path(name)
        started_s = time.perf_counter()
        records = write_log(data / "log", options.records)
        console.print(f"{records:,} records in {time.perf_counter() - started_s:.0f} s")
        started_s = time.process_time()
        for first in list_segments(data / "log"):
            ensure_index(data / "log", first, SALT)
        build_s = time.process_time() - started_s
        show_lookups(console, data, records, options.old, not options.no_scan)
        show_costs(console, data, records, build_s, options.seconds)


if __name__ == "__main__":
    main()
