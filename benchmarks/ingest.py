"""What comes in and is promised to be kept, beside mosquitto's QoS 1, in one run.

    ./dev bench ingest

1. apostol packets, each answered with a receipt after the sync, against QoS 1 publishes, each answered with a PUBACK.
   With few on the way the time of a sync is what limits: 64 of them in a millisecond are 64 000 a second.
2. A durable topic with one subscriber that acks, against QoS 1 from publisher to subscriber.

mosquitto never syncs. It is measured as it comes (its database is written every half hour), and as near to durable as
it can be set (`autosave_on_changes`: the whole database is written, without a sync, after each change).
The server has one core, the load the other.
"""

import asyncio
import sys
import tempfile
from pathlib import Path

import uvloop
from loads import redis_wire
from mqtt import Subscriber, connect_packet, publish_packet, subscribe_packet
from rich.console import Console
from rich.table import Table
from servers import missing, mosquitto, pin_load, wirelake

from wirelake.protocols.apostol.frames import Packet
from wirelake.protocols.comet import frames as comet
from wirelake.protocols.comet.constants import ClientType, ServerType

WINDOWS = (64, 1024, 16_384)
PIECES = 4  # into which what is on the way is cut
SECONDS = 4.0
STATUS = bytes.fromhex("a6530c5e010000000400000000029c530c5e")
RECEIPT_BYTES = 14
DEVICES = 16
PAYLOAD = b"x" * 100
DURABLE_MESSAGES = 100_000
DURABLE_WINDOW = 500
SETTINGS = {
    "WIRELAKE_AUTH_OPEN": "true",
    "WIRELAKE_APOSTOL_OPEN": "true",
    "WIRELAKE_BROKER_DEVICES_TOPIC": "",
    "WIRELAKE_LIMITS_PENDING_BYTES": str(256 << 20),
    "WIRELAKE_LIMITS_FRAMES_PER_SECOND": "100000000",
    "WIRELAKE_LIMITS_BYTES_PER_SECOND": str(1 << 40),
}


class Answers(asyncio.Protocol):
    """Counts bytes of answers, no more, and what it sends is made before: the load must cost less than a server."""

    def __init__(self) -> None:
        self.left = 0
        self.done: asyncio.Future[None] | None = None
        self._chunks: list[bytes] = []
        self._sent = 0
        self._answer_bytes = 0  # of a chunk
        self._ends_s = 0.0
        self._chunks_max = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport: asyncio.Transport = transport  # type: ignore[assignment]

    def data_received(self, data: bytes) -> None:
        self.left -= len(data)
        while self._chunks and self.left <= self._answer_bytes * (PIECES - 1):
            if asyncio.get_running_loop().time() >= self._ends_s or self._sent >= self._chunks_max:
                self._chunks = []
            else:
                self._send_next()
        if self.left <= 0 and self.done is not None and not self.done.done():
            self.done.set_result(None)

    async def ask(self, data: bytes, answer_bytes: int) -> None:
        self.left = answer_bytes
        self.done = asyncio.get_running_loop().create_future()
        self.transport.write(data)
        async with asyncio.timeout(60):
            await self.done

    async def keep_asking(
        self, chunks: list[bytes], answer_bytes: int, seconds: float, chunks_max: float = float("inf")
    ) -> int:
        """So many chunks, `PIECES` of them on the way at any time."""
        loop = asyncio.get_running_loop()
        self.left, self.done = 0, loop.create_future()
        self._chunks, self._sent, self._answer_bytes = chunks, 0, answer_bytes
        self._ends_s, self._chunks_max = loop.time() + seconds, chunks_max
        for _ in range(PIECES):
            self._send_next()
        async with asyncio.timeout(seconds + 60):
            await self.done
        return self._sent

    def _send_next(self) -> None:
        self.left += self._answer_bytes
        self.transport.write(self._chunks[self._sent % len(self._chunks)])
        self._sent += 1


async def windowed(port: int, hello: bytes, messages: list[bytes], count: int, answer_bytes: int) -> float:
    """Messages a second, `count` of them on the way at any time: a piece of them goes when a piece is answered."""
    loop = asyncio.get_running_loop()
    _, peer = await loop.create_connection(Answers, "127.0.0.1", port)
    if hello:
        await peer.ask(hello, 4)
    size = count // PIECES
    chunks = [b"".join(messages[start : start + size]) for start in range(0, len(messages), size)]
    await peer.ask(b"".join(messages), len(messages) * answer_bytes)
    start = loop.time()
    sent = await peer.keep_asking(chunks, size * answer_bytes, SECONDS)
    took_s = loop.time() - start
    peer.transport.close()
    return sent * size / took_s


def packets() -> list[bytes]:
    """A whole turn of each device's command counter: by then it counts as new again."""
    places = [(device, number) for number in range(256) for device in range(DEVICES)]
    return [Packet(1, 3, 6, f"d{device:04d}", number, 0, STATUS).encode() for device, number in places]


def publishes() -> list[bytes]:
    return [publish_packet(b"bench", STATUS, number + 1) for number in range(256 * DEVICES)]


class Phone(asyncio.Protocol):
    """A comet client that counts notifications and acks them, a hundred at a time."""

    def __init__(self, wanted: int, done: asyncio.Future[None]) -> None:
        self.wanted, self.done = wanted, done
        self.splitter = comet.CometSplitter()
        self.ready = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport: asyncio.Transport = transport  # type: ignore[assignment]
        self.transport.write(comet.Auth("phone", "").encode() + comet.Subscribe(("@bench",)).encode())

    def data_received(self, data: bytes) -> None:
        ids = []  # as they lie in the frame, with their lengths: that is how an ack has them too
        for frame in self.splitter.receive(data):
            if frame[2] == ServerType.MESSAGE:
                ids.append(frame[4 : 6 + frame[5]])
            elif frame[2] == ServerType.OK:
                self.ready.set()
        for start in range(0, len(ids), 100):
            some = ids[start : start + 100]
            body = bytes((ClientType.MESSAGE_ACK, len(some))) + b"".join(some)
            self.transport.write(len(body).to_bytes(2, "big") + body)
        self.wanted -= len(ids)
        if self.wanted <= 0 and not self.done.done():
            self.done.set_result(None)


async def durable_wirelake(ports: dict[str, int]) -> float:
    loop = asyncio.get_running_loop()
    done: asyncio.Future[None] = loop.create_future()
    _, phone = await loop.create_connection(lambda: Phone(DURABLE_MESSAGES, done), "127.0.0.1", ports["comet"])
    await phone.ready.wait()
    wire = redis_wire(b"@bench", PAYLOAD)
    _, publisher = await loop.create_connection(Answers, "127.0.0.1", ports["redis"])
    start = loop.time()
    piece = DURABLE_WINDOW // PIECES
    await publisher.keep_asking([wire.publish * piece], piece * len(b":0\r\n"), 60, DURABLE_MESSAGES // piece)
    async with asyncio.timeout(60):
        await done
    return DURABLE_MESSAGES / (loop.time() - start)


async def durable_mosquitto(port: int) -> float:
    loop = asyncio.get_running_loop()
    done: asyncio.Future[None] = loop.create_future()
    size = len(publish_packet(b"bench", PAYLOAD, 1))
    number_at = 2 + 2 + len(b"bench")
    _, subscriber = await loop.create_connection(
        lambda: Subscriber(DURABLE_MESSAGES, size, number_at, done), "127.0.0.1", port
    )
    subscriber.transport.write(connect_packet(b"sub", clean=False) + subscribe_packet(b"bench"))
    await asyncio.sleep(0.5)
    subscriber.ready = True
    _, publisher = await loop.create_connection(Answers, "127.0.0.1", port)
    await publisher.ask(connect_packet(b"pub", clean=True), 4)
    piece = DURABLE_WINDOW // PIECES
    window = [publish_packet(b"bench", PAYLOAD, number + 1) for number in range(DURABLE_WINDOW)]
    pieces = [b"".join(window[start : start + piece]) for start in range(0, DURABLE_WINDOW, piece)]
    start = loop.time()
    await publisher.keep_asking(pieces, piece * 4, 60, DURABLE_MESSAGES // piece)
    async with asyncio.timeout(120):
        await done
    return DURABLE_MESSAGES / (loop.time() - start)


def main() -> int:
    if missing():
        print(f"needs the system packages {', '.join(missing())}: apt-get install {' '.join(missing())}")
        return 1
    pin_load()
    rows: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory() as folder, wirelake(Path(folder), **SETTINGS) as ports:
        packet_rates = [
            uvloop.run(windowed(ports["apostol"], b"", packets(), count, RECEIPT_BYTES)) for count in WINDOWS
        ]
        rows["wirelake, synced"] = [*packet_rates, uvloop.run(durable_wirelake(ports))]
    for name, saving in (("mosquitto, as it comes", False), ("mosquitto, saved after each change", True)):
        with tempfile.TemporaryDirectory() as folder, mosquitto(Path(folder), save_changes=saving) as port:
            hello = connect_packet(b"bench", clean=True)
            found = [uvloop.run(windowed(port, hello, publishes(), count, 4)) for count in WINDOWS]
            found.append(float("nan") if saving else uvloop.run(durable_mosquitto(port)))
            rows[name] = found
    table = Table(title="messages a second; × is how many times the first row is", title_justify="left")
    table.add_column("")
    for column in (*(f"device reports, {count} on the way" for count in WINDOWS), "topic with acks, end to end"):
        table.add_column(column, justify="right")
        table.add_column("×", justify="right")
    ours = rows["wirelake, synced"]
    for name, found in rows.items():
        cells = [
            cell for mine, value in zip(ours, found, strict=True) for cell in (f"{value:,.0f}", f"{mine / value:.2f}")
        ]
        table.add_row(name, *cells)
    Console(width=180).print(table)
    return 0


if __name__ == "__main__":
    sys.exit(main())
