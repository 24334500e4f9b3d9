import asyncio
from pathlib import Path
from typing import Any

import httpx
import pytest

from gateway.apostol_client import Meter, report
from gateway.http.calling import BOB, Calling, calling
from wirelake.protocols.apostol.commands import Reading, encode_data
from wirelake.protocols.apostol.constants import ANSWER

KEY = bytes(range(16))
COMMANDS = "/api/devices/m1/commands"


async def heard(caller: Calling, meter: Meter, serial: str = "m1") -> None:
    """Send one report of the device, and wait for its receipt."""
    meter.send(report(serial, 1, b"hello")[0])
    assert (await meter.receive()).receipt


async def answered(asked: "asyncio.Task[httpx.Response]", meter: Meter, data: bytes, **rest: Any) -> httpx.Response:
    request = await meter.receive()
    assert request.to_device
    for packet in report("m1", request.command_no, data, params=ANSWER, **rest):
        meter.send(packet)
    return await asked


async def test_devices_are_added_listed_without_keys_and_removed(tmp_path: Path) -> None:
    async with calling(tmp_path, identities=[BOB]) as caller:
        response = await caller.call("POST", "/api/devices", {"serial": "m1", "type": 6, "key": KEY.hex()})
        assert response.status_code == 201
        assert (await caller.call("POST", "/api/devices", {"serial": "a/2"})).json()["has_key"] is False
        device = caller.gateway.state.devices.find("m1")
        assert device is not None
        assert (device.type, device.key) == (6, KEY)

        listed = await caller.call("GET", "/api/devices", bearer=":".join(BOB))
        rows = listed.json()["devices"]
        assert [(row["serial"], row["type"], row["has_key"], row["heard"]) for row in rows] == [
            ("a/2", 0, False, False),
            ("m1", 6, True, False),
        ]
        assert KEY.hex() not in listed.text
        assert not any(KEY.hex().encode() in row["frame"] for row in caller.records())

        assert (await caller.call("DELETE", "/api/devices/a%2F2")).status_code == 204
        assert (await caller.call("DELETE", "/api/devices/m1")).status_code == 204
        assert caller.gateway.state.devices.list() == []
        await caller.refused(404, "not_found", "DELETE", "/api/devices/m1")


@pytest.mark.parametrize(
    "body",
    [{}, {"serial": ""}, {"serial": "x", "type": 256}, {"serial": "x", "key": "00"}, {"serial": "x", "key": "z"}],
)
async def test_a_bad_device(tmp_path: Path, body: object) -> None:
    async with calling(tmp_path, devices=[("m1", 0, None)]) as caller:
        await caller.refused(400, "bad_request", "POST", "/api/devices", body)
        await caller.refused(409, "conflict", "POST", "/api/devices", {"serial": "m1"})


async def test_a_command_is_answered_with_what_the_device_says(tmp_path: Path) -> None:
    async with (
        calling(tmp_path, "apostol", devices=[("m1", 0, None)], identities=[(*BOB, "admin")]) as caller,
        await Meter.connect(caller.port("apostol")) as meter,
    ):
        await heard(caller, meter)
        body = {"type": 0x82, "data": "0a0b"}
        asked = asyncio.create_task(caller.call("POST", COMMANDS, body, bearer=":".join(BOB)))
        response = await answered(asked, meter, b"\x0c\x0d")
        assert response.status_code == 200
        assert response.json() == {
            "serial": "m1", "type": 2, "error": 0, "device_time": 1_700_000_000, "data": "0c0d",
        }  # fmt: skip
        assert (await meter.receive()).receipt

        asked = asyncio.create_task(caller.call("POST", COMMANDS, {"type": 0x84}))
        readings = encode_data((Reading(1, 500), Reading(2, 1.5)))
        response = await answered(asked, meter, readings, command_type=4)
        values = [(reading["type"], reading["value"]) for reading in response.json()["readings"]]
        assert values == [(1, 500), (2, 1.5)]
        assert (await meter.receive()).receipt

        asked = asyncio.create_task(caller.call("POST", COMMANDS, {"type": 0x82}))
        response = await answered(asked, meter, b"", error=3)
        assert response.status_code == 200, "the device did answer"
        assert (response.json()["error"], response.json()["error_text"]) == (3, "bad format")

        rows = caller.records("frame", protocol="http")
        assert [row["direction"] for row in rows] == ["in", "out"] * 3


async def test_unknown_not_heard_and_silent_devices(tmp_path: Path) -> None:
    async with calling(tmp_path, "apostol", devices=[("m1", 0, None)]) as caller:
        body = {"type": 130, "wait_ms": 50}
        assert "nobody" in await caller.refused(404, "not_found", "POST", "/api/devices/nobody/commands", body)
        assert "'m1' is offline" in await caller.refused(409, "not_heard", "POST", COMMANDS, body)
        async with await Meter.connect(caller.port("apostol")) as meter:
            await heard(caller, meter)
            message = await caller.refused(504, "timeout", "POST", COMMANDS, body)
            assert message == "device 'm1' did not answer within 50 ms"
        assert caller.gateway.broker.services.open == 0


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"type": 2},
        {"type": 256},
        {"type": 130, "data": "xy"},
        {"type": 130, "wait_ms": 0},
        {"type": 130, "wait_ms": 30001},
    ],
)
async def test_a_bad_command(tmp_path: Path, body: object) -> None:
    async with calling(tmp_path, devices=[("m1", 0, None)]) as caller:
        await caller.refused(400, "bad_request", "POST", COMMANDS, body)


async def test_removing_a_device_ends_its_session(tmp_path: Path) -> None:
    async with (
        calling(tmp_path, "apostol", devices=[("m1", 0, None)]) as caller,
        await Meter.connect(caller.port("apostol")) as meter,
    ):
        await heard(caller, meter)
        (row,) = (await caller.call("GET", "/api/devices")).json()["devices"]
        assert row["heard"]
        await caller.call("DELETE", "/api/devices/m1")
        assert not caller.gateway.devices.peers
        meter.send(report("m1", 2, b"again")[0])
        assert await meter.is_silent()


async def test_a_device_and_its_packets_that_wait_for_others(tmp_path: Path) -> None:
    async with calling(tmp_path, "apostol", devices=[("m1", 0, None), ("a/2", 0, None)], identities=[BOB]) as caller:
        quiet = (await caller.call("GET", "/api/devices/a%2F2")).json()
        assert (quiet["serial"], quiet["heard"], quiet["heard_at_ms"]) == ("a/2", False, None)
        await caller.refused(404, "not_found", "GET", "/api/devices/nobody")
        async with await Meter.connect(caller.port("apostol")) as meter:
            packets = report("m1", 9, bytes(30), data_bytes=10)
            assert len(packets) == 4, "the time and the type come before the data"
            for number in (0, 2):
                meter.send(packets[number])
                assert (await meter.receive()).receipt
            found = (await caller.call("GET", "/api/devices/m1", bearer=":".join(BOB))).json()
            (command,) = found["under_way"]
            assert (command["command_no"], command["packets"], command["packets_in_all"]) == (9, 2, None)
            assert (command["missing"], command["bytes"]) == ([1], 20)
            assert command["began_at_ms"] < command["expires_at_ms"]
            assert (found["topic"], found["assembling"], found["heard"]) == ("@devices/m1", 1, True)
            assert abs(found["heard_at_ms"] - caller.gateway.now_ms()) < 60_000
            meter.send(packets[3])
            assert (await meter.receive()).receipt
            (command,) = (await caller.call("GET", "/api/devices/m1")).json()["under_way"]
            assert (command["packets_in_all"], command["missing"]) == (4, [1])
            meter.send(packets[1])
            assert (await meter.receive()).receipt
            assert (await caller.call("GET", "/api/devices/m1")).json()["under_way"] == []


async def test_a_device_that_is_not_registered_is_shown_while_it_is_heard(tmp_path: Path) -> None:
    async with (
        calling(tmp_path, "apostol", apostol={"open": True}) as caller,
        await Meter.connect(caller.port("apostol")) as meter,
    ):
        await heard(caller, meter, "guest")
        found = (await caller.call("GET", "/api/devices/guest")).json()
        assert (found["heard"], found["added_at_ms"]) == (True, 0)
