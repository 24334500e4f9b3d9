"""A gateway behind a gateway, over real sockets: relayed requests, shared ones, subscriptions that outlive a loss."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
from msgspec.structs import replace
from websockets.asyncio.server import ServerConnection, serve

from gateway.certificates import make_certificate
from gateway.quotes import Quotes
from gateway.running import HOST, WAIT_S, Running, running_gateway, until
from gateway.terminal import Terminal
from gateway.web_terminal import IDENTITY, WebTerminal
from gateway.wire import Station, data_lines, to, values
from wirelake.config import Sisnet, Upstream
from wirelake.errors import InputError
from wirelake.gateway import upstream as module
from wirelake.gateway.reloading import reload
from wirelake.protocols.session import Closing
from wirelake.protocols.sisnet.sizes import sized

GATEWAY = ("front", "fr0nt")
DOORS = {"ws": "sisnet", "tcp": "sisnet_tcp"}
SUB = {"service": "quotes", "command": "sub", "ask": {"key": "sh600600", "sdb": "info"}}
UNSUB = SUB | {"command": "unsub"}


def upstream(port: int, scheme: str = "ws", **rest: Any) -> dict[str, Any]:
    user, password = GATEWAY
    settings = {"name": "back", "url": f"{scheme}://{HOST}:{port}", "services": ["quotes"]}
    return settings | {"user": user, "password": password} | rest


async def connected(running: Running, name: str = "back") -> None:
    await until(lambda: running.gateway.upstreams.all[name].ready)


@asynccontextmanager
async def two_gateways(
    folder: Path, *doors: str, scheme: str = "ws", **sisnet: Any
) -> AsyncIterator[tuple[Running, Running, Quotes]]:
    """The front one, the one behind it, and the service there."""
    async with running_gateway(folder / "back", DOORS[scheme], identities=[GATEWAY]) as back:
        quotes = Quotes(back)
        upstreams = [upstream(back.port(DOORS[scheme]), scheme)]
        async with running_gateway(
            folder / "front", "sisnet", *doors, identities=[IDENTITY], sisnet={"upstreams": upstreams, **sisnet}
        ) as front:
            await connected(front)
            yield front, back, quotes


@pytest.mark.parametrize("scheme", ["ws", "tcp"])
def test_a_request_goes_on_and_its_answer_comes_back_under_the_clients_name(tmp_path: Path, scheme: str) -> None:
    async def story() -> None:
        async with (
            two_gateways(tmp_path, scheme=scheme) as (front, back, quotes),
            await WebTerminal.call(front.port("sisnet")) as terminal,
        ):
            asked = {"service": "quotes", "command": "get", "ask": {"key": "a"}}
            answer = await terminal.ask("c1", **asked, lnk="x/y")
            assert answer == {"ans": 5, "msg": {"key": "a", "price": 7}, "lnk": "x/y"}
            assert await terminal.ask("c1", service="quotes", command="fail") == {"ans": -1, "msg": "no such key"}
            assert await terminal.ask("c2", service="quotes", command="bytes") == {"ans": 6, "msg": "AP+A"}
            await terminal.say("c3", service="quotes", command="bytes", fmt="bytes")
            assert await terminal.next() == b"c3:B\x40\x03\x00\xff\x80"
            await terminal.send(b"Bob:B\x06\x05parts\x06quotes")  # a name that could not be relayed as it is
            assert [await terminal.next() for _ in range(3)] == [
                b'Bob:B\x4e\x015\x0a{"part":1}\x012',
                b'Bob:B\x4e\x015\x0a{"part":2}\x011',
                b'Bob:B\x46\x015\x0a{"part":3}',
            ]
            assert len(quotes.asked) == 5
            received = await back.recorded("frame", 5, direction="in", identity=GATEWAY[0])
            names = [row["frame"].partition(b":{")[0] for row in received]
            assert names == [b"1:c1", b"2:c1", b"3:c2", b"4", b"5"], "own digits, then the message with its name"

    asyncio.run(story())


def test_both_ways_of_the_upstreams_wire_are_in_the_log(tmp_path: Path) -> None:
    async def story() -> None:
        async with (
            two_gateways(tmp_path) as (front, _, _),
            await WebTerminal.call(front.port("sisnet")) as terminal,
        ):
            await terminal.ask("c1", service="quotes", command="get")
            session = front.gateway.upstreams.all["back"].id
            about = {"session": session, "identity": "back", "protocol": "sisnet"}
            (opened,) = await front.recorded("open", 1, **about)
            assert opened["peer"].startswith(HOST)
            out = await front.recorded("frame", 2, direction="out", **about)
            assert out[0]["frame"].startswith(b'login:{"command":"login"')
            assert out[1]["frame"] == b'1:c1:{"service":"quotes","command":"get"}'
            heard = await front.recorded("frame", 2, direction="in", **about)
            assert heard[1]["frame"] == b'1:c1:{"ans":5,"msg":{"key":null,"price":7}}'

    asyncio.run(story())


def test_names_stack_three_deep(tmp_path: Path) -> None:
    async def story() -> None:
        async with AsyncExitStack() as stack:
            last = await stack.enter_async_context(running_gateway(tmp_path / "0", "sisnet", identities=[GATEWAY]))
            quotes = Quotes(last)
            chain = [last]
            for depth in range(1, 5):
                settings = {"upstreams": [upstream(chain[-1].port("sisnet"))]}
                identities = [GATEWAY, IDENTITY]
                chain.append(
                    await stack.enter_async_context(
                        running_gateway(tmp_path / str(depth), "sisnet", identities=identities, sisnet=settings)
                    )
                )
                await connected(chain[-1])
            terminal = await stack.enter_async_context(await WebTerminal.call(chain[-1].port("sisnet")))
            answer = await terminal.ask("c1", service="quotes", command="get", ask={"key": "a"})
            assert answer == {"ans": 5, "msg": {"key": "a", "price": 7}}
            assert await terminal.ask("c2", **SUB) == {"ans": 0}
            quotes.push("now", 1)
            assert await terminal.hear("c2") == {"ans": 4, "msg": [["now", 1]]}
            names = []
            for running in reversed(chain[:-1]):
                rows = await running.recorded("frame", 2, direction="in", identity=GATEWAY[0])
                names.append(rows[0]["frame"].partition(b":{")[0])
            assert names == [b"1:c1", b"1:1:c1", b"1:1:1.c1", b"1:1:1.1.c1"]

    asyncio.run(story())


def test_a_thousand_identical_requests_are_one(tmp_path: Path) -> None:
    """From 20 connections, which may each have so many open."""

    async def story() -> None:
        async with AsyncExitStack() as stack:
            front, _, quotes = await stack.enter_async_context(two_gateways(tmp_path))
            port = front.port("sisnet")
            terminals = [await stack.enter_async_context(await WebTerminal.call(port)) for _ in range(20)]
            for terminal in terminals:
                for number in range(50):
                    await terminal.say(f"n{number}", service="quotes", command="hold", ask={"b": 1, "a": [2]})
            await until(lambda: front.gateway.broker.services.open == 1000)
            await quotes.wait_for("hold", 1)
            quotes.answer(price=9)
            for terminal in terminals:
                for number in range(50):
                    assert await terminal.hear(f"n{number}") == {"ans": 5, "msg": {"price": 9}}
            assert len(quotes.asked) == 1
            await terminals[0].say("again", service="quotes", command="hold", ask={"a": [2], "b": 1})
            await quotes.wait_for("hold", 2)  # not under way any more: asked anew
            quotes.answer(price=10)
            assert await terminals[0].hear("again") == {"ans": 5, "msg": {"price": 10}}

    asyncio.run(story())


def test_requests_that_differ_are_asked_apart(tmp_path: Path) -> None:
    async def story() -> None:
        async with (
            two_gateways(tmp_path) as (front, _, quotes),
            await WebTerminal.call(front.port("sisnet")) as terminal,
        ):
            base: dict[str, Any] = {"service": "quotes", "command": "hold", "ask": {"a": 1}}
            others: list[dict[str, Any]] = [{}, {"ask": {"a": 2}}, {"command": "x"}, {"fmt": "bytes"}, {"ask": "a"}]
            for name, other in enumerate(others):
                await terminal.say(str(name), **(base | other))
            await until(lambda: len(quotes.asked) == 5)

    asyncio.run(story())


def test_more_than_the_upstream_takes_at_once_waits_for_its_turn(tmp_path: Path) -> None:
    count = 600

    async def story() -> None:
        async with AsyncExitStack() as stack:
            front, _, quotes = await stack.enter_async_context(two_gateways(tmp_path))
            port = front.port("sisnet")
            terminals = [await stack.enter_async_context(await WebTerminal.call(port)) for _ in range(3)]
            for number in range(count):
                await terminals[number % 3].say("n", service="quotes", command="get", ask={"key": number})
            answers = [await terminals[number % 3].hear("n") for number in range(count)]
            assert sorted(answer["msg"]["key"] for answer in answers) == list(range(count))
            assert len(quotes.asked) == count

    asyncio.run(story())


def test_a_thousand_subscribers_are_one_sub(tmp_path: Path) -> None:
    async def story() -> None:
        async with AsyncExitStack() as stack:
            front, _, quotes = await stack.enter_async_context(two_gateways(tmp_path))
            port = front.port("sisnet")
            terminals = [await stack.enter_async_context(await WebTerminal.call(port)) for _ in range(10)]
            for terminal in terminals:
                for number in range(100):
                    await terminal.say(f"s{number}", **SUB, fmt="json" if number % 2 else "bytes")
            for terminal in terminals:
                for _ in range(100):
                    assert await terminal.next() in {*(f's{n}:{{"ans":0}}' for n in range(100))} | {
                        f"s{n}:B\x40".encode() for n in range(100)
                    }
            assert quotes.ops("sub") == 1
            quotes.push(1, 2)
            for terminal in terminals:
                heard = {await terminal.next() for _ in range(100)}
                assert 's1:{"ans":4,"msg":[[1,2]]}' in heard
                assert b"s2:B\x46\x014\x07[[1,2]]" in heard
                assert len(heard) == 100
            for terminal in terminals[1:]:
                assert await terminal.ask("u", **UNSUB) == {"ans": 0}
            assert quotes.ops("unsub") == 0
            await terminals[0].__aexit__()
            await quotes.wait_for("unsub", 1)
            assert quotes.subscribed == []
            assert front.gateway.upstreams.all["back"].sharing.subscriptions == 0
            assert quotes.ops("sub") == quotes.ops("unsub") == 1

    asyncio.run(story())


def test_who_joins_late_gets_the_packets_that_came_before(tmp_path: Path) -> None:
    async def story() -> None:
        async with (
            two_gateways(tmp_path) as (front, _, quotes),
            await WebTerminal.call(front.port("sisnet")) as first,
            await WebTerminal.call(front.port("sisnet")) as late,
        ):
            await first.say("a", service="quotes", command="hold")
            await quotes.wait_for("hold", 1)
            quotes.answer(part=1, more=2)
            assert await first.hear("a") == {"ans": 5, "msg": {"part": 1}, "fuc": 2}
            await late.say("b", service="quotes", command="hold")
            assert await late.hear("b") == {"ans": 5, "msg": {"part": 1}, "fuc": 2}
            quotes.answer(part=2, more=1)
            quotes.answer(part=3)
            for terminal, name in ((first, "a"), (late, "b")):
                assert await terminal.hear(name) == {"ans": 5, "msg": {"part": 2}, "fuc": 1}
                assert await terminal.hear(name) == {"ans": 5, "msg": {"part": 3}}
            assert await first.ask("s", **SUB) == {"ans": 0}
            quotes.push(1, 2)
            assert await first.hear("s") == {"ans": 4, "msg": [[1, 2]]}
            assert await late.ask("t", **SUB) == {"ans": 0}
            assert await late.hear("t") == {"ans": 4, "msg": [[1, 2]]}
            assert (quotes.ops("hold"), quotes.ops("sub")) == (1, 1)

    asyncio.run(story())


def test_packets_older_than_the_setting_are_not_given_again(tmp_path: Path) -> None:
    async def story() -> None:
        async with (
            two_gateways(tmp_path, keep_s=0.05) as (front, _, quotes),
            await WebTerminal.call(front.port("sisnet")) as first,
            await WebTerminal.call(front.port("sisnet")) as late,
        ):
            await first.say("a", service="quotes", command="hold")
            assert await first.ask("s", **SUB) == {"ans": 0}
            quotes.push(1, 2)
            quotes.answer(part=1, more=1)
            await first.next()
            await first.next()
            await asyncio.sleep(0.1)  # what the setting says, and more
            await late.say("b", service="quotes", command="hold")
            await quotes.wait_for("hold", 2)  # half an answer is none: asked anew
            assert await late.ask("t", **SUB) == {"ans": 0}
            quotes.push(3, 4)
            assert await late.hear("t") == {"ans": 4, "msg": [[3, 4]]}

    asyncio.run(story())


def test_an_upstream_that_went_away_answers_and_comes_back(tmp_path: Path) -> None:
    async def story() -> None:
        async with AsyncExitStack() as stack:
            first = running_gateway(tmp_path / "back", "sisnet", identities=[GATEWAY])
            back = await first.__aenter__()
            port = back.port("sisnet")
            quotes = Quotes(back)
            front = await stack.enter_async_context(
                running_gateway(
                    tmp_path / "front", "sisnet", identities=[IDENTITY], sisnet={"upstreams": [upstream(port)]}
                )
            )
            await connected(front)
            terminal = await stack.enter_async_context(await WebTerminal.call(front.port("sisnet")))
            assert await terminal.ask("s", **SUB) == {"ans": 0}
            await terminal.say("w", service="quotes", command="hold")
            await quotes.wait_for("hold", 1)
            await first.__aexit__(None, None, None)
            assert await terminal.hear("w") == {"ans": -1, "msg": "the provider went away"}
            away = await terminal.ask("x", service="quotes", command="get")
            assert away["ans"] == -1
            assert away["msg"].startswith("upstream back is away: ")
            back = await stack.enter_async_context(
                running_gateway(tmp_path / "back", "sisnet", ports={"sisnet": port}, identities=[GATEWAY])
            )
            quotes = Quotes(back)
            await quotes.wait_for("sub", 1)
            quotes.push(5, 6)
            assert await terminal.hear("s") == {"ans": 4, "msg": [[5, 6]]}
            assert await terminal.ask("y", service="quotes", command="get") == {
                "ans": 5,
                "msg": {"key": None, "price": 7},
            }

    asyncio.run(story())


def test_proxied_services_are_there_for_every_protocol(tmp_path: Path) -> None:
    async def story() -> None:
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
            await quotes.wait_for("unsub", 1)  # whoever asked over HTTP is gone with the answer

    asyncio.run(story())


def test_a_login_that_is_refused_is_told_to_whoever_asks(tmp_path: Path) -> None:
    async def story() -> None:
        async with running_gateway(tmp_path / "back", "sisnet") as back:
            settings = {"upstreams": [upstream(back.port("sisnet"))]}
            async with (
                running_gateway(tmp_path / "front", "sisnet", identities=[IDENTITY], sisnet=settings) as front,
                await WebTerminal.call(front.port("sisnet")) as terminal,
            ):
                there = front.gateway.upstreams.all["back"]
                await until(lambda: "refused the login" in there.trouble)
                answer = await terminal.ask("x", service="quotes", command="get")
                assert answer["ans"] == -1
                assert "it refused the login: nobody of that name is known here" in answer["msg"]
                await until(lambda: there.calls > 1)

    asyncio.run(story())


def test_an_upstream_that_answers_under_one_name_or_in_old_words(tmp_path: Path) -> None:
    """A server of somebody else's, which looks at the first name only."""
    heard: list[str] = []

    async def served(socket: ServerConnection) -> None:
        async for message in socket:
            assert isinstance(message, str)
            heard.append(message)
            name, _, rest = message.partition(":")
            if "login" in rest:
                await socket.send(f'{name}:{{"login":"ok"}}')
            elif "code" in rest:
                asked = json.loads(rest[rest.index("{") :])["ask"]["code"]
                await socket.send(f'{name}:{{"ans":{asked},"msg":"why"}}')
            else:
                await socket.send(f"{name}:[[1,2]]")

    async def story() -> None:
        async with serve(served, HOST, 0) as server:
            port = next(iter(server.sockets)).getsockname()[1]
            settings = {"upstreams": [upstream(port)]}
            async with (
                running_gateway(tmp_path, "sisnet", identities=[IDENTITY], sisnet=settings) as front,
                await WebTerminal.call(front.port("sisnet")) as terminal,
            ):
                await connected(front)
                assert await terminal.ask("c", service="quotes", command="get") == {"ans": 4, "msg": [[1, 2]]}
                for code, ans in ((-1, -1), (-2, -1), (-3, -1), (-100, -100)):
                    answer = await terminal.ask("c", service="quotes", command="x", ask={"code": code})
                    assert answer == {"ans": ans, "msg": "why"}
                assert heard[1] == '1:c:{"service":"quotes","command":"get"}'

    asyncio.run(story())


@pytest.mark.parametrize("scheme", ["wss", "tls"])
def test_upstreams_over_tls(tmp_path: Path, scheme: str) -> None:
    cert, key = map(str, make_certificate(tmp_path, "localhost"))

    async def story() -> None:
        door = {"wss": "sisnet", "tls": "sisnet_tcp"}[scheme]
        tls = {"cert": cert, "key": key}
        async with running_gateway(tmp_path / "back", door, identities=[GATEWAY], tls=tls) as back:
            Quotes(back)
            port = back.port(door)
            trusting = upstream(port, scheme, url=f"{scheme}://localhost:{port}", ca=cert)
            wary = trusting | {"name": "wary", "ca": "", "services": ["elsewhere"]}
            settings = {"upstreams": [trusting, wary]}
            async with (
                running_gateway(tmp_path / "front", "sisnet", identities=[IDENTITY], sisnet=settings) as front,
                await WebTerminal.call(front.port("sisnet")) as terminal,
            ):
                await connected(front)
                answer = await terminal.ask("c", service="quotes", command="get", ask={"key": "a"})
                assert answer == {"ans": 5, "msg": {"key": "a", "price": 7}}
                await until(lambda: "certificate" in front.gateway.upstreams.all["wary"].trouble)

    asyncio.run(story())


def test_a_service_with_two_upstreams_survives_one(tmp_path: Path) -> None:
    async def story() -> None:
        async with AsyncExitStack() as stack:
            left, right = (running_gateway(tmp_path / name, "sisnet", identities=[GATEWAY]) for name in ("l", "r"))
            ports, served = [], []
            for each in (left, right):
                running = await each.__aenter__()
                if each is right:
                    stack.push_async_exit(each)
                ports.append(running.port("sisnet"))
                served.append(Quotes(running))
            settings = {"upstreams": [upstream(port, name=str(place)) for place, port in enumerate(ports)]}
            front = await stack.enter_async_context(
                running_gateway(tmp_path / "front", "sisnet", identities=[IDENTITY], sisnet=settings)
            )
            await connected(front, "0")
            await connected(front, "1")
            terminal = await stack.enter_async_context(await WebTerminal.call(front.port("sisnet")))
            for number in range(4):
                await terminal.ask("c", service="quotes", command="get", ask={"key": number})
            assert [len(quotes.asked) for quotes in served] == [2, 2]
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

    asyncio.run(story())


def test_upstreams_come_and_go_with_a_reload(tmp_path: Path) -> None:
    async def story() -> None:
        async with (
            running_gateway(tmp_path / "back", "sisnet", identities=[GATEWAY]) as back,
            running_gateway(tmp_path / "front", "sisnet", identities=[IDENTITY]) as front,
            await WebTerminal.call(front.port("sisnet")) as terminal,
        ):
            quotes = Quotes(back)
            gateway = front.gateway
            bare = gateway.settings
            secret = msgspec.convert(upstream(back.port("sisnet")), Upstream)
            reloaded = reload(gateway, replace(bare, sisnet=Sisnet(upstreams=(secret,))))
            assert reloaded.applied == ["sisnet.upstreams: [] → ['back']"], "and no password"
            await connected(front)
            assert await terminal.ask("s", **SUB) == {"ans": 0}
            session = gateway.upstreams.all["back"].id
            reload(gateway, replace(bare, sisnet=Sisnet(upstreams=(secret,), keep_s=3.0)))
            assert gateway.upstreams.all["back"].id == session, "what stays the same stays connected"
            assert gateway.upstreams.all["back"].sharing.keep_s == 3.0
            own = replace(secret, services=("redis",))
            with pytest.raises(InputError, match="redis is a service of the gateway's own"):
                reload(gateway, replace(bare, sisnet=Sisnet(upstreams=(own,))))
            assert gateway.upstreams.all["back"].id == session
            reload(gateway, bare)
            assert await terminal.hear("s") == {"ans": -1, "msg": "this upstream is no longer used"}
            await until(lambda: session not in gateway.connections)
            answer = await terminal.ask("x", service="quotes", command="get")
            assert "not found ServiceHandler" in answer["msg"]
            assert quotes.ops("sub") == 1

    asyncio.run(story())


def test_an_event_goes_on_too(tmp_path: Path) -> None:
    async def story() -> None:
        async with (
            two_gateways(tmp_path, "esnp") as (front, _, quotes),
            await Station.call(front.port("esnp"), *IDENTITY) as station,
        ):
            station.say(*to("quotes", "note", flag=6), *data_lines(a=1))
            await quotes.wait_for("note", 1)
            assert quotes.asked[0].fields == {"a": 1}
            assert values(await station.ask(*to("quotes", "get", number=7), *data_lines(key="k"))) == {
                "key": "k",
                "price": 7,
            }
            assert (await station.ask(*to("quotes", "sub", number=8), *data_lines(key="k", sdb="s"))).error is None
            quotes.push(1, 2)
            told = await station.message()
            assert told.addresses == ((10, "k.s"),)

    asyncio.run(story())


def test_a_subscriber_that_does_not_read_is_cut_off_and_the_others_are_not(tmp_path: Path) -> None:
    long = "x" * 200_000

    async def story() -> None:
        async with running_gateway(tmp_path / "back", "sisnet", identities=[GATEWAY]) as back:
            quotes = Quotes(back)
            settings: dict[str, Any] = {
                "sisnet": {"upstreams": [upstream(back.port("sisnet"))]},
                "limits": {"pending_bytes": 100_000},
            }
            async with (
                running_gateway(tmp_path / "front", "sisnet", "sisnet_tcp", identities=[IDENTITY], **settings) as front,
                await WebTerminal.call(front.port("sisnet")) as reader,
                await Terminal.call(front, *IDENTITY) as sleeper,
            ):
                await connected(front)
                assert await reader.ask("s", **SUB) == {"ans": 0}
                assert await sleeper.ask("s", **SUB) == {"ans": 0}
                sleeper.pause()
                sharing = front.gateway.upstreams.all["back"].sharing
                pushed = 0
                while not sharing.cut:
                    assert pushed < 500, "the network takes some, but not everything"
                    quotes.push(pushed, long)
                    assert await reader.hear("s") == {"ans": 4, "msg": [[pushed, long]]}
                    pushed += 1
                quotes.push("last")
                assert await reader.hear("s") == {"ans": 4, "msg": [["last"]]}
                sleeper.resume()
                with pytest.raises(AssertionError, match="closed"):
                    await sleeper.hear_to_the_end()
                (closed,) = await front.recorded("close", 1, protocol="sisnet", identity=IDENTITY[0])
                assert closed["note"]["reason"] == "slow_consumer"

    asyncio.run(story())


def test_an_upstream_that_is_none_is_called_again(tmp_path: Path) -> None:
    """One that speaks no WebSocket, and one that sends what cannot be read."""

    async def babble(socket: ServerConnection) -> None:
        await socket.send(b"no colon at all")
        await socket.wait_closed()

    async def story() -> None:
        async with serve(babble, HOST, 0) as server, running_gateway(tmp_path / "web", "http") as web:
            port = next(iter(server.sockets)).getsockname()[1]
            upstreams = [upstream(web.port("http"), name="web"), upstream(port, name="babble", services=["b"])]
            settings = {"upstreams": upstreams}
            async with (
                running_gateway(tmp_path / "front", "sisnet", identities=[IDENTITY], sisnet=settings) as front,
                await WebTerminal.call(front.port("sisnet")) as terminal,
            ):
                there = front.gateway.upstreams.all
                await until(lambda: there["web"].calls > 1 and there["babble"].calls > 1)
                assert "server rejected WebSocket connection" in there["web"].trouble
                kept = await front.recorded("fault", 1, identity="babble")
                assert kept[0]["frame"] == b"no colon at all"
                answer = await terminal.ask("x", service="b", command="get")
                assert answer["msg"].startswith("upstream babble is away: ")

    asyncio.run(story())


def test_an_upstream_that_stops_reading_is_left_and_called_again(
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

    async def story() -> None:
        server = await asyncio.start_server(deaf, HOST, 0)
        port = server.sockets[0].getsockname()[1]
        settings: dict[str, Any] = {
            "sisnet": {"upstreams": [upstream(port, "tcp")]},
            "limits": {"pending_bytes": 100_000},
        }
        async with (
            server,
            running_gateway(tmp_path, "sisnet", identities=[IDENTITY], **settings) as front,
            await WebTerminal.call(front.port("sisnet")) as terminal,
        ):
            await connected(front)
            there = front.gateway.upstreams.all["back"]
            for number in range(100):
                await terminal.say("n", service="quotes", command="x", ask={"n": number, "long": "x" * 200_000})
            await until(lambda: front.gateway.broker.services.open == 100)
            connection = front.gateway.connections[there.id]
            await until(lambda: connection.congested)
            assert connection.pending_bytes < 1_000_000, "the rest waits where it is bounded"
            there.end(Closing("ended"))
            for _ in range(100):
                assert await terminal.hear("n") == {"ans": -1, "msg": "the provider went away"}
            await until(lambda: there.ready and there.calls == 2)
            for writer in writers:
                writer.transport.abort()

    asyncio.run(story())
