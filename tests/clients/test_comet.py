"""A phone's client against a real gateway."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from gateway.comet_client import Phone
from gateway.running_gateway import HOST, WAIT_S, Running, running_gateway, until
from msgspec.structs import replace

from wirelake.backoff import Backoff
from wirelake.clients.client import ClientOptions
from wirelake.clients.comet import CometClient
from wirelake.clients.notification import Notification
from wirelake.errors import AnswerError, EncodeError, InputError, LateError, LostError, RefusedError, StateError
from wirelake.protocols.comet.session import SessionSettings

PHONE = ("phone", "secret")
QUICK = ClientOptions(backoff=Backoff(first_s=0.01, max_s=0.05))


def phone(running: Running, options: ClientOptions = QUICK, **rest: Any) -> CometClient:
    return CometClient(HOST, running.port("comet"), *PHONE, options=options, **rest)


@asynccontextmanager
async def gateway(folder: Path, **options: Any) -> AsyncIterator[Running]:
    async with running_gateway(folder, "comet", identities=[PHONE], **options) as running:
        yield running


async def take(client: CometClient, count: int, **options: Any) -> list[Notification]:
    found = []
    async with asyncio.timeout(WAIT_S), aclosing(client.notifications(**options)) as notifications:
        async for notification in notifications:
            found.append(notification)
            if len(found) == count:
                break
    return found


@pytest.mark.parametrize("secret_bytes", [0, 16, 32])
async def test_a_notification_comes_as_it_was_published(tmp_path: Path, secret_bytes: int) -> None:
    async with gateway(tmp_path) as running, phone(running, secret_bytes=secret_bytes) as client:
        await client.subscribe("@news")
        published = await running.publish("@news", "grüß Gott", type=7)
        notification = await client.next_notification(WAIT_S)
        assert (notification.id, notification.text, notification.type) == (published, "grüß Gott", 7)
        assert abs(notification.at_ms - running.gateway.now_ms()) < 60_000
        assert [each.id for each in await client.backlog()] == [published], "not acked yet"
        await client.ack(published)
        assert await client.backlog() == []


async def test_topics_are_added_and_taken_away(tmp_path: Path) -> None:
    async with gateway(tmp_path) as running, phone(running) as client:
        names = [f"@many/{number}/{'x' * 240}" for number in range(200)]
        await client.subscribe(*names)
        assert running.gateway.state.topics.topics_of("phone") == names
        await client.unsubscribe(*names[1:])
        assert await client.topics() == names[:1]
        await running.publish(names[1], "not received")
        await running.publish(names[0], "received")
        assert (await client.next_notification(WAIT_S)).text == "received"


async def test_the_backlog_is_drained_list_by_list(tmp_path: Path) -> None:
    async with gateway(tmp_path) as running:
        async with phone(running) as client:
            await client.subscribe("@news")
        for number in range(300):
            await running.publish("@news", f"{number:04} {'x' * 200}")
        async with phone(running) as client:
            first = await client.backlog()
            assert 0 < len(first) < 128
            assert [each.text[:4] for each in first] == [f"{number:04}" for number in range(len(first))]
            unacked = [each.text[:4] async for each in client.drain_backlog(ack=False)]
            assert unacked == [each.text[:4] for each in first], "nothing was acked, so nothing new came"
            drained = [each.text[:4] async for each in client.drain_backlog()]
            assert drained == [f"{number:04}" for number in range(300)]
            assert await client.backlog() == []


async def test_what_is_taken_is_acked_when_the_next_is_requested(tmp_path: Path) -> None:
    async with gateway(tmp_path) as running, phone(running) as client:
        await client.subscribe("@news")
        for number in range(5):
            await running.publish("@news", str(number))
        assert [each.text for each in await take(client, 5)] == list("01234")
        await until(lambda: len(running.waiting("phone")) == 1)
        assert running.waiting("phone")[0].content == b"4", "its work was broken off"


async def test_the_last_acks_are_made_before_it_closes(tmp_path: Path) -> None:
    async with gateway(tmp_path) as running:
        async with phone(running) as client:
            await client.subscribe("@news")
            for number in range(500):
                await running.publish("@news", str(number))
            assert len(await take(client, 500)) == 500
        assert [each.content for each in running.waiting("phone")] == [b"499"]


async def test_acks_of_ones_own(tmp_path: Path) -> None:
    async with gateway(tmp_path) as running, phone(running) as client:
        await client.subscribe("@news")
        ids = [await running.publish("@news", str(number)) for number in range(3)]
        assert [each.id for each in await take(client, 3, ack=False)] == ids
        await client.ack(ids[1], "unknown", ids[1])
        assert [each.id for each in running.waiting("phone")] == [ids[0], ids[2]]


async def test_missed_ones_come_first_after_a_login(tmp_path: Path) -> None:
    async with gateway(tmp_path) as running:
        async with phone(running) as client:
            await client.subscribe("@news")
        await running.publish("@news", "missed")
        async with phone(running) as client:
            await running.publish("@news", "live")
            assert [each.text for each in await take(client, 2)] == ["missed", "live"], "each once"
            await running.publish("@news", "more")
            assert [each.text for each in await take(client, 1, backlog=False)] == ["more"]


async def test_a_gateway_that_comes_back(tmp_path: Path) -> None:
    """Subscriptions, the backlog and the place in the stream survive; the client calls again by itself."""
    async with gateway(tmp_path) as running:
        port = running.port("comet")
        client = phone(running)
        await client.open()
        await client.subscribe("@news")
        await running.publish("@news", "before")
        assert [each.text for each in await take(client, 1, ack=False)] == ["before"]
    await until(lambda: not client.connected)
    taking = asyncio.create_task(take(client, 2))
    topics = asyncio.create_task(client.topics())
    async with gateway(tmp_path, ports={"comet": port}) as running:
        assert await topics == ["@news"], "requests wait for a connection"
        assert client.connections == 2
        await running.publish("@news", "after")
        assert [each.text for each in await taking] == ["before", "after"]
        await client.close()


async def test_a_subscription_that_the_gateway_forgot_is_made_again(tmp_path: Path) -> None:
    async with gateway(tmp_path / "one") as running:
        port = running.port("comet")
        client = phone(running)
        await client.open()
        await client.subscribe("@news", "@old")
        await client.unsubscribe("@old")
    async with gateway(tmp_path / "two", ports={"comet": port}):
        assert await client.topics() == ["@news"]
        await client.close()


async def test_open_requests_fail_when_the_connection_is_lost(tmp_path: Path) -> None:
    async with gateway(tmp_path) as running, phone(running) as client:
        request = asyncio.create_task(client.subscribe("@news"))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        for connection in list(running.gateway.connections.values()):
            connection.abort()
        with pytest.raises(LostError, match="connection lost"):
            await request
        await client.subscribe("@news")
        assert client.connections == 2


async def test_a_wrong_token_and_an_unknown_name_end_it(tmp_path: Path) -> None:
    async with gateway(tmp_path) as running:
        port = running.port("comet")
        for name, token, code in (("phone", "wrong", 0), ("nobody", "secret", 0)):
            with pytest.raises(RefusedError) as refused:
                await CometClient(HOST, port, name, token).open()
            assert refused.value.code == code
        assert running.gateway.counters.accepted["comet"] == 2, "it does not call again"


async def test_who_is_replaced_stays_away(tmp_path: Path) -> None:
    async with gateway(tmp_path) as running:
        first = phone(running)
        await first.open()
        taking = asyncio.create_task(take(first, 1))
        await asyncio.sleep(0)
        async with phone(running) as second:
            with pytest.raises(RefusedError) as refused:
                await taking
            assert refused.value.code == 2
            with pytest.raises(RefusedError):
                await first.topics()
            await second.ping()
            assert (first.connections, second.connections) == (1, 1)
        await first.close()


async def test_a_second_one_that_is_refused(tmp_path: Path) -> None:
    async with gateway(tmp_path, comet={"second": "refuse"}) as running, phone(running) as first:
        with pytest.raises(RefusedError) as refused:
            await phone(running).open()
        assert refused.value.code == 2
        await first.ping()


async def test_an_old_connection_of_ones_own_is_waited_out(tmp_path: Path) -> None:
    """Where a second connection is refused, a client that lost its first one calls until the gateway notices."""
    async with (
        gateway(tmp_path, comet={"second": "refuse"}) as running,
        phone(running, ClientOptions(backoff=Backoff(lambda: 1.0, 0.1, 0.1))) as client,
    ):
        for connection in list(running.gateway.connections.values()):
            connection.abort()
        await until(lambda: not running.gateway.connections)
        async with await Phone.connect(running.port("comet"), *PHONE):
            await until(lambda: "connected already" in client.trouble)
        await client.ping()
        assert client.connections == 2


async def test_nobody_there() -> None:
    pauses = []

    def random() -> float:
        pauses.append(1)
        return 0.5

    options = ClientOptions(connect_s=0.2, backoff=Backoff(random, 0.02, 0.04))
    client = CometClient(HOST, 1, *PHONE, options=options)
    with pytest.raises(LateError, match=r"not connected within 0.2 s: .*Connect"):
        await client.open()
    assert len(pauses) > 3, "it called again and again"
    with pytest.raises(StateError):
        await client.topics()


async def test_a_gateway_that_does_not_answer(tmp_path: Path) -> None:
    async with gateway(tmp_path) as running, phone(running, replace(QUICK, answer_s=0.05)) as client:
        running.gateway.broker.handle = lambda *_: None  # type: ignore[method-assign]
        with pytest.raises(LateError, match=r"no answer within 0.05 s"):
            await client.topics()


async def test_a_request_that_fails_or_cannot_be_said(tmp_path: Path) -> None:
    async with gateway(tmp_path, comet={"require_key": True}) as running:
        async with phone(running) as client:
            with pytest.raises(AnswerError) as failed:
                await client.topics()
            assert failed.value.code == 5
            with pytest.raises(InputError, match="'news' is not a comet topic"):
                await client.subscribe("news")
            with pytest.raises(EncodeError):
                await client.report_environ(phone_type="x" * 40_000)
            await client.ping()
            assert client.connections == 1
        async with phone(running, secret_bytes=16) as client:
            assert await client.topics() == []


async def test_the_environment_is_reported(tmp_path: Path) -> None:
    async with gateway(tmp_path) as running, phone(running) as client:
        await client.report_environ(network_type=4, isp=1, phone_type="X1", extra=["de", "dark"])
        frames = [row["frame"] for row in await running.recorded("frame", 2, direction="in")]
        assert any(b"X1" in frame and b"dark" in frame for frame in frames)


async def test_heartbeats_keep_a_quiet_client_connected(tmp_path: Path) -> None:
    async with gateway(tmp_path, comet={"idle_s": 3.0}) as running:
        settings = SessionSettings(heartbeat_s=0.3)
        async with phone(running, settings=settings) as client:
            before = running.gateway.counters.frames_in["comet"]
            await until(lambda: running.gateway.counters.frames_in["comet"] > before + 12)
            assert client.connections == 1


async def test_a_silent_gateway_is_left(tmp_path: Path) -> None:
    async with gateway(tmp_path) as running, phone(running, settings=SessionSettings(idle_s=0.1)) as client:
        await until(lambda: client.connections > 1)
        assert "no data received" in client.trouble


async def test_a_full_inbox_is_not_read_into_but_answers_are(tmp_path: Path) -> None:
    async with gateway(tmp_path) as running, phone(running, replace(QUICK, inbox_max=4)) as client:
        await client.subscribe("@news")
        for number in range(200):
            await running.publish("@news", str(number))
        texts = []
        async with asyncio.timeout(WAIT_S), aclosing(client.notifications(ack=False)) as notifications:
            async for notification in notifications:
                texts.append(int(notification.text))
                await client.ack(notification.id)
                if len(texts) == 200:
                    break
        assert sorted(texts) == list(range(200)), "what there was no room for was fetched"
        assert running.waiting("phone") == []
        assert client.connections == 1


async def test_a_slow_reader_is_written_to_as_it_reads(tmp_path: Path) -> None:
    """Its inbox stays small; the rest waits at the gateway."""
    async with (
        gateway(tmp_path, limits={"pending_bytes": 4096}) as running,
        phone(running, replace(QUICK, inbox_max=10)) as client,
    ):
        await client.subscribe("@news")
        published = [f"{number} {'x' * 3000}" for number in range(2000)]
        await asyncio.gather(*(running.publish("@news", content) for content in published))
        assert client.inbox_size < 40
        taken = await take(client, 2000, backlog=False, ack=False)
        assert [each.text for each in taken] == published
        assert client.left_out == 0


async def test_closing_ends_the_notifications(tmp_path: Path) -> None:
    async with gateway(tmp_path) as running:
        client = phone(running)
        await client.open()
        taking = asyncio.create_task(take(client, 1))
        await asyncio.sleep(0.01)
        await client.close()
        await client.close()
        assert await taking == []
        for call in (client.topics(), client.next_notification(), client.open()):
            with pytest.raises(StateError):
                await call
        await until(lambda: not running.gateway.connections)
