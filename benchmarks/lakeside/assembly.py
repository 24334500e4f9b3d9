"""apostol packets to commands, alone: events and their reduction without Spark, on two cores.

Half of the commands are one packet, half of them three; some packets come twice, and packets come out of order. Each
round's state is the next round's, ten seconds later: flat rates mean that history costs nothing.
"""

import random
import time
from collections.abc import Sequence
from multiprocessing import get_context

import pyarrow as pa
import pyarrow.compute as pc
from rich.table import Table

from lakeside.bench import CORES, Bench
from wirelake.log.interface import SCHEMA
from wirelake.pipeline.ingest.decode import DecodedBatch, decode_batch
from wirelake.pipeline.stateful.bucket_state import BucketState
from wirelake.pipeline.stateful.reduce import events_of, reduce_bucket
from wirelake.protocols.apostol.commands import DeviceCommand, Reading
from wirelake.protocols.apostol.envelope import build_packets

BUCKETS = 8
DEVICES = 10_000
ROUNDS = 8
GOAL = 100_000
START_US = 1_700_000_000_000_000
_SORTED = [("kind", "ascending"), ("key", "ascending"), ("seq", "ascending")]


def packets(count: int, first_seq: int, at_us: int, devices: int = DEVICES) -> pa.RecordBatch:
    """Records of the log with so many packets, and some that come again."""
    chance = random.Random(first_seq)
    rows: list[tuple[str, bytes]] = []
    number = first_seq
    while len(rows) < count:
        number += 1
        serial = f"meter-{chance.randrange(devices):06}"
        readings = tuple(Reading(kind, chance.random()) for kind in range(3))
        body = DeviceCommand(1_700_000_000, 4, 0, readings).encode()
        pieces = build_packets(body, 0, 6, serial, number // devices % 256, 64 if number % 2 else 14)
        chance.shuffle(pieces)
        rows += [(serial, piece.encode()) for piece in pieces]
        if chance.random() < 0.2:
            rows.append(rows[-1])
    rows = rows[:count]
    serials = [serial for serial, _ in rows]
    columns = {
        "seq": range(first_seq, first_seq + count),
        "at": [at_us + place for place in range(count)],
        "node": ["n"] * count,
        "protocol": ["apostol"] * count,
        "event": ["frame"] * count,
        "direction": ["in"] * count,
        "session": serials,
        "identity": serials,
        "peer": ["127.0.0.1:1"] * count,
        "frame": [data for _, data in rows],
        "note": [""] * count,
    }
    return pa.record_batch([pa.array(columns[field.name], field.type) for field in SCHEMA], SCHEMA)


def reduce_rounds(rounds: Sequence[tuple[pa.RecordBatch, DecodedBatch]]) -> tuple[list[float], int]:
    """Seconds for each round, and how many commands were complete."""
    states = [BucketState() for _ in range(BUCKETS)]
    seconds, complete = [], 0
    for batch, decoded in rounds:
        started = time.perf_counter()
        events = pa.Table.from_batches([events_of(batch, decoded, BUCKETS)])
        now_us = pc.max(batch["at"]).cast(pa.int64()).as_py()
        for bucket in range(BUCKETS):
            own = events.filter(pc.equal(events["bucket"], bucket)).sort_by(_SORTED)
            reduced = reduce_bucket(own, states[bucket], now_us, {})
            states[bucket] = BucketState([states[bucket].apply(reduced.state).joined()])
            complete += len(reduced.final["silver.device_commands"])
        seconds.append(time.perf_counter() - started)
    return seconds, complete


def one_core(worker: int, fragments: int) -> tuple[list[float], int]:
    """Each worker has devices of its own, as each bucket has."""
    rounds = []
    for number in range(ROUNDS):
        batch = packets(fragments, 1 + number * fragments + worker * 10**9, START_US + number * 10_000_000)
        rounds.append((batch, decode_batch(batch)))
    return reduce_rounds(rounds)


def measure(fragments: int, cores: int = CORES) -> list[float]:
    """Fragments a second, round by round, on so many cores together."""
    with get_context("spawn").Pool(cores) as pool:
        found = pool.starmap(one_core, [(worker, fragments) for worker in range(cores)])
    return [cores * fragments / max(seconds) for seconds in zip(*(seconds for seconds, _ in found), strict=True)]


def run(bench: Bench) -> None:
    table = Table(title="fragments to commands, two cores", title_justify="left")
    for heading in ("round", "fragments/s", "goal"):
        table.add_column(heading, justify="right")
    for place, rate in enumerate(measure(max(1, bench.rows // 10)), 1):
        table.add_row(str(place), f"{rate:,.0f}", f"≥ {GOAL:,} {'✓' if rate >= GOAL else '✗'}")
    bench.console.print(table)
