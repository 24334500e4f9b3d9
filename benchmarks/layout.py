"""Described frames beside hand-written codecs: the same frames, cut, decoded and encoded, in one run.

    ./dev bench layout

Both sides take turns, and each figure is the best of several rounds: read the ratios. 1.00 is the speed of the
hand-written code; more is faster.
"""

import gc
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

sys.path.append(str(Path(__file__).resolve().parent.parent / "tests" / "layout"))

import described  # type: ignore[import-not-found]  # beside the tests that compare the same frames

from wirelake.protocols.apostol import frames as apostol
from wirelake.protocols.comet import frames as comet
from wirelake.protocols.frame import Frame, Sender

FRAMES = 20_000
CHUNK_BYTES = 65_536  # what a socket hands over at once
ROUNDS = 31
CASES: tuple[Frame, ...] = (
    comet.Auth("phone-0001", "0123456789abcdef"),
    comet.Subscribe(("@news", "@weather/oslo")),
    comet.MessageAck(("m-00000001", "m-00000002", "m-00000003")),
    comet.ReportEnviron(1, 2, "Pixel 8", ("wifi", "de")),
    comet.Message(1, "m-00000001", b"x" * 40, 1_700_000_000_000),
    comet.MessageList(tuple(comet.Message(1, f"m-{number:08}", b"x" * 40, number) for number in range(8))),
    apostol.Packet(1, 3, 1, "meter-0001", 7, 0, bytes(24)),
    apostol.Packet(1, 3, 1, "meter-0001", 7, 0, bytes(200)),
    apostol.Receipt(1, 0x44, 1, "meter-0001", 7, 0, b""),
)


def seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def rates(one: Callable[[], object], other: Callable[[], object]) -> tuple[float, float]:
    """Return frames a second of both. They take turns, so that noise hits both."""
    best = [float("inf"), float("inf")]
    gc.disable()
    try:
        for _ in range(ROUNDS):
            best = [min(best[0], seconds(one)), min(best[1], seconds(other))]
    finally:
        gc.enable()
    return FRAMES / best[0], FRAMES / best[1]


def cutting(splitter: Callable[[], Any], chunks: list[bytes]) -> Callable[[], int]:
    def cut() -> int:
        made = splitter()
        return sum(len(made.receive(chunk)) for chunk in chunks)

    return cut


def decode_all(decode: Callable[[bytes, Sender], object], wires: list[bytes], sender: Sender) -> list[object]:
    return [decode(each, sender) for each in wires]


def encode_many(frame: Any) -> list[bytes]:
    return [frame.encode() for _ in range(FRAMES)]


def main() -> None:
    table = Table("frame", "work", "hand-written /s", "described /s", "ratio")
    lowest = float("inf")
    for frame in CASES:
        is_comet = isinstance(frame, comet.CometFrame)
        derived = described.COMET if is_comet else described.APOSTOL
        by_hand = comet if is_comet else apostol
        splitter: Any = comet.CometSplitter if is_comet else apostol.ApostolSplitter
        kind = getattr(described, type(frame).__name__)
        sender = frame.sender if isinstance(frame, comet.CometFrame) else Sender.CLIENT
        wire = frame.encode()
        twin = derived.decode(wire, sender)
        assert type(twin) is kind
        assert twin.encode() == wire
        stream = wire * FRAMES
        chunks = [stream[start : start + CHUNK_BYTES] for start in range(0, len(stream), CHUNK_BYTES)]
        wires = [bytes(bytearray(wire)) for _ in range(FRAMES)]
        old, new = by_hand.decode, derived.decode
        works: dict[str, tuple[Callable[[], object], Callable[[], object]]] = {
            "cut": (cutting(splitter, chunks), cutting(derived.splitter, chunks)),
            "decode": (partial(decode_all, old, wires, sender), partial(decode_all, new, wires, sender)),
            "encode": (partial(encode_many, frame), partial(encode_many, twin)),
        }
        for name, (one, other) in works.items():
            hand, ours = rates(one, other)
            lowest = min(lowest, ours / hand)
            table.add_row(
                f"{frame.name}, {len(wire)} bytes", name, f"{hand:,.0f}", f"{ours:,.0f}", f"{ours / hand:.2f}"
            )
    Console(width=100).print(table)
    print(f"the lowest ratio is {lowest:.2f}")


if __name__ == "__main__":
    main()
