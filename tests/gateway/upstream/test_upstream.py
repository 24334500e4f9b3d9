"""One gateway as the upstream of another: requests, names, and every protocol in front."""

import json
from contextlib import AsyncExitStack
from pathlib import Path

import httpx
import pytest
from websockets.asyncio.server import ServerConnection, serve

from gateway.certificates import make_certificate
from gateway.esnp_client import Station, data_lines, to, values
from gateway.running_gateway import HOST, WAIT_S, running_gateway, until
from gateway.sisnet_client import IDENTITY, WebTerminal
from gateway.upstream.gateway_pair import GATEWAY, SUB, QuoteService, two_gateways, upstream, wait_until_connected


@pytest.mark.parametrize("scheme", ["ws", "tcp"])
async def test_a_request_goes_on_and_its_answer_comes_back_under_the_clients_name(tmp_path: Path, scheme: str) -> None:
    async with (
        two_gateways(tmp_path, scheme=scheme) as (front, back, quotes),
        await WebTerminal.connect(front.port("sisnet")) as terminal,
    ):
        request = {"service": "quotes", "command": "get", "ask": {"key": "a"}}
        answer = await terminal.ask("c1", **request, lnk="x/y")
        assert answer == {"ans": 5, "msg": {"key": "a", "price": 7}, "lnk": "x/y"}
        assert await terminal.ask("c1", service="quotes", command="fail") == {"ans": -1, "msg": "no such key"}
        assert await terminal.ask("c2", service="quotes", command="bytes") == {"ans": 6, "msg": "AP+A"}
        await terminal.send_json("c3", service="quotes", command="bytes", fmt="bytes")
        assert await terminal.receive() == b"c3:B\x40\x03\x00\xff\x80"
        await terminal.send(b"Bob:B\x06\x05parts\x06quotes")  # a name that cannot be forwarded unchanged
        assert [await terminal.receive() for _ in range(3)] == [
            b'Bob:B\x4e\x015\x0a{"part":1}\x012',
            b'Bob:B\x4e\x015\x0a{"part":2}\x011',
            b'Bob:B\x46\x015\x0a{"part":3}',
        ]
        assert len(quotes.requests) == 5
        received = await back.recorded("frame", 5, direction="in", identity=GATEWAY[0])
        assert [row["frame"] for row in received] == [
            b'1:c1:{"service": "quotes", "command": "get", "ask": {"key": "a"}, "lnk": "x/y"}',
            b'2:c1:{"service": "quotes", "command": "fail"}',
            b'3:c2:{"service": "quotes", "command": "bytes"}',
            b'4:c3:{"service": "quotes", "command": "bytes", "fmt": "bytes"}',
            b"5:B\x06\x05parts\x06quotes",
        ], "own digits, then the message as it came, with its name where that can be read"


async def test_both_ways_of_the_upstreams_wire_are_in_the_log(tmp_path: Path) -> None:
    async with (
        two_gateways(tmp_path) as (front, _, _),
        await WebTerminal.connect(front.port("sisnet")) as terminal,
    ):
        await terminal.ask("c1", service="quotes", command="get")
        session = front.gateway.upstreams.all["back"].id
        about = {"session": session, "identity": "back", "protocol": "sisnet"}
        (opened,) = await front.recorded("open", 1, **about)
        assert opened["peer"].startswith(HOST)
        out = await front.recorded("frame", 2, direction="out", **about)
        assert out[0]["frame"].startswith(b'login:{"command":"login"')
        assert out[1]["frame"] == b'1:c1:{"service": "quotes", "command": "get"}'
        incoming = await front.recorded("frame", 2, direction="in", **about)
        assert incoming[1]["frame"] == b'1:c1:{"ans":5,"msg":{"key":null,"price":7}}'


async def test_names_stack_three_deep(tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        last = await stack.enter_async_context(running_gateway(tmp_path / "0", "sisnet", identities=[GATEWAY]))
        quotes = QuoteService(last)
        chain = [last]
        for depth in range(1, 5):
            settings = {"upstreams": [upstream(chain[-1].port("sisnet"))]}
            identities = [GATEWAY, IDENTITY]
            chain.append(
                await stack.enter_async_context(
                    running_gateway(tmp_path / str(depth), "sisnet", identities=identities, sisnet=settings)
                )
            )
            await wait_until_connected(chain[-1])
        terminal = await stack.enter_async_context(await WebTerminal.connect(chain[-1].port("sisnet")))
        answer = await terminal.ask("c1", service="quotes", command="get", ask={"key": "a"})
        assert answer == {"ans": 5, "msg": {"key": "a", "price": 7}}
        assert await terminal.ask("c2", **SUB) == {"ans": 0}
        quotes.push("now", 1)
        assert await terminal.receive_json("c2") == {"ans": 4, "msg": [["now", 1]]}
        names = []
        for running in reversed(chain[:-1]):
            rows = await running.recorded("frame", 2, direction="in", identity=GATEWAY[0])
            names.append(rows[0]["frame"].partition(b":{")[0])
        assert names == [b"1:c1", b"1:1:c1", b"1:1:1.c1", b"1:1:1.1.c1"]


async def test_proxied_services_are_there_for_every_protocol(tmp_path: Path) -> None:
    async with (
        two_gateways(tmp_path, "http") as (front, _, quotes),
        httpx.AsyncClient(timeout=WAIT_S) as web,
    ):
        headers = {"Authorization": f"Bearer {front.gateway.keys.admin_token()}"}
        url = f"http://{HOST}:{front.port('http')}/api/services/quotes/"
        answer = await web.post(f"{url}get", json={"key": "a"}, headers=headers)
        assert (answer.status_code, answer.json()) == (200, {"key": "a", "price": 7})
        answer = await web.post(f"{url}parts", json={}, headers=headers)
        assert answer.json() == {"parts": [{"part": 1}, {"part": 2}, {"part": 3}]}
        answer = await web.post(f"{url}sub", json={"key": "k", "sdb": "s"}, headers=headers)
        assert answer.status_code == 200
        await quotes.wait_for("unsub", 1)  # the HTTP requester's session ends with its answer


async def test_a_login_that_is_refused_is_told_to_whoever_asks(tmp_path: Path) -> None:
    async with running_gateway(tmp_path / "back", "sisnet") as back:
        settings = {"upstreams": [upstream(back.port("sisnet"))]}
        async with (
            running_gateway(tmp_path / "front", "sisnet", identities=[IDENTITY], sisnet=settings) as front,
            await WebTerminal.connect(front.port("sisnet")) as terminal,
        ):
            back_upstream = front.gateway.upstreams.all["back"]
            await until(lambda: "login refused" in back_upstream.trouble)
            answer = await terminal.ask("x", service="quotes", command="get")
            assert answer["ans"] == -1
            assert "login refused: invalid token" in answer["msg"]
            await until(lambda: back_upstream.calls > 1)


async def test_an_upstream_that_answers_under_one_name_or_in_old_words(tmp_path: Path) -> None:
    """Use a foreign server that reads the first name only."""
    incoming: list[str] = []

    async def served(socket: ServerConnection) -> None:
        async for message in socket:
            assert isinstance(message, str)
            incoming.append(message)
            name, _, rest = message.partition(":")
            if "login" in rest:
                await socket.send(f'{name}:{{"login":"ok"}}')
            elif "code" in rest:
                request = json.loads(rest[rest.index("{") :])["ask"]["code"]
                await socket.send(f'{name}:{{"ans":{request},"msg":"why"}}')
            else:
                await socket.send(f"{name}:[[1,2]]")

    async with serve(served, HOST, 0) as server:
        port = next(iter(server.sockets)).getsockname()[1]
        settings = {"upstreams": [upstream(port)]}
        async with (
            running_gateway(tmp_path, "sisnet", identities=[IDENTITY], sisnet=settings) as front,
            await WebTerminal.connect(front.port("sisnet")) as terminal,
        ):
            await wait_until_connected(front)
            assert await terminal.ask("c", service="quotes", command="get") == {"ans": 4, "msg": [[1, 2]]}
            for code, ans in ((-1, -1), (-2, -1), (-3, -1), (-100, -100)):
                answer = await terminal.ask("c", service="quotes", command="x", ask={"code": code})
                assert answer == {"ans": ans, "msg": "why"}
            assert incoming[1] == '1:c:{"service": "quotes", "command": "get"}'


@pytest.mark.parametrize("scheme", ["wss", "tls"])
async def test_upstreams_over_tls(tmp_path: Path, scheme: str) -> None:
    cert, key = map(str, make_certificate(tmp_path, "localhost"))
    listener = {"wss": "sisnet", "tls": "sisnet_tcp"}[scheme]
    tls = {"cert": cert, "key": key}
    async with running_gateway(tmp_path / "back", listener, identities=[GATEWAY], tls=tls) as back:
        QuoteService(back)
        port = back.port(listener)
        trusting = upstream(port, scheme, url=f"{scheme}://localhost:{port}", ca=cert)
        wary = trusting | {"name": "wary", "ca": "", "services": ["elsewhere"]}
        settings = {"upstreams": [trusting, wary]}
        async with (
            running_gateway(tmp_path / "front", "sisnet", identities=[IDENTITY], sisnet=settings) as front,
            await WebTerminal.connect(front.port("sisnet")) as terminal,
        ):
            await wait_until_connected(front)
            answer = await terminal.ask("c", service="quotes", command="get", ask={"key": "a"})
            assert answer == {"ans": 5, "msg": {"key": "a", "price": 7}}
            await until(lambda: "certificate" in front.gateway.upstreams.all["wary"].trouble)


async def test_an_event_goes_on_too(tmp_path: Path) -> None:
    async with (
        two_gateways(tmp_path, "esnp") as (front, _, quotes),
        await Station.connect(front.port("esnp"), *IDENTITY) as station,
    ):
        station.send(*to("quotes", "note", flag=6), *data_lines(a=1))
        await quotes.wait_for("note", 1)
        assert quotes.requests[0].fields == {"a": 1}
        assert values(await station.ask(*to("quotes", "get", number=7), *data_lines(key="k"))) == {
            "key": "k",
            "price": 7,
        }
        assert (await station.ask(*to("quotes", "sub", number=8), *data_lines(key="k", sdb="s"))).error is None
        quotes.push(1, 2)
        response = await station.receive_message()
        assert response.addresses == ((10, "k.s"),)
