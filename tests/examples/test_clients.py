"""The example clients as processes, against a gateway in this one."""

import asyncio
import sys
from asyncio.subprocess import PIPE, Process
from pathlib import Path

import pytest
from gateway.running_gateway import HOST, WAIT_S, running_gateway, until

EXAMPLES = Path(__file__).parent.parent.parent / "examples"
KEY = bytes(range(16))


async def start(program: str, *arguments: object) -> Process:
    return await asyncio.create_subprocess_exec(
        sys.executable, EXAMPLES / program, *map(str, arguments), stdout=PIPE, stderr=PIPE
    )


async def read_line(process: Process) -> str:
    assert process.stdout is not None
    return (await asyncio.wait_for(process.stdout.readline(), WAIT_S)).decode().strip()


async def end(process: Process) -> tuple[int | None, str, str]:
    out, err = await asyncio.wait_for(process.communicate(), WAIT_S)
    return process.returncode, out.decode(), err.decode()


@pytest.mark.parametrize("program", ["phone.py", "meter.py", "terminal.py", "box.py", "station.py"])
async def test_they_explain_themselves(program: str) -> None:
    status, out, err = await end(await start(program, "--help"))
    assert (status, err) == (0, "")
    assert "--seconds" in out


async def test_a_phone_prints_and_acks(tmp_path: Path) -> None:
    async with running_gateway(tmp_path, "comet", identities=[("alice", "secret")]) as running:
        arguments = ("--host", HOST, "--port", running.port("comet"), "--client", "alice", "--token", "secret")
        phone = await start("phone.py", *arguments, "--count", 2, "--seal", 32, "@news")
        assert await read_line(phone) == "subscribed to @news"
        ids = [await running.publish("@news", content) for content in ("one", "two")]
        status, out, err = await end(phone)
        assert (status, err) == (0, "")
        assert [text.split()[1:] for text in out.splitlines()] == [[ids[0], "one"], [ids[1], "two"]]
        await until(lambda: not running.waiting("alice"))
        await running.publish("@news", "three")
        status, out, err = await end(await start("phone.py", *arguments, "--once", "@news"))
        assert (status, err) == (0, "")
        assert out.splitlines()[-1].endswith("three")
        assert not running.waiting("alice")
        status, _, err = await end(await start("phone.py", *arguments[:-1], "wrong", "--once", "@news"))
        assert status == 1
        assert err.startswith("phone: invalid token")


@pytest.mark.parametrize("transport", ["udp", "tcp"])
async def test_a_meter_reports_and_answers(tmp_path: Path, transport: str) -> None:
    async with running_gateway(tmp_path, "apostol", devices=[("m1", 0, KEY)]) as running:
        arguments = ("--host", HOST, "--port", running.port("apostol"), "--serial", "m1", "--transport", transport)
        meter = await start("meter.py", *arguments, "--key", KEY.hex(), "--every", 0.05)
        assert await read_line(meter) == "report 1 is on disk"
        assert (await running.command("m1", 0x82, b"hello")).payload == b"hello"
        assert len((await running.command("m1", 0x84)).fields["readings"]) == 2
        assert (await running.command("m1", 0x81)).fields["status"]["state"] == 1
        failure = (await running.command("m1", 0x90)).failure
        assert failure is not None
        assert failure.code == 2
        meter.terminate()
        await end(meter)
        once = await end(await start("meter.py", *arguments, "--key", KEY.hex(), "--once"))
        assert once == (0, "report 1 is on disk\n", "")
        status, out, err = await end(await start("meter.py", *arguments[:5], "m2", "--seconds", 0.5))
        assert (status, out) == (1, "")
        assert err.startswith("meter: no report was confirmed.")
        assert "wirelake device add m2" in err


@pytest.mark.parametrize(("scheme", "listener"), [("ws", "sisnet"), ("tcp", "sisnet_tcp")])
async def test_a_terminal_listens_asks_and_serves(tmp_path: Path, scheme: str, listener: str) -> None:
    async with running_gateway(tmp_path, listener, identities=[("desk", "secret")]) as running:
        arguments = ("--url", f"{scheme}://{HOST}:{running.port(listener)}", "--user", "desk", "--token", "secret")
        terminal = await start("terminal.py", *arguments, "--serve", "adder", "--count", 1, "@news")
        assert await read_line(terminal) == "listening to @news"
        output = await end(await start("terminal.py", *arguments, "--ask", "adder/add", '{"numbers": [4, 5]}'))
        assert output == (0, '{"sum": 9}\n', "")
        assert await read_line(terminal) == "adding [4, 5]"
        status, _, err = await end(await start("terminal.py", *arguments, "--ask", "adder/mul", "{}"))
        assert status == 1
        assert err.startswith("terminal: expected add")
        published = await running.publish("@news", "hello")
        assert await end(terminal) == (0, f"@news {published} hello\n", "")


async def test_a_box_listens_publishes_and_calls_what_a_station_serves(tmp_path: Path) -> None:
    async with running_gateway(tmp_path, "magline", "esnp", identities=[("alice", "secret")]) as running:
        who = ("--user", "alice", "--token", "secret")
        arguments = ("--port", running.port("magline"), *who)
        box = await start("box.py", *arguments, "--count", 1, "@boxes")
        key = (await read_line(box)).removeprefix("the gateway's key is ")
        assert await read_line(box) == "listening to @boxes"
        status, published, err = await end(await start("box.py", *arguments, "--pin", key, "--publish", "@boxes", "hi"))
        assert (status, err) == (0, "")
        assert await end(box) == (0, f"@boxes {published.strip()} hi\n", "")
        await until(lambda: not running.waiting("alice"))
        status, _, err = await end(await start("box.py", *arguments, "--call", 17, "hi"))
        assert (status, err) == (1, "box: no such service (error 7)\n")
        service = ("--port", running.port("esnp"), *who, "--serve", "magline/17")
        station = await start("station.py", *service)
        assert await read_line(station) == "listening to nothing"
        status, _, err = await end(await start("box.py", *arguments, "--call", 17, "hi"))
        assert (status, err) == (1, "box: failed (error 0)\n"), "the station wants numbers"
        status, _, err = await end(await start("box.py", *arguments, "--pin", "00" * 32, "--call", 17, "hi"))
        assert status == 1
        assert "not the pinned one" in err
        station.terminate()
        await end(station)


async def test_a_station_serves_asks_and_listens(tmp_path: Path) -> None:
    async with running_gateway(tmp_path, "esnp", identities=[("alice", "secret")]) as running:
        arguments = ("--port", running.port("esnp"), "--user", "alice", "--token", "secret")
        station = await start("station.py", *arguments, "--serve", "adder", "--count", 1, "@news")
        assert await read_line(station) == "listening to @news"
        output = await end(await start("station.py", *arguments, "--ask", "adder/add", '{"numbers": [4, 5]}'))
        assert output == (0, '{"sum": 9}\n', "")
        status, out, err = await end(await start("station.py", *arguments, "--trace", "adder/add", '{"numbers": [1]}'))
        assert (status, err) == (0, "")
        lines = [text.split(maxsplit=1)[-1] for text in out.splitlines()]
        assert lines == ["received local", "routed to alice", "answered by alice", "1}"]
        status, _, err = await end(await start("station.py", *arguments, "--ask", "adder/mul", "{}"))
        assert status == 1
        assert err.startswith("station: expected add")
        published = await running.publish("@news", "hello")
        assert await end(station) == (0, f"@news {published} hello\n", "")
