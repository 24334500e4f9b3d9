"""A sisnet client provides a service, and pushes to subscribers of every protocol."""

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest

from gateway.esnp_client import Station, data_lines, to
from gateway.running_gateway import HOST, WAIT_S, Running, running_gateway, until
from gateway.sisnet_client import IDENTITY, Terminal, UnmaskedClient, WebTerminal
from gateway.upstream.gateway_pair import GATEWAY, upstream, wait_until_connected

PROVIDER = ("provider", "pr0vider")
SUB = {"service": "feed", "command": "sub", "ask": {"key": "k", "sdb": "s"}}
UNSUB = SUB | {"command": "unsub"}


async def provide(running: Running) -> Terminal:
    provider = await Terminal.connect(running, *PROVIDER)
    answer = await provider.ask("r", service="wirelake", command="register", ask={"service": "feed"})
    assert answer == {"ans": 0}
    return provider


async def receive_request(provider: Terminal) -> tuple[bytes, bytes]:
    name, _, rest = (await provider.receive()).partition(b":")
    return name, rest


async def test_pushes_reach_the_requester_until_it_unsubscribes(tmp_path: Path) -> None:
    async with (
        running_gateway(tmp_path, "sisnet", "sisnet_tcp", identities=[IDENTITY, PROVIDER]) as running,
        await provide(running) as provider,
        await Terminal.connect(running, *IDENTITY) as requester,
    ):
        requester.send(b's1:{"service":"feed","command":"sub","ask":{"key":"k","sdb":"s"}}')
        assert await provider.receive() == b'1:{"service":"feed","command":"sub","ask":{"key":"k","sdb":"s"}}'
        provider.send(b'1:{"ans":0}')
        assert await requester.receive() == b's1:{"ans":0}'
        for pushed, received in {
            b'1:{"ans":4,"msg":[[1,10.5]]}': b's1:{"ans":4,"msg":[[1,10.5]]}',
            b'1:{"ans":5,"msg":{"a":1}}': b's1:{"ans":5,"msg":{"a":1}}',
            b"1:B\x46\x016\x03\x01\x02\xff": b's1:{"ans":6,"msg":"AQL/"}',
            b"1:[[2,3]]": b's1:{"ans":4,"msg":[[2,3]]}',
            b'1:{"ans":5,"msg":{"topic":"@t"},"command":"publish"}': b's1:{"ans":5,"msg":{"topic":"@t"}}',
        }.items():
            provider.send(pushed)
            assert await requester.receive() == received
        requester.send(b'u1:{"service":"feed","command":"unsub","ask":{"key":"k","sdb":"s"}}')
        assert await requester.receive() == b'u1:{"ans":0}'
        assert await provider.receive() == b':{"service":"feed","command":"unsub","ask":{"key":"k","sdb":"s"}}'
        provider.send(b':{"ans":0}')
        provider.send(b'1:{"ans":4,"msg":[[9,9]]}')
        assert await provider.ask("p", command="ping") == {"ans": 0}
        assert await requester.ask("p", command="ping") == {"ans": 0}, "a push after unsub is dropped"
        assert len(running.gateway.broker.services.subscriptions) == 0


async def test_the_authors_clients_on_both_sides(tmp_path: Path) -> None:
    async with running_gateway(
        tmp_path, "sisnet", identities=[IDENTITY, PROVIDER], sisnet={"lenient": True}
    ) as running:
        port = running.port("sisnet")
        async with await UnmaskedClient.connect(port, *IDENTITY) as requester:
            async with await UnmaskedClient.connect(port, *PROVIDER) as provider:
                provider.send(b'1:{"service":"wirelake","cmd":"register","ask":{"service":"feed"}}')
                assert await provider.receive() == b'1:{"ans":0}'
                requester.send(b'9:{"service":"feed","cmd":"sub","ask":{"key":"k","sdb":"s"}}')
                receive_request = await provider.receive()
                assert receive_request == b'1:{"service":"feed","command":"sub","ask":{"key":"k","sdb":"s"}}'
                provider.send(b'1:{"ans":0}')
                assert await requester.receive() == b'9:{"ans":0}'
                provider.send(b'1:{"ans":4,"msg":[[1,2]]}')
                assert await requester.receive() == b'9:{"ans":4,"msg":[[1,2]]}'
                provider.send(b"1:B\x46\x016\x02\xc6\xd6", binary=True)
                assert await requester.receive() == b'9:{"ans":6,"msg":"xtY="}'
                requester.send(b'10:{"service":"feed","cmd":"unsub","ask":{"key":"k","sdb":"s"}}')
                assert await requester.receive() == b'10:{"ans":0}'
                assert b'"command":"unsub"' in await provider.receive()
                requester.send(b'11:{"service":"feed","cmd":"sub","ask":{"key":"k","sdb":"s"}}')
                own, _, _ = (await provider.receive()).partition(b":")
                provider.send(own + b':{"ans":0}')
                assert await requester.receive() == b'11:{"ans":0}'
            assert await requester.receive() == b'11:{"ans":-100,"msg":"the provider went away"}'


async def test_one_who_unsubscribes_leaves_the_others_their_pushes(tmp_path: Path) -> None:
    async with (
        running_gateway(tmp_path, "sisnet", "sisnet_tcp", identities=[IDENTITY, PROVIDER]) as running,
        await provide(running) as provider,
        await WebTerminal.connect(running.port("sisnet")) as first,
        await WebTerminal.connect(running.port("sisnet")) as second,
    ):
        names = []
        for terminal in (first, second):
            await terminal.send_json("s", **SUB)
            name, _ = await receive_request(provider)
            provider.send(name + b':{"ans":0}')
            assert await terminal.receive_json("s") == {"ans": 0}
            names.append(name)
        for place, terminal in enumerate((first, second)):
            provider.send(names[place] + b':{"ans":1,"msg":%d}' % place)
            assert await terminal.receive_json("s") == {"ans": 1, "msg": place}
        assert await first.ask("u", **UNSUB) == {"ans": 0}
        for name in names:
            provider.send(name + b':{"ans":1,"msg":7}')
        assert await second.receive_json("s") == {"ans": 1, "msg": 7}
        assert await first.ask("p", command="ping") == {"ans": 0}
        await second.__aexit__()
        assert b'"unsub"' in await provider.receive(), "the provider hears of it when the last one is gone"


async def test_other_requests_of_a_service_without_key_and_table_are_kept_apart(tmp_path: Path) -> None:
    async with (
        running_gateway(tmp_path, "sisnet_tcp", identities=[IDENTITY, PROVIDER]) as running,
        await provide(running) as provider,
        await Terminal.connect(running, *IDENTITY) as requester,
    ):
        names = {}
        for symbol in ("a", "b"):
            requester.send_json(symbol, service="feed", command="sub", ask={"symbol": symbol})
            names[symbol], _ = await receive_request(provider)
            provider.send(names[symbol] + b':{"ans":0}')
            assert await requester.receive_json(symbol) == {"ans": 0}
        assert await requester.ask("u", service="feed", command="unsub", ask={"symbol": "a"}) == {"ans": 0}
        assert await provider.receive() == b':{"service":"feed","command":"unsub","ask":{"symbol":"a"}}'
        for name in names.values():
            provider.send(name + b':{"ans":2,"msg":"now"}')
        assert await requester.receive() == b'b:{"ans":2,"msg":"now"}'


async def test_a_provider_that_goes_away_ends_them_with_minus_100(tmp_path: Path) -> None:
    async with (
        running_gateway(tmp_path, "sisnet", "sisnet_tcp", identities=[IDENTITY, PROVIDER]) as running,
        await WebTerminal.connect(running.port("sisnet")) as requester,
    ):
        async with await provide(running) as provider:
            for name, fmt in (("s", "json"), ("b", "bytes"), ("over", "json")):
                await requester.send_json(name, **SUB, fmt=fmt)
                own, _ = await receive_request(provider)
                provider.send(own + b':{"ans":0}')
                assert await requester.receive() in {f'{name}:{{"ans":0}}', f"{name}:B\x40".encode()}
            provider.send(own + b':{"ans":-1,"msg":"sold out"}')
            assert await requester.receive() == 'over:{"ans":-1,"msg":"sold out"}', "the provider's own word"
            await requester.send_json("w", service="feed", command="get")
            await receive_request(provider)
        assert {await requester.receive() for _ in range(3)} == {
            'w:{"ans":-1,"msg":"the provider went away"}',
            's:{"ans":-100,"msg":"the provider went away"}',
            b"b:B\x46\x04-100\x16the provider went away",
        }
        assert len(running.gateway.broker.services.subscriptions) == 0
        async with await provide(running) as again:
            await requester.send_json("s", **SUB)
            own, _ = await receive_request(again)
            again.send(own + b':{"ans":0}')
            assert await requester.receive_json("s") == {"ans": 0}, "and it can subscribe anew"


@pytest.mark.parametrize("answered", [False, True])
async def test_a_provider_is_told_when_the_requester_is_gone(tmp_path: Path, answered: bool) -> None:
    async with (
        running_gateway(tmp_path, "sisnet", "sisnet_tcp", identities=[IDENTITY, PROVIDER]) as running,
        await provide(running) as provider,
    ):
        requester = await WebTerminal.connect(running.port("sisnet"))
        await requester.send_json("s", **SUB)
        own, _ = await receive_request(provider)
        if answered:
            provider.send(own + b':{"ans":0}')
            assert await requester.receive_json("s") == {"ans": 0}
        await requester.__aexit__()
        if not answered:
            await until(lambda: running.gateway.broker.services.open == 0)
            provider.send(own + b':{"ans":0}')
        assert await provider.receive() == b':{"service":"feed","command":"unsub","ask":{"key":"k","sdb":"s"}}'
        assert len(running.gateway.broker.services.subscriptions) == 0


async def test_a_command_that_is_called_sub_and_brings_something_is_over_with_its_answer(tmp_path: Path) -> None:
    async with (
        running_gateway(tmp_path, "sisnet_tcp", identities=[IDENTITY, PROVIDER]) as running,
        await provide(running) as provider,
        await Terminal.connect(running, *IDENTITY) as requester,
    ):
        requester.send_json("q", service="feed", command="sub", ask={"a": 3, "b": 2})
        own, _ = await receive_request(provider)
        provider.send(own + b':{"ans":1,"msg":1}')
        assert await requester.receive() == b'q:{"ans":1,"msg":1}'
        assert len(running.gateway.broker.services.subscriptions) == 0


async def test_requesters_of_other_protocols(tmp_path: Path) -> None:
    """Push to esnp as notifications of a topic; HTTP gets the answer only, and the provider an unsub."""
    async with (
        running_gateway(tmp_path, "esnp", "http", "sisnet_tcp", identities=[IDENTITY, PROVIDER]) as running,
        httpx.AsyncClient(timeout=WAIT_S) as web,
        AsyncExitStack() as stack,
    ):
        provider = await stack.enter_async_context(await provide(running))
        station = await stack.enter_async_context(await Station.connect(running.port("esnp"), *IDENTITY))
        station.send(*to("feed", "sub", number=8), *data_lines(key="k", sdb="s"))
        own, _ = await receive_request(provider)
        provider.send(own + b':{"ans":0}')
        assert (await station.receive_message()).error is None
        provider.send(own + b':{"ans":4,"msg":[[1,2]]}')
        assert (await station.receive_message()).addresses == ((10, "k.s"),)
        url = f"http://{HOST}:{running.port('http')}/api/services/feed/sub"
        token = {"Authorization": f"Bearer {running.gateway.keys.admin_token()}"}
        posted = asyncio.create_task(web.post(url, json={"key": "x", "sdb": "s"}, headers=token))
        own, _ = await receive_request(provider)
        provider.send(own + b':{"ans":0}')
        assert (await posted).status_code == 200
        assert b'"unsub","ask":{"key":"x","sdb":"s"}' in await provider.receive()
        await provider.__aexit__()
        await until(lambda: len(running.gateway.broker.services.subscriptions) == 0)
        station.send(*to("feed", "get", number=9))
        assert "not found" in ((await station.receive_message()).error or ""), "the station goes on"


async def test_a_subscriber_that_does_not_read_is_cut_off(tmp_path: Path) -> None:
    long = b"x" * 200_000
    settings: dict[str, Any] = {"limits": {"pending_bytes": 100_000}}
    async with (
        running_gateway(tmp_path, "sisnet", "sisnet_tcp", identities=[IDENTITY, PROVIDER], **settings) as running,
        await provide(running) as provider,
        await Terminal.connect(running, *IDENTITY) as sleeper,
    ):
        sleeper.send_json("s", **SUB)
        own, _ = await receive_request(provider)
        provider.send(own + b':{"ans":0}')
        assert await sleeper.receive_json("s") == {"ans": 0}
        sleeper.pause()
        subscriptions = running.gateway.broker.services.subscriptions
        pushed = 0
        while not subscriptions.cut:
            assert pushed < 500, "the network takes some, but not everything"
            provider.send(own + b':{"ans":2,"msg":"' + long + b'"}')
            pushed += 1
            if subscriptions.cut == 0:
                provider.send_json("p", command="ping")
                while not (await provider.receive()).startswith(b"p:"):
                    pass
        assert len(subscriptions) == 0
        sleeper.resume()
        with pytest.raises(AssertionError, match="closed"):
            await sleeper.receive_until_closed()


async def test_through_two_gateways(tmp_path: Path) -> None:
    """Register the provider at the upstream, and send the requests to the front gateway."""
    async with running_gateway(tmp_path / "back", "sisnet", "sisnet_tcp", identities=[GATEWAY, PROVIDER]) as back:
        settings = {"upstreams": [upstream(back.port("sisnet"), services=["feed"])]}
        async with (
            running_gateway(tmp_path / "front", "sisnet", identities=[IDENTITY], sisnet=settings) as front,
            await WebTerminal.connect(front.port("sisnet")) as requester,
        ):
            await wait_until_connected(front)
            async with await provide(back) as provider:
                await requester.send('s1:{"service":"feed","cmd":"sub","ask":{"key":"k","sdb":"s"}}')
                own, _ = await receive_request(provider)
                provider.send(own + b':{"ans":0}')
                assert await requester.receive() == 's1:{"ans":0}'
                provider.send(own + b':{"ans":4,"msg":[[1,2]]}')
                assert await requester.receive() == 's1:{"ans":4,"msg":[[1,2]]}'
            assert await requester.receive() == 's1:{"ans":-100,"msg":"the provider went away"}'
