"""Test `publish`, `subscribe`, `request` and `send`, through the HTTP API of a gateway in the test's own event loop."""

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from broker.peers import ESNP, FakePeer, response
from gateway.devices import station_protocol as station
from gateway.installed_protocol import installed_protocols
from gateway.running_gateway import HOST, Running, running_gateway, until

from cli.serving import WAIT_S, clean_environment, free_ports, wirelake, write_settings
from wirelake.clients.apostol import ApostolDevice, DeviceError, DeviceRequest
from wirelake.message import Failure, Kind, Message
from wirelake.protocols.frame import Sender

Command = Callable[..., Awaitable["subprocess.CompletedProcess[str]"]]


class Provider(FakePeer):
    """Respond with the request itself."""

    def __init__(self, running: Running, service: str) -> None:
        super().__init__("provider", ESNP, "provider")
        self._gateway = running.gateway
        running.gateway.broker.services.register(self, service)

    def send(self, message: Message) -> None:
        super().send(message)
        if message.kind is Kind.REQUEST:
            wrong = message.fields.get("wrong")
            failure = None if wrong is None else Failure(wrong, 418)
            answer = response(message, fields=message.fields, payload=message.payload, failure=failure)
            self._gateway.later(0.0, partial(self._give, answer))

    def _give(self, answer: Message) -> None:
        assert self._gateway.broker.services.on_answer(self, answer)


@asynccontextmanager
async def gateway_and_command(tmp_path: Path, *listeners: str, **rest: Any) -> AsyncIterator[tuple[Running, Command]]:
    """Run a gateway, and commands in processes of their own."""
    async with running_gateway(tmp_path, "http", *listeners, **rest) as running:
        settings = write_settings(tmp_path, ports={"http": running.port("http")})
        yield running, partial(_command, settings)


async def _command(settings: Path, *words: str, **rest: Any) -> "subprocess.CompletedProcess[str]":
    return await asyncio.to_thread(wirelake, *words, "--config", str(settings), **rest)


async def listener(tmp_path: Path, *words: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "wirelake.cli.main", "subscribe", *words),
        *("--config", str(tmp_path / "wirelake.toml")),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=clean_environment(),
    )


async def ended(process: asyncio.subprocess.Process) -> tuple[int | None, str, str]:
    async with asyncio.timeout(WAIT_S):
        output, errors = await process.communicate()
    return process.returncode, output.decode(), errors.decode()


async def test_publish_prints_the_id_of_what_is_on_disk(tmp_path: Path) -> None:
    async with gateway_and_command(tmp_path) as (running, command):
        running.gateway.state.topics.subscribe("ann", "@a/b c")
        result = await command("publish", "@a/b c", "grüße", "--type", "7")
        (stored,) = running.waiting("ann")
        assert result.stdout == stored.id + "\n"
        assert (stored.content, stored.type, stored.publisher) == ("grüße".encode(), 7, "admin")
        result = await command("publish", "@a/b c", "-", "--json", stdin=b"\xff\x00\n")
        assert json.loads(result.stdout)["topic"] == "@a/b c"
        assert running.waiting("ann")[1].content == b"\xff\x00\n"
        result = await command("publish", "", "x")
        assert result.returncode == 1
        assert result.stderr.startswith("wirelake: ")
        assert result.stderr.count("\n") == 1


async def test_publish_as_an_identity(tmp_path: Path) -> None:
    async with gateway_and_command(tmp_path, identities=[("erp", "secret")]) as (running, command):
        running.gateway.state.topics.subscribe("ann", "@a")
        (tmp_path / "token").write_text("erp:secret\n")
        result = await command("publish", "@a", "x", "--token-file", str(tmp_path / "token"))
        assert result.returncode == 0, result.stderr
        assert running.waiting("ann")[0].publisher == "erp"
        (tmp_path / "token").write_text("erp:wrong\n")
        result = await command("publish", "@a", "x", "--token-file", str(tmp_path / "token"))
        assert result.returncode == 1
        assert "invalid token" in result.stderr
        assert "wrong" not in result.stderr


async def test_subscribe_prints_what_comes(tmp_path: Path) -> None:
    async with gateway_and_command(tmp_path) as (running, _):
        process = await listener(tmp_path, "@news", "prices", "--count", "3")
        await until(lambda: running.gateway.broker.durable.connected("@news"))
        await running.publish("@news", "one")
        await running.publish("prices", b"\xff")
        await running.publish("@news", "two\nlines")
        code, output, _ = await ended(process)
        assert code == 0
        assert sorted(output.splitlines()) == sorted(["@news\tone", "prices\t/w==", "@news\ttwo", "lines"])
        await until(lambda: not running.gateway.state.topics.topics_of("admin"))


async def test_two_listeners_do_not_take_the_topic_from_each_other(tmp_path: Path) -> None:
    async with gateway_and_command(tmp_path) as (running, _):
        durable = running.gateway.broker.durable
        short = await listener(tmp_path, "@news", "--count", "1")
        await until(lambda: durable.connected("@news") == 1)
        long = await listener(tmp_path, "@news", "--count", "2")
        await until(lambda: durable.connected("@news") == 2)
        await running.publish("@news", "one")
        assert (await ended(short))[1] == "@news\tone\n"
        await until(lambda: durable.connected("@news") == 1)
        await running.publish("@news", "two")
        assert (await ended(long))[1] == "@news\tone\n@news\ttwo\n"


async def test_a_kept_subscription_brings_what_was_missed(tmp_path: Path) -> None:
    async with gateway_and_command(tmp_path) as (running, _):
        for number in (1, 2):
            process = await listener(tmp_path, "@news", "--keep", "--json", "--count", "1")
            if number == 1:
                await until(lambda: running.gateway.broker.durable.connected("@news"))
                await running.publish("@news", "1")
            code, output, _ = await ended(process)
            assert code == 0
            assert json.loads(output)["content"] == str(number)
            await until(lambda: not running.gateway.broker.durable.connected("@news"))
            await running.publish("@news", "2")


async def test_the_end_of_the_gateway_ends_a_subscription_with_a_reason(tmp_path: Path) -> None:
    processes = []
    async with gateway_and_command(tmp_path) as (running, _):
        processes.append(await listener(tmp_path, "@news"))
        await until(lambda: running.gateway.broker.durable.connected("@news"))
        await running.gateway.close()
        code, _, errors = await ended(processes[0])
        assert code == 1
        assert errors == "wirelake: the gateway ended the stream: the gateway is shutting down\n"


async def test_ctrl_c_is_the_way_to_end_it(tmp_path: Path) -> None:
    async with gateway_and_command(tmp_path) as (running, _):
        process = await listener(tmp_path, "@news")
        await until(lambda: running.gateway.broker.durable.connected("@news"))
        process.send_signal(2)
        assert await ended(process) == (0, "", "")


async def test_request_prints_the_answer(tmp_path: Path) -> None:
    async with gateway_and_command(tmp_path) as (running, command):
        Provider(running, "magline/16")
        result = await command("request", "magline/16/call", '{"a": 2, "payload": "AAE="}')
        assert json.loads(result.stdout) == {"a": 2, "payload": "AAE="}
        result = await command("request", "magline/16/call", '{"wrong": "no tea"}')
        assert (result.returncode, result.stderr) == (1, "wirelake: no tea (error 418)\n")
        result = await command("request", "nobody/there")
        assert result.returncode == 1
        assert result.stderr == "wirelake: nobody provides the service 'nobody' with 'there' (error 404)\n"
        assert (await command("request", "wirelake/ping")).stdout == "{}\n"
        for words in (["sums", "{}"], ["sums/add", "[1]"], ["sums/add", "{"]):
            result = await command("request", *words)
            assert result.returncode == 1
            assert result.stderr.count("\n") == 1


async def test_send_prints_the_devices_answer(tmp_path: Path) -> None:
    async def answer(request: DeviceRequest) -> bytes:
        if request.command_type != 0x82:
            raise DeviceError
        return request.data[::-1]

    async with gateway_and_command(tmp_path, "apostol", devices=[("m1", 0, None)]) as (running, command):
        result = await command("send", "m1", "0x82", "01 02")
        assert result.returncode == 1
        assert "is offline" in result.stderr
        async with ApostolDevice(HOST, running.port("apostol"), "m1", handler=answer) as device:
            await device.status(1)
            result = await command("send", "m1", "0x82", "01 02")
            assert result.returncode == 0, result.stderr
            response = json.loads(result.stdout)
            assert (response["serial"], response["type"], response["error"], response["data"]) == ("m1", 2, 0, "0201")
            result = await command("send", "m1", "131")
            assert result.returncode == 1
            assert json.loads(result.stdout)["error"] == 1
            result = await command("send", "*", "0x82", "01 02")
            assert result.returncode == 0, result.stderr
            response = json.loads(result.stdout)
            assert [(each["serial"], each["data"]) for each in response["answers"]] == [("m1", "0201")]
            assert (response["devices"], response["receipts"], response["unanswered"]) == (1, 1, [])
            assert (await command("send", "*", "131")).returncode == 1, "an error among the answers"
        for words in (["m1", "x"], ["m1", "130", "0"], ["m1", "5"]):
            result = await command("send", *words)
            assert result.returncode == 1
            assert result.stderr.count("\n") == 1
        await running.add_device("m2")
        result = await command("send", "*", "130", "--wait-ms", "1")
        assert result.returncode == 1, "devices without an answer"
        assert [each["serial"] for each in json.loads(result.stdout)["unanswered"]] == ["m1", "m2"]


async def test_send_reaches_a_client_of_any_protocol_that_takes_commands(tmp_path: Path) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while head := await reader.read(2):
            found = station.FRAMES.decode(head + await reader.readexactly(int.from_bytes(head)), Sender.SERVER)
            if isinstance(found, station.Command):
                error = 0 if found.word == "echo" else 7
                content = found.content[::-1] if not error else b"no such word"
                writer.write(station.Answer(found.number, error, content).encode())

    with installed_protocols({"station": "gateway.devices.station_protocol:PROTOCOL"}):
        async with gateway_and_command(tmp_path, "station", identities=[("north", "n0rth")]) as (running, command):
            reader, writer = await asyncio.open_connection(HOST, running.port("station"))
            login, report = station.Login("north", "n0rth"), station.Report("", 215, 40, door=True)
            writer.write(login.encode() + report.encode())
            answering = asyncio.create_task(answer(reader, writer))
            await running.recorded("publish")
            result = await command("send", "north", "echo", "0102")
            assert result.returncode == 0, result.stderr
            assert json.loads(result.stdout) == {"serial": "north", "error": 0, "data": "0201"}
            result = await command("send", "north", "dance")
            assert result.returncode == 1
            assert json.loads(result.stdout) == {"serial": "north", "error": 7, "error_text": "no such word"}
            result = await command("send", "north", "130")
            assert (result.returncode, result.stderr.count("\n")) == (1, 1)
            assert "without a command's name" in result.stderr
            result = await command("send", "north", "echo", "--fields", "[1]")
            assert result.returncode == 1
            assert "must be a JSON object" in result.stderr
            assert "station" in (await command("device", "list")).stdout
            (row,) = json.loads((await command("device", "list", "--json")).stdout)
            assert (row["serial"], row["protocol"], row["readings"][0]["value"]) == ("north", "station", 21.5)
            writer.close()
            await answering


@pytest.mark.parametrize(
    "words", [["publish", "@a", "x"], ["subscribe", "@a"], ["request", "a/b"], ["send", "m1", "130"]], ids=" ".join
)
def test_without_a_gateway_one_sentence_says_so(tmp_path: Path, words: list[str]) -> None:
    (port,) = free_ports(1)
    settings = write_settings(tmp_path, ports={"http": port})
    result = wirelake(*words, "--config", str(settings))
    assert result.returncode == 1
    assert "no gateway has run with this data folder yet" in result.stderr
    (tmp_path / "data" / "keys").mkdir(parents=True)
    (tmp_path / "data" / "keys" / "admin.token").write_text("t\n")
    result = wirelake(*words, "--config", str(settings))
    assert result.returncode == 1
    expected = f"wirelake: no gateway at {HOST}:{port}: is `wirelake serve` running there? (connection refused)\n"
    assert result.stderr == expected


async def test_another_gateways_token_is_told(tmp_path: Path) -> None:
    async with gateway_and_command(tmp_path) as (_, command):
        (tmp_path / "other" / "keys").mkdir(parents=True)
        (tmp_path / "other" / "keys" / "admin.token").write_text("t0ken-of-that-one\n")
        result = await command("publish", "@a", "x", "--data", str(tmp_path / "other"))
        assert result.returncode == 1
        assert f"the data folder {tmp_path / 'other'}?" in result.stderr
        assert "t0ken" not in result.stderr
        file = tmp_path / "bob.token"
        file.write_text("bob:t0ken")
        result = await command("publish", "@a", "x", "--token-file", str(file))
        assert f"the NAME:TOKEN in {file}?" in result.stderr
        file.write_text("\n")
        result = await command("publish", "@a", "x", "--token-file", str(file))
        assert result.stderr == f"wirelake: {file} is empty: it should contain a token\n"


async def test_what_is_no_gateway_is_told(tmp_path: Path) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 404 Not Found\r\nContent-Length: 4\r\n\r\n<oh>")
        writer.close()

    server = await asyncio.start_server(answer, HOST, 0)
    async with server:
        settings = write_settings(tmp_path, ports={"http": server.sockets[0].getsockname()[1]})
        (tmp_path / "data" / "keys").mkdir(parents=True)
        (tmp_path / "data" / "keys" / "admin.token").write_text("t\n")
        result = await _command(settings, "publish", "@a", "x")
    assert result.returncode == 1
    assert "is not a gateway" in result.stderr
