"""Limits for peers before the login: the length of frames, memory, connections and time."""

import asyncio
import socket
import ssl
from pathlib import Path

import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed

from gateway.certificates import make_certificate
from gateway.comet_client import Phone
from gateway.full_disk import nothing_escapes
from gateway.hostile_peers import check_still_served, read_until_closed, resident_bytes
from gateway.magline_client import Box
from gateway.running_gateway import HOST, WAIT_S, Running, running_gateway, until
from gateway.sisnet_client import Terminal, log_in, receive_until_closed, websocket_url
from wirelake.limits import GATEWAY_KEEPALIVE_S, KIB, MIB
from wirelake.protocols.apostol.constants import FIRST, LAST
from wirelake.protocols.apostol.frames import Packet
from wirelake.protocols.comet import frames
from wirelake.protocols.sisnet.envelope import sized, write_size

PHONE = ("phone", "t0ken")
TERMINAL = ("terminal", "t0ken")
STATUS = bytes.fromhex("a6530c5e010000000400000000029c530c5e")
LONG = 20 * KIB  # longer than any login


async def call(running: Running, listener: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection(HOST, running.port(listener))


PROMISES = {  # the start of a frame that is longer than a login needs
    "comet": (LONG).to_bytes(2) + b"\x00",
    "magline": b"\x7f\x01\x00\x01" + bytes(8) + (LONG).to_bytes(4),
    "esnp": b"\x16" + (LONG).to_bytes(3),
    "sisnet_tcp": write_size(LONG),
    "redis": b"*1\r\n$%d\r\n" % LONG,
}


@pytest.mark.parametrize("listener", PROMISES)
async def test_a_long_frame_is_refused_before_the_login(tmp_path: Path, listener: str) -> None:
    async with running_gateway(tmp_path, listener) as running:
        reader, writer = await call(running, listener)
        writer.write(PROMISES[listener])
        await read_until_closed(reader)
        (row,) = await running.undecodable_records()
        assert row["note"]["code"].endswith("bytes_max")
        writer.close()


async def test_a_long_frame_may_follow_the_login_at_once(tmp_path: Path) -> None:
    """Check the login before the frame that follows it in the same read."""
    async with running_gateway(
        tmp_path, "sisnet_tcp", "redis", "comet", "magline", identities=[PHONE, TERMINAL]
    ) as running:
        async with await Terminal.connect(running) as terminal:
            login = b'in:{"command":"login","ask":{"name":"terminal","password":"t0ken"}}'
            echo = b'big:{"service":"wirelake","command":"ping","ask":{"x":"%b"}}' % (b"x" * LONG)
            terminal.write(sized(login) + sized(echo))
            assert await terminal.receive_json("in") == {"ans": 0}
            assert (await terminal.receive_json("big"))["ans"] == 0
        reader, writer = await call(running, "redis")
        writer.write(b"AUTH terminal t0ken\r\n*2\r\n$4\r\nECHO\r\n$%d\r\n%b\r\n" % (LONG, b"y" * LONG))
        async with asyncio.timeout(WAIT_S):
            assert await reader.readexactly(5) == b"+OK\r\n"
            assert (await reader.readexactly(LONG + 10)).endswith(b"y" * LONG + b"\r\n")
        writer.close()
        async with await Phone.connect(running.port("comet")) as phone:
            phone.send(frames.Auth(*PHONE), frames.Subscribe(tuple(f"@{n}{'t' * 200}" for n in range(60))))
            assert isinstance(await phone.receive(), frames.AuthSuccess)
            assert await phone.receive() == frames.Ok()
        async with await Box.connect(running, *PHONE) as box:
            assert (await box.ask(4, topic="@a", content="z" * LONG))["ok"]


@pytest.mark.asyncio(loop_factories=["asyncio", "uvloop"])
async def test_a_long_websocket_message_is_refused_before_the_login_and_taken_after_it(tmp_path: Path) -> None:
    async with running_gateway(tmp_path, "sisnet", identities=[TERMINAL]) as running:
        async with connect(websocket_url(running)) as stranger:
            await stranger.send("n:" + "{" + " " * LONG)
            with pytest.raises(ConnectionClosed):
                await receive_until_closed(stranger)
        async with connect(websocket_url(running)) as friend:
            await log_in(friend)
            await friend.send('big:{"command":"ping","ask":"%s"}' % ("x" * 300_000))
            async with asyncio.timeout(WAIT_S):
                assert '"ans":0' in str(await friend.recv())


async def test_a_websocket_handshake_without_end_is_cut_off(tmp_path: Path) -> None:
    async with running_gateway(tmp_path, "sisnet") as running:
        reader, writer = await call(running, "sisnet")
        writer.write(b"GET / HTTP/1.1\r\n" + b"".join(b"X-%d: %b\r\n" % (n, b"v" * 4000) for n in range(20)))
        await read_until_closed(reader)
        await until(lambda: not running.gateway.connections)
        writer.close()


@pytest.mark.asyncio(loop_factories=["asyncio", "uvloop"])
@pytest.mark.parametrize("together", [True, False])
async def test_frames_behind_a_refused_handshake_are_not_read(tmp_path: Path, *, together: bool) -> None:
    """Check also that they cause no traceback."""
    refused = (
        b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
    )
    behind = b"\x81\x85\0\0\0\0n:{}}" * 10 + b"\x88\x80\0\0\0\0" + b"\x89\x80\0\0\0\0" + b"\xff" * 20
    async with running_gateway(tmp_path, "sisnet") as running:
        with nothing_escapes():
            reader, writer = await call(running, "sisnet")
            writer.write(refused)
            if not together:
                await asyncio.sleep(0.02)
            writer.write(behind)
            received = await read_until_closed(reader)
            assert not together or received.endswith(b"A request needs one Host header.\n"), received
            writer.close()
            await until(lambda: not running.gateway.connections)
        assert running.records("frame") == []


@pytest.mark.asyncio(loop_factories=["asyncio", "uvloop"])
async def test_a_close_behind_the_handshake_is_no_fault(tmp_path: Path) -> None:
    accepted = (
        b"GET / HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
    )
    async with running_gateway(tmp_path, "sisnet") as running:
        with nothing_escapes():
            reader, writer = await call(running, "sisnet")
            writer.write(accepted + b"\x88\x80\0\0\0\0")
            assert (await read_until_closed(reader)).startswith(b"HTTP/1.1 101 ")
            writer.close()


async def test_strangers_share_one_bound_on_memory(tmp_path: Path) -> None:
    """Close the peer that exceeds the limit, and serve a client that logs in."""
    limits = {"unauthenticated_bytes": 100 * KIB}
    async with running_gateway(tmp_path, "sisnet_tcp", "comet", identities=[PHONE, TERMINAL], limits=limits) as running:
        gateway = running.gateway
        peers = [await call(running, "sisnet_tcp") for _ in range(30)]
        for _, writer in peers:
            writer.write(write_size(15 * KIB) + bytes(14 * KIB))
        await until(lambda: gateway.counters.closed["sisnet", "unauthenticated_bytes"] >= 23)
        assert gateway.admission.unauthenticated_bytes <= 100 * KIB
        assert len(gateway.connections) <= 7
        await check_still_served(running)
        async with await Terminal.connect(running, *TERMINAL):
            pass
        for _, writer in peers:
            writer.close()
        await until(lambda: not gateway.connections)
        assert (gateway.admission.open, gateway.admission.unauthenticated) == (0, 0)
        assert gateway.admission.unauthenticated_bytes == 0


async def test_frames_held_while_a_login_is_decided_count_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with running_gateway(tmp_path, "comet", limits={"unauthenticated_bytes": 20 * KIB}) as running:
        gateway = running.gateway
        undecided: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        async def check(*_: object) -> None:
            await undecided

        monkeypatch.setattr(gateway.logins, "check", check)
        async with await Phone.connect(running.port("comet")) as phone:
            phone.send(frames.Auth(*PHONE))
            for _ in range(20):
                phone.send(frames.MessageAck(("i" * 100,) * 40))
                await asyncio.sleep(0)
            await until(lambda: gateway.counters.closed["comet", "unauthenticated_bytes"] == 1)
            assert gateway.admission.unauthenticated_bytes == 0


async def test_strangers_leave_slots_to_those_who_log_in(tmp_path: Path) -> None:
    limits = {"connections": 40, "unauthenticated_share": 0.5}
    async with running_gateway(tmp_path, "comet", identities=[PHONE], limits=limits) as running:
        gateway = running.gateway
        phones = [await Phone.connect(running.port("comet"), *PHONE) for _ in range(5)]
        strangers = [await call(running, "comet") for _ in range(30)]
        await until(lambda: gateway.counters.refused["comet", "unauthenticated_per_address_max"] == 20)
        assert gateway.admission.unauthenticated == 10
        for _, writer in strangers:
            writer.close()
        await until(lambda: gateway.admission.unauthenticated == 0)
        await check_still_served(running)
        for phone in phones:
            async with phone:
                pass


def test_the_defaults_leave_room_beside_one_address() -> None:
    from wirelake.config import Settings

    limits = Settings().limits
    assert 10_000 < limits.connections_per_address < limits.connections
    assert limits.unauthenticated_share <= 0.5


async def test_silent_and_halting_streams_of_packets_are_closed(tmp_path: Path) -> None:
    apostol = {"login_s": 0.5, "half_packet_s": 0.2, "idle_s": 1.0}
    async with running_gateway(tmp_path, "apostol", devices=[("1", 6, None)], apostol=apostol) as running:
        gateway = running.gateway
        known = Packet(1, FIRST | LAST, 6, "1", 1, 0, STATUS).encode()
        unknown = Packet(1, FIRST | LAST, 6, "2", 1, 0, STATUS).encode()
        silent = [await call(running, "apostol") for _ in range(20)]
        strange = [await call(running, "apostol") for _ in range(20)]
        halting = [await call(running, "apostol") for _ in range(20)]
        idle, lively = await call(running, "apostol"), await call(running, "apostol")
        for _, writer in strange:
            writer.write(unknown)
        for _, writer in halting:
            writer.write(known + known[:5])
        idle[1].write(known)
        for _ in range(8):
            lively[1].write(known)
            await asyncio.sleep(0.2)
        for reader, _ in [*silent, *strange, *halting, idle]:
            await read_until_closed(reader)
        ended = gateway.counters.closed
        assert ended["apostol", "login_timeout"] == 40
        assert ended["apostol", "half_packet"] == 20
        assert ended["apostol", "idle"] >= 1
        assert gateway.admission.open == 1, "the one that goes on sending"
        for _, writer in [*silent, *strange, *halting, idle, lively]:
            writer.close()
        await until(lambda: gateway.admission.open == 0)


def tls_settings(folder: Path) -> tuple[dict[str, str], ssl.SSLContext]:
    cert, key = make_certificate(folder / "tls", HOST)
    return {"cert": str(cert), "key": str(key)}, ssl.create_default_context(cafile=str(cert))


@pytest.mark.asyncio(loop_factories=["asyncio", "uvloop"])
@pytest.mark.parametrize("listener", ["comet", "apostol", "http"])
async def test_tls_handshakes_count_as_connections(tmp_path: Path, listener: str) -> None:
    with nothing_escapes():
        files, trusted = tls_settings(tmp_path)
        limits = {"connections": 40, "connections_per_address": 10, "unauthenticated_share": 1.0}
        tls = {**files, "handshake_s": 1.0}
        async with running_gateway(tmp_path, listener, tls=tls, limits=limits) as running:
            gateway = running.gateway
            silent = [await call(running, listener) for _ in range(15)]
            reserved = 5 if listener == "http" else 0  # reserved for health checks
            await until(lambda: gateway.admission.open == 10)
            await until(lambda: gateway.counters.refused[listener, "connections_per_address_max"] == 5 - reserved)
            for reader, writer in silent:
                await read_until_closed(reader)
                writer.close()
            await until(lambda: gateway.counters.refused[listener, "tls_handshake"] == 10 + reserved)
            assert gateway.admission.open == 0
            _, writer = await asyncio.open_connection(HOST, running.port(listener), ssl=trusted)
            await until(lambda: gateway.admission.open == 1)
            writer.close()
            await until(lambda: gateway.admission.open == 0)


@pytest.mark.asyncio(loop_factories=["asyncio", "uvloop"])
async def test_many_tls_peers_log_in(tmp_path: Path) -> None:
    with nothing_escapes():
        files, trusted = tls_settings(tmp_path)
        async with running_gateway(tmp_path, "comet", auth={"open": True}, tls=files) as running:

            async def phone(number: int) -> None:
                reader, writer = await asyncio.open_connection(HOST, running.port("comet"), ssl=trusted)
                writer.write(frames.Auth(f"phone {number}", "").encode())
                async with asyncio.timeout(WAIT_S):
                    assert await reader.readexactly(3)
                writer.close()

            await asyncio.gather(*map(phone, range(60)))
            await until(lambda: running.gateway.admission.open == 0)


@pytest.mark.asyncio(loop_factories=["asyncio", "uvloop"])
async def test_accepted_connections_are_watched_by_keepalive(tmp_path: Path) -> None:
    async with running_gateway(tmp_path, "comet", "http") as running:
        _, writer = await call(running, "comet")
        await until(lambda: running.gateway.connections)
        (connection,) = running.gateway.connections.values()
        transport = connection._transport
        assert transport is not None
        accepted = transport.get_extra_info("socket")
        assert accepted.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == GATEWAY_KEEPALIVE_S
        assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        writer.close()


async def test_many_strangers_cost_little(tmp_path: Path) -> None:
    """Let each peer send as much of a frame as is allowed before the login, and disconnect."""
    async with running_gateway(tmp_path, "sisnet_tcp", "magline") as running:
        before = resident_bytes()
        for _ in range(4):
            peers = [await call(running, listener) for listener in ("sisnet_tcp", "magline") for _ in range(100)]
            for _, writer in peers:
                writer.write(write_size(15 * MIB) + bytes(64 * KIB))
            for reader, writer in peers:
                await read_until_closed(reader)
                writer.close()
        await until(lambda: not running.gateway.connections)
        assert resident_bytes() - before < 48 * MIB
