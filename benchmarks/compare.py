"""Two checkouts in one run: codecs, decoding of the log, fan-out, ingest and connections, one round of each in turn.

    ./dev bench compare -- OTHER_CHECKOUT [--rounds N]

The other checkout is one of the same repository at an earlier commit, as `git worktree add` makes it. Both run on this
checkout's packages. A ratio above 1 means that this checkout is faster, or takes less memory; each is of the best
rounds, because noise only ever slows down.
"""

import argparse
import gc
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

HERE = Path(__file__).resolve().parent.parent
FRAMES = 20_000
CODEC_ROUNDS = 5
CHUNK_BYTES = 65_536
WIDTHS = {1: 300_000, 10: 150_000, 100: 60_000, 1000: 20_000}  # subscribers: messages, for a second or so of each
INGEST_S = 2.0
CONNECTIONS = 2_000
LESS_IS_BETTER = "bytes"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("other", type=Path)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--probe", action="store_true", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.probe:
        print(json.dumps(probe(chosen.other)))
        return 0
    best: dict[str, dict[str, float]] = {"new": {}, "old": {}}
    for _ in range(chosen.rounds):
        for name, tree in (("old", chosen.other.resolve()), ("new", HERE)):
            for what, value in run(tree).items():
                pick = min if what.endswith(LESS_IS_BETTER) else max
                best[name][what] = pick(best[name].get(what, value), value)
    table = Table("", "old", "new", "ratio", title=f"best of {chosen.rounds} rounds", title_justify="left")
    for what, new in best["new"].items():
        old = best["old"].get(what, float("nan"))
        ratio = old / new if what.endswith(LESS_IS_BETTER) else new / old
        table.add_row(what, f"{old:,.0f}", f"{new:,.0f}", f"{ratio:.2f}")
    Console(width=100).print(table)
    return 0


def run(tree: Path) -> dict[str, float]:
    """Measure a checkout in a process of its own."""
    path = os.pathsep.join([str(tree / "src"), str(tree / "benchmarks")])
    done = subprocess.run(
        [sys.executable, "-P", __file__, str(tree), "--probe"],  # -P: its own modules, not those beside this file
        env={**os.environ, "PYTHONPATH": path},
        stdout=subprocess.PIPE,
        check=True,
    )
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def probe(tree: Path) -> dict[str, float]:
    return {**codecs(tree), **log_decoding(), **fan_out(), **ingest(), **connections()}


def codecs(tree: Path) -> dict[str, float]:
    registry = import_module("wirelake.protocols.registry")
    found: dict[str, float] = {}
    for path in sorted((tree / "benchmarks" / "rivals").glob("*.py")):
        case = getattr(import_module(f"rivals.{path.stem}"), "CASE", None)
        if case is None:
            continue
        protocol = registry.get(case.protocol)
        name = protocol.name.replace("resp", "redis")  # its earlier name
        carrier = next(each.carrier for each in protocol.transports if each.carrier != "websocket")
        stream = protocol.splitter(case.sender, carrier).wrap(case.frame.encode()) * FRAMES
        chunks = [stream[start : start + CHUNK_BYTES] for start in range(0, len(stream), CHUNK_BYTES)]

        found |= {f"{name} {what}/s": each for what, each in codec_rates(protocol, case, carrier, chunks).items()}
    return found


def codec_rates(protocol: Any, case: Any, carrier: Any, chunks: list[bytes]) -> dict[str, float]:
    decode, encode, sender = protocol.decode, case.frame.encode, case.sender

    def cut() -> list[list[bytes]]:
        splitter = protocol.splitter(sender, carrier)
        return [splitter.receive(chunk) for chunk in chunks]

    bare = protocol.splitter(sender, carrier).bare
    frames = [bare(frame) for some in cut() for frame in some]
    return {
        "cut": rate(cut),
        "decode": rate(lambda: [decode(each, sender) for each in frames]),
        "encode": rate(lambda: [encode() for _ in range(FRAMES)]),
    }


def log_decoding() -> dict[str, float]:
    """Decode batches of the log as a task of the pipeline does, without Spark."""
    import pyarrow as pa  # noqa: PLC0415
    from lakeside.frames import SAMPLES, column  # noqa: PLC0415 (of the checkout that is measured)

    decode_batch = first_found(("wirelake.pipeline.ingest.decode", "wirelake.pipeline.decode.batch")).decode_batch
    schema = first_found(("wirelake.log.schema", "wirelake.log.interface")).SCHEMA
    found = {}
    for protocol, what, make, sender in SAMPLES:
        values = {
            "protocol": protocol,
            "event": "frame",
            "direction": "in" if sender == "client" else "out",
            "session": "1-1",
            "identity": "1234567",
            "peer": "10.0.0.1:1",
            "node": "local",
            "note": "",
            "at": 1_700_000_000_000_000,
        }
        columns = [
            pa.array(range(FRAMES), field.type)
            if field.name == "seq"
            else column(make, FRAMES).cast(field.type)
            if field.name == "frame"
            else pa.array([values[field.name]] * FRAMES, field.type)
            for field in schema
        ]
        batch = pa.RecordBatch.from_arrays(columns, schema=schema)
        decode_batch(batch)  # compiles the kernels
        name = protocol.replace("resp", "redis")  # its earlier name
        found[f"log decode, {name} {what}/s"] = rate(partial(decode_batch, batch))
    return found


def first_found(modules: tuple[str, ...]) -> Any:
    """Import the first of these modules that the checkout has."""
    for name in modules:
        if find_spec_or_none(name):
            return import_module(name)
    raise ImportError(f"none of {modules}")


def find_spec_or_none(name: str) -> object:
    try:
        return find_spec(name)
    except ModuleNotFoundError:  # a package on the way is not there
        return None


def rate(work: Callable[[], object]) -> float:
    best = float("inf")
    gc.disable()
    try:
        for _ in range(CODEC_ROUNDS):
            start = time.perf_counter()
            work()
            best = min(best, time.perf_counter() - start)
    finally:
        gc.enable()
    return FRAMES / best


def fan_out() -> dict[str, float]:
    import fanout  # noqa: PLC0415 (of the checkout that is measured)
    import uvloop  # noqa: PLC0415
    from loads import redis_wire  # noqa: PLC0415
    from servers import pin_load, wirelake  # noqa: PLC0415

    pin_load()
    fanout.WIDTHS, fanout.ROUNDS = WIDTHS, 1
    with tempfile.TemporaryDirectory() as folder, wirelake(Path(folder), **fanout.SETTINGS) as ports:
        rates = uvloop.run(fanout.rates(ports["redis"], redis_wire(b"live", fanout.PAYLOAD)))
    return {f"fan-out to {width}/s": found for width, found in rates.items()}


def ingest() -> dict[str, float]:
    import ingest as module  # noqa: PLC0415 (of the checkout that is measured)
    import uvloop  # noqa: PLC0415
    from servers import wirelake  # noqa: PLC0415

    module.SECONDS = INGEST_S
    found = {}
    with tempfile.TemporaryDirectory() as folder, wirelake(Path(folder), **module.SETTINGS) as ports:
        for count in module.WINDOWS:
            work = module.windowed(ports["apostol"], b"", module.packets(), count, module.RECEIPT_BYTES)
            found[f"device reports, {count} on the way/s"] = uvloop.run(work)
        found["durable topic with acks/s"] = uvloop.run(module.durable_wirelake(ports))
    return found


def connections() -> dict[str, float]:
    import connections as module  # noqa: PLC0415 (of the checkout that is measured)
    import uvloop  # noqa: PLC0415
    from servers import wirelake  # noqa: PLC0415

    module.CONNECTIONS, module.IDLE_S = CONNECTIONS, 0.1
    with tempfile.TemporaryDirectory() as folder, wirelake(Path(folder), **module.SETTINGS) as ports:
        each_bytes, _ = uvloop.run(module.hold(ports["comet"], ports["pid"]))
    return {"a quiet connection, bytes": each_bytes}


if __name__ == "__main__":
    sys.exit(main())
