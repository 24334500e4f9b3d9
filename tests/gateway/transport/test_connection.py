"""A closed connection is cleaned up even if the log refuses; one that cannot be recorded is not accepted."""

import asyncio
import ctypes
import gc
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from gateway.comet_client import Phone
from gateway.full_disk import FullDisk, nothing_escapes
from gateway.hostile_peers import open_device_socket, read_until_closed, resident_bytes, wait_for_packets
from gateway.magline_client import Box
from gateway.running_gateway import HOST, WAIT_S, Running, running_gateway, until
from wirelake.errors import StorageError
from wirelake.gateway.devices.listener import DeviceListener
from wirelake.limits import MIB, QUARANTINE_BYTES_MAX
from wirelake.protocols.apostol.constants import FIRST, LAST
from wirelake.protocols.apostol.frames import Packet
from wirelake.protocols.comet import frames
from wirelake.protocols.magline import frames as magline_frames
from wirelake.protocols.sisnet.envelope import sized
from wirelake.state.subscriptions import ExpiredRange, SweepResult

ANN = ("ann", "t0ken")
STATUS = bytes.fromhex("a6530c5e010000000400000000029c530c5e")


async def call(running: Running, listener: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection(HOST, running.port(listener))


async def redis_subscriber(running: Running, topic: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await call(running, "redis")
    writer.write(b"AUTH ann t0ken\r\nSUBSCRIBE " + topic.encode() + b"\r\n")
    return reader, writer


def used_bytes() -> int:
    """Return the resident memory after the C library released what it had cached."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    return resident_bytes()


async def read_until(reader: asyncio.StreamReader, last: bytes) -> bytes:
    async with asyncio.timeout(WAIT_S):
        return await reader.readuntil(last)


@pytest.mark.parametrize("full", [False, True], ids=["writable", "full"])
@pytest.mark.parametrize("logged_in", [False, True], ids=["stranger", "logged_in"])
async def test_memory_of_unfinished_frames_is_given_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, logged_in: bool, full: bool
) -> None:
    """Let peers announce a long frame, send most of it, and disconnect."""
    disk, peers, size = FullDisk(monkeypatch), 24, 8 * MIB

    async def send_most(running: Running) -> list[asyncio.StreamWriter]:
        writers = []
        for _ in range(peers):
            reader, writer = await call(running, "sisnet_tcp")
            if logged_in:
                writer.write(sized(b'in:{"command":"login","ask":{"name":"ann","password":"t0ken"}}'))
                await read_until(reader, b'"ans":0}')
            writer.write(b"\xfd" + (16 * MIB - 1000).to_bytes(4, "little"))
            for _ in range(size // MIB):
                writer.write(bytes(MIB))
                await asyncio.sleep(0)
            writers.append(writer)
        return writers

    async with running_gateway(tmp_path, "sisnet_tcp", identities=[ANN]) as running:
        gateway, before = running.gateway, used_bytes()
        with nothing_escapes():
            writers = await send_most(running)
            if logged_in:
                await until(lambda: sum(each.bytes_in for each in gateway.connections.values()) >= peers * size)
            async with disk.refusing(running) if full else nullcontext():
                for writer in writers:
                    writer.transport.abort()
                writers.clear()
                await until(lambda: not gateway.connections)
            assert gateway.admission.open == 0
            if not full:
                quarantined = await running.undecodable_records(peers)
                assert max(len(row["frame"]) for row in quarantined) <= QUARANTINE_BYTES_MAX
        await asyncio.sleep(0)
        assert used_bytes() - before < peers * size // 4


async def test_a_dead_subscriber_acks_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Disconnect inside a command while the log refuses; later notifications wait for the subscriber."""
    disk = FullDisk(monkeypatch)
    async with running_gateway(tmp_path, "redis", identities=[ANN]) as running:
        gateway = running.gateway
        reader, writer = await redis_subscriber(running, "@kept")
        await read_until(reader, b":1\r\n")
        with nothing_escapes():
            async with disk.refusing(running):
                writer.write(b"*2\r\n$4\r\nECHO\r\n$5\r\nhal")
                await until(lambda: any(each.bytes_in > 50 for each in gateway.connections.values()))
                writer.close()
                await until(lambda: not gateway.connections)
                assert gateway.broker.durable.connected("@kept") == 0
                assert gateway.admission.open == 0
                assert gateway.counters.connections["redis"] == 0
                assert gateway.recorder.unrecorded["redis", "quarantine"] == 1
                assert gateway.recorder.unrecorded["redis", "close"] == 1
            for number in range(5):
                await running.publish("@kept", f"later {number}")
            assert [each.content for each in running.waiting("ann")] == [b"later %d" % n for n in range(5)]
            reader, writer = await redis_subscriber(running, "@kept")
            received = await read_until(reader, b"later 4\r\n")
            assert all(b"later %d" % number in received for number in range(5))
        writer.close()


@pytest.mark.parametrize("listener", ["comet", "magline", "esnp", "sisnet", "sisnet_tcp", "redis"])
async def test_a_connection_that_cannot_be_recorded_is_closed_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, listener: str
) -> None:
    disk = FullDisk(monkeypatch)
    protocol = {"sisnet_tcp": "sisnet", "redis": "redis"}.get(listener, listener)
    async with running_gateway(tmp_path, listener, identities=[ANN]) as running:
        gateway = running.gateway
        with nothing_escapes():
            async with disk.refusing(running):
                peers = [await call(running, listener) for _ in range(10)]
                for reader, writer in peers:
                    assert await read_until_closed(reader) == b""
                    writer.close()
                assert gateway.counters.refused[protocol, "storage"] == 10
                assert gateway.counters.connections[protocol] == 0
                assert (gateway.connections, gateway.admission.open) == ({}, 0)
                assert gateway.recorder.unrecorded[protocol, "open"] == 10
            reader, writer = await call(running, listener)
            await until(lambda: len(gateway.connections) == 1)
        writer.close()


async def test_a_login_that_cannot_be_recorded_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the second login of a phone fail: its first connection is not affected."""
    disk = FullDisk(monkeypatch)
    async with running_gateway(tmp_path, "comet", identities=[ANN]) as running:
        gateway = running.gateway
        first = await Phone.connect(running.port("comet"), *ANN)
        second = await Phone.connect(running.port("comet"))
        await until(lambda: len(gateway.connections) == 2)
        held = next(each for each in gateway.connections.values() if not each.identity)
        accepted = gateway.counters.logins["comet", "accepted"]
        with nothing_escapes():
            async with disk.refusing(running):
                for message in held.session.receive(frames.Auth(*ANN), gateway.now_s()).messages:
                    # Its frame was recorded before the log refused.
                    gateway.transport.dispatcher.on_message(held, message)
                assert await second.receive() is None
                await until(lambda: len(gateway.connections) == 1)
            assert gateway.counters.logins["comet", "accepted"] == accepted
            assert await first.ask(frames.Heartbeat()) == frames.Ok()
        async with first, second:
            pass


async def test_a_session_that_begins_anew_is_nobody_also_when_the_log_refuses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = FullDisk(monkeypatch)
    async with running_gateway(tmp_path, "magline", identities=[ANN]) as running:
        gateway = running.gateway
        async with await Box.connect(running, *ANN) as box:
            assert await box.ask(2, topics=["@kept"]) == {"ok": True}
            with nothing_escapes():
                async with disk.refusing(running):
                    box.send(magline_frames.Syn(bytes(32), bytes(range(32)), b"", seq=box.next_seq()))
                    await until(lambda: not gateway.connections)
                    assert gateway.broker.durable.connected("@kept") == 0


async def test_devices_begin_and_end_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reject a device that cannot be recorded; remove one that disconnects while the log refuses."""
    disk = FullDisk(monkeypatch)
    first, second = (Packet(1, FIRST | LAST, 6, serial, 1, 0, STATUS).encode() for serial in ("1", "2"))
    devices = [("1", 6, None), ("2", 6, None)]
    async with running_gateway(tmp_path, "apostol", devices=devices, apostol={"idle_s": 0.5}) as running:
        gateway = running.gateway
        transport, device = await open_device_socket(running)
        transport.sendto(first)
        await wait_for_packets(device, 1)
        with nothing_escapes():
            async with disk.refusing(running):
                transport.sendto(second)
                await until(lambda: gateway.recorder.unrecorded["apostol", "open"])
                await until(lambda: not gateway.devices.peers)
                assert gateway.broker.devices == {}
                assert gateway.counters.connections["apostol"] == 0
                assert gateway.recorder.unrecorded["apostol", "close"] == 1
            transport.sendto(second)
            await wait_for_packets(device, 2)
        assert list(gateway.devices.peers) == ["2"]
        transport.close()
        await asyncio.sleep(0)


async def test_a_stream_of_packets_gives_its_place_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = FullDisk(monkeypatch)
    async with running_gateway(tmp_path, "apostol") as running:
        gateway = running.gateway
        _, writer = await call(running, "apostol")
        await until(lambda: gateway.admission.open == 1)
        with nothing_escapes():
            async with disk.refusing(running):
                writer.write(b"\x40half a packet")
                await asyncio.sleep(0.05)
                writer.close()
                await until(lambda: gateway.admission.open == 0)
        listener = gateway.listeners["apostol"]
        assert isinstance(listener, DeviceListener)
        assert listener.streams == set()
        assert gateway.recorder.unrecorded["apostol", "quarantine"] == 1


async def test_a_record_of_the_sweep_that_is_refused_stops_none_of_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running_gateway(tmp_path) as running:
        gateway = running.gateway
        topic = gateway.recorder.topic

        def refuse_one(event: str, name: str, data: bytes, note: dict[str, Any]) -> None:
            if name == "@a":
                raise StorageError("the log is behind")
            topic(event, name, data, note)

        monkeypatch.setattr(gateway.recorder, "topic", refuse_one)
        gateway.periodic_work.on_swept(SweepResult(2, expired=[ExpiredRange("@a", 1, 2), ExpiredRange("@b", 1, 2)]))
        (row,) = await running.recorded("expire")
        assert row["note"]["topic"] == "@b"
