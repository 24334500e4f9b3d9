"""A station's client against a real gateway."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from gateway.running_gateway import HOST, WAIT_S, Running, running_gateway, until
from msgspec.structs import replace

from wirelake.backoff import Backoff
from wirelake.clients.client import ClientOptions
from wirelake.clients.esnp import EsnpClient
from wirelake.clients.serving import AnswerPackets, ServiceError, ServiceRequest
from wirelake.errors import AnswerError, InputError, LateError, LostError, RefusedError, StateError, TranslationError
from wirelake.limits import CLIENT_ANSWER_PACKETS_MAX

STATION = ("station", "secret")


QUICK = ClientOptions(backoff=Backoff(first_s=0.01, max_s=0.05))


def station(running: Running, options: ClientOptions = QUICK) -> EsnpClient:
    return EsnpClient(HOST, running.port("esnp"), *STATION, options=options)


@asynccontextmanager
async def gateway(folder: Path, **options: Any) -> AsyncIterator[Running]:
    async with running_gateway(folder, "esnp", identities=[STATION], **options) as running:
        yield running


async def echo(request: ServiceRequest) -> Any:
    return request.value


async def never(_: ServiceRequest) -> Any:
    await asyncio.Event().wait()


async def test_publish_and_receive(tmp_path: Path) -> None:
    async with gateway(tmp_path) as running, station(running) as client:
        await client.subscribe("@news", "live")
        published = await client.publish("@news", b"\xff\x00 no text", type=7)
        notification = await client.next_notification(WAIT_S)
        assert (notification.id, notification.topic, notification.type) == (published, "@news", 7)
        assert notification.content == b"\xff\x00 no text"
        assert await client.publish("live", "") == ""
        assert (await client.next_notification(WAIT_S)).content == b""
        await client.unsubscribe("@news")
        await client.publish("@news", "not received")
        await client.publish("live", "received")
        async with asyncio.timeout(WAIT_S), aclosing(client.notifications()) as notifications:
            assert (await anext(notifications)).text == "received"
        await client.ping()


@pytest.mark.parametrize(
    "value",
    [None, 7, -1.5, "text", b"\x00\xff", [1, "a", None, True], {"a": {"b": [1]}}, {"n": 1, "payload": b"\xff"}],
)
async def test_every_kind_of_value_crosses(tmp_path: Path, value: Any) -> None:
    async with gateway(tmp_path) as running, station(running) as provider, station(running) as asker:
        await provider.register("echo", echo)
        assert await asker.ask("echo/say", value) == value


async def test_addresses(tmp_path: Path) -> None:
    seen: list[ServiceRequest] = []

    async def handler(request: ServiceRequest) -> Any:
        seen.append(request)

    async with gateway(tmp_path) as running, station(running) as client:
        await client.register("sums", handler, group="g1")
        await client.register("magline/17", handler)
        await client.ask("esnp://_/sums/add?o=left&g=g1&to=5000", {"a": 1})
        await client.ask("sums/add?o=left")
        await client.ask("magline%2F17/call")
        assert seen == [
            ServiceRequest("sums", "add", {"a": 1}, "left"),
            ServiceRequest("sums", "add", None, "left"),
            ServiceRequest("magline/17", "call"),
        ]
        for bad in ("sums/add?to=soon", "a/b/c/d"):
            with pytest.raises(InputError):
                await client.ask(bad)


async def test_a_service_may_refuse_and_fail(tmp_path: Path) -> None:
    async def handler(request: ServiceRequest) -> Any:
        if request.op == "refuse":
            raise ServiceError("not today")
        if request.op == "unsayable":
            return {"value": object()}
        raise ValueError("a fault of the service")

    async with gateway(tmp_path) as running, station(running) as provider, station(running) as asker:
        await provider.register("moody", handler)
        for op, words in (("refuse", "not today"), ("fail", "the service failed"), ("unsayable", "value")):
            with pytest.raises(AnswerError, match=words):
                await asker.ask(f"moody/{op}")
        with pytest.raises(InputError, match="already"):
            await provider.register("moody", handler)
        await provider.unregister("moody")
        with pytest.raises(AnswerError, match=r"Address\[20=op,30=moody\] not found ServiceHandler"):
            await asker.ask("moody/op")
        with pytest.raises(AnswerError, match="gateway's own"):
            await provider.register("devices", handler)
        with pytest.raises(TranslationError):
            await asker.ask("moody/op", {"value": object()})


async def test_an_answer_may_take_too_long(tmp_path: Path) -> None:
    async with gateway(tmp_path) as running, station(running) as provider:
        await provider.register("never", never)
        with pytest.raises(AnswerError, match="timeout"):
            await provider.ask("never/op?to=50")
        async with station(running, replace(QUICK, answer_s=0.05)) as hasty:
            with pytest.raises(LateError):
                await hasty.ask("never/op")


async def test_answers_in_several_messages(tmp_path: Path) -> None:
    async def handler(request: ServiceRequest) -> Any:
        return AnswerPackets([[1], [2], [3]] if request.op == "lists" else [0] * (CLIENT_ANSWER_PACKETS_MAX + 1))

    async with gateway(tmp_path) as running, station(running) as client:
        await client.register("slices", handler)
        assert await client.ask("slices/lists") == [1, 2, 3]
        assert await client.ask_packets("slices/lists") == [[1], [2], [3]]
        with pytest.raises(Exception, match="packets"):
            await client.ask("slices/many")
        assert await client.ask("slices/lists") == [1, 2, 3], "the connection lives on"


async def test_every_hop_of_a_request(tmp_path: Path) -> None:
    async with gateway(tmp_path) as running, station(running) as client:
        await client.register("echo", echo)
        answer, hops = await client.trace("echo/say", 5)
        assert answer == 5
        assert [(hop.hop, hop.node) for hop in hops] == [
            ("received", "local"),
            ("routed to", "station"),
            ("answered by", "station"),
        ]
        assert 0 < hops[0].at_ms <= hops[2].at_ms


async def test_what_wants_no_answer(tmp_path: Path) -> None:
    seen: asyncio.Queue[ServiceRequest] = asyncio.Queue()

    async def handler(request: ServiceRequest) -> Any:
        seen.put_nowait(request)

    async with gateway(tmp_path) as running, station(running) as client:
        await client.register("notes", handler)
        for event in (False, True):
            await client.tell("notes/add", {"event": event}, event=event)
            async with asyncio.timeout(WAIT_S):
                assert await seen.get() == ServiceRequest("notes", "add", {"event": event})
        assert running.gateway.broker.services.open == 0
    with pytest.raises(StateError):
        await client.tell("notes/add")


async def test_a_gateway_that_comes_back(tmp_path: Path) -> None:
    """Services and subscriptions are made again, and what was missed comes."""
    async with gateway(tmp_path) as running:
        port = running.port("esnp")
        client = station(running)
        await client.open()
        await client.subscribe("@news", "live")
        await client.register("echo", echo)
    await until(lambda: not client.connected)
    request = asyncio.create_task(client.ask("echo/say", 1))
    async with gateway(tmp_path, ports={"esnp": port}) as running:
        assert await request == 1, "requests wait for a connection"
        assert client.connections == 2
        for topic in ("@news", "live"):
            await running.publish(topic, topic)
        assert {(await client.next_notification(WAIT_S)).text for _ in range(2)} == {"@news", "live"}
        await client.close()


async def test_open_requests_fail_when_the_connection_is_lost(tmp_path: Path) -> None:
    async with gateway(tmp_path) as running, station(running) as client:
        await client.register("never", never)
        request = asyncio.create_task(client.ask("never/op"))
        await until(lambda: running.gateway.broker.services.open == 1)
        (connection,) = running.gateway.connections.values()
        connection.abort()
        with pytest.raises(LostError):
            await asyncio.wait_for(request, WAIT_S)
        await client.ping()
        assert client.connections == 2


async def test_who_is_refused_stays_away(tmp_path: Path) -> None:
    async with gateway(tmp_path) as running:
        for user, token in (("station", "wrong"), ("nobody", "secret")):
            with pytest.raises(RefusedError):
                await EsnpClient(HOST, running.port("esnp"), user, token).open()
        assert running.gateway.counters.accepted["esnp"] == 2, "it does not call again"


async def test_a_message_of_megabytes(tmp_path: Path) -> None:
    async with gateway(tmp_path) as running, station(running) as client:
        await client.register("echo", echo)
        content = bytes(range(256)) * 16384
        assert await client.ask("echo/say", content) == content
        with pytest.raises(TranslationError, match="more than esnp takes"):
            await client.ask("echo/say", bytes(11 * 1024 * 1024))


async def test_a_slow_reader_loses_nothing(tmp_path: Path) -> None:
    async with gateway(tmp_path) as running, station(running, replace(QUICK, inbox_max=4)) as client:
        await client.subscribe("@news")
        for number in range(200):
            await running.publish("@news", str(number))
        found = [(await client.next_notification(WAIT_S)).text for _ in range(200)]
        assert found == [str(number) for number in range(200)]
        assert client.left_out == 0
