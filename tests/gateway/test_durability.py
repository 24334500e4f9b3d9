"""A loaded gateway is killed again and again: what it answered for is there afterwards, and is offered again.

`CRASH_ROUNDS=100 ./dev test tests/gateway/test_durability.py` for more rounds than the usual ones.
"""

import asyncio
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx
from cli.serving import free_ports

from gateway.running import HOST, WAIT_S
from wirelake.clients.comet import CometClient
from wirelake.log.segments.reader import LogReader
from wirelake.protocols.apostol.frames import ApostolSplitter, Packet, decode
from wirelake.protocols.apostol.opcodes import FIRST, LAST
from wirelake.protocols.frame import Sender

ROUNDS = int(os.environ.get("CRASH_ROUNDS", "20"))
STATUS = bytes.fromhex("a6530c5e010000000400000000029c530c5e")
TOPIC = "@crash"


class Served:
    """`wirelake serve` as a process, on ports that stay the same over restarts."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ports = dict(zip(("comet", "apostol", "http"), free_ports(3), strict=True))
        doors = ("comet", "magline", "apostol", "esnp", "sisnet", "sisnet_tcp", "redis", "http")
        listen = {door: f"{HOST}:{self.ports[door]}" if door in self.ports else "off" for door in doors}
        self.environment = {
            **os.environ,
            **{f"WIRELAKE_LISTEN_{door.upper()}": address for door, address in listen.items()},
            "WIRELAKE_DATA": str(folder),
            "WIRELAKE_AUTH_OPEN": "true",
            "WIRELAKE_APOSTOL_OPEN": "true",
            "WIRELAKE_BROKER_DEVICES_TOPIC": "",
        }

    @contextmanager
    def running(self) -> Iterator[subprocess.Popen[bytes]]:
        program = Path(sys.executable).parent / "wirelake"
        process = subprocess.Popen([program, "serve"], env=self.environment, stdout=subprocess.DEVNULL)
        try:
            self._await_ready(process)
            yield process
        finally:
            process.kill()
            process.wait()

    def _await_ready(self, process: subprocess.Popen[bytes]) -> None:
        deadline = time.monotonic() + WAIT_S
        while time.monotonic() < deadline and process.poll() is None:
            with suppress(httpx.HTTPError):
                if httpx.get(f"http://{HOST}:{self.ports['http']}/readyz", timeout=2).status_code == 200:
                    return
            time.sleep(0.02)
        raise AssertionError("the gateway did not get ready")

    def admin(self) -> dict[str, str]:
        token = (self.folder / "keys" / "admin.token").read_text().strip()
        return {"Authorization": f"Bearer {token}"}


async def publish(served: Served, start: int, acknowledged: list[int]) -> None:
    """Publishes numbers over HTTP until the gateway is gone; keeps those that were answered with 201."""
    url = f"http://{HOST}:{served.ports['http']}/api/topics/%40crash/notifications"
    async with httpx.AsyncClient(headers=served.admin(), timeout=WAIT_S) as client:
        number = start
        with suppress(httpx.HTTPError):
            while True:
                answer = await client.post(url, json={"content": str(number)})
                if answer.status_code == 201:
                    acknowledged.append(number)
                number += 1


class Device(asyncio.DatagramProtocol):
    """Reports with command numbers; keeps those that got their receipt."""

    def __init__(self, receipted: list[tuple[int, int]]) -> None:
        self.receipted = receipted
        self.open: dict[int, int] = {}  # command number → its report's own number

    def datagram_received(self, data: bytes, addr: object) -> None:
        for raw in ApostolSplitter().receive(data):
            packet = decode(raw, Sender.SERVER)
            report = self.open.pop(packet.command_no, None)
            if packet.receipt and report is not None:
                self.receipted.append((packet.command_no, report))

    def error_received(self, exc: Exception) -> None:
        pass  # the gateway is gone


def report(number: int) -> bytes:
    data = number.to_bytes(4, "little") + STATUS[4:]
    return Packet(1, FIRST | LAST, 6, "meter", number % 256, 0, data).encode()


async def report_until_killed(served: Served, start: int, receipted: list[tuple[int, int]], seconds: float) -> None:
    loop = asyncio.get_running_loop()
    transport, device = await loop.create_datagram_endpoint(
        lambda: Device(receipted), remote_addr=(HOST, served.ports["apostol"])
    )
    number, end = start, loop.time() + seconds
    while loop.time() < end:
        device.open[number % 256] = number
        transport.sendto(report(number))
        number += 1
        await asyncio.sleep(0.002)
    transport.close()
    await asyncio.sleep(0)


async def load(served: Served, process: subprocess.Popen[bytes], round_: int, kept: "Kept", seconds: float) -> None:
    start = round_ * 100_000
    working = [
        asyncio.create_task(publish(served, start, kept.published)),
        asyncio.create_task(report_until_killed(served, start, kept.receipted, seconds + 0.2)),
    ]
    await asyncio.sleep(seconds)
    process.send_signal(signal.SIGKILL)
    await asyncio.gather(*working)


class Kept:
    """What the gateway answered for, over all rounds."""

    def __init__(self) -> None:
        self.published: list[int] = []
        self.receipted: list[tuple[int, int]] = []


async def subscribe(served: Served) -> None:
    async with asyncio.timeout(WAIT_S), CometClient(HOST, served.ports["comet"], "phone", "") as phone:
        await phone.subscribe(TOPIC)


async def drain(served: Served) -> list[int]:
    """What waits for the phone, all of it acked."""
    async with asyncio.timeout(WAIT_S * 4), CometClient(HOST, served.ports["comet"], "phone", "") as phone:
        return [int(notification.content) async for notification in phone.drain_backlog()]


def frames_in_the_log(folder: Path) -> set[bytes]:
    rows = (row for batch in LogReader(folder / "log").read() for row in batch.to_pylist())
    return {row["frame"] for row in rows if row["protocol"] == "apostol" and row["direction"] == "in"}


def test_what_was_answered_survives_being_killed(tmp_path: Path) -> None:
    served, kept, seed = Served(tmp_path / "data"), Kept(), random.randrange(2**32)
    chance = random.Random(seed)
    offered: list[int] = []
    with served.running():
        asyncio.run(subscribe(served))
    for round_ in range(ROUNDS):
        with served.running() as process:
            asyncio.run(load(served, process, round_, kept, chance.uniform(0.05, 0.25)))
        if round_ % 5 == 4:
            with served.running():
                offered += asyncio.run(drain(served))
    with served.running():
        offered += asyncio.run(drain(served))
        assert asyncio.run(drain(served)) == [], "what was acked is not offered again"
        ledger = httpx.get(f"http://{HOST}:{served.ports['http']}/api/ledger", headers=served.admin(), timeout=WAIT_S)
        assert ledger.status_code == 200, ledger.text
        assert json.loads(ledger.text)
    assert len(kept.published) > ROUNDS, f"seed {seed}: the load was no load"
    assert len(kept.receipted) > ROUNDS, f"seed {seed}: the load was no load"
    missing = set(kept.published) - set(offered)
    assert not missing, f"seed {seed}: answered with 201 and lost: {sorted(missing)[:10]}"
    assert offered == sorted(offered), f"seed {seed}: publish order was not kept"
    assert len(offered) == len(set(offered)), f"seed {seed}: acked, and offered again"
    logged = frames_in_the_log(served.folder)
    lost = [number for _, number in kept.receipted if report(number) not in logged]
    assert not lost, f"seed {seed}: receipted and not in the log: {lost[:10]}"
