"""A protocol on UDP: one session for each source address, limited as TCP connections are."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, Self

import pytest

from gateway.installed_protocol import example, installed_protocols
from gateway.running_gateway import HOST, WAIT_S, Running, running_gateway, until
from wirelake.gateway.transport import udp
from wirelake.gateway.transport.listeners import SharedPort
from wirelake.gateway.transport.udp import UdpListener
from wirelake.protocols.frame import Sender

pager, beacon = example("pager"), example("beacon")
ANN = ("ann", "t-ann")
OSLO = beacon.Reading("Oslo", -75)


@pytest.fixture(autouse=True)
def _installed() -> Iterator[None]:
    with installed_protocols({"pager": "pager:PROTOCOL", "beacon": "beacon:PROTOCOL"}):
        yield


class Datagrams(asyncio.DatagramProtocol):
    """Send pager frames over UDP, and queue those that arrive."""

    def __init__(self) -> None:
        self.datagrams: asyncio.Queue[bytes] = asyncio.Queue()

    @classmethod
    @contextlib.asynccontextmanager
    async def open(cls, port: int) -> AsyncIterator[Self]:
        loop = asyncio.get_running_loop()
        transport, opened = await loop.create_datagram_endpoint(cls, remote_addr=(HOST, port))
        try:
            opened.transport = transport
            yield opened
        finally:
            transport.close()

    def datagram_received(self, data: bytes, addr: Any) -> None:
        self.datagrams.put_nowait(data)

    def send(self, *frames: Any) -> None:
        self.transport.sendto(b"".join(frame.encode() for frame in frames))

    transport: asyncio.DatagramTransport

    async def receive(self) -> list[Any]:
        """Return the frames of the next datagram."""
        async with asyncio.timeout(WAIT_S):
            data = await self.datagrams.get()
        return [
            pager.FRAMES.decode(raw, Sender.SERVER)
            for raw in pager.PROTOCOL.splitter(Sender.SERVER, "udp").receive(data)
        ]

    async def one(self) -> Any:
        (frame,) = await self.receive()
        return frame

    async def ask(self, frame: Any) -> Any:
        self.send(frame)
        return await self.one()

    async def log_in(self, identity: str = ANN[0], token: str = ANN[1]) -> None:
        answer = await self.ask(pager.Login(number=1, identity=identity, token=token))
        assert answer == pager.Reply(number=1), answer


def listener_of(running: Running, setting: str) -> UdpListener:
    found = running.gateway.listeners[setting]
    if isinstance(found, SharedPort):
        found = next(each for each in found.listeners if isinstance(each, UdpListener))
    assert isinstance(found, UdpListener)
    return found


async def test_a_session_for_each_source(tmp_path: Path) -> None:
    async with (
        running_gateway(tmp_path, "pager", identities=[ANN, ("bob", "t-bob")]) as running,
        Datagrams.open(running.port("pager")) as ann,
        Datagrams.open(running.port("pager")) as bob,
    ):
        await ann.log_in()
        await bob.log_in("bob", "t-bob")
        assert await ann.ask(pager.Subscribe(number=2, topic="@news")) == pager.Reply(number=2)
        answer = await bob.ask(pager.Publish(number=3, topic="@news", content=b"hello"))
        page = await ann.one()
        assert (page.topic, page.content) == ("@news", b"hello")
        assert json.loads(answer.content)["id"] == page.id
        assert [note.id for note in running.waiting("ann")] == [page.id]
        await ann.ask(pager.Ack(number=4, id=page.id))
        assert running.waiting("ann") == []
        sessions = {(each.identity, each.protocol) for each in running.gateway.connections.values()}
        assert sessions == {("ann", "pager"), ("bob", "pager")}


async def test_udp_and_tcp_share_a_port(tmp_path: Path) -> None:
    async with (
        running_gateway(tmp_path, "pager", identities=[ANN, ("bob", "t-bob")]) as running,
        Datagrams.open(running.port("pager")) as ann,
    ):
        await ann.log_in()
        reader, writer = await asyncio.open_connection(HOST, running.port("pager"))
        writer.write(pager.Login(number=9, identity="bob", token="t-bob").encode())
        async with asyncio.timeout(WAIT_S):
            assert await reader.readexactly(8) == pager.Reply(number=9).encode()
        writer.close()
        assert running.gateway.counters.logins["pager", "accepted"] == 2


async def test_a_datagram_may_hold_several_frames_and_bad_ones_close_nothing(tmp_path: Path) -> None:
    async with (
        running_gateway(tmp_path, "pager", identities=[ANN]) as running,
        Datagrams.open(running.port("pager")) as ann,
    ):
        await ann.log_in()
        ann.send(pager.Ping(number=2), pager.Ping(number=3))
        numbers = [frame.number for frame in await ann.receive()]
        if len(numbers) == 1:
            numbers += [frame.number for frame in await ann.receive()]
        assert numbers == [2, 3]
        good, strange = pager.Ping(number=4).encode(), bytes.fromhex("5063000000050000")
        ann.transport.sendto(good + strange + pager.Ping(number=6).encode() + b"\x50\x02")
        received: list[int] = []
        while len(received) < 2:
            received += [frame.number for frame in await ann.receive()]
        assert received == [4, 6]
        unread = await running.undecodable_records(2)
        assert {(row["event"], row["note"]["code"]) for row in unread} == {
            ("fault", "type"),
            ("quarantine", "incomplete"),
        }
        ann.transport.sendto(b"garbage that is no frame at all")
        (row,) = [row for row in await running.undecodable_records(3) if row["note"]["code"] == "magic"]
        assert row["frame"] == b"garbage that is no frame at all"
        assert row["identity"] == "ann"
        assert await ann.ask(pager.Ping(number=7)) == pager.Reply(number=7)
        assert running.gateway.counters.quarantined["pager"] == 3
        assert len(running.gateway.connections) == 1


async def test_strangers_are_limited_as_on_tcp_and_refusals_counted(tmp_path: Path) -> None:
    limits = {"connections": 8, "unauthenticated_share": 0.5}
    async with (
        running_gateway(tmp_path, "pager", identities=[ANN], limits=limits) as running,
        contextlib.AsyncExitStack() as opened,
    ):
        for _ in range(6):
            source = await opened.enter_async_context(Datagrams.open(running.port("pager")))
            source.transport.sendto(b"\x50")
        counters = running.gateway.counters
        await until(lambda: counters.refused["pager", "unauthenticated_per_address_max"] == 4)
        assert listener_of(running, "pager").sources == 2
        assert counters.accepted["pager"] == 2


async def test_a_login_comes_in_time(tmp_path: Path) -> None:
    async with (
        running_gateway(tmp_path, "pager", identities=[ANN], pager={"login_s": 0.05}) as running,
        Datagrams.open(running.port("pager")) as source,
    ):
        source.transport.sendto(b"\x50")
        refused = await source.one()
        assert (refused.code, refused.content) == (pager.Code.LOG_IN_FIRST, b"no login in time")
        await until(lambda: listener_of(running, "pager").sources == 0)
        assert running.gateway.admission.open == 0


async def test_a_silent_source_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(udp, "UDP_IDLE_S", 0.05)
    monkeypatch.setattr(udp, "UDP_IDLE_CHECK_S", 0.01)
    async with (
        running_gateway(tmp_path, "beacon", devices=[("Oslo", 0, None)]) as running,
        Datagrams.open(running.port("beacon")) as source,
    ):
        source.send(OSLO)
        (row,) = await running.recorded("close")
        assert (row["identity"], row["note"]["reason"]) == ("Oslo", "idle")
        assert listener_of(running, "beacon").sources == 0
        assert running.gateway.admission.open == 0


async def test_datagrams_that_come_too_fast_wait_and_then_are_dropped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(udp, "UDP_WAITING_BYTES_MAX", 24)
    async with (
        running_gateway(tmp_path, "pager", identities=[ANN], limits={"frames_per_second": 1}) as running,
        Datagrams.open(running.port("pager")) as ann,
    ):
        await ann.log_in()
        for number in range(2, 12):
            ann.send(pager.Ping(number=number))
        await until(lambda: running.gateway.counters.errors["pager", "datagram_dropped"] >= 5)
        assert (await ann.one()).number == 2, "those that wait are answered, in order"


async def test_what_no_datagram_holds_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Skip a durable notification that cannot be sent, so that it does not block those after it."""
    monkeypatch.setattr(udp, "UDP_DATAGRAM_BYTES_MAX", 1000)
    async with (
        running_gateway(tmp_path, "pager", identities=[ANN]) as running,
        Datagrams.open(running.port("pager")) as ann,
    ):
        await ann.log_in()
        await ann.ask(pager.Subscribe(number=2, topic="@big"))
        await running.publish("@big", b"x" * 1000)
        await running.publish("@big", b"small")
        assert (await ann.one()).content == b"small"
        assert running.gateway.broker.notifier.unencodable["pager"] == 1


async def test_a_beacon_reports_telemetry(tmp_path: Path) -> None:
    async with (
        running_gateway(tmp_path, "beacon", devices=[("Oslo", 0, None)]) as running,
        Datagrams.open(running.port("beacon")) as oslo,
        Datagrams.open(running.port("beacon")) as stranger,
    ):
        oslo.send(OSLO, beacon.Reading("Oslo", -70))
        first, second = await running.recorded("publish", 2)
        assert (first["note"]["topic"], first["note"]["by"]) == ("@devices/Oslo", "Oslo")
        assert [json.loads(row["frame"]) for row in (first, second)] == [{"celsius": -7.5}, {"celsius": -7.0}]
        assert [row["frame"] for row in running.records("frame", protocol="beacon")] == [
            OSLO.encode(),
            beacon.Reading("Oslo", -70).encode(),
        ]
        stranger.send(beacon.Reading("Rome", 300))
        (refused,) = await running.recorded("refuse")
        assert refused["note"] == {"reason": "unknown_device", "user": "Rome"}
        oslo.send(beacon.Reading("Bergen", 1))
        await until(lambda: running.gateway.counters.closed["beacon", "another_station"] == 1)
        assert len(running.records("publish")) == 2
