"""A gateway as a process of its own, which a test can kill, and a phone with a durable subscription there."""

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx
from cli.serving import free_ports

from gateway.running_gateway import HOST, WAIT_S
from wirelake.clients.comet import CometClient
from wirelake.log.segments.reader import LogReader

TOPIC = "@crash"


class ServeProcess:
    """Run `wirelake serve` as a process, on ports that stay the same over restarts."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ports = dict(zip(("comet", "apostol", "http"), free_ports(3), strict=True))
        listeners = ("comet", "magline", "apostol", "esnp", "sisnet", "sisnet_tcp", "redis", "http")
        listen = {
            listener: f"{HOST}:{self.ports[listener]}" if listener in self.ports else "off" for listener in listeners
        }
        self.environment = {
            **os.environ,
            **{f"WIRELAKE_LISTEN_{listener.upper()}": address for listener, address in listen.items()},
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


def frames_in_the_log(folder: Path) -> set[bytes]:
    """Return the packets that devices sent."""
    rows = (row for batch in LogReader(folder / "log").read() for row in batch.to_pylist())
    return {row["frame"] for row in rows if row["protocol"] == "apostol" and row["direction"] == "in"}


async def subscribe(served: ServeProcess) -> None:
    async with asyncio.timeout(WAIT_S), CometClient(HOST, served.ports["comet"], "phone", "") as phone:
        await phone.subscribe(TOPIC)


async def drain(served: ServeProcess) -> list[int]:
    """Return the backlog of the phone, and ack all of it."""
    async with asyncio.timeout(WAIT_S * 4), CometClient(HOST, served.ports["comet"], "phone", "") as phone:
        return [int(notification.content) async for notification in phone.drain_backlog()]
