"""A terminal's client against a real gateway, by WebSocket and by TCP."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from gateway.running_gateway import HOST, WAIT_S, Running, running_gateway, until

from wirelake.backoff import Backoff
from wirelake.broker.peer import Peer
from wirelake.clients.client import ClientOptions
from wirelake.clients.serving import AnswerPackets, ServiceError, ServiceRequest
from wirelake.clients.sisnet import RecordSubscription, SisnetClient
from wirelake.errors import AnswerError, InputError, LateError, LostError, RefusedError, StateError, TranslationError
from wirelake.limits import CLIENT_ANSWER_PACKETS_MAX, CLIENT_SERVED_MAX
from wirelake.message import Failure, Kind, Message, Operation
from wirelake.protocols.sisnet.session import SessionSettings

TERMINAL = ("terminal", "secret")
LISTENERS = {"ws": "sisnet", "tcp": "sisnet_tcp"}
QUICK = ClientOptions(backoff=Backoff(first_s=0.01, max_s=0.05))
both = pytest.mark.parametrize("scheme", LISTENERS)


def terminal(running: Running, scheme: str = "ws", options: ClientOptions = QUICK, **rest: Any) -> SisnetClient:
    return SisnetClient(f"{scheme}://{HOST}:{running.port(LISTENERS[scheme])}", *TERMINAL, options=options, **rest)


@asynccontextmanager
async def gateway(folder: Path, **options: Any) -> AsyncIterator[Running]:
    async with running_gateway(folder, *LISTENERS.values(), identities=[TERMINAL], **options) as running:
        yield running


async def next_of(feed: RecordSubscription) -> Any:
    async with asyncio.timeout(WAIT_S):
        return await anext(feed)


async def echo(request: ServiceRequest) -> Any:
    return request.value


@both
async def test_publish_and_receive(tmp_path: Path, scheme: str) -> None:
    async with gateway(tmp_path) as running, terminal(running, scheme) as client:
        await client.subscribe("@news", "live")
        published = await client.publish("@news", b"\xff\x00 no text", type=7)
        notification = await client.next_notification(WAIT_S)
        assert (notification.topic, notification.content) == ("@news", b"\xff\x00 no text")
        assert (notification.id, notification.type) == (published, 7)
        assert await client.publish("live", "only now") == ""
        assert (await client.next_notification(WAIT_S)).text == "only now"
        await client.unsubscribe("@news")
        await client.publish("@news", "not received")
        await client.publish("live", "received")
        assert (await client.next_notification(WAIT_S)).text == "received"
        await client.ping()


@both
@pytest.mark.parametrize(("binary", "compress"), [(False, False), (True, False), (True, True)])
async def test_every_kind_of_value_crosses(tmp_path: Path, scheme: str, binary: bool, compress: bool) -> None:
    values = [None, 7, "text", [1, "a"], [[1, 2], [3, 4]], {"a": {"b": [None, True]}}, b"\x00\xff", {"n": 1}]
    async with (
        gateway(tmp_path) as running,
        terminal(running, scheme) as provider,
        terminal(running, scheme, binary=binary, compress=compress) as asker,
    ):
        await provider.register("echo", echo)
        for value in values:
            assert await asker.ask("echo", "say", value) == value
        with_bytes = await asker.ask("echo", "say", {"n": 1, "payload": b"\x00"})
        assert with_bytes["n"] == 1


async def test_a_service_sees_requests_and_may_refuse(tmp_path: Path) -> None:
    seen: list[ServiceRequest] = []

    async def handler(request: ServiceRequest) -> Any:
        seen.append(request)
        if request.op == "refuse":
            raise ServiceError("not today", 418)
        if request.op == "unsayable":
            return {"value": object()}
        raise ValueError("a fault of the service")

    async with gateway(tmp_path) as running, terminal(running) as provider, terminal(running, "tcp") as asker:
        await provider.register("moody", handler)
        with pytest.raises(AnswerError, match="not today"):
            await asker.ask("moody", "refuse", {"a": 1})
        assert seen == [ServiceRequest("moody", "refuse", {"a": 1})]
        with pytest.raises(AnswerError, match="the service failed"):
            await asker.ask("moody", "fail")
        with pytest.raises(AnswerError, match="JSON cannot hold"):
            await asker.ask("moody", "unsayable")
        with pytest.raises(AnswerError, match="not found ServiceHandler"):
            await asker.ask("nobody", "op")
        with pytest.raises(InputError, match="already"):
            await provider.register("moody", handler)
        await provider.unregister("moody")
        with pytest.raises(AnswerError, match="not found ServiceHandler"):
            await asker.ask("moody", "refuse")
        with pytest.raises(TranslationError):
            await asker.ask("moody", "op", {"value": object()})


async def test_a_subscriber_can_also_provide(tmp_path: Path) -> None:
    """Both ends name their questions from 1 on, so the gateway asks under the names of this end's subscriptions."""
    async with gateway(tmp_path) as running, terminal(running) as provider, terminal(running) as asker:
        await provider.subscribe("@a")
        await provider.subscribe("b")
        await provider.register("echo", echo)
        assert [await asker.ask("echo", "say", number) for number in range(5)] == list(range(5))


@both
async def test_answers_in_several_packets(tmp_path: Path, scheme: str) -> None:
    answers: dict[str, AnswerPackets] = {
        "lists": AnswerPackets([[[1, 2]], [[3, 4]], [[5, 6]]]),
        "texts": AnswerPackets(["a", "b"]),
        "bytes": AnswerPackets([b"a", b"b"]),
        "mixed": AnswerPackets([1, {"a": 2}]),
        "none": AnswerPackets([]),
        "many": AnswerPackets([0] * (CLIENT_ANSWER_PACKETS_MAX + 1)),
    }

    async def handler(request: ServiceRequest) -> Any:
        return answers[request.op]

    async with gateway(tmp_path) as running, terminal(running, scheme) as client:
        await client.register("slices", handler)
        assert await client.ask("slices", "lists") == [[1, 2], [3, 4], [5, 6]]
        assert await client.ask_packets("slices", "lists") == [[[1, 2]], [[3, 4]], [[5, 6]]]
        assert await client.ask("slices", "texts") == "ab"
        assert await client.ask("slices", "bytes") == b"ab"
        assert await client.ask("slices", "mixed") == [1, {"a": 2}]
        assert await client.ask("slices", "none") is None
        with pytest.raises(Exception, match="packets"):
            await client.ask("slices", "many")
        assert await client.ask("slices", "texts") == "ab", "the connection lives on"


async def test_more_requests_than_a_service_works_on_are_refused(tmp_path: Path) -> None:
    go = asyncio.Event()

    async def handler(_: ServiceRequest) -> Any:
        await go.wait()

    async with gateway(tmp_path) as running, terminal(running) as provider, terminal(running) as asker:
        await provider.register("slow", handler)
        requests = [asyncio.create_task(asker.ask("slow", "op")) for _ in range(CLIENT_SERVED_MAX)]
        await running.recorded("frame", CLIENT_SERVED_MAX + 1, protocol="sisnet", direction="out")
        with pytest.raises(AnswerError, match="being handled already"):
            await asker.ask("slow", "op")
        go.set()
        assert await asyncio.gather(*requests) == [None] * CLIENT_SERVED_MAX


class Records:
    """Replace the gateway's data set with one that pushes on command."""

    def __init__(self, running: Running) -> None:
        self.gateway = running.gateway
        self.subscribers: dict[str, tuple[Peer, str]] = {}
        running.gateway.broker.register_builtin("sisdb", self.serve)

    def serve(self, peer: Peer, message: Message, _now_s: float) -> None:
        assert isinstance(message.target, Operation)
        key = f"{message.fields['key']}.{message.fields['sdb']}"
        failure = None
        if message.target.op == "unsub":
            self.subscribers.pop(key, None)
        elif key.startswith("bad"):
            failure = Failure("no such table")
        else:
            self.subscribers[key] = peer, message.correlation
        peer.send(Message(kind=Kind.RESPONSE, correlation=message.correlation, failure=failure))
        if failure is None and message.target.op == "sub":
            self.push(key, [[0, "first"]])  # in the same turn as the answer

    def push(self, key: str, rows: list[Any]) -> None:
        peer, correlation = self.subscribers[key]
        peer.send(Message(kind=Kind.NOTIFICATION, correlation=correlation, fields={"msg": rows}))
        self.gateway.flush_soon()

    def end(self, key: str, why: str) -> None:
        peer, correlation = self.subscribers.pop(key)
        peer.send(Message(kind=Kind.RESPONSE, correlation=correlation, failure=Failure(why)))
        self.gateway.flush_soon()


@both
async def test_records_come_under_the_name_of_the_request(tmp_path: Path, scheme: str) -> None:
    async with gateway(tmp_path) as running, terminal(running, scheme) as client:
        records = Records(running)
        with pytest.raises(AnswerError, match="no such table"):
            await client.sub("bad", "price")
        feed = await client.sub("sh600000", "price")
        assert await next_of(feed) == [[0, "first"]]
        with pytest.raises(StateError, match="already"):
            await client.sub("sh600000", "price")
        async with await client.sub("sh600001", "price") as other:
            records.push("sh600001.price", [[2]])
            records.push("sh600000.price", [[1]])
            assert await next_of(feed) == [[1]]
            assert [await next_of(other), await next_of(other)] == [[[0, "first"]], [[2]]]
        assert list(records.subscribers) == ["sh600000.price"], "the other was called off"
        records.end("sh600000.price", "the table was dropped")
        with pytest.raises(AnswerError, match="dropped"):
            await next_of(feed)


@both
async def test_a_full_feed_holds_the_gateway_back_and_loses_nothing(tmp_path: Path, scheme: str) -> None:
    options = msgspec.structs.replace(QUICK, inbox_max=2)
    async with gateway(tmp_path) as running, terminal(running, scheme, options) as client:
        records = Records(running)
        feed = await client.sub("k", "t")
        for number in range(3000):
            records.push("k.t", [[number, "x" * 50]])
        assert await next_of(feed) == [[0, "first"]]
        found = [(await next_of(feed))[0][0] for _ in range(3000)]
        assert found == list(range(3000))


@both
async def test_a_gateway_that_comes_back(tmp_path: Path, scheme: str) -> None:
    """Subscriptions and services are restored; requests made meanwhile wait."""
    async with gateway(tmp_path) as running:
        port = running.port(LISTENERS[scheme])
        Records(running)
        client = terminal(running, scheme)
        await client.open()
        await client.subscribe("@news", "live")
        await client.register("echo", echo)
        feed = await client.sub("k", "t")
        assert await next_of(feed) == [[0, "first"]]
    await until(lambda: not client.connected)
    request = asyncio.create_task(client.ask("echo", "say", "hello"))
    async with running_gateway(tmp_path, identities=[TERMINAL]) as running:
        records = Records(running)
        await running.publish("@news", "missed")
        await running.open_listener(LISTENERS[scheme], port)
        assert await asyncio.wait_for(request, WAIT_S) == "hello"
        assert client.connections == 2
        await running.publish("live", "again")
        assert {(await client.next_notification(WAIT_S)).text for _ in range(2)} == {"missed", "again"}
        assert await next_of(feed) == [[0, "first"]]
        records.push("k.t", [[1]])
        assert await next_of(feed) == [[1]]
        await client.close()
        with pytest.raises(StopAsyncIteration):
            await next_of(feed)


async def test_a_feed_that_cannot_be_had_again_ends_with_the_reason(tmp_path: Path) -> None:
    async with gateway(tmp_path) as running:
        port = running.port("sisnet")
        Records(running)
        client = terminal(running)
        await client.open()
        feed = await client.sub("k", "t")
        await next_of(feed)
    async with running_gateway(tmp_path, identities=[TERMINAL]) as running:
        running.gateway.broker.unregister_builtin("sisdb")
        await running.open_listener("sisnet", port)
        with pytest.raises(AnswerError, match="ServiceHandler"):
            await next_of(feed)
        await client.ping()
        await client.close()


@both
async def test_wrong_credentials_end_it(tmp_path: Path, scheme: str) -> None:
    async with gateway(tmp_path) as running:
        url = f"{scheme}://{HOST}:{running.port(LISTENERS[scheme])}"
        for user, token, why in (("terminal", "wrong", "invalid token"), ("nobody", "x", "invalid token")):
            with pytest.raises(RefusedError, match=why):
                await SisnetClient(url, user, token).open()


async def test_nobody_there_and_no_websocket_there(tmp_path: Path) -> None:
    async with gateway(tmp_path) as running:
        port = running.port("sisnet_tcp")
        options = ClientOptions(connect_s=0.3, backoff=Backoff(first_s=0.01))
        client = SisnetClient(f"ws://{HOST}:{port}", *TERMINAL, options=options)
        with pytest.raises(LateError, match="no WebSocket"):
            await client.open()
    with pytest.raises(LateError, match="not connected"):
        await SisnetClient(f"tcp://{HOST}:{port}", *TERMINAL, options=ClientOptions(connect_s=0.2)).open()
    with pytest.raises(InputError, match="ws://HOST:PORT"):
        SisnetClient("http://localhost", *TERMINAL)


@both
async def test_open_requests_fail_when_the_connection_is_lost(tmp_path: Path, scheme: str) -> None:
    async def never(_: ServiceRequest) -> Any:
        await asyncio.Event().wait()

    async with gateway(tmp_path) as running, terminal(running, scheme) as client:
        await client.register("never", never)
        request = asyncio.create_task(client.ask("never", "op"))
        await until(lambda: running.gateway.broker.services.open == 1)
        (connection,) = running.gateway.connections.values()
        connection.abort()
        with pytest.raises(LostError):
            await asyncio.wait_for(request, WAIT_S)
        await client.ping()


@both
async def test_a_connection_that_is_cut_is_made_anew(tmp_path: Path, scheme: str) -> None:
    async with gateway(tmp_path) as running, terminal(running, scheme) as client:
        client.drop()
        await client.ping()
        assert client.connections == 2


@both
async def test_a_message_of_megabytes(tmp_path: Path, scheme: str) -> None:
    async with gateway(tmp_path) as running, terminal(running, scheme) as client:
        await client.register("echo", echo)
        content = bytes(range(256)) * 16384
        assert await client.ask("echo", "say", content) == content


async def test_session_settings_are_used(tmp_path: Path) -> None:
    settings = msgspec.structs.replace(SessionSettings(), ping_s=0.05)
    async with gateway(tmp_path) as running, terminal(running, settings=settings):
        await running.recorded("frame", 4, protocol="sisnet", direction="in")  # the login and three pings
