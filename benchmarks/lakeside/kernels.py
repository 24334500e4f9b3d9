"""The decoders alone, on one core: each protocol's columns, and how they compare with its codec, frame by frame."""

from collections.abc import Callable

import numpy as np
from rich.table import Table

from lakeside.bench import Bench, Ways
from lakeside.frames import SAMPLES, column, parse_with_numpy, parse_with_struct
from wirelake.pipeline.spark.daemon import warm_kernels
from wirelake.protocols.apostol import columns as apostol
from wirelake.protocols.columnar import decode_each
from wirelake.protocols.frame import Sender
from wirelake.protocols.kernel_columns import column_decoder
from wirelake.protocols.registry import get

SLOW = 10  # so many times fewer rows for what goes frame by frame


def run(bench: Bench) -> None:
    warm_kernels()
    _packets(bench)
    table = Table(title="frames to messages, one core", title_justify="left")
    for heading in ("protocol", "frame", "bytes", "rows/s", "by the codec, rows/s", "times"):
        table.add_column(heading, justify="left" if heading in ("protocol", "frame") else "right")
    for sample in SAMPLES:
        table.add_row(*_row(bench, *sample))
    bench.console.print(table)


def _row(bench: Bench, name: str, what: str, make: Callable[[int], bytes], sender: Sender) -> tuple[str, ...]:
    protocol = get(name)
    decoder = column_decoder(protocol)
    frames = column(make, bench.rows // SLOW if decoder is None else bench.rows)
    few = frames[: bench.rows // SLOW]
    from_server = np.full(len(frames), sender is Sender.SERVER)
    ways: Ways = {"codec": (lambda: decode_each(protocol, few, from_server[: len(few)]), len(few))}
    if decoder is not None:
        ways["kernel"] = (lambda: decoder.decode(frames, from_server), len(frames))
    rates = bench.rates(ways)
    kernel, codec = rates.get("kernel"), rates["codec"]
    times = "" if kernel is None else f"{kernel / codec:.1f}"
    return name, what, str(len(frames[0].as_py())), f"{kernel or codec:,.0f}", f"{codec:,.0f}", times


def _packets(bench: Bench) -> None:
    """apostol's packets as typed columns, the CRC checked."""
    frames = column(SAMPLES[0][2], bench.rows)
    listed = frames[: bench.rows // SLOW].to_pylist()
    assert len(apostol.parse_packets(frames)[0]) == len(frames)
    rates = bench.rates(
        {
            "kernel": (lambda: apostol.parse_packets(frames), len(frames)),
            "NumPy, frames of one size only": (lambda: parse_with_numpy(frames), len(frames)),
            "struct and fastcrc": (lambda: [parse_with_struct(frame) for frame in listed], len(listed)),
        }
    )
    bench.show("apostol packets with CRC, one core", rates, "kernel")
