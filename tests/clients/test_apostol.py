"""A device's client against a real gateway."""

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any, Literal

import pytest
from gateway.running_gateway import HOST, WAIT_S, Running, running_gateway, until

from wirelake.backoff import Backoff
from wirelake.clients.apostol import ApostolDevice, Data, DeviceError, DeviceRequest
from wirelake.clients.client import ClientOptions
from wirelake.clients.comet import CometClient
from wirelake.clients.faults import Faults
from wirelake.errors import InputError, LateError, StateError, TranslationError
from wirelake.protocols.apostol.commands import Reading, Status
from wirelake.protocols.apostol.session import SessionSettings
from wirelake.protocols.frame import Sender

KEY = bytes(range(16))
QUICK = SessionSettings(receipt_s=0.1, resends_max=8)
PATIENT = SessionSettings(receipt_s=WAIT_S)  # sends nothing again, however busy the machine is
GATEWAY = {"receipt_s": 0.1, "resends_max": 8}
Transport = Literal["udp", "tcp"]
BOTH = pytest.mark.parametrize("transport", ["udp", "tcp"])


@asynccontextmanager
async def gateway(folder: Path, *listeners: str, **settings: Any) -> AsyncIterator[Running]:
    devices = [("m1", 6, None), ("safe", 6, KEY)]
    settings.setdefault("apostol", GATEWAY)
    async with running_gateway(folder, "apostol", *listeners, devices=devices, **settings) as running:
        yield running


def device(running: Running, serial: str = "m1", key: bytes | None = None, **options: Any) -> ApostolDevice:
    options.setdefault("settings", QUICK)
    options.setdefault("options", ClientOptions(backoff=Backoff(first_s=0.01, max_s=0.05)))
    return ApostolDevice(HOST, running.port("apostol"), serial, 6, key, **options)


def published(running: Running) -> list[dict[str, Any]]:
    return [json.loads(row["frame"]) for row in running.records("publish")]


@BOTH
async def test_reports_are_on_disk_when_they_return(tmp_path: Path, transport: Transport) -> None:
    options: dict[str, Any] = {"transport": transport, "settings": PATIENT, "time_s": lambda: 1e9}
    async with gateway(tmp_path) as running, device(running, **options) as meter:
        await meter.status(3, tariff=1, configured_at=5, time_sync=2, synced_at=6)
        assert len(running.records("frame", direction="in", identity="m1")) == 1
        await meter.readings({1: 7, 2: 70_000, 3: 1.5, 4: b"oddly"})
        await meter.readings([Reading(1, 7, 4)], zipped=True)
        await meter.report(2, bytes(5000), zipped=True)
        await meter.report(2, bytes(range(256)) * 20)
        await meter.report(9, error=3, device_time=0)
        await until(lambda: len(published(running)) == 6)
        status, readings, one, _, _, failed = published(running)
        expected = {"state": 3, "tariff": 1, "configured_at": 5, "time_sync": 2, "synced_at": 6}
        assert (status["status"], status["device_time"]) == (expected, 1_000_000_000)
        assert [(each["type"], each["size"]) for each in readings["readings"]] == [(1, 1), (2, 4), (3, 8), (4, 5)]
        assert one["readings"] == [{"type": 1, "value": 7, "size": 4}]
        assert (failed["command_type"], failed["error"], failed["device_time"]) == (9, 3, 0)


@BOTH
async def test_a_device_with_a_key_seals(tmp_path: Path, transport: Transport) -> None:
    async with gateway(tmp_path) as running, device(running, "safe", KEY, transport=transport) as meter:
        await meter.report(2, b"hidden" * 400)
        await meter.report(2, b"hidden" * 400, zipped=True, sealed=True)
        await meter.report(2, b"public", sealed=False)
        wire = b"".join(row["frame"] for row in running.records("frame", direction="in"))
        assert b"hidden" not in wire
        assert b"public" in wire
        await until(lambda: len(published(running)) == 3)
        assert published(running)[0]["data"] == published(running)[1]["data"]


@BOTH
async def test_requests_are_answered_by_the_handler(tmp_path: Path, transport: Transport) -> None:
    async def handler(request: DeviceRequest) -> Data:
        match request.command_type:
            case 0x81:
                return Status(1, 2, 3, 0, 5)
            case 0x82:
                return request.data * 1000
            case 0x84:
                return [Reading(1, 2.5)]
            case 0x85:
                raise ValueError("a fault of the handler's")
            case 0x86:
                return Status(1, 2, 3, 0, 5)  # which a command 6 cannot hold
            case kind:
                raise DeviceError(kind & 0x0F)

    async with gateway(tmp_path) as running, device(running, "safe", KEY, transport=transport) as meter:
        await meter.status(1)
        failure = (await running.command("safe", 0x82)).failure
        assert failure is not None
        assert failure.code == 2, "without a handler nothing is known"
        meter.handler = handler
        assert (await running.command("safe", 0x81)).fields["status"]["tariff"] == 2
        assert (await running.command("safe", 0x82, b"abc")).payload == b"abc" * 1000
        assert (await running.command("safe", 0x84)).fields["readings"][0]["value"] == 2.5
        for command_type, code in ((0x85, 1), (0x86, 1), (0xF1, 1), (0xF2, 2), (0xF3, 3), (0xF4, 4)):
            failure = (await running.command("safe", command_type)).failure
            assert failure is not None
            assert failure.code == code
        answers = await asyncio.gather(*(running.command("safe", 0x82, bytes([number])) for number in range(30)))
        assert [answer.payload[:1] for answer in answers] == [bytes([number]) for number in range(30)]


async def test_more_requests_than_it_works_on(tmp_path: Path) -> None:
    release = asyncio.Event()

    async def handler(_: DeviceRequest) -> Data:
        await release.wait()
        return b"done"

    async with gateway(tmp_path) as running, device(running, handler=handler) as meter:
        await meter.status(1)
        requests = [asyncio.create_task(running.command("m1", 0x82)) for _ in range(70)]
        await until(lambda: sum(task.done() for task in requests) == 6)
        refused = [task.result().failure for task in requests if task.done()]
        assert all(failure is not None and failure.code == 1 for failure in refused)
        release.set()
        answers = await asyncio.gather(*requests)
        assert sum(answer.payload == b"done" for answer in answers) == 64


@BOTH
async def test_a_broadcast_is_answered(tmp_path: Path, transport: Transport) -> None:
    requests: list[DeviceRequest] = []

    async def handler(request: DeviceRequest) -> Data:
        requests.append(request)
        return b"here"

    async with gateway(tmp_path) as running, device(running, transport=transport, handler=handler) as meter:
        await meter.status(1)
        result = await running.broadcast(0x85, b"all")
        assert [(request.command_type, request.data, request.broadcast) for request in requests] == [
            (0x85, b"all", True)
        ]
        assert [(each["serial"], each["data"]) for each in result["answers"]] == [("m1", b"here".hex())]


@BOTH
async def test_a_device_reports_to_all(tmp_path: Path, transport: Transport) -> None:
    async with gateway(tmp_path) as running, device(running, transport=transport) as meter:
        await meter.status(1)
        await meter.report(2, b"fire" * 500, broadcast=True)
        rows = await running.recorded("publish", 3)
        assert [row["note"]["topic"] for row in rows] == ["@devices/m1", "@devices/m1", "@devices/*"]


@pytest.mark.parametrize("seed", range(3))
@BOTH
async def test_a_bad_network(tmp_path: Path, transport: Transport, seed: int) -> None:
    """A third of the packets lost, repeated or late: everything arrives, each thing once."""
    faults = Faults(Random(seed), lose=0.12, repeat=0.12, delay=0.12)

    async def handler(request: DeviceRequest) -> Data:
        return request.data[::-1]

    # On TCP nothing that the gateway sends is lost; long times there keep a repeat from looking like a new command.
    settings = SessionSettings(receipt_s=0.1, resends_max=60, packet_data_bytes=100)
    async with gateway(tmp_path) as running:
        async with device(running, transport=transport, settings=settings, mangle=faults, handler=handler) as meter:
            contents = [bytes([number]) * 350 for number in range(20)]
            await asyncio.gather(*(meter.report(2, content) for content in contents))
            await until(lambda: len(published(running)) >= 20)
            answers = await asyncio.gather(*(running.command("m1", 0x82, content) for content in contents))
            assert [answer.payload for answer in answers] == contents
            assert faults.lost
            assert faults.repeated
            assert faults.delayed
        data = [each["data"] for each in published(running) if each.get("command_type") == 2]
        assert len(data) == len(set(data)) == 20


async def test_nobody_confirms(tmp_path: Path) -> None:
    def lose(_packet: bytes, _sender: Sender) -> Iterator[bytes]:
        return iter(())

    settings = SessionSettings(receipt_s=0.02, resends_max=2)
    async with gateway(tmp_path) as running:
        async with device(running, "stranger", settings=settings) as meter:
            with pytest.raises(LateError, match="no receipt after 2 repeats"):
                await meter.status(1)
            assert len(await running.recorded("refuse", 3)) == 3
        async with device(running, settings=settings, mangle=lose) as meter:
            with pytest.raises(LateError):
                await meter.status(1)
        assert running.records("frame") == []


@BOTH
async def test_a_gateway_that_comes_back(tmp_path: Path, transport: Transport) -> None:
    """A report that began while nobody was there is confirmed by the next gateway on that port."""
    settings = SessionSettings(receipt_s=0.1, resends_max=600)
    async with gateway(tmp_path) as running:
        port = running.port("apostol")
        meter = device(running, transport=transport, settings=settings)
        await meter.open()
        await meter.status(1)
    if transport == "tcp":
        await until(lambda: not meter.connected)
    waiting = asyncio.create_task(meter.status(2))
    await asyncio.sleep(0.02)
    assert not waiting.done()
    async with gateway(tmp_path, ports={"apostol": port}) as running:
        await asyncio.wait_for(waiting, WAIT_S)
        assert len(published(running)) == 2
        await meter.close()


async def test_bad_bytes_from_a_gateway() -> None:
    async def serve(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"\x03\x03")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, HOST, 0)
    port = server.sockets[0].getsockname()[1]
    options = ClientOptions(backoff=Backoff(first_s=0.01, max_s=0.01))
    async with ApostolDevice(HOST, port, "m1", transport="tcp", options=options) as meter:
        await until(lambda: meter.unreadable >= 2)
    server.close()


async def test_what_cannot_be_reported(tmp_path: Path) -> None:
    async with gateway(tmp_path) as running:
        meter = device(running)
        with pytest.raises(StateError):
            await meter.status(1)
        async with meter:
            for command_type, data in ((0x82, b""), (1, [Reading(1, 1)]), (2, bytes(300_000))):
                with pytest.raises(TranslationError):
                    await meter.report(command_type, data)
            with pytest.raises(TranslationError, match="no key"):
                await meter.report(2, b"x", sealed=True)
            await meter.status(1)
            with pytest.raises(StateError):
                await meter.open()
            running.gateway.listeners["apostol"].close()
            open_report = asyncio.create_task(meter.status(2))
            await asyncio.sleep(0)
        with pytest.raises(StateError, match="closed"):
            await open_report
        await meter.close()
    tls = ssl.create_default_context()
    with pytest.raises(InputError):
        ApostolDevice(HOST, 1, "m1", options=ClientOptions(tls=tls))


async def test_nobody_there() -> None:
    options = ClientOptions(connect_s=0.05, backoff=Backoff(first_s=0.01))
    meter = ApostolDevice(HOST, 1, "m1", transport="tcp", options=options)
    with pytest.raises(LateError, match="not connected within"):
        await meter.open()


async def test_a_phone_hears_what_a_meter_reports(tmp_path: Path) -> None:
    """Two protocols, one topic."""
    async with gateway(tmp_path, "comet", identities=[("phone", "secret")]) as running:
        phone = CometClient(HOST, running.port("comet"), "phone", "secret", secret_bytes=16)
        async with phone, device(running) as meter, device(running, "safe", KEY, transport="tcp") as safe:
            await phone.subscribe("@devices/m1", "@devices/safe")
            await meter.readings({1: 42})
            first = json.loads((await phone.next_notification(10)).content)
            assert first["readings"] == [{"type": 1, "value": 42, "size": 1}]
            await safe.status(7)
            second = json.loads((await phone.next_notification(10)).content)
            assert second["status"]["state"] == 7
