"""esnp over real sockets: login, notifications, and close."""

import asyncio
from pathlib import Path

import pytest

from gateway.esnp_client import ANN, Station, connect_station, data_lines, esnp_gateway, to, values
from gateway.running_gateway import WAIT_S, until
from wirelake.protocols.esnp import lines
from wirelake.protocols.esnp.constants import ESNP_FRAME_BYTES_MAX, ESNP_HELD_FRAMES_MAX, ESNP_LOGIN_FRAME_BYTES_MAX
from wirelake.protocols.esnp.frames import EsnpMessage


async def test_every_operation_of_the_gateway(tmp_path: Path) -> None:
    async with (
        esnp_gateway(tmp_path, identities=[ANN]) as running,
        await Station.connect(running.port("esnp")) as caller,
    ):
        assert (await caller.ask_gateway("ping")).error is None, "also before the login"
        assert (await caller.ask_gateway("login", user="ann", token="t0ken")).error is None
        assert (await caller.ask_gateway("ping")).flags == (3, 4)
        assert (await caller.ask_gateway("subscribe", topic="@news")).error is None
        published = await caller.ask_gateway("publish", topic="@news", content="hello", type=7)
        notification = await caller.receive_message()
        if notification.flags == (3, 4):  # the answer and the notification wait for the same block of the log
            published, notification = notification, published
        assert values(published)["id"] == values(notification)["id"]
        assert notification.flags == (6,)
        assert notification.addresses == ((10, "@news"),)
        assert values(notification) == {"id": values(notification)["id"], "type": 7, "ts": values(notification)["ts"]}
        assert notification.payload == b"hello"
        assert values(notification)["ts"] == values(published)["ts"]
        assert (await caller.ask_gateway("unsubscribe", topic="@news")).error is None
        await running.publish("@news", "not for us")
        assert (await caller.ask_gateway("register", service="sums")).error is None
        assert running.gateway.broker.services.names() == {"sums": 1}
        assert (await caller.ask_gateway("unregister", service="sums")).error is None
        assert running.gateway.broker.services.names() == {}
        await running.recorded("login", 1, protocol="esnp", identity="ann")


async def test_a_refused_login_says_why_and_closes(tmp_path: Path) -> None:
    async with esnp_gateway(tmp_path, identities=[ANN]) as running:
        for user, token, why in (
            ("ann", "wrong", "invalid token"),
            ("bob", "t0ken", "invalid token"),
            ("", "", "invalid token"),
        ):
            async with await Station.connect(running.port("esnp")) as caller:
                assert (await caller.ask_gateway("login", user=user, token=token)).error == why
                assert await caller.receive() is None
        wire = b"".join(row["frame"] for row in running.records() if row["event"] != "frame")
        assert b"wrong" not in wire


async def test_before_the_login_nothing_but_ping_is_served(tmp_path: Path) -> None:
    async with (
        esnp_gateway(tmp_path, identities=[ANN]) as running,
        await Station.connect(running.port("esnp")) as caller,
    ):
        for service, op in (("sums", "add"), ("wirelake", "subscribe"), ("wirelake", "register")):
            assert (await caller.ask(*to(service, op), *data_lines(topic="@a"))).error == "not logged in"
        assert (await caller.ask_gateway("login", user="ann", token="t0ken")).error is None
        assert (await caller.ask_gateway("login", user="ann", token="t0ken")).error == "already logged in"
        assert (await caller.ask_gateway("ping")).error is None


async def test_messages_before_the_verdict_are_served_after_it(tmp_path: Path) -> None:
    async with esnp_gateway(tmp_path, identities=()) as running:
        await running.add_identity("ann", "t0ken", at_once=False)
        async with await Station.connect(running.port("esnp")) as caller:
            caller.send(*to("wirelake", "login", number=1), *data_lines(user="ann", token="t0ken"))
            caller.send(*to("wirelake", "subscribe", number=2), *data_lines(topic="@a"))
            caller.send(*to("wirelake", "ping", number=3))
            numbers = [(await caller.receive_message()).source_message_id for _ in range(3)]
            assert numbers[0] == 1
            assert sorted(numbers[1:]) == [2, 3]  # type: ignore[type-var]
            await until(lambda: running.gateway.state.topics.topics_of("ann") == ["@a"])
        async with await Station.connect(running.port("esnp")) as caller:
            ping = EsnpMessage(tuple(to("wirelake", "ping"))).encode()
            login = EsnpMessage((*to("wirelake", "login"), *data_lines(user="x", token="y"))).encode()
            caller.write(login + ping * (ESNP_HELD_FRAMES_MAX + 1))
            assert await caller.receive_last_error() == "too many messages before the login was decided"


async def test_no_login_in_time_closes(tmp_path: Path) -> None:
    async with (
        esnp_gateway(tmp_path, esnp={"login_s": 0.05}) as running,
        await Station.connect(running.port("esnp")) as caller,
    ):
        assert await caller.receive_last_error() == "no login in time"
        (row,) = await running.recorded("close", protocol="esnp")
        assert row["note"]["reason"] == "login_timeout"


async def test_messages_are_short_before_the_login_and_long_after_it(tmp_path: Path) -> None:
    async with esnp_gateway(tmp_path, identities=[ANN]) as running:
        head = EsnpMessage(tuple(to("wirelake", "ping"))).encode()[:-4]
        for user, limit in (((), ESNP_LOGIN_FRAME_BYTES_MAX), (ANN, ESNP_FRAME_BYTES_MAX)):
            async with await Station.connect(running.port("esnp"), *user) as caller:
                payload_bytes = limit - len(head) - 2 * 4
                body = b"\x16" + payload_bytes.to_bytes(3) + bytes(payload_bytes)
                caller.write(head + body + bytes(4))
                assert (await caller.receive_message()).error is None, "just within"
                caller.write(head + b"\x16" + (payload_bytes + 1).to_bytes(3))
                error = await caller.receive_last_error()
                assert error is not None, "refused when the size is read, before the body comes"
                assert f"over the limit of {limit}" in error
        rows = await running.recorded("quarantine", 2, protocol="esnp")
        assert [row["note"]["code"] for row in rows] == ["esnp_frame_bytes_max"] * 2


@pytest.mark.parametrize("content", [b"", b"plain", b"\xff\x00\xfe", b"x" * 300_000])
@pytest.mark.parametrize("topic", ["@kept", "live"])
async def test_content_is_bytes(tmp_path: Path, topic: str, content: bytes) -> None:
    async with (
        esnp_gateway(tmp_path) as running,
        await connect_station(running) as caller,
        await connect_station(running, "bob") as bob,
    ):
        assert (await bob.ask_gateway("subscribe", topic=topic)).error is None
        half = len(content) // 2
        payloads = [lines.payload_line(content[:half]), lines.payload_line(content[half:])]
        published = await caller.ask(*to("wirelake", "publish"), *data_lines(topic=topic), *payloads)
        assert published.error is None
        notification = await bob.receive_message()
        assert (notification.payload, notification.addresses) == (content, ((10, topic),))
        assert values(notification)["id"] == values(published).get("id", "")


async def test_what_was_published_while_away_comes_with_the_next_subscription(tmp_path: Path) -> None:
    async with esnp_gateway(tmp_path) as running:
        async with await connect_station(running) as caller:
            assert (await caller.ask_gateway("subscribe", topic="@a")).error is None
            await running.publish("@a", "seen")
            assert (await caller.receive_message()).payload == b"seen"
            async with asyncio.timeout(WAIT_S):
                while running.waiting("ann"):
                    assert (await caller.ask_gateway("ping")).error is None
                    await asyncio.sleep(0.05)
        await running.recorded("close", protocol="esnp")
        for content in ("one", "two"):
            await running.publish("@a", content)
        async with await connect_station(running) as caller:
            caller.send(*to("wirelake", "subscribe", number=1), *data_lines(topic="@a"))
            received = [await caller.receive_message() for _ in range(3)]
            assert [each.payload for each in received if each.flags == (6,)] == [b"one", b"two"]


async def test_several_topics_in_one_subscription(tmp_path: Path) -> None:
    async with esnp_gateway(tmp_path) as running, await connect_station(running) as caller:
        topics = [*data_lines(topic="@a"), *data_lines(topic="b")]
        assert (await caller.ask(*to("wirelake", "subscribe"), *topics)).error is None
        for topic in ("@a", "b"):
            await running.publish(topic, topic)
            assert (await caller.receive_message()).payload == topic.encode()


async def test_a_gateway_that_stops_says_so(tmp_path: Path) -> None:
    async with esnp_gateway(tmp_path) as running:
        caller = await connect_station(running)
    async with caller:
        goodbye = await caller.receive_message()
        assert (goodbye.flags, goodbye.error) == ((6,), "the gateway is shutting down")
        assert await caller.receive() is None
