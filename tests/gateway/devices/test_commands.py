"""The service `devices` in every form that esnp has; test_crossing.py has the other protocols."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from gateway.running_gateway import HOST, Running, running_gateway, until
from wirelake.clients.apostol import ApostolDevice, DeviceRequest
from wirelake.clients.esnp import EsnpClient
from wirelake.errors import AnswerError, LostError
from wirelake.protocols.apostol.commands import Reading

ANN = ("ann", "t0ken")


async def answer(request: DeviceRequest) -> Any:
    if request.command_type == 0x84:
        return [Reading(1, 230.5)]
    if request.data == b"wait":
        await asyncio.Event().wait()
    return request.data[::-1]


@asynccontextmanager
async def meter_and_asker(folder: Path) -> AsyncIterator[tuple[Running, EsnpClient]]:
    async with (
        running_gateway(
            folder, "apostol", "esnp", identities=[(*ANN, "admin")], devices=[("m1", 0, bytes(16))]
        ) as running,
        ApostolDevice(HOST, running.port("apostol"), "m1", 0, bytes(16), handler=answer) as device,
        EsnpClient(HOST, running.port("esnp"), *ANN) as client,
    ):
        await device.report(2, b"here I am")
        yield running, client


async def test_the_serial_and_the_data_may_stand_in_several_places(tmp_path: Path) -> None:
    async with meter_and_asker(tmp_path) as (_, client):
        for address, value in (
            ("devices/command?o=m1", {"type": 130, "data": "0a0b"}),
            ("devices/command?o=m1", {"type": 130, "data": b"\x0a\x0b"}),
            ("devices/command", {"serial": "m1", "type": 130, "payload": b"\x0a\x0b"}),
        ):
            response = await client.ask(address, value)
            assert (response["serial"], response["type"], response["error"], response["data"]) == ("m1", 2, 0, "0b0a")
        response = await client.ask("devices/command?o=m1", {"type": 0x84})
        assert [(each["type"], each["value"]) for each in response["readings"]] == [(1, 230.5)]
        assert "data" not in response


async def test_its_hops(tmp_path: Path) -> None:
    async with meter_and_asker(tmp_path) as (_, client):
        response, hops = await client.trace("devices/command?o=m1", {"type": 130})
        assert response["data"] == ""
        assert [(hop.hop, hop.node) for hop in hops] == [
            ("received", "local"),
            ("routed to", "local"),
            ("routed to", "m1"),
            ("answered by", "m1"),
        ]


@pytest.mark.parametrize(
    ("address", "value", "words"),
    [
        ("devices/dance?o=m1", {"type": 130}, r"Address\[20=dance,30=devices\] not found"),
        ("devices/command", {"type": 130}, "no device given"),
        ("devices/command", {"type": 130, "serial": 5}, "no device given"),
        ("devices/command?o=m2", {"type": 130}, "'m2' is offline"),
        ("devices/command?o=m1", {"type": 2}, "type"),
        ("devices/command?o=m1", {"type": 130, "data": "no hex"}, "hex"),
        ("devices/command?o=m1", {"type": 130, "colour": 1}, "colour"),
        ("devices/command?o=m1", {"type": 130, "data": b"wait", "wait_ms": 50}, "timeout"),
    ],
)
async def test_what_goes_wrong_is_said(tmp_path: Path, address: str, value: dict[str, Any], words: str) -> None:
    async with meter_and_asker(tmp_path) as (_, client):
        with pytest.raises(AnswerError, match=words):
            await client.ask(address, value)
        assert (await client.ask("devices/command?o=m1", {"type": 130}))["error"] == 0


async def test_who_asked_and_left_leaves_nothing_behind(tmp_path: Path) -> None:
    async with meter_and_asker(tmp_path) as (running, client):
        pending = asyncio.create_task(client.ask("devices/command?o=m1", {"type": 130, "data": b"wait"}))
        await until(lambda: running.gateway.broker.services.open == 1)
        for connection in list(running.gateway.connections.values()):
            if connection.protocol == "esnp":
                connection.abort()
        with pytest.raises(LostError):
            await pending
        await until(lambda: running.gateway.broker.services.open == 0)
