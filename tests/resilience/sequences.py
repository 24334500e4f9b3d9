"""A sequence fuzzer over live sessions: many peers of every protocol at once, against a gateway whose disk fails now
and then. Afterwards no session is left over, nothing was logged as a traceback, and the memory is given back.
"""

import asyncio
import socket
import struct
import time
from collections import Counter
from contextlib import suppress
from random import Random
from typing import Any, Final

from gateway.running_gateway import HOST
from msgspec import Struct, field

from resilience.process import GatewayProcess
from resilience.speakers import SPEAKERS, Account, ApostolSpeaker, Speaker, garbage, mangled

SETTINGS: Final = {f"WIRELAKE_{name}_LOGIN_S": "2" for name in ("COMET", "MAGLINE", "ESNP", "SISNET", "REDIS")} | {
    "WIRELAKE_APOSTOL_IDLE_S": "3",
    "WIRELAKE_COMET_IDLE_S": "5",
    "WIRELAKE_MAGLINE_IDLE_S": "5",
}
PEERS: Final = 16  # connected at the same time
STEPS_MAX: Final = 12  # of one session
BURST: Final = 40  # frames written at once
LINGER_S: Final = 0.3  # for the gateway to close a session by itself
FULL_DISK_S: Final = (0.02, 0.4)  # how long writes fail
GOOD_DISK_S: Final = (0.3, 1.5)
SETTLE_S: Final = 60.0  # for the last sessions to end
WARM_UP_SHARE: Final = 0.4  # of the whole time
GROWTH_MAX: Final = 1.2  # of the resident memory, over what it was after the warm-up


class Outcome(Struct):
    sessions: Counter[str] = field(default_factory=Counter)  # by listener
    refused_connections: int = 0
    disk_failures: int = 0
    resident_before: int = 0
    resident_after: int = 0


class Campaign:
    """Fuzz for some seconds; the same seed makes the same choices, though not the same timing."""

    def __init__(self, gateway: GatewayProcess, seed: int) -> None:
        self.outcome = Outcome()
        self._gateway = gateway
        self._chance = Random(seed)
        self._accounts: list[Account] = []

    def provide(self) -> None:
        """Add identities and devices, so that many sessions get beyond their login."""
        for number in range(4):
            made = self._gateway.post("/api/identities", {"name": f"fuzz-{number}"})
            self._accounts.append(Account(made["name"], made["token"]))
        for number in range(2):
            self._gateway.post("/api/devices", {"serial": f"meter-{number}"})

    async def run(self, seconds: float, *, full_disks: bool = True) -> None:
        until_s = time.monotonic() + seconds
        peers = [self._peer(Random(self._chance.randbytes(8)), until_s) for _ in range(PEERS)]
        disk = self._spoil_disk(Random(self._chance.randbytes(8)), until_s) if full_disks else asyncio.sleep(0)
        await asyncio.gather(disk, *peers)

    async def settle(self) -> list[dict[str, Any]]:
        """Wait for the last sessions to end, and return those that are left over."""
        until_s = time.monotonic() + SETTLE_S
        while (left := self._sessions()) and time.monotonic() < until_s:
            await asyncio.sleep(0.1)
        return left

    async def resident_below(self, limit: int) -> int:
        """Wait until the allocators release memory, and return how much is resident then."""
        until_s = time.monotonic() + SETTLE_S
        while (resident := self._gateway.resident_bytes()) > limit and time.monotonic() < until_s:
            self._sessions()  # a quiet process frees nothing
            await asyncio.sleep(0.2)
        return resident

    def _sessions(self) -> list[dict[str, Any]]:
        return list(self._gateway.get("/api/sessions")["sessions"])

    async def _peer(self, chance: Random, until_s: float) -> None:
        while time.monotonic() < until_s:
            speaker = chance.choice(SPEAKERS)(chance, chance.choice(self._accounts))
            try:
                async with asyncio.timeout(20):
                    if isinstance(speaker, ApostolSpeaker) and chance.random() < 0.7:
                        await self._datagrams(speaker, chance)
                    else:
                        await self._session(speaker, chance)
            except (OSError, TimeoutError):
                self.outcome.refused_connections += 1  # refused or cut off, as it may be
            self.outcome.sessions[speaker.listener] += 1

    async def _session(self, speaker: Speaker, chance: Random) -> None:
        reader, writer = await asyncio.open_connection(HOST, self._gateway.ports[speaker.listener])
        reading: asyncio.Task[None] | None = None
        try:
            if chance.random() < 0.8:
                await speaker.login(reader, writer)
            if chance.random() < 0.85:  # the others never read
                reading = asyncio.create_task(_read_all(reader))
            for _ in range(chance.randrange(STEPS_MAX)):
                if not _write(writer, _spoken(speaker, chance), chance):
                    break
                await asyncio.sleep(chance.choice((0, 0, 0.001, 0.02)))
            await _leave(writer, chance)
        finally:
            writer.transport.abort()
            if reading is not None:
                reading.cancel()

    async def _datagrams(self, speaker: Speaker, chance: Random) -> None:
        loop = asyncio.get_running_loop()
        address = (HOST, self._gateway.ports[speaker.listener])
        transport, _ = await loop.create_datagram_endpoint(asyncio.DatagramProtocol, remote_addr=address)
        try:
            for _ in range(chance.randrange(STEPS_MAX)):
                transport.sendto(_spoken(speaker, chance)[:60_000])
                await asyncio.sleep(chance.choice((0, 0.001, 0.02)))
        finally:
            transport.close()

    async def _spoil_disk(self, chance: Random, until_s: float) -> None:
        try:
            while time.monotonic() < until_s:
                await asyncio.sleep(chance.uniform(*GOOD_DISK_S))
                self._gateway.refuse_writes(refuse=True)
                self.outcome.disk_failures += 1
                await asyncio.sleep(chance.uniform(*FULL_DISK_S))
                self._gateway.refuse_writes(refuse=False)
        finally:
            self._gateway.refuse_writes(refuse=False)


def _spoken(speaker: Speaker, chance: Random) -> bytes:
    """Return what a peer sends in one step: mostly valid frames."""
    match chance.choices(("valid", "burst", "mangled", "garbage", "cut"), (70, 6, 14, 5, 5))[0]:
        case "valid":
            return speaker.frame()
        case "burst":
            return b"".join(speaker.frame() for _ in range(BURST))
        case "mangled":
            return mangled(speaker.frame(), chance)
        case "garbage":
            return garbage(chance)
        case _:
            frame = speaker.frame()
            return frame[: chance.randrange(len(frame) + 1)]


def _write(writer: asyncio.StreamWriter, data: bytes, chance: Random) -> bool:
    """Send in one piece or two; return whether the connection is still open."""
    if writer.transport.is_closing():
        return False
    cut = chance.randrange(len(data) + 1)
    for piece in (data[:cut], data[cut:]) if chance.random() < 0.3 else (data,):
        writer.write(piece)
    return True


async def _leave(writer: asyncio.StreamWriter, chance: Random) -> None:
    match chance.randrange(4):
        case 0:
            writer.close()
        case 1:  # a reset instead of an orderly end
            sock = writer.get_extra_info("socket")
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            writer.transport.abort()
        case 2:  # sends no more, but reads
            if not writer.transport.is_closing():
                writer.write_eof()
            await asyncio.sleep(LINGER_S)
        case _:
            await asyncio.sleep(chance.uniform(0, LINGER_S))


async def _read_all(reader: asyncio.StreamReader) -> None:
    with suppress(OSError):
        while await reader.read(65536):
            pass


async def fuzz(gateway: GatewayProcess, seconds: float, seed: int) -> tuple[Outcome, list[str]]:
    """Run a whole campaign against a new gateway, and return descriptions of the problems."""
    campaign = Campaign(gateway, seed)
    campaign.provide()
    outcome = campaign.outcome
    warm_up_s = max(3.0, seconds * WARM_UP_SHARE)  # caches, buffers and the tables of the state get their size
    await campaign.run(warm_up_s)
    await campaign.settle()
    outcome.resident_before = gateway.resident_bytes()
    await campaign.run(seconds - warm_up_s)
    left = await campaign.settle()
    outcome.resident_after = await campaign.resident_below(int(outcome.resident_before * GROWTH_MAX))
    problems = [f"a session is left over: {session}" for session in left]
    if outcome.resident_after > outcome.resident_before * GROWTH_MAX:
        problems.append(f"{outcome.resident_before} bytes resident grew to {outcome.resident_after}")
    problems += [f"a traceback was logged:\n{text}" for text in gateway.tracebacks()]
    return outcome, problems
