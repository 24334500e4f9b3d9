"""The redis listener: a foreign client unchanged, and the fast path for publishers."""

import asyncio
from pathlib import Path

import pytest
import redis.asyncio
from redis.exceptions import AuthenticationError

from gateway.running_gateway import HOST, WAIT_S, Running, running_gateway
from wirelake.clients.comet import CometClient
from wirelake.errors import BusyError
from wirelake.protocols.redis.frames import Command

APP = ("app", "t0ken")
PHONE = ("phone", "t0ken")


def client(running: Running, token: str = APP[1]) -> redis.asyncio.Redis:
    return redis.asyncio.Redis(host=HOST, port=running.port("redis"), username=APP[0], password=token)


async def next_message(pubsub: redis.asyncio.client.PubSub) -> dict[str, object]:
    async with asyncio.timeout(WAIT_S):
        while True:
            message = await pubsub.get_message(ignore_subscribe_messages=True, timeout=1.0)
            if message is not None:
                return dict(message)


async def test_redis_py_publishes_and_subscribes(tmp_path: Path) -> None:
    async with (
        running_gateway(tmp_path, "redis", "comet", identities=[APP, PHONE]) as running,
        client(running) as app,
        app.pubsub() as pubsub,
    ):
        assert await app.ping()
        await pubsub.subscribe("live", "@kept")
        await pubsub.psubscribe("pr*")
        async with CometClient(HOST, running.port("comet"), *PHONE) as phone:
            await phone.subscribe("@kept")
            assert await app.publish("live", b"\x00\xff") == 1
            received = await next_message(pubsub)
            assert (received["type"], received["channel"], received["data"]) == ("message", b"live", b"\x00\xff")
            assert await app.publish("prices", "1") == 1
            received = await next_message(pubsub)
            assert (received["type"], received["pattern"], received["data"]) == ("pmessage", b"pr*", b"1")
            await app.publish("@kept", "for all")
            assert (await next_message(pubsub))["data"] == b"for all"
            assert (await phone.next_notification()).content == b"for all"


async def test_a_wrong_password_is_refused(tmp_path: Path) -> None:
    async def story() -> None:
        async with running_gateway(tmp_path, "redis", identities=[APP]) as running, client(running, "wrong") as app:
            try:
                await app.ping()
            except AuthenticationError:
                return
            raise AssertionError("let in with a wrong password")

    await story()


async def test_a_run_of_publishes_reaches_everybody_in_order_and_is_recorded(tmp_path: Path) -> None:
    """Deliver frames of the fast path: unchanged to redis subscribers, as messages to other protocols."""
    count = 500
    async with running_gateway(tmp_path, "redis", "sisnet_tcp", auth={"open": True}) as running:
        reader, writer = await asyncio.open_connection(HOST, running.port("redis"))
        listener, listening = await asyncio.open_connection(HOST, running.port("redis"))
        other, listening_too = await asyncio.open_connection(HOST, running.port("sisnet_tcp"))
        listening.write(Command((b"SUBSCRIBE", b"live")).encode())
        listening_too.write(sized(b'in:{"command":"login","ask":{"name":"x","password":"y"}}'))
        listening_too.write(sized(b's:{"service":"wirelake","command":"subscribe","ask":{"topic":"live"}}'))
        async with asyncio.timeout(WAIT_S):
            await listener.readuntil(b":1\r\n")
            await other.readuntil(b's:{"ans":0}')
            contents = [b"%d" % (1_000_000 + number) for number in range(count)]
            publishes = [Command((b"PUBLISH", b"live", content)).encode() for content in contents]
            writer.write(b"".join([*publishes[:250], Command((b"PING",)).encode(), *publishes[250:]]))
            answers = await reader.readexactly(count * len(b":2\r\n") + len(b"+PONG\r\n"))
            assert answers == b":2\r\n" * 250 + b"+PONG\r\n" + b":2\r\n" * 250
            expected = b"".join(b"*3\r\n$7\r\nmessage\r\n$4\r\nlive\r\n$7\r\n%b\r\n" % content for content in contents)
            assert await listener.readexactly(len(expected)) == expected
            received = b""
            while received.count(b'"content":') < count:
                received += await other.read(65536)
        places = [received.index(content) for content in contents]
        assert places == sorted(places)
        frames = await running.recorded("frame", count + 1, protocol="redis", direction="in")
        recorded = [row["frame"] for row in frames if row["frame"].startswith(b"*3")]
        assert recorded == publishes
        for each in (writer, listening, listening_too):
            each.close()


async def test_a_run_on_a_durable_topic_is_kept_and_answered_in_turn(tmp_path: Path) -> None:
    """Mix publishes with other commands, in several reads: the answers keep the order of the requests."""
    async with (
        running_gateway(tmp_path, "redis", "comet", identities=[APP, PHONE]) as running,
        CometClient(HOST, running.port("comet"), *PHONE) as phone,
    ):
        await phone.subscribe("@kept")
        reader, writer = await asyncio.open_connection(HOST, running.port("redis"))
        contents = [b"%d" % number for number in range(1000)]
        publishes = [Command((b"PUBLISH", b"@kept", content)).encode() for content in contents]
        live = Command((b"PUBLISH", b"live", b"x")).encode()
        ping = Command((b"PING", b"here")).encode()
        commands = [Command((b"AUTH", *(each.encode() for each in APP))).encode()]
        commands += [*publishes[:400], ping, live, *publishes[400:401], live, *publishes[401:], ping]
        together = b"".join(commands)
        for start in range(0, len(together), 7001):
            writer.write(together[start : start + 7001])
            await asyncio.sleep(0)
        none, one, here = b":0\r\n", b":1\r\n", b"$4\r\nhere\r\n"  # the durable topic has one subscriber
        expected = b"+OK\r\n" + one * 400 + here + none + one + none + one * 599 + here
        async with asyncio.timeout(WAIT_S):
            assert await reader.readexactly(len(expected)) == expected
        received = [await phone.next_notification() for _ in contents]
        assert [each.content for each in received] == contents
        recorded = await running.recorded("publish", 1000)
        assert [row["frame"] for row in recorded] == contents
        assert [row["note"]["id"] for row in recorded] == [each.id for each in received]
        assert recorded[0]["note"] == {
            "topic": "@kept", "id": received[0].id, "position": 1, "type": 0, "by": APP[0]
        }  # fmt: skip
        writer.close()


async def test_a_run_that_cannot_be_kept_is_refused_one_by_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with running_gateway(tmp_path, "redis", auth={"open": True}) as running:

        def full(*_: object) -> None:
            raise BusyError("too much waits for the disk")

        monkeypatch.setattr(running.gateway.state.topics, "publish_many", full)
        reader, writer = await asyncio.open_connection(HOST, running.port("redis"))
        writer.write(Command((b"PUBLISH", b"@kept", b"x")).encode() * 5 + Command((b"PING",)).encode())
        async with asyncio.timeout(WAIT_S):
            answers = [await reader.readline() for _ in range(6)]
        assert all(answer.startswith(b"-ERR") and b"too much waits" in answer for answer in answers[:5])
        assert answers[5] == b"+PONG\r\n"
        writer.close()


def sized(message: bytes) -> bytes:
    assert len(message) <= 250
    return bytes([len(message)]) + message
