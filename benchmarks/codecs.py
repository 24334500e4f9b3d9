"""Frames a second for each codec, beside other ways to read and write the same frames, in one run.

    ./dev bench codecs

Every way reads one stream of small, equal frames. "cut" is the splitter alone: the bytes of each frame, as the log
takes them; "decode" is cutting and every field. Ratios compare within this run only; the machine's own speed does not
matter to them.
"""

import gc
import time
from collections.abc import Callable
from importlib import import_module
from io import BytesIO

import msgpack
from kaitaistruct import KaitaiStream
from rich.console import Console
from rich.table import Table

from rivals.rival import Case, construct_count, protobuf_message
from wirelake.protocols import registry

FRAMES = 20_000
SLOW_FRAMES = 1_000  # construct and kaitai
CHUNK_BYTES = 65_536  # what a socket hands over at once
ROUNDS = 7
PROTOCOLS = ("comet", "magline", "apostol", "esnp", "sisnet", "redis")


def rate(work: Callable[[], object], frames: int) -> float:
    """Frames a second: the best of several rounds, because noise only ever slows down."""
    best = float("inf")
    gc.disable()
    try:
        for _ in range(ROUNDS):
            start = time.perf_counter()
            work()
            best = min(best, time.perf_counter() - start)
    finally:
        gc.enable()
    return frames / best


def decode_rates(case: Case) -> dict[str, float]:
    protocol = registry.get(case.protocol)
    carrier = next(each.carrier for each in protocol.transports if each.carrier != "websocket")
    wire = protocol.splitter(case.sender, carrier).wrap(case.frame.encode())
    stream = wire * FRAMES
    chunks = [stream[start : start + CHUNK_BYTES] for start in range(0, len(stream), CHUNK_BYTES)]
    slow = wire * SLOW_FRAMES

    def cut() -> int:
        splitter = protocol.splitter(case.sender, carrier)
        return sum(len(splitter.receive(chunk)) for chunk in chunks)

    def decode() -> int:
        splitter, decode_one, sender, count = protocol.splitter(case.sender, carrier), protocol.decode, case.sender, 0
        bare = splitter.bare
        for chunk in chunks:
            count += len([decode_one(bare(frame), sender) for frame in splitter.receive(chunk)])
        return count

    assert cut() == decode() == FRAMES
    assert case.plain(slow) == SLOW_FRAMES
    packed = msgpack.packb(case.fields) * FRAMES
    proto = protobuf_message(case.protocol, case.fields)
    proto_bytes, proto_class = proto.SerializeToString(), type(proto)

    def unpack() -> int:
        unpacker = msgpack.Unpacker()
        unpacker.feed(packed)
        return sum(1 for _ in unpacker)

    rates = {
        "cut": rate(cut, FRAMES),
        "decode": rate(decode, FRAMES),
        "plain struct": rate(lambda: case.plain(slow), SLOW_FRAMES),
        "msgpack": rate(unpack, FRAMES),
        "protobuf": rate(lambda: [proto_class.FromString(proto_bytes) for _ in range(FRAMES)], FRAMES),
    }
    if case.layout is not None:
        layout = case.layout
        rates["construct"] = rate(lambda: construct_count(layout, slow), SLOW_FRAMES)
        compiled = layout.compile()
        rates["construct compiled"] = rate(lambda: construct_count(compiled, slow), SLOW_FRAMES)
    if case.kaitai is not None:
        kaitai = case.kaitai

        def read() -> int:
            stream, count = KaitaiStream(BytesIO(slow)), 0
            while not stream.is_eof():
                kaitai(stream)
                count += 1
            return count

        rates["kaitai"] = rate(read, SLOW_FRAMES)
    return rates


def encode_rates(case: Case) -> dict[str, float]:
    frame, fields = case.frame, case.fields
    proto = protobuf_message(case.protocol, fields)
    rates = {
        "encode": rate(lambda: [frame.encode() for _ in range(FRAMES)], FRAMES),
        "msgpack": rate(lambda: [msgpack.packb(fields) for _ in range(FRAMES)], FRAMES),
        "protobuf": rate(lambda: [proto.SerializeToString() for _ in range(FRAMES)], FRAMES),
    }
    if case.layout is not None:
        layout, value = case.layout, case.layout_value
        assert layout.build(value).endswith(frame.encode())  # sisnet's has the size that TCP puts before it
        rates["construct"] = rate(lambda: [layout.build(value) for _ in range(SLOW_FRAMES)], SLOW_FRAMES)
    return rates


def show(title: str, base: str, rows: dict[str, dict[str, float]], console: Console) -> None:
    """One row a protocol: our frames a second, and how many times that is of each other way."""
    others = list(dict.fromkeys(name for rates in rows.values() for name in rates if name != base))
    table = Table(title=title, title_justify="left")
    table.add_column("protocol")
    table.add_column(f"{base}, frames/s", justify="right")
    for other in others:
        table.add_column(f"× {other}", justify="right")
    for protocol, rates in rows.items():
        cells = [f"{rates[base] / rates[other]:.2f}" if other in rates else "–" for other in others]
        table.add_row(protocol, f"{rates[base]:,.0f}", *cells)
    console.print(table)


def main() -> None:
    console = Console(width=140)
    cases = [import_module(f"rivals.{name}").CASE for name in PROTOCOLS]
    decoded = {case.protocol: decode_rates(case) for case in cases}
    show("decode: all fields, against", "decode", decoded, console)
    show("cut: whole frames out of the stream, against", "cut", decoded, console)
    show("encode, against", "encode", {case.protocol: encode_rates(case) for case in cases}, console)


if __name__ == "__main__":
    main()
