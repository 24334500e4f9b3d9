"""Peers that attack the gateway are bounded in memory and time, and others are served meanwhile."""

import asyncio
import os
import zlib
from pathlib import Path

import pytest

from gateway.gateway_process import ServeProcess, frames_in_the_log
from gateway.hostile_peers import (
    PHONE,
    check_still_served,
    open_device_socket,
    peak_bytes,
    read_until_closed,
    resident_bytes,
    send_packet,
    wait_for_packets,
)
from gateway.running_gateway import HOST, Running, running_gateway, until
from wirelake.limits import MIB
from wirelake.protocols.apostol.constants import APOSTOL_ASSEMBLING_PER_DEVICE_MAX, FIRST, LAST, RECEIPT, ZIPPED
from wirelake.protocols.apostol.frames import Packet, Receipt
from wirelake.protocols.comet import frames

STATUS = bytes.fromhex("a6530c5e010000000400000000029c530c5e")
INFLATED_BYTES = 64 * MIB
SLACK_BYTES = 48 * MIB  # how much the process may grow during an attack that sends far more


async def open_comet(running: Running) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection(HOST, running.port("comet"))


async def test_half_open_and_trickling_connections_are_ended_by_the_login_deadline(tmp_path: Path) -> None:
    async with running_gateway(tmp_path, "comet", identities=[PHONE], comet={"login_s": 4.0}) as running:
        silent = [await open_comet(running) for _ in range(100)]
        trickling = [await open_comet(running) for _ in range(100)]
        auth = frames.Auth("nobody", "x" * 200).encode()
        for place in range(5):
            for _, writer in trickling:
                writer.write(auth[place : place + 1])
            await asyncio.sleep(0.01)
        await check_still_served(running)
        for reader, writer in silent + trickling:
            received = await read_until_closed(reader)
            assert received.startswith(b"\x00"), "it is told why"
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
        for listener, bomb in bombs.items():
            reader, writer = await asyncio.open_connection(HOST, running.port(listener))
            writer.write(bomb)
            received = await read_until_closed(reader)
            assert b"limit" in received or b"invalid" in received, (listener, received)
            writer.close()
        long = [await open_comet(running) for _ in range(200)]
        for _, writer in long:
            writer.write(b"\xff\xff" + b"\x00" * 60_000)  # never complete
        await check_still_served(running)
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
        await check_still_served(running)
        for reader, writer in peers:
            received = await read_until_closed(reader)
            assert received[2] == 1, "an error, not auth_success"
            writer.close()
        outcomes = running.gateway.counters.logins
        assert outcomes["comet", "accepted"] == 1
        assert outcomes["comet", "wrong_token"] < 100, "most never got as far as a check"


async def test_no_more_connections_than_allowed(tmp_path: Path) -> None:
    limits = {"connections": 50, "connections_per_address": 20, "unauthenticated_share": 1.0}
    async with running_gateway(tmp_path, "comet", identities=[PHONE], limits=limits) as running:
        peers = [await open_comet(running) for _ in range(60)]
        for reader, _ in peers[20:]:
            assert await read_until_closed(reader) == b""
        assert running.gateway.counters.refused["comet", "connections_per_address_max"] == 40
        peers[0][1].close()
        await until(lambda: running.gateway.admission.open < 20)
        await check_still_served(running)
        for _, writer in peers:
            writer.close()


async def test_a_zlib_bomb_is_refused_and_recorded(tmp_path: Path) -> None:
    """Check the peak of a gateway in a process of its own: what it inflated may be freed at once."""
    served = ServeProcess(tmp_path / "data")
    bomb = zlib.compress(bytes(INFLATED_BYTES), 9)
    size = 1200
    pieces = [bomb[start : start + size] for start in range(0, len(bomb), size)]
    packets = []
    for number, piece in enumerate(pieces):
        params = ZIPPED | (FIRST if number == 0 else 0) | (LAST if number == len(pieces) - 1 else 0)
        packets.append(Packet(1, params, 6, "1234", 1, number, piece))
    packets.append(Packet(1, FIRST | LAST, 6, "1234", 2, 0, STATUS))
    with served.running() as process:
        transport, device = await open_device_socket(served)
        before = peak_bytes(process.pid)
        for packet in packets:
            await send_packet(transport, device, packet)
        assert peak_bytes(process.pid) - before < SLACK_BYTES < INFLATED_BYTES
        transport.close()
        await asyncio.sleep(0)
    assert frames_in_the_log(served.folder) == {packet.encode() for packet in packets}


async def test_fragments_that_never_finish_stay_within_their_bound(tmp_path: Path) -> None:
    async with running_gateway(tmp_path, "apostol", devices=[("1234", 6, None)]) as running:
        transport, device = await open_device_socket(running)
        before = resident_bytes()
        sent = 0
        for command_no in range(256):
            for packet_no in range(1, 9):  # neither the first nor the last
                transport.sendto(Packet(1, 0, 6, "1234", command_no, packet_no, bytes(1200)).encode())
                sent += 1
            await wait_for_packets(device, sent)
        session = running.gateway.devices.peers["1234"].session
        assert len(session.deadlines) < 8
        assert resident_bytes() - before < SLACK_BYTES
        assert sent > 8 * APOSTOL_ASSEMBLING_PER_DEVICE_MAX
        transport.sendto(Packet(1, FIRST | LAST, 6, "1234", 7, 0, STATUS).encode())
        await wait_for_packets(device, sent + 1)
        transport.close()
        await asyncio.sleep(0)


@pytest.mark.parametrize(
    ("limit", "open_at_last"), [({"assembling_per_device": 2}, [1, 2]), ({"assembling_bytes": 1000}, [2])]
)
async def test_commands_under_assembly_have_limits_as_settings(
    tmp_path: Path, limit: dict[str, int], open_at_last: list[int]
) -> None:
    async with running_gateway(tmp_path, "apostol", devices=[("1234", 6, None)], apostol=limit) as running:
        transport, device = await open_device_socket(running)
        for command_no in range(3):
            transport.sendto(Packet(1, FIRST, 6, "1234", command_no, 0, bytes(600)).encode())
            await wait_for_packets(device, command_no + 1)
        peer = running.gateway.devices.peers["1234"]
        assert [each.command_no for each in peer.under_way()] == open_at_last
        transport.close()
        await asyncio.sleep(0)


async def test_receipts_for_nothing_and_noise_are_counted_and_ignored(tmp_path: Path) -> None:
    async with running_gateway(tmp_path, "apostol", devices=[("1234", 6, None)]) as running:
        transport, device = await open_device_socket(running)
        for number in range(200):
            transport.sendto(Receipt(1, RECEIPT, 6, "1234", number, 0, b"").encode())
            transport.sendto(os.urandom(40))
            transport.sendto(Packet(1, FIRST | LAST, 6, f"unknown {number}", 1, 0, STATUS).encode())
            await asyncio.sleep(0.001)  # or the socket's own buffer drops some of them
        transport.sendto(Packet(1, FIRST | LAST, 6, "1234", 1, 0, STATUS).encode())
        await wait_for_packets(device, 1)
        await asyncio.sleep(0.05)
        assert len(device.packets) == 1, "nothing but the one real packet was answered"
        counters = running.gateway.counters
        assert counters.refused["apostol", "unknown_device"] == 200
        assert counters.quarantined["apostol"] >= 190, "a random datagram may by chance look unfinished"
        assert list(running.gateway.devices.peers) == ["1234"]
        transport.close()
        await asyncio.sleep(0)
