"""What durable topics cost.

    python benchmarks/state.py            under a minute
    python benchmarks/state.py --memory   5 M notifications for 1000 absent subscribers, with the memory over time

Every publish is on disk (fsync) when its commit resolves. Figures depend on the disk: read them as ratios.
"""

import argparse
import asyncio
import os
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from wirelake.state.store import StateStore

CONTENT = b"x" * 100
ABSENT = (1, 1_000, 100_000)
ROUNDS = 15
ROUND_PUBLISHES = 20_000
ROUND_IN_FLIGHT = 1000
ROUND_ALONE = 150
IN_FLIGHT = {1: 2_000, 64: 60_000, 4096: 300_000}


@contextmanager
def opened(folder: Path, name: str) -> Iterator[StateStore]:
    store = StateStore(folder / f"{name}.db")
    try:
        yield store
    finally:
        store.close()


async def subscribe(store: StateStore, absent: int) -> None:
    for number in range(absent):
        store.topics.subscribe(f"absent {number}", "@news")
        if number % 10_000 == 0:
            await store.barrier()
    await store.barrier()


async def publish(store: StateStore, number: int, in_flight: int) -> float:
    """Seconds. A new one starts for each that is durable: as many are under way all the time."""
    started = time.perf_counter()
    left = number
    halves = max(in_flight // 2, 1)
    waiting = []
    while left > 0:
        for _ in range(min(halves, left)):
            _, commit = store.topics.publish("@news", CONTENT, left)
        waiting.append(commit)
        left -= halves
        if len(waiting) > 1 or in_flight == 1:
            await waiting.pop(0)
    await store.barrier()
    return time.perf_counter() - started


async def subscribers(folder: Path) -> None:
    """The same publishes with few and with many absent subscribers, in turns, so that the disk's moods even out."""
    stores = {absent: StateStore(folder / f"absent {absent}.db") for absent in ABSENT}
    for absent, store in stores.items():
        await subscribe(store, absent)
        await publish(store, ROUND_PUBLISHES, ROUND_IN_FLIGHT)
    many: dict[int, list[float]] = {absent: [] for absent in ABSENT}
    alone: dict[int, list[float]] = {absent: [] for absent in ABSENT}
    for turn in range(ROUNDS):
        for place in range(len(ABSENT)):
            absent = ABSENT[(place + turn) % len(ABSENT)]
            many[absent].append(await publish(stores[absent], ROUND_PUBLISHES, ROUND_IN_FLIGHT) / ROUND_PUBLISHES)
            alone[absent].append(await publish(stores[absent], ROUND_ALONE, 1) / ROUND_ALONE)
    print(f"one durable publish, {len(CONTENT)} bytes, median of {ROUNDS} rounds in turns")
    print(f"  {'absent subscribers':>20} {'1000 in flight':>16} {'':>8} {'1 in flight':>12}")
    for absent in ABSENT:
        shared, single = statistics.median(many[absent]), statistics.median(alone[absent])
        ratios = shared / statistics.median(many[1]), single / statistics.median(alone[1])
        print(f"  {absent:>20,} {shared * 1e6:>13.2f} µs {ratios[0]:>7.2f}× {single * 1e6:>9.0f} µs {ratios[1]:>6.2f}×")
    for store in stores.values():
        store.close()


async def rates(folder: Path) -> None:
    print("publishes on disk")
    for in_flight, number in IN_FLIGHT.items():
        with opened(folder, f"rate {in_flight}") as store:
            await publish(store, min(number, 1000), in_flight)
            before = store.writer.batches_written
            taken_s = await publish(store, number, in_flight)
            batches = store.writer.batches_written - before
            print(f"  {in_flight:>6} in flight {number / taken_s:>12,.0f}/s {number / batches:>8.1f} in a commit")


async def backlog(folder: Path) -> None:
    with opened(folder, "backlog") as store:
        await subscribe(store, 1)
        await publish(store, 200_000, 4096)
        started = time.perf_counter()
        read = 0
        while found := store.topics.read_after("@news", read):
            read = found[-1].position
        print(f"backlog read      {read / (time.perf_counter() - started):>14,.0f}/s")
        started = time.perf_counter()
        acked = 0
        while found := store.topics.backlog("absent 0", rows_max=127):
            acked += len(found)
            await store.topics.ack("absent 0", [notification.id for notification in found])
        print(f"and acked, by 127 {acked / (time.perf_counter() - started):>14,.0f}/s")


async def memory(folder: Path, published: int, absent: int) -> None:
    print(f"{published:,} notifications of {len(CONTENT)} bytes for {absent:,} absent subscribers")
    with opened(folder, "memory") as store:
        await subscribe(store, absent)
        started = time.perf_counter()
        for part in range(11):
            if part:
                await publish(store, published // 10, 4096)
            size_mib = (folder / "memory.db").stat().st_size / 2**20
            taken_s = time.perf_counter() - started
            print(f"  {part * published // 10:>12,}  resident {resident_mib():>7.1f} MiB  on disk {size_mib:>8,.0f} MiB"
                  f"  {taken_s:>6.1f} s", flush=True)  # fmt: skip


def resident_mib() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return float(pages * os.sysconf("SC_PAGE_SIZE") / 2**20)


async def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--memory", action="store_true")
    options.add_argument("--notifications", type=int, default=5_000_000)
    options.add_argument("--absent", type=int, default=1000)
    options.add_argument("--folder", type=Path, help="on the disk to be measured; the temporary one otherwise")
    chosen = options.parse_args()
    with tempfile.TemporaryDirectory(dir=chosen.folder) as name:
        folder = Path(name)
        if chosen.memory:
            await memory(folder, chosen.notifications, chosen.absent)
            return
        await subscribers(folder)
        await rates(folder)
        await backlog(folder)


if __name__ == "__main__":
    asyncio.run(main())
