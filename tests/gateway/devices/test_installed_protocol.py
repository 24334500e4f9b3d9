"""An installed protocol whose frames name devices: sessions belong to the devices, wherever they send from."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from gateway.devices.tracker_protocol import BROKEN, Ack, Query, beacon
from gateway.installed_protocol import installed_protocols
from gateway.running_gateway import HOST, WAIT_S, Running, running_gateway, until

OSLO, ROME = beacon.Reading("Oslo", -75), beacon.Reading("Rome", 221)
DEVICES = [("Oslo", 0, None), ("Rome", 0, None), (BROKEN, 0, None)]


@pytest.fixture(autouse=True)
def _installed() -> Iterator[None]:
    with installed_protocols({"tracker": "gateway.devices.tracker_protocol:PROTOCOL"}):
        yield


class Sender(asyncio.DatagramProtocol):
    """Send readings from one address, and queue the datagrams that arrive there."""

    transport: asyncio.DatagramTransport

    def __init__(self) -> None:
        self.datagrams: asyncio.Queue[bytes] = asyncio.Queue()

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def datagram_received(self, data: bytes, addr: Any) -> None:
        self.datagrams.put_nowait(data)

    def send(self, *frames: Any) -> None:
        self.transport.sendto(b"".join(frame.encode() for frame in frames))

    async def receive(self) -> bytes:
        async with asyncio.timeout(WAIT_S):
            return await self.datagrams.get()


@asynccontextmanager
async def sender(running: Running) -> AsyncIterator[Sender]:
    loop = asyncio.get_running_loop()
    transport, opened = await loop.create_datagram_endpoint(Sender, remote_addr=(HOST, running.port("tracker")))
    try:
        yield opened
    finally:
        transport.close()


async def test_a_reading_is_published_and_logged_before_its_acknowledgement(tmp_path: Path) -> None:
    async with running_gateway(tmp_path, "tracker", devices=DEVICES) as running, sender(running) as device:
        device.send(OSLO, ROME)
        assert {await device.receive(), await device.receive()} == {Ack("Oslo").encode(), Ack("Rome").encode()}
        published = {row["note"]["topic"]: row["frame"] for row in running.records("publish")}
        assert published == {"@devices/Oslo": b'{"celsius":-7.5}', "@devices/Rome": b'{"celsius":22.1}'}
        assert set(running.gateway.devices.peers) == {"Oslo", "Rome"}
        frames = [(row["direction"], row["identity"], row["frame"]) for row in running.records("frame")]
        assert ("in", "Oslo", OSLO.encode()) in frames
        assert ("out", "Rome", Ack("Rome").encode()) in frames


async def test_a_device_that_moves_keeps_its_session_and_is_queried_where_it_is(tmp_path: Path) -> None:
    async with (
        running_gateway(tmp_path, "tracker", devices=DEVICES) as running,
        sender(running) as first,
        sender(running) as second,
    ):
        first.send(OSLO)
        assert await first.receive() == Ack("Oslo").encode()
        session = running.gateway.devices.peers["Oslo"].id
        second.send(OSLO)
        assert await second.receive() == Ack("Oslo").encode()
        assert running.gateway.devices.peers["Oslo"].id == session
        answer = asyncio.create_task(running.command("Oslo", 0x82))
        assert await second.receive() == Query("Oslo").encode()
        second.send(beacon.Reading("Oslo", 12))
        assert await second.receive() == Ack("Oslo").encode()
        assert (await answer).fields == {"celsius": 1.2}
        assert first.datagrams.empty()


async def test_one_tcp_connection_carries_several_devices(tmp_path: Path) -> None:
    async with running_gateway(tmp_path, "tracker", devices=DEVICES) as running:
        reader, writer = await asyncio.open_connection(HOST, running.port("tracker"))
        writer.write(OSLO.encode() + ROME.encode())
        async with asyncio.timeout(WAIT_S):
            data = await reader.readexactly(len(Ack("Oslo").encode()) * 2)
        assert {data[:6], data[6:]} == {Ack("Oslo").encode(), Ack("Rome").encode()}
        writer.close()


async def test_an_unknown_device_is_refused_and_counted(tmp_path: Path) -> None:
    async with running_gateway(tmp_path, "tracker", devices=DEVICES) as running, sender(running) as device:
        device.send(beacon.Reading("nowhere", 1))
        (refused,) = await running.recorded("refuse", 1)
        assert (refused["identity"], refused["note"]["reason"]) == ("nowhere", "unknown_device")
        assert running.gateway.counters.refused["tracker", "unknown_device"] == 1
        assert device.datagrams.empty()


async def test_a_session_that_raises_ends_only_itself(tmp_path: Path) -> None:
    async with running_gateway(tmp_path, "tracker", devices=DEVICES) as running, sender(running) as device:
        device.send(beacon.Reading(BROKEN, 1))
        await until(lambda: running.gateway.counters.closed["tracker", "session_fault"] == 1)
        device.send(OSLO)
        assert await device.receive() == Ack("Oslo").encode()
        assert set(running.gateway.devices.peers) == {"Oslo"}
