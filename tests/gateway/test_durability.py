"""A loaded gateway is killed again and again: whatever it acknowledged is stored, and delivered again.

Run `CRASH_ROUNDS=100 ./dev test tests/gateway/test_durability.py` for more rounds.
"""

import asyncio
import json
import os
import random
import signal
import subprocess
from contextlib import suppress
from pathlib import Path

import httpx

from gateway.gateway_process import ServeProcess, drain, frames_in_the_log, subscribe
from gateway.running_gateway import HOST, WAIT_S
from wirelake.protocols.apostol.constants import FIRST, LAST
from wirelake.protocols.apostol.frames import ApostolSplitter, Packet, decode
from wirelake.protocols.frame import Sender

ROUNDS = int(os.environ.get("CRASH_ROUNDS", "8"))
STATUS = bytes.fromhex("a6530c5e010000000400000000029c530c5e")


async def publish(served: ServeProcess, start: int, acknowledged: list[int]) -> None:
    """Publish numbers over HTTP until the gateway is killed; collect those that were answered with 201."""
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
    """Send reports with command numbers, and collect those that got their receipt."""

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
        pass  # the gateway was killed


def report(number: int) -> bytes:
    data = number.to_bytes(4, "little") + STATUS[4:]
    return Packet(1, FIRST | LAST, 6, "meter", number % 256, 0, data).encode()


async def report_until_killed(
    served: ServeProcess, start: int, receipted: list[tuple[int, int]], seconds: float
) -> None:
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


async def load(
    served: ServeProcess,
    process: subprocess.Popen[bytes],
    round_: int,
    acknowledged_state: "Acknowledged",
    seconds: float,
) -> None:
    start = round_ * 100_000
    working = [
        asyncio.create_task(publish(served, start, acknowledged_state.published)),
        asyncio.create_task(report_until_killed(served, start, acknowledged_state.receipted, seconds + 0.2)),
    ]
    await asyncio.sleep(seconds)
    process.send_signal(signal.SIGKILL)
    await asyncio.gather(*working)


class Acknowledged:
    """Hold what the gateway acknowledged in all rounds."""

    def __init__(self) -> None:
        self.published: list[int] = []
        self.receipted: list[tuple[int, int]] = []


def test_what_was_answered_survives_being_killed(tmp_path: Path) -> None:
    served, acknowledged_state, seed = ServeProcess(tmp_path / "data"), Acknowledged(), random.randrange(2**32)
    chance = random.Random(seed)
    offered: list[int] = []
    with served.running():
        asyncio.run(subscribe(served))
    for round_ in range(ROUNDS):
        with served.running() as process:
            asyncio.run(load(served, process, round_, acknowledged_state, chance.uniform(0.05, 0.25)))
        if round_ % 4 == 3:
            with served.running():
                offered += asyncio.run(drain(served))
    with served.running():
        offered += asyncio.run(drain(served))
        assert asyncio.run(drain(served)) == [], "what was acked is not offered again"
        ledger = httpx.get(f"http://{HOST}:{served.ports['http']}/api/ledger", headers=served.admin(), timeout=WAIT_S)
        assert ledger.status_code == 200, ledger.text
        assert json.loads(ledger.text)
    assert len(acknowledged_state.published) > ROUNDS, f"seed {seed}: the load was no load"
    assert len(acknowledged_state.receipted) > ROUNDS, f"seed {seed}: the load was no load"
    missing = set(acknowledged_state.published) - set(offered)
    assert not missing, f"seed {seed}: answered with 201 and lost: {sorted(missing)[:10]}"
    assert offered == sorted(offered), f"seed {seed}: publish order was not kept"
    assert len(offered) == len(set(offered)), f"seed {seed}: acked, and offered again"
    logged = frames_in_the_log(served.folder)
    lost = [number for _, number in acknowledged_state.receipted if report(number) not in logged]
    assert not lost, f"seed {seed}: receipted and not in the log: {lost[:10]}"
