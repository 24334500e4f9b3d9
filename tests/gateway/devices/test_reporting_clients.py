"""A device is any client that reports: its readings are published and listed, and it can be sent commands."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from gateway.devices.station_protocol import FRAMES, MUTE, Answer, Command, Login, Ok, Report
from gateway.http.calling import Calling, calling
from gateway.installed_protocol import example, installed_protocols
from gateway.running_gateway import HOST, WAIT_S, until
from wirelake.clients.esnp import EsnpClient
from wirelake.errors import AnswerError
from wirelake.protocols.frame import Frame, Sender

ANN, NORTH, SOUTH, QUIET = ("ann", "t0ken"), ("north", "n0rth"), ("south", "s0uth"), (MUTE, "qu1et")
READING = Report("", 215, 40, door=True)


@pytest.fixture(autouse=True)
def _installed() -> Iterator[None]:
    example("beacon")
    points = {"station": "gateway.devices.station_protocol:PROTOCOL", "beacon": "beacon:PROTOCOL"}
    with installed_protocols(points):
        yield


class Station:
    """One end of a TCP connection that speaks the protocol."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self.writer = reader, writer

    def send(self, *frames: Any) -> None:
        self.writer.write(b"".join(frame.encode() for frame in frames))

    async def receive(self) -> Frame:
        async with asyncio.timeout(WAIT_S):
            head = await self._reader.readexactly(2)
            return FRAMES.decode(head + await self._reader.readexactly(int.from_bytes(head)), Sender.SERVER)

    async def report(self, *reports: Report) -> None:
        for report in reports:
            self.send(report)
            assert await self.receive() == Ok()


@asynccontextmanager
async def station(caller: Calling, name: str, token: str) -> AsyncIterator[Station]:
    opened = Station(*await asyncio.open_connection(HOST, caller.port("station")))
    opened.send(Login(name, token))
    assert await opened.receive() == Ok()
    try:
        yield opened
    finally:
        opened.writer.close()


@asynccontextmanager
async def gateway(folder: Path, *listeners: str, **rest: Any) -> AsyncIterator[Calling]:
    identities = [(*ANN, "admin"), NORTH, SOUTH, QUIET]
    async with calling(folder, "station", *listeners, identities=identities, **rest) as caller:
        yield caller


async def listed(caller: Calling) -> dict[str, dict[str, Any]]:
    return {row["serial"]: row for row in (await caller.call("GET", "/api/devices")).json()["devices"]}


async def test_a_report_is_published_before_it_is_acknowledged_and_listed_with_names_and_units(tmp_path: Path) -> None:
    async with gateway(tmp_path) as caller, station(caller, *NORTH) as north:
        assert await listed(caller) == {}, "a client that has not reported is no device"
        await north.report(READING, Report("", -3, 41, door=False))
        (first, _) = caller.records("publish")
        assert (first["note"]["topic"], first["note"]["by"]) == ("@devices/north", "north")
        assert first["frame"] == b'{"temperature":21.5,"humidity":40,"door":true,"note":"no number"}'
        row = (await listed(caller))["north"]
        assert row["readings"] == [
            {"name": "temperature", "unit": "°C", "value": -0.3, "type": None},
            {"name": "humidity", "unit": "%", "value": 41.0, "type": None},
            {"name": "door", "unit": "", "value": 0.0, "type": None},
        ]
        assert (row["protocol"], row["heard"], row["takes_commands"], row["added_at_ms"]) == ("station", True, True, 0)
        assert abs(row["heard_at_ms"] - caller.gateway.now_ms()) < 60_000
        view = (await caller.call("GET", "/api/devices/north")).json()
        assert (view["topic"], view["readings"]) == ("@devices/north", row["readings"])


async def test_who_is_gone_stays_listed_with_the_last_readings_but_takes_no_commands(tmp_path: Path) -> None:
    async with gateway(tmp_path) as caller:
        async with station(caller, *NORTH) as north:
            await north.report(READING)
        await until(lambda: not caller.gateway.broker.devices)
        row = (await listed(caller))["north"]
        assert (row["heard"], row["address"], row["takes_commands"]) == (False, "", False)
        assert row["readings"][0]["value"] == 21.5
        message = await caller.refused(409, "not_heard", "POST", "/api/devices/north/commands", {"type": "reboot"})
        assert message == "device 'north' is offline"


async def test_registered_and_reporting_devices_are_listed_in_pages(tmp_path: Path) -> None:
    async with (
        gateway(tmp_path, devices=[("a", 0, None), ("north", 7, None), ("z", 0, None)]) as caller,
        station(caller, *NORTH) as north,
    ):
        await north.report(READING, Report("m", 1, 1, door=False), Report("n", 1, 1, door=False))
        names: list[list[str]] = []
        after: str | None = ""
        while after is not None:
            page = (await caller.call("GET", f"/api/devices?limit=2&after={after}")).json()
            names.append([row["serial"] for row in page["devices"]])
            after = page["next"]
        assert names == [["a", "m"], ["n", "north"], ["z"]]
        assert (await listed(caller))["north"]["type"] == 7


async def test_a_command_by_name_reaches_the_device_and_its_answer_comes_back(tmp_path: Path) -> None:
    async with gateway(tmp_path) as caller, station(caller, *NORTH) as north:
        await north.report(READING)
        body = {"type": "reboot", "data": "0102", "wait_ms": 10_000}
        for answer, expected in (
            (b"\x03", {"serial": "north", "error": 0, "data": "03"}),
            (b"", {"serial": "north", "error": 0, "data": ""}),
        ):
            asked = asyncio.create_task(caller.call("POST", "/api/devices/north/commands", body))
            command = await north.receive()
            assert isinstance(command, Command)
            assert (command.device, command.word, command.content) == ("north", "reboot", b"\x01\x02")
            north.send(Answer(command.number, 0, answer))
            response = await asked
            assert (response.status_code, response.json()) == (200, expected)
        asked = asyncio.create_task(caller.call("POST", "/api/devices/north/commands", body))
        command = await north.receive()
        assert isinstance(command, Command)
        north.send(Answer(command.number, 9, b"too hot"))
        assert (await asked).json() == {"serial": "north", "error": 9, "error_text": "too hot"}


async def test_a_client_that_only_logged_in_takes_commands_too(tmp_path: Path) -> None:
    async with gateway(tmp_path) as caller, station(caller, *SOUTH) as south:
        asked = asyncio.create_task(caller.call("POST", "/api/devices/south/commands", {"type": "open"}))
        command = await south.receive()
        assert isinstance(command, Command)
        south.send(Answer(command.number, 0, b"\xff"))
        assert (await asked).json()["data"] == "ff"


async def test_a_client_of_another_protocol_sends_commands(tmp_path: Path) -> None:
    async with (
        gateway(tmp_path, "esnp") as caller,
        station(caller, *NORTH) as north,
        EsnpClient(HOST, caller.port("esnp"), *ANN) as client,
    ):
        await north.report(READING)
        asked = asyncio.create_task(client.ask("devices/command?o=north", {"type": "reboot", "data": b"\x07"}))
        command = await north.receive()
        assert isinstance(command, Command)
        assert (command.word, command.content) == ("reboot", b"\x07")
        north.send(Answer(command.number, 0, b"ok"))
        assert (await asked)["data"] == b"ok".hex()
        with pytest.raises(AnswerError, match="missing required field `type`"):
            await client.ask("devices/command?o=north", {"data": b"\x07"})


async def test_what_a_session_cannot_send_is_refused_with_the_reason(tmp_path: Path) -> None:
    async with (
        gateway(tmp_path) as caller,
        station(caller, *QUIET) as quiet,
        station(caller, *NORTH) as north,
    ):
        await quiet.report(READING)
        await north.report(READING)
        assert not (await listed(caller))[MUTE]["takes_commands"]
        message = await caller.refused(501, "cannot_be_asked", "POST", f"/api/devices/{MUTE}/commands", {"type": "x"})
        assert message == "device 'mute' is connected by station, and its session takes no commands"
        message = await caller.refused(501, "cannot_be_asked", "POST", "/api/devices/north/commands", {"type": 130})
        assert "a station has no frame for a request without a command's name" in message
        message = await caller.refused(404, "not_found", "POST", "/api/devices/nobody/commands", {"type": "x"})
        assert message == "no device 'nobody'"


async def test_a_broadcast_reaches_devices_of_every_protocol(tmp_path: Path) -> None:
    async with (
        gateway(tmp_path) as caller,
        station(caller, *NORTH) as north,
        station(caller, *QUIET) as quiet,
    ):
        await north.report(READING)
        await quiet.report(READING)
        asked = asyncio.create_task(caller.call("POST", "/api/devices/*/commands", {"type": "beep"}))
        command = await north.receive()
        assert isinstance(command, Command)
        assert (command.device, command.word) == ("north", "beep")
        north.send(Answer(command.number, 0, b""))
        answer = (await asked).json()
        assert [each["serial"] for each in answer["answers"]] == ["north"]
        assert [(each["serial"], "no commands" in each["reason"]) for each in answer["unanswered"]] == [(MUTE, True)]


async def test_a_session_reports_for_others_and_gets_their_commands(tmp_path: Path) -> None:
    async with gateway(tmp_path) as caller:
        async with station(caller, *NORTH) as north:
            await north.report(Report("sensor-1", 1, 2, door=False), Report("sensor-2", 3, 4, door=False))
            published = {row["note"]["topic"]: row["note"]["by"] for row in caller.records("publish")}
            assert published == {"@devices/sensor-1": "north", "@devices/sensor-2": "north"}
            asked = asyncio.create_task(caller.call("POST", "/api/devices/sensor-2/commands", {"type": "blink"}))
            command = await north.receive()
            assert isinstance(command, Command)
            assert command.device == "sensor-2"
            north.send(Answer(command.number, 0, b""))
            assert (await asked).status_code == 200
            assert set(caller.gateway.broker.devices) == {"sensor-1", "sensor-2"}
        await until(lambda: not caller.gateway.broker.devices)


async def test_nobody_takes_the_commands_of_a_device_that_logged_in_itself(tmp_path: Path) -> None:
    async with (
        gateway(tmp_path) as caller,
        station(caller, *NORTH) as north,
        station(caller, *SOUTH) as south,
    ):
        await south.report(Report("north", 999, 9, door=False))
        await north.report(READING)
        await south.report(Report("north", 999, 9, door=False))
        asked = asyncio.create_task(caller.call("POST", "/api/devices/north/commands", {"type": "reboot"}))
        command = await north.receive()
        assert isinstance(command, Command)
        north.send(Answer(command.number, 0, b""))
        assert (await asked).status_code == 200


async def test_a_device_that_logs_in_takes_its_commands_back(tmp_path: Path) -> None:
    async with gateway(tmp_path) as caller, station(caller, *SOUTH) as south:
        await south.report(Report("north", 999, 9, door=False))
        assert caller.gateway.broker.devices["north"].identity == "south"
        async with station(caller, *NORTH) as north:
            asked = asyncio.create_task(caller.call("POST", "/api/devices/north/commands", {"type": "reboot"}))
            command = await north.receive()
            assert isinstance(command, Command)
            north.send(Answer(command.number, 0, b""))
            assert (await asked).status_code == 200


async def test_a_device_that_reconnects_gets_commands_on_its_new_connection(tmp_path: Path) -> None:
    async with gateway(tmp_path) as caller, station(caller, *NORTH) as old:
        await old.report(READING)
        async with station(caller, *NORTH) as new:
            await new.report(READING)
            asked = asyncio.create_task(caller.call("POST", "/api/devices/north/commands", {"type": "reboot"}))
            command = await new.receive()
            assert isinstance(command, Command)
            new.send(Answer(command.number, 0, b""))
            assert (await asked).status_code == 200
        await until(lambda: not caller.gateway.broker.devices)
        await old.report(READING)
        assert (await listed(caller))["north"]["takes_commands"]


async def test_a_beacon_over_udp_is_listed_and_takes_no_commands(tmp_path: Path) -> None:
    beacon = example("beacon")
    async with calling(tmp_path, "beacon", devices=[("Oslo", 0, None)]) as caller:
        loop = asyncio.get_running_loop()
        transport, _ = await loop.create_datagram_endpoint(
            asyncio.DatagramProtocol, remote_addr=(HOST, caller.port("beacon"))
        )
        transport.sendto(beacon.Reading("Oslo", -75).encode())
        await caller.recorded("publish")
        row = (await listed(caller))["Oslo"]
        assert row["readings"] == [{"name": "celsius", "unit": "°C", "value": -7.5, "type": None}]
        assert (row["protocol"], row["heard"], row["takes_commands"]) == ("beacon", True, False)
        message = await caller.refused(501, "cannot_be_asked", "POST", "/api/devices/Oslo/commands", {"type": 130})
        assert "takes no commands" in message
        transport.close()
