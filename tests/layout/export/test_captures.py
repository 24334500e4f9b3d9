"""Captures of our own clients and a gateway: tshark and Kaitai Struct read the fields that `wirelake decode` prints."""

import json
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, Literal

import pytest
from click.testing import CliRunner
from gateway.running_gateway import WAIT_S, Running, running_gateway

from layout.export.comparison import compare_kaitai, compare_tshark
from layout.export.kaitai_compiler import compile_ksy, parse
from layout.export.recording import HOST, Recorder, recorded_tcp, recorded_udp
from layout.export.tshark import run_tshark
from wirelake.cli.main import wirelake
from wirelake.clients.apostol import ApostolDevice, DeviceError, DeviceRequest
from wirelake.clients.comet import CometClient
from wirelake.clients.esnp import EsnpClient
from wirelake.clients.magline import MaglineClient
from wirelake.clients.serving import ServiceError, ServiceRequest
from wirelake.errors import AnswerError
from wirelake.layout import FrameSet
from wirelake.protocols import registry
from wirelake.protocols.apostol.commands import Reading
from wirelake.protocols.frame import Sender
from wirelake.protocols.protocol import Carrier

PEER = ("peer", "a long token")


async def use_comet(running: Running, recorder: Recorder) -> None:
    async with CometClient(HOST, recorder.port, *PEER, secret_bytes=32) as client:
        await client.subscribe("@news", "@weather/de")
        assert await client.topics() == ["@news", "@weather/de"]
        await running.publish("@news", "grüß Gott", type=7)
        notification = await client.next_notification(WAIT_S)
        assert len(await client.backlog()) == 1
        await client.ack(notification.id)
        await running.publish("@weather/de", "rain" * 1000)
        await client.ack((await client.next_notification(WAIT_S)).id)
        await client.report_environ(network_type=1, isp=2, phone_type="phone", extra=["a", "b"])
        await client.ping()
        await client.unsubscribe("@weather/de")


async def use_magline(running: Running, recorder: Recorder) -> None:
    async with MaglineClient(HOST, recorder.port, *PEER) as client:
        await client.subscribe("@news")
        await client.publish("@news", "grüß Gott")
        notification = await client.next_notification(WAIT_S)
        await client.ack(notification.id)
        await client.ping()
        with pytest.raises(AnswerError):  # an ERR
            await client.call(17, b"nobody provides it")
        await client.rekey()
        await client.publish("@news", b"\0" * 5000)


async def use_apostol(running: Running, recorder: Recorder, transport: Literal["tcp", "udp"]) -> None:
    async def answer(request: DeviceRequest) -> list[Reading]:
        if request.command_type != 0x84:
            raise DeviceError(2)
        return [Reading(1, 230.1), Reading(9, 70_000, 3), Reading(10, 1 << 40, 6), Reading(11, b"\1\2\3\4\5")]

    async with ApostolDevice(HOST, recorder.port, "m1", 6, handler=answer, transport=transport) as device:
        await device.status(1, tariff=2)
        await device.readings({1: 230.1, 2: 4711, 3: 255})
        await device.report(2, b"any bytes" * 500, zipped=True)
        await device.report(2, bytes(range(256)) * 8)
        await running.command("m1", 0x84, device_type=6)
        await running.command("m1", 0x85, b"refused", device_type=6)


async def use_esnp(_running: Running, recorder: Recorder) -> None:
    async def echo(request: ServiceRequest) -> Any:
        if request.op == "fail":
            raise ServiceError("no", 404)
        return request.value

    async with EsnpClient(HOST, recorder.port, *PEER) as client:
        await client.subscribe("@news", "live")
        await client.publish("@news", b"\xff\x00 no text", type=7)
        await client.next_notification(WAIT_S)
        await client.register("echo", echo)
        assert await client.ask("echo/say", {"a": [1, -2, 2.5], "b": "grüß Gott", "c": b"\0", "d": None}) is not None
        with pytest.raises(AnswerError):
            await client.ask("echo/fail", 1)
        await client.tell("echo/say", "x" * 5000)
        await client.publish("live", "bye")


Use = Callable[[Running, Recorder], Awaitable[None]]
CONVERSATIONS: dict[str, tuple[Carrier, Use]] = {
    "apostol": (Carrier.UDP, lambda running, recorder: use_apostol(running, recorder, "udp")),
    "apostol tcp": (Carrier.TCP, lambda running, recorder: use_apostol(running, recorder, "tcp")),
    "comet": (Carrier.TCP, use_comet),
    "esnp": (Carrier.TCP, use_esnp),
    "magline": (Carrier.TCP, use_magline),
}


@pytest.fixture(params=sorted(CONVERSATIONS))
async def capture(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, Carrier, Recorder]:
    """Provide what crossed the sockets in a conversation."""
    name = request.param.partition(" ")[0]
    carrier, use = CONVERSATIONS[request.param]
    async with running_gateway(tmp_path, name, identities=[PEER], devices=[("m1", 6, None)]) as running:
        recorded: AbstractAsyncContextManager[Recorder] = (
            recorded_udp(running.port(name)) if carrier is Carrier.UDP else recorded_tcp(running.port(name))
        )
        async with recorded as recorder:
            await use(running, recorder)
    return name, carrier, recorder


def export(name: str, form: str) -> str:
    result = CliRunner().invoke(wirelake, ["protocol", "export", name, "--format", form])
    assert result.exit_code == 0, result.output
    return result.stdout


def decode(name: str, data: bytes, sender: Sender, carrier: Carrier) -> list[tuple[dict[str, Any], bytes]]:
    """Return the frames that `wirelake decode --json` prints, with their bytes."""
    words = ["decode", name, "--from", sender.value, "--transport", carrier.value, "--json", "--raw", "-"]
    result = CliRunner().invoke(wirelake, words, input=data)
    assert result.exit_code == 0, result.output
    frames = json.loads(result.stdout)["frames"]
    if registry.get(name).part_layout is not None:  # then a part is what the other tools show as a frame
        frames = [part for frame in frames for part in frame["children"]]
    return [(frame, data[frame["offset"] : frame["offset"] + frame["size"]]) for frame in frames]


def layout_of(name: str) -> FrameSet:
    protocol = registry.get(name)
    layout = protocol.part_layout or protocol.layout
    assert layout is not None
    return layout


def test_tshark_reads_the_same_fields(capture: tuple[str, Carrier, Recorder], tmp_path: Path) -> None:
    name, carrier, recorder = capture
    port = next(each.port for each in registry.get(name).transports if each.carrier is carrier)
    shown = run_tshark(tmp_path, name, export(name, "wireshark"), recorder.packets(port))
    compared = 0
    for sender in Sender:
        frames = decode(name, recorder.stream(sender), sender, carrier)
        found = [each for each in shown if (each.source_port == port) == (sender is Sender.SERVER)]
        assert len(found) == len(frames) > 0
        for (frame, data), each in zip(frames, found, strict=True):
            compared += compare_tshark(frame, data, each, layout_of(name))
            assert each.experts == []
            assert each.checksum in (None, 1)
    assert compared > len(shown)


def test_kaitai_reads_the_same_fields(capture: tuple[str, Carrier, Recorder], tmp_path: Path, kaitai: Path) -> None:
    name, carrier, recorder = capture
    reader = compile_ksy(kaitai, tmp_path, name, export(name, "kaitai"))
    compared = 0
    for sender in Sender:
        data = recorder.stream(sender)
        frames, read = decode(name, data, sender, carrier), parse(reader, data, sender)
        assert len(read) == len(frames) > 0
        for (frame, raw), fields in zip(frames, read, strict=True):
            compared += compare_kaitai(frame, raw, fields, layout_of(name))
    assert compared > 0
