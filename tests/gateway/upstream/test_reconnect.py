"""Upstreams that close, are killed, come back, or never answer."""

import asyncio
import signal
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import msgspec
import pytest
from cli.serving import free_ports, serving
from msgspec.structs import replace
from websockets.asyncio.server import ServerConnection, serve

from gateway.running_gateway import HOST, running_gateway, until
from gateway.sisnet_client import IDENTITY, WebTerminal
from gateway.upstream.gateway_pair import GATEWAY, SUB, UNSUB, QuoteService, upstream, wait_until_connected
from wirelake.errors import InputError
from wirelake.gateway.upstream import upstreams as module
from wirelake.protocols.session import Closing
from wirelake.protocols.settings import UpstreamSettings
from wirelake.protocols.sisnet.envelope import sized
from wirelake.protocols.sisnet.session import Settings

TABLE = {"key": "sh600600", "sdb": "info"}
FIELDS = [["time", "U", 8, 1], ["newp", "F", 8, 1]]
OPEN = "[auth]\nopen = true\n"


async def test_an_upstream_that_went_away_answers_and_comes_back(tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        first = running_gateway(tmp_path / "back", "sisnet", identities=[GATEWAY])
        back = await first.__aenter__()
        port = back.port("sisnet")
        quotes = QuoteService(back)
        front = await stack.enter_async_context(
            running_gateway(tmp_path / "front", "sisnet", identities=[IDENTITY], sisnet={"upstreams": [upstream(port)]})
        )
        await wait_until_connected(front)
        terminal = await stack.enter_async_context(await WebTerminal.connect(front.port("sisnet")))
        assert await terminal.ask("s", **SUB) == {"ans": 0}
        await terminal.send_json("w", service="quotes", command="hold")
        await quotes.wait_for("hold", 1)
        await first.__aexit__(None, None, None)
        assert await terminal.receive_json("w") == {"ans": -1, "msg": "the provider went away"}
        away = await terminal.ask("x", service="quotes", command="get")
        assert away["ans"] == -1
        assert away["msg"].startswith("upstream back is unavailable: ")
        back = await stack.enter_async_context(
            running_gateway(tmp_path / "back", "sisnet", ports={"sisnet": port}, identities=[GATEWAY])
        )
        quotes = QuoteService(back)
        await quotes.wait_for("sub", 1)
        quotes.push(5, 6)
        assert await terminal.receive_json("s") == {"ans": 4, "msg": [[5, 6]]}
        assert await terminal.ask("y", service="quotes", command="get") == {
            "ans": 5,
            "msg": {"key": None, "price": 7},
        }


async def test_a_service_with_two_upstreams_survives_one(tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        left, right = (running_gateway(tmp_path / name, "sisnet", identities=[GATEWAY]) for name in ("l", "r"))
        ports, served = [], []
        for each in (left, right):
            running = await each.__aenter__()
            if each is right:
                stack.push_async_exit(each)
            ports.append(running.port("sisnet"))
            served.append(QuoteService(running))
        settings = {"upstreams": [upstream(port, name=str(place)) for place, port in enumerate(ports)]}
        front = await stack.enter_async_context(
            running_gateway(tmp_path / "front", "sisnet", identities=[IDENTITY], sisnet=settings)
        )
        await wait_until_connected(front, "0")
        await wait_until_connected(front, "1")
        terminal = await stack.enter_async_context(await WebTerminal.connect(front.port("sisnet")))
        for number in range(4):
            await terminal.ask("c", service="quotes", command="get", ask={"key": number})
        assert [len(quotes.requests) for quotes in served] == [2, 2]
        for name in "st":
            assert await terminal.ask(name, **(SUB | {"ask": {"key": name, "sdb": "info"}})) == {"ans": 0}
        for name in "st":
            assert await terminal.ask("u", **(UNSUB | {"ask": {"key": name, "sdb": "info"}})) == {"ans": 0}
        await until(lambda: not any(quotes.subscribed for quotes in served))
        await left.__aexit__(None, None, None)
        await until(lambda: not front.gateway.upstreams.all["0"].ready)
        for number in range(4):
            answer = await terminal.ask("c", service="quotes", command="get", ask={"key": number})
            assert answer["ans"] == 5


async def test_upstreams_come_and_go_with_a_reload(tmp_path: Path) -> None:
    async with (
        running_gateway(tmp_path / "back", "sisnet", identities=[GATEWAY]) as back,
        running_gateway(tmp_path / "front", "sisnet", identities=[IDENTITY]) as front,
        await WebTerminal.connect(front.port("sisnet")) as terminal,
    ):
        quotes = QuoteService(back)
        gateway = front.gateway
        bare = gateway.settings
        secret = msgspec.convert(upstream(back.port("sisnet")), UpstreamSettings)
        reloaded = gateway.reload(replace(bare, sisnet=Settings(upstreams=(secret,))))
        assert reloaded.applied == ["sisnet.upstreams: [] → ['back']"], "and no password"
        await wait_until_connected(front)
        assert await terminal.ask("s", **SUB) == {"ans": 0}
        session = gateway.upstreams.all["back"].id
        gateway.reload(replace(bare, sisnet=Settings(upstreams=(secret,), keep_s=3.0)))
        assert gateway.upstreams.all["back"].id == session, "what stays the same stays connected"
        assert gateway.upstreams.all["back"].coalescer.keep_s == 3.0
        own = replace(secret, services=("redis",))
        with pytest.raises(InputError, match="redis is a service of the gateway itself"):
            gateway.reload(replace(bare, sisnet=Settings(upstreams=(own,))))
        assert gateway.upstreams.all["back"].id == session
        gateway.reload(bare)
        assert await terminal.receive_json("s") == {"ans": -100, "msg": "this upstream is no longer used"}
        await until(lambda: session not in gateway.connections)
        answer = await terminal.ask("x", service="quotes", command="get")
        assert "not found ServiceHandler" in answer["msg"]
        assert quotes.count("sub") == 1


async def test_an_upstream_that_is_none_is_called_again(tmp_path: Path) -> None:
    """Connect to one that speaks no WebSocket, and to one that sends undecodable bytes."""

    async def babble(socket: ServerConnection) -> None:
        await socket.send(b"no colon at all")
        await socket.wait_closed()

    async with serve(babble, HOST, 0) as server, running_gateway(tmp_path / "web", "http") as web:
        port = next(iter(server.sockets)).getsockname()[1]
        upstreams = [upstream(web.port("http"), name="web"), upstream(port, name="babble", services=["b"])]
        settings = {"upstreams": upstreams}
        async with (
            running_gateway(tmp_path / "front", "sisnet", identities=[IDENTITY], sisnet=settings) as front,
            await WebTerminal.connect(front.port("sisnet")) as terminal,
        ):
            back_upstream = front.gateway.upstreams.all
            await until(lambda: back_upstream["web"].calls > 1 and back_upstream["babble"].calls > 1)
            assert "server rejected WebSocket connection" in back_upstream["web"].trouble
            faults = await front.recorded("fault", 1, identity="babble")
            assert faults[0]["frame"] == b"no colon at all"
            answer = await terminal.ask("x", service="b", command="get")
            assert answer["msg"].startswith("upstream babble is unavailable: ")


async def test_an_upstream_that_stops_reading_is_left_and_called_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "UPSTREAM_CLOSE_S", 0.1)
    writers: list[asyncio.StreamWriter] = []

    async def deaf(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        size = (await reader.readexactly(1))[0]
        await reader.readexactly(size)
        writer.write(sized(b'login:{"ans":0}'))
        writer.transport.pause_reading()  # type: ignore[attr-defined]

    server = await asyncio.start_server(deaf, HOST, 0)
    port = server.sockets[0].getsockname()[1]
    settings: dict[str, Any] = {
        "sisnet": {"upstreams": [upstream(port, "tcp")]},
        "limits": {"pending_bytes": 100_000},
    }
    async with (
        server,
        running_gateway(tmp_path, "sisnet", identities=[IDENTITY], **settings) as front,
        await WebTerminal.connect(front.port("sisnet")) as terminal,
    ):
        await wait_until_connected(front)
        back_upstream = front.gateway.upstreams.all["back"]
        for number in range(100):
            await terminal.send_json("n", service="quotes", command="x", ask={"n": number, "long": "x" * 200_000})
        await until(lambda: front.gateway.broker.services.open == 100)
        connection = front.gateway.connections[back_upstream.id]
        await until(lambda: connection.is_congested)
        assert connection.pending_bytes < 1_000_000, "the rest waits where it is bounded"
        back_upstream.close(Closing("ended"))
        for _ in range(100):
            assert await terminal.receive_json("n") == {"ans": -1, "msg": "the provider went away"}
        await until(lambda: back_upstream.ready and back_upstream.calls == 2)
        for writer in writers:
            writer.transport.abort()


async def store(port: int, time: int, price: float) -> None:
    """Store a record directly in the upstream's data set."""
    async with await WebTerminal.connect(port) as writer:
        created = await writer.ask("c", service="sisdb", command="create", ask={**TABLE, "fields": FIELDS})
        assert created["ans"] == 0
        row = {**TABLE, "data": [{"time": time, "newp": price}]}
        assert (await writer.ask("w", service="sisdb", command="set", ask=row))["ans"] >= 0


async def test_a_killed_upstream_gets_its_subscriptions_back(tmp_path: Path) -> None:
    ports = dict(zip(("sisnet", "sisnet_tcp"), free_ports(2), strict=True))
    url = f"tcp://{HOST}:{ports['sisnet_tcp']}"
    settings = {"upstreams": [{"name": "back", "url": url, "services": ["sisdb"], "user": "front"}]}
    front_folder, back_folder = tmp_path / "front", tmp_path / "back"
    back_folder.mkdir()
    async with running_gateway(front_folder, "sisnet", identities=[IDENTITY], sisnet=settings) as front:
        back_upstream = front.gateway.upstreams.all["back"]
        with serving(back_folder, "sisnet", "sisnet_tcp", text=OPEN, ports=ports) as back:
            await until(lambda: back_upstream.ready)
            async with await WebTerminal.connect(front.port("sisnet")) as terminal:
                assert await terminal.ask("s", service="sisdb", command="sub", ask=TABLE) == {"ans": 0}
                await store(ports["sisnet"], 1, 9.5)
                assert await terminal.receive_json("s") == {"ans": 4, "msg": [[1, 9.5]]}
                before = back_upstream.id
                back.end(signal.SIGKILL)
                await until(lambda: not back_upstream.ready)
                assert (await terminal.ask("g", service="sisdb", command="get", ask=TABLE))["ans"] == -1
                with serving(back_folder, "sisnet", "sisnet_tcp", text=OPEN, ports=ports):
                    await until(lambda: back_upstream.ready)
                    assert back_upstream.id != before
                    await front.recorded("frame", 2, session=back_upstream.id, direction="in")  # the login, and the sub
                    await store(ports["sisnet"], 2, 10.5)
                    assert await terminal.receive_json("s") == {"ans": 4, "msg": [[2, 10.5]]}
                    answer = await terminal.ask("g", service="sisdb", command="get", ask=TABLE)
                    assert answer == {"ans": 4, "msg": [[1, 9.5], [2, 10.5]]}
        sent_frames = [row["frame"] for row in front.records("frame", identity="back", direction="out")]
        assert sum(b'"command": "sub"' in frame for frame in sent_frames) == 2
