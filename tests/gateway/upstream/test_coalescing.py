"""Equal requests and subscriptions of many clients are sent to an upstream once."""

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from gateway.running_gateway import running_gateway, until
from gateway.sisnet_client import IDENTITY, Terminal, WebTerminal
from gateway.upstream.gateway_pair import (
    GATEWAY,
    SUB,
    UNSUB,
    QuoteService,
    two_gateways,
    upstream,
    wait_until_connected,
)


async def test_a_thousand_identical_requests_are_one(tmp_path: Path) -> None:
    """Send them over 20 connections, because each may have only so many open."""
    async with AsyncExitStack() as stack:
        front, _, quotes = await stack.enter_async_context(two_gateways(tmp_path))
        port = front.port("sisnet")
        terminals = [await stack.enter_async_context(await WebTerminal.connect(port)) for _ in range(20)]
        for terminal in terminals:
            for number in range(50):
                await terminal.send_json(f"n{number}", service="quotes", command="hold", ask={"b": 1, "a": [2]})
        await until(lambda: front.gateway.broker.services.open == 1000)
        await quotes.wait_for("hold", 1)
        quotes.answer(price=9)
        for terminal in terminals:
            for number in range(50):
                assert await terminal.receive_json(f"n{number}") == {"ans": 5, "msg": {"price": 9}}
        assert len(quotes.requests) == 1
        await terminals[0].send_json("again", service="quotes", command="hold", ask={"a": [2], "b": 1})
        await quotes.wait_for("hold", 2)  # no longer pending: sent again
        quotes.answer(price=10)
        assert await terminals[0].receive_json("again") == {"ans": 5, "msg": {"price": 10}}


async def test_requests_that_differ_are_asked_apart(tmp_path: Path) -> None:
    async with (
        two_gateways(tmp_path) as (front, _, quotes),
        await WebTerminal.connect(front.port("sisnet")) as terminal,
    ):
        base: dict[str, Any] = {"service": "quotes", "command": "hold", "ask": {"a": 1}}
        others: list[dict[str, Any]] = [{}, {"ask": {"a": 2}}, {"command": "x"}, {"fmt": "bytes"}, {"ask": "a"}]
        for name, other in enumerate(others):
            await terminal.send_json(str(name), **(base | other))
        await until(lambda: len(quotes.requests) == 5)


async def test_more_than_the_upstream_takes_at_once_waits_for_its_turn(tmp_path: Path) -> None:
    count = 600
    async with AsyncExitStack() as stack:
        front, _, quotes = await stack.enter_async_context(two_gateways(tmp_path))
        port = front.port("sisnet")
        terminals = [await stack.enter_async_context(await WebTerminal.connect(port)) for _ in range(3)]
        for number in range(count):
            await terminals[number % 3].send_json("n", service="quotes", command="get", ask={"key": number})
        answers = [await terminals[number % 3].receive_json("n") for number in range(count)]
        assert sorted(answer["msg"]["key"] for answer in answers) == list(range(count))
        assert len(quotes.requests) == count


async def test_a_thousand_subscribers_are_one_sub(tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        front, _, quotes = await stack.enter_async_context(two_gateways(tmp_path))
        port = front.port("sisnet")
        terminals = [await stack.enter_async_context(await WebTerminal.connect(port)) for _ in range(10)]
        for terminal in terminals:
            for number in range(100):
                await terminal.send_json(f"s{number}", **SUB, fmt="json" if number % 2 else "bytes")
        for terminal in terminals:
            for _ in range(100):
                assert await terminal.receive() in {*(f's{n}:{{"ans":0}}' for n in range(100))} | {
                    f"s{n}:B\x40".encode() for n in range(100)
                }
        assert quotes.count("sub") == 1
        quotes.push(1, 2)
        for terminal in terminals:
            received = {await terminal.receive() for _ in range(100)}
            assert 's1:{"ans":4,"msg":[[1,2]]}' in received
            assert b"s2:B\x46\x014\x07[[1,2]]" in received
            assert len(received) == 100
        for terminal in terminals[1:]:
            assert await terminal.ask("u", **UNSUB) == {"ans": 0}
        assert quotes.count("unsub") == 0
        await terminals[0].__aexit__()
        await quotes.wait_for("unsub", 1)
        assert quotes.subscribed == []
        assert front.gateway.upstreams.all["back"].coalescer.subscriptions == 0
        assert quotes.count("sub") == quotes.count("unsub") == 1


async def test_who_joins_late_gets_the_packets_that_came_before(tmp_path: Path) -> None:
    async with (
        two_gateways(tmp_path) as (front, _, quotes),
        await WebTerminal.connect(front.port("sisnet")) as first,
        await WebTerminal.connect(front.port("sisnet")) as late,
    ):
        await first.send_json("a", service="quotes", command="hold")
        await quotes.wait_for("hold", 1)
        quotes.answer(part=1, more=2)
        assert await first.receive_json("a") == {"ans": 5, "msg": {"part": 1}, "fuc": 2}
        await late.send_json("b", service="quotes", command="hold")
        assert await late.receive_json("b") == {"ans": 5, "msg": {"part": 1}, "fuc": 2}
        quotes.answer(part=2, more=1)
        quotes.answer(part=3)
        for terminal, name in ((first, "a"), (late, "b")):
            assert await terminal.receive_json(name) == {"ans": 5, "msg": {"part": 2}, "fuc": 1}
            assert await terminal.receive_json(name) == {"ans": 5, "msg": {"part": 3}}
        assert await first.ask("s", **SUB) == {"ans": 0}
        quotes.push(1, 2)
        assert await first.receive_json("s") == {"ans": 4, "msg": [[1, 2]]}
        assert await late.ask("t", **SUB) == {"ans": 0}
        assert await late.receive_json("t") == {"ans": 4, "msg": [[1, 2]]}
        assert (quotes.count("hold"), quotes.count("sub")) == (1, 1)


async def test_packets_older_than_the_setting_are_not_given_again(tmp_path: Path) -> None:
    async with (
        two_gateways(tmp_path, keep_s=0.05) as (front, _, quotes),
        await WebTerminal.connect(front.port("sisnet")) as first,
        await WebTerminal.connect(front.port("sisnet")) as late,
    ):
        await first.send_json("a", service="quotes", command="hold")
        assert await first.ask("s", **SUB) == {"ans": 0}
        quotes.push(1, 2)
        quotes.answer(part=1, more=1)
        await first.receive()
        await first.receive()
        await asyncio.sleep(0.1)  # longer than the setting
        await late.send_json("b", service="quotes", command="hold")
        await quotes.wait_for("hold", 2)  # an incomplete answer does not count: sent again
        assert await late.ask("t", **SUB) == {"ans": 0}
        quotes.push(3, 4)
        assert await late.receive_json("t") == {"ans": 4, "msg": [[3, 4]]}


async def test_a_subscriber_that_does_not_read_is_cut_off_and_the_others_are_not(tmp_path: Path) -> None:
    long = "x" * 200_000
    async with running_gateway(tmp_path / "back", "sisnet", identities=[GATEWAY]) as back:
        quotes = QuoteService(back)
        settings: dict[str, Any] = {
            "sisnet": {"upstreams": [upstream(back.port("sisnet"))]},
            "limits": {"pending_bytes": 100_000},
        }
        async with (
            running_gateway(tmp_path / "front", "sisnet", "sisnet_tcp", identities=[IDENTITY], **settings) as front,
            await WebTerminal.connect(front.port("sisnet")) as reader,
            await Terminal.connect(front, *IDENTITY) as sleeper,
        ):
            await wait_until_connected(front)
            assert await reader.ask("s", **SUB) == {"ans": 0}
            assert await sleeper.ask("s", **SUB) == {"ans": 0}
            sleeper.pause()
            coalescer = front.gateway.upstreams.all["back"].coalescer
            pushed = 0
            while not coalescer.cut:
                assert pushed < 500, "the network takes some, but not everything"
                quotes.push(pushed, long)
                assert await reader.receive_json("s") == {"ans": 4, "msg": [[pushed, long]]}
                pushed += 1
            quotes.push("last")
            assert await reader.receive_json("s") == {"ans": 4, "msg": [["last"]]}
            sleeper.resume()
            with pytest.raises(AssertionError, match="closed"):
                await sleeper.receive_until_closed()
            (closed,) = await front.recorded("close", 1, protocol="sisnet", identity=IDENTITY[0])
            assert closed["note"]["reason"] == "slow_consumer"
