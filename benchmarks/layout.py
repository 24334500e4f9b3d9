"""Codecs of two checkouts side by side: the same frames, cut, decoded and encoded, in one run.

    ./dev bench layout -- OTHER_CHECKOUT [PROTOCOL …]

The other checkout is one of the same repository, as `git worktree add` makes it: for example the last commit in which a
protocol was written by hand. Each runs in a process of its own. They take turns, and each figure is the best of several
rounds: read the ratios. 1.00 is the speed of the other checkout; more is faster.
"""

import argparse
import gc
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

HERE = Path(__file__).resolve().parent.parent
FRAMES = 3_000
CHUNK_BYTES = 65_536  # what a socket hands over at once
ROUNDS = 201  # of a few milliseconds each: some of them are not interrupted
WORKS = ("cut", "decode", "encode")


def cases() -> dict[str, list[tuple[str, bytes]]]:
    """Return frames by protocol, each with its sender: the same bytes for both checkouts."""
    from wirelake.protocols.apostol import frames as apostol  # noqa: PLC0415 (not in the workers)
    from wirelake.protocols.comet import frames as comet  # noqa: PLC0415

    message = comet.Message(1, "m-00000001", b"x" * 40, 1_700_000_000_000)
    return {
        "comet": [
            ("client", comet.Heartbeat().encode()),
            ("client", comet.Auth("phone-0001", "0123456789abcdef").encode()),
            ("client", comet.Subscribe(("@news", "@weather/oslo")).encode()),
            ("client", comet.MessageAck(("m-00000001", "m-00000002", "m-00000003")).encode()),
            ("client", comet.ReportEnviron(1, 2, "Pixel 8", ("wifi", "de")).encode()),
            ("server", message.encode()),
            ("server", comet.MessageList((message,) * 8).encode()),
        ],
        "apostol": [
            ("client", apostol.Packet(1, 3, 1, "meter-0001", 7, 0, bytes(24)).encode()),
            ("client", apostol.Packet(1, 3, 1, "meter-0001", 7, 0, bytes(200)).encode()),
            ("server", apostol.Receipt(1, 0x44, 1, "meter-0001", 7, 0, b"").encode()),
        ],
        **{name: captured(name) for name in ("esnp", "magline", "sisnet")},
    }


def captured(name: str) -> list[tuple[str, bytes]]:
    """Return captured frames of a protocol, one of each kind from each sender."""
    found: dict[tuple[str, str], bytes] = {}
    for line in (HERE / "tests" / "captures" / f"{name}.hex").read_text().splitlines():
        if line and not line.startswith("#"):
            sender, kind, wire = line.split()[:3]
            found.setdefault((sender, kind), bytes.fromhex(wire))
    return [(sender, wire) for (sender, _), wire in found.items()]


# ── a worker measures one checkout, one round at a time


def seconds(work: Callable[[], object]) -> float:
    gc.disable()
    try:
        start = time.process_time_ns()  # not the clock: other processes may have the processor for a while
        work()
        return (time.process_time_ns() - start) / 1e9
    finally:
        gc.enable()


def works(name: str, side: str, wire: bytes) -> tuple[str, dict[str, Callable[[], object]]]:
    """Return the name of the frame, and what is measured."""
    protocol: Any = import_module("wirelake.protocols.registry").get(name)
    sender: Any = import_module("wirelake.protocols.frame").Sender(side)
    carrier = next(each.carrier for each in protocol.transports if each.carrier != "websocket")
    frame, decode = protocol.decode(wire, sender), protocol.decode
    assert frame.encode() == wire
    stream = protocol.splitter(sender, carrier).wrap(wire) * FRAMES
    chunks = [stream[start : start + CHUNK_BYTES] for start in range(0, len(stream), CHUNK_BYTES)]
    wires = [bytes(bytearray(wire)) for _ in range(FRAMES)]

    def cut() -> int:
        splitter = protocol.splitter(sender, carrier)
        return sum(len(splitter.receive(chunk)) for chunk in chunks)

    return frame.name, {
        "cut": cut,
        "decode": lambda: [decode(each, sender) for each in wires],
        "encode": lambda: [frame.encode() for _ in range(FRAMES)],
    }


def worker() -> None:
    """For each line with a protocol, a sender and a frame, return the name; for each with a work, its seconds."""
    measured: dict[str, Callable[[], object]] = {}
    for line in sys.stdin:
        words = json.loads(line)
        if len(words) == 1:
            answer: object = seconds(measured[words[0]])
        else:
            answer, measured = works(words[0], words[1], bytes.fromhex(words[2]))
        print(json.dumps(answer), flush=True)


class Worker:
    """A process that measures a checkout."""

    def __init__(self, tree: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-P", __file__, "--worker", str(tree)],
            env={**os.environ, "PYTHONPATH": str(tree / "src")},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def ask(self, *words: str) -> Any:
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        stdin.write(json.dumps(words) + "\n")
        stdin.flush()
        return json.loads(stdout.readline())

    def close(self) -> None:
        self._process.communicate(timeout=10)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("other", type=Path)
    parser.add_argument("protocols", nargs="*")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.worker:
        worker()
        return
    table = Table("frame", "work", "other /s", "this /s", "ratio")
    lowest = float("inf")
    workers = Worker(chosen.other.resolve()), Worker(HERE)
    for protocol, frames in cases().items():
        if chosen.protocols and protocol not in chosen.protocols:
            continue
        for sender, wire in frames:
            _, name = (each.ask(protocol, sender, wire.hex()) for each in workers)
            for work in WORKS:
                best = [float("inf"), float("inf")]
                for _ in range(ROUNDS):
                    best = [min(before, each.ask(work)) for before, each in zip(best, workers, strict=True)]
                other, this = (FRAMES / each for each in best)
                lowest = min(lowest, this / other)
                title = f"{protocol} {name}, {len(wire)} bytes"
                table.add_row(title, work, f"{other:,.0f}", f"{this:,.0f}", f"{this / other:.2f}")
    for each in workers:
        each.close()
    Console(width=100).print(table)
    print(f"the lowest ratio is {lowest:.2f}")


if __name__ == "__main__":
    main()
