"""Peers that mean no good. Each is bounded in memory and time, and somebody else's connection goes on meanwhile."""

import asyncio
import os
import zlib
from pathlib import Path

import pytest

from gateway.running import HOST, WAIT_S, Running, running_gateway
from wirelake.clients.comet import CometClient
from wirelake.limits import MIB
from wirelake.protocols.apostol.frames import ApostolSplitter, Packet, Receipt
from wirelake.protocols.apostol.limits import APOSTOL_ASSEMBLING_PER_DEVICE_MAX
from wirelake.protocols.apostol.opcodes import FIRST, LAST, RECEIPT, ZIPPED
from wirelake.protocols.comet import frames

PHONE = ("phone", "t0ken")
STATUS = bytes.fromhex("a6530c5e010000000400000000029c530c5e")
SLACK_BYTES = 48 * MIB  # what the process may grow by during an attack that sends far more


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


async def open_comet(running: Running) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection(HOST, running.port("comet"))


async def closed(reader: asyncio.StreamReader) -> bytes:
    """Everything it was told until the connection was closed."""
    async with asyncio.timeout(WAIT_S):
        try:
            return await reader.read(-1)
        except ConnectionResetError:
            return b""


async def still_served(running: Running) -> None:
    """A well-behaved client logs in, subscribes and hears what is published."""
    async with asyncio.timeout(WAIT_S), CometClient(HOST, running.port("comet"), *PHONE) as phone:
        await phone.subscribe("@news")
        await running.publish("@news", b"still here")
        async for notification in phone.notifications():
            assert notification.content == b"still here"
            break


async def test_half_open_and_trickling_connections_are_ended_by_the_login_deadline(tmp_path: Path) -> None:
    async with running_gateway(tmp_path, "comet", identities=[PHONE], comet={"login_s": 4.0}) as running:
        silent = [await open_comet(running) for _ in range(100)]
        trickling = [await open_comet(running) for _ in range(100)]
        auth = frames.Auth("nobody", "x" * 200).encode()
        for place in range(5):
            for _, writer in trickling:
                writer.write(auth[place : place + 1])
            await asyncio.sleep(0.01)
        await still_served(running)
        for reader, writer in silent + trickling:
            told = await closed(reader)
            assert told.startswith(b"\x00"), "it is told why"
            writer.close()
        assert running.gateway.counters.closed["comet", "login_timeout"] == 200
        assert running.gateway.counters.connections["comet"] == 0


async def test_lengths_that_promise_too_much_cost_nothing(tmp_path: Path) -> None:
    async with running_gateway(tmp_path, "comet", "esnp", "redis", identities=[PHONE]) as running:
        before = resident_bytes()
        bombs = {
            "esnp": b"\x16\xff\xff\xff",  # a line of 16 MiB before the login, where 4 KiB are allowed
            "redis": b"*1048577\r\n",
        }
        for door, bomb in bombs.items():
            reader, writer = await asyncio.open_connection(HOST, running.port(door))
            writer.write(bomb)
            told = await closed(reader)
            assert b"limit" in told or b"invalid" in told, (door, told)
            writer.close()
        long = [await open_comet(running) for _ in range(200)]
        for _, writer in long:
            writer.write(b"\xff\xff" + b"\x00" * 60_000)  # never whole
        await still_served(running)
        assert resident_bytes() - before < SLACK_BYTES
        for _, writer in long:
            writer.close()


async def test_a_thousand_wrong_logins_do_not_keep_the_right_one_out(tmp_path: Path) -> None:
    comet, limits = {"login_s": 4.0}, {"failed_logins": 3}
    async with running_gateway(tmp_path, "comet", identities=[PHONE], comet=comet, limits=limits) as running:
        peers = []
        for number in range(1000):
            peers.append(await open_comet(running))
            peers[-1][1].write(frames.Auth("phone", f"guess {number}").encode())
        await still_served(running)
        for reader, writer in peers:
            told = await closed(reader)
            assert told[2] == 1, "an error, not auth_success"
            writer.close()
        outcomes = running.gateway.counters.logins
        assert outcomes["comet", "accepted"] == 1
        assert outcomes["comet", "wrong_token"] < 100, "most never got as far as a check"


async def test_no_more_connections_than_allowed(tmp_path: Path) -> None:
    limits = {"connections": 50, "connections_per_address": 20, "unauthenticated_share": 1.0}
    async with running_gateway(tmp_path, "comet", identities=[PHONE], limits=limits) as running:
        peers = [await open_comet(running) for _ in range(60)]
        for reader, _ in peers[20:]:
            assert await closed(reader) == b""
        assert running.gateway.counters.refused["comet", "connections_per_address_max"] == 40
        peers[0][1].close()
        await asyncio.sleep(0.05)
        await still_served(running)
        for _, writer in peers:
            writer.close()


class Datagrams(asyncio.DatagramProtocol):
    def __init__(self) -> None:
        self.got: list[bytes] = []

    def datagram_received(self, data: bytes, addr: object) -> None:
        """One datagram may hold several packets."""
        self.got += ApostolSplitter().receive(data)


async def device_socket(running: Running) -> tuple[asyncio.DatagramTransport, Datagrams]:
    loop = asyncio.get_running_loop()
    return await loop.create_datagram_endpoint(Datagrams, remote_addr=(HOST, running.port("apostol")))


async def receipts(heard: Datagrams, count: int) -> None:
    async with asyncio.timeout(WAIT_S):
        while len(heard.got) < count:
            await asyncio.sleep(0.01)


async def test_a_zlib_bomb_is_refused_and_recorded(tmp_path: Path) -> None:
    async with running_gateway(tmp_path, "apostol", devices=[("1234", 6, None)]) as running:
        transport, heard = await device_socket(running)
        before = resident_bytes()
        bomb = zlib.compress(bytes(64 * MIB), 9)
        size = 1200
        pieces = [bomb[start : start + size] for start in range(0, len(bomb), size)]
        for number, piece in enumerate(pieces):
            params = ZIPPED | (FIRST if number == 0 else 0) | (LAST if number == len(pieces) - 1 else 0)
            transport.sendto(Packet(1, params, 6, "1234", 1, number, piece).encode())
            await receipts(heard, number + 1)
        assert resident_bytes() - before < SLACK_BYTES
        transport.sendto(Packet(1, FIRST | LAST, 6, "1234", 2, 0, STATUS).encode())
        await receipts(heard, len(pieces) + 1)
        transport.close()
        await asyncio.sleep(0)


async def test_fragments_that_never_finish_stay_within_their_bound(tmp_path: Path) -> None:
    async with running_gateway(tmp_path, "apostol", devices=[("1234", 6, None)]) as running:
        transport, heard = await device_socket(running)
        before = resident_bytes()
        sent = 0
        for command_no in range(256):
            for packet_no in range(1, 9):  # neither the first nor the last
                transport.sendto(Packet(1, 0, 6, "1234", command_no, packet_no, bytes(1200)).encode())
                sent += 1
            await receipts(heard, sent)
        session = running.gateway.devices.peers["1234"].session
        assert len(session.deadlines) < 8
        assert resident_bytes() - before < SLACK_BYTES
        assert sent > 8 * APOSTOL_ASSEMBLING_PER_DEVICE_MAX
        transport.sendto(Packet(1, FIRST | LAST, 6, "1234", 7, 0, STATUS).encode())
        await receipts(heard, sent + 1)
        transport.close()
        await asyncio.sleep(0)


@pytest.mark.parametrize(
    ("limit", "open_at_last"), [({"assembling_per_device": 2}, [1, 2]), ({"assembling_bytes": 1000}, [2])]
)
async def test_commands_under_assembly_have_limits_as_settings(
    tmp_path: Path, limit: dict[str, int], open_at_last: list[int]
) -> None:
    async with running_gateway(tmp_path, "apostol", devices=[("1234", 6, None)], apostol=limit) as running:
        transport, heard = await device_socket(running)
        for command_no in range(3):
            transport.sendto(Packet(1, FIRST, 6, "1234", command_no, 0, bytes(600)).encode())
            await receipts(heard, command_no + 1)
        peer = running.gateway.devices.peers["1234"]
        assert [each.command_no for each in peer.under_way()] == open_at_last
        transport.close()
        await asyncio.sleep(0)


async def test_receipts_for_nothing_and_noise_are_counted_and_ignored(tmp_path: Path) -> None:
    async with running_gateway(tmp_path, "apostol", devices=[("1234", 6, None)]) as running:
        transport, heard = await device_socket(running)
        for number in range(200):
            transport.sendto(Receipt(1, RECEIPT, 6, "1234", number, 0, b"").encode())
            transport.sendto(os.urandom(40))
            transport.sendto(Packet(1, FIRST | LAST, 6, f"unknown {number}", 1, 0, STATUS).encode())
            await asyncio.sleep(0.001)  # or the socket's own buffer drops some of them
        transport.sendto(Packet(1, FIRST | LAST, 6, "1234", 1, 0, STATUS).encode())
        await receipts(heard, 1)
        await asyncio.sleep(0.05)
        assert len(heard.got) == 1, "nothing but the one real packet was answered"
        counters = running.gateway.counters
        assert counters.refused["apostol", "unknown_device"] == 200
        assert counters.quarantined["apostol"] >= 190, "a random datagram may by chance look unfinished"
        assert list(running.gateway.devices.peers) == ["1234"]
        transport.close()
        await asyncio.sleep(0)
