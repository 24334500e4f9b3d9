"""Live names: 100 bytes published to 1, 10, 100 and 1 000 subscribers, beside nats-server and redis, in one run.

    ./dev bench fanout

The server has one core, the load the other. Publishing is pipelined; the time counts until every subscriber has every
message. Wirelake records each frame in its log and answers each publish after the sync; the others keep nothing.
"""

import sys
import tempfile
from pathlib import Path

import uvloop
from loads import Wire, fan_out, nats_wire, redis_wire
from rich.console import Console
from rich.table import Table
from servers import missing, nats, pin_load, redis, wirelake

WIDTHS = {1: 200_000, 10: 100_000, 100: 20_000, 1000: 3_000}  # subscribers: messages
ROUNDS = 3
BATCH = 50
PAYLOAD = b"x" * 100
SETTINGS = {
    "WIRELAKE_AUTH_OPEN": "true",
    "WIRELAKE_LIMITS_PENDING_BYTES": str(256 << 20),
    "WIRELAKE_LIMITS_FRAMES_PER_SECOND": "100000000",
    "WIRELAKE_LIMITS_BYTES_PER_SECOND": str(1 << 40),
}


async def rates(port: int, wire: Wire) -> dict[int, float]:
    """Messages published a second, at each width."""
    found = {}
    for width, messages in WIDTHS.items():
        took_s = min([await fan_out("127.0.0.1", port, wire, width, messages, BATCH) for _ in range(ROUNDS)])
        found[width] = messages / took_s
    return found


def main() -> int:
    if missing():
        print(f"needs the system packages {', '.join(missing())}: apt-get install {' '.join(missing())}")
        return 1
    pin_load()
    measured: dict[str, dict[int, float]] = {}
    with tempfile.TemporaryDirectory() as folder, wirelake(Path(folder), **SETTINGS) as ports:
        measured["wirelake"] = uvloop.run(rates(ports["redis"], redis_wire(b"live", PAYLOAD)))
    with nats() as port:
        measured["nats-server"] = uvloop.run(rates(port, nats_wire(b"live", PAYLOAD)))
    with redis() as port:
        measured["redis"] = uvloop.run(rates(port, redis_wire(b"live", PAYLOAD)))
    table = Table(title="100 bytes to N subscribers: messages published a second", title_justify="left")
    for column in ("subscribers", *measured, "× fastest peer"):
        table.add_column(column, justify="right")
    for width in WIDTHS:
        ours, *theirs = (found[width] for found in measured.values())
        table.add_row(str(width), *(f"{found[width]:,.0f}" for found in measured.values()), f"{ours / max(theirs):.2f}")
    Console(width=120).print(table)
    return 0


if __name__ == "__main__":
    sys.exit(main())
