"""comet over real sockets: every command, redelivery and expiry."""

import asyncio
import os
from pathlib import Path

import pytest

import wirelake.state.store
from gateway.comet_client import Phone, comet_gateway, comet_port
from gateway.running_gateway import until
from wirelake.protocols.comet import crypto, frames


async def test_every_command(tmp_path: Path) -> None:
    async with comet_gateway(tmp_path) as running, await Phone.connect(comet_port(running)) as phone:
        assert await phone.ask(frames.Heartbeat()) == frames.Ok(), "also before the login"
        success = await phone.ask(frames.Auth("phone", ""))
        assert isinstance(success, frames.AuthSuccess)
        assert await phone.ask(frames.Heartbeat()) == frames.Ok()
        assert await phone.ask(frames.Subscribe(("@a", "@b"))) == frames.Ok()
        assert await phone.ask(frames.GetTopicList()) == frames.TopicList(("@a", "@b"))
        assert await phone.ask(frames.Unsubscribe(("@a", "@never"))) == frames.Ok()
        assert await phone.ask(frames.GetTopicList()) == frames.TopicList(("@b",))
        assert await phone.ask(frames.ReportEnviron(1, 2, "X1", ("a", "b"))) == frames.Ok()
        await running.publish("@a", "not for us")
        published = await running.publish("@b", "for us", type=9)
        message = await phone.receive_message()
        assert (message.msg_id, message.content, message.msg_type) == (published, b"for us", 9)
        assert await phone.fetch_backlog() == (message,)
        assert await phone.ask(frames.MessageAck((published, "unknown", published))) == frames.Ok()
        assert await phone.fetch_backlog() == ()
        secret = os.urandom(32)
        wrapped = crypto.wrap_secret(secret, success.encrypt_key)
        assert await phone.ask(frames.ExchangeKey(wrapped)) == frames.Ok()
        sealed_id = await running.publish("@b", "sealed")
        message = await phone.receive_message()
        assert crypto.open_content(message.content, sealed_id, secret) == b"sealed"


async def test_answers_keep_the_order_of_the_questions(tmp_path: Path) -> None:
    """Send slow requests (durable) before quick ones."""
    async with comet_gateway(tmp_path) as running, await Phone.connect(comet_port(running), "phone") as phone:
        phone.send(frames.Subscribe(("@a",)), frames.GetTopicList(), frames.Subscribe(("bad",)), frames.Heartbeat())
        phone.send(frames.Unsubscribe(("@a",)), frames.GetTopicList())
        received = [await phone.receive() for _ in range(6)]
        names = [frame.name if frame else None for frame in received]
        assert names == ["ok", "topic_list", "error", "ok", "ok", "topic_list"]
        assert received[1] == frames.TopicList(("@a",))
        assert received[5] == frames.TopicList(())


async def test_content_is_sealed_from_the_ok_of_the_exchange_on(tmp_path: Path) -> None:
    """Check it also for an exchange that is queued behind requests that wait for the disk."""
    async with comet_gateway(tmp_path) as running, await Phone.connect(comet_port(running)) as phone:
        success = await phone.ask(frames.Auth("phone", ""))
        assert isinstance(success, frames.AuthSuccess)
        assert await phone.ask(frames.Subscribe(("@a",))) == frames.Ok()
        secret = os.urandom(32)
        wrapped = crypto.wrap_secret(secret, success.encrypt_key)
        phone.send(frames.Subscribe(("@b",)), frames.ExchangeKey(wrapped), frames.GetTopicList())
        ids = [await running.publish("@a", f"{number}") for number in range(5)]
        received = [await phone.receive() for _ in range(3 + len(ids))]
        assert [frame for frame in received if not isinstance(frame, frames.Message)] == [
            frames.Ok(),
            frames.Ok(),
            frames.TopicList(("@a", "@b")),
        ]
        exchanged = [place for place, frame in enumerate(received) if frame == frames.Ok()][1]
        for place, frame in enumerate(received):
            if isinstance(frame, frames.Message):
                content = frame.content
                if place > exchanged:
                    content = crypto.open_content(content, frame.msg_id, secret)
                assert content == b"%d" % ids.index(frame.msg_id)


async def test_silence_ends_a_connection(tmp_path: Path) -> None:
    async with comet_gateway(tmp_path, comet={"idle_s": 2.0}) as running:
        async with await Phone.connect(comet_port(running), "phone") as phone:
            for _ in range(6):
                await asyncio.sleep(0.4)
                assert await phone.ask(frames.Heartbeat()) == frames.Ok()
            assert await phone.receive() is None
        (row,) = await running.recorded("close")
        assert row["note"]["reason"] == "idle"


async def test_what_is_not_acked_is_sent_again(tmp_path: Path) -> None:
    async with comet_gateway(tmp_path, broker={"resend_s": 1.0}) as running:
        async with await Phone.connect(comet_port(running), "phone") as phone:
            assert await phone.ask(frames.Subscribe(("@a",))) == frames.Ok()
            for content in ("one", "two"):
                await running.publish("@a", content)
            one, two = await phone.receive_message(), await phone.receive_message()
            phone.send(frames.MessageAck((one.msg_id,)))
            received = [await phone.receive() for _ in range(3)]
            assert frames.Ok() in received
            received.remove(frames.Ok())
            assert received == [two, two], "again and again, the acked one never"
            phone.send(frames.MessageAck((two.msg_id,)))
            while await phone.receive() != frames.Ok():
                pass
        attempts = [row["note"]["attempt"] for row in await running.recorded("deliver", 3)]
        assert attempts[0] == 1
        assert max(attempts) > 1


async def test_what_is_not_acked_is_offered_after_a_reconnect(tmp_path: Path) -> None:
    async with comet_gateway(tmp_path) as running:
        async with await Phone.connect(comet_port(running), "phone") as phone:
            assert await phone.ask(frames.Subscribe(("@a",))) == frames.Ok()
            acked = await running.publish("@a", "acked")
            pushed = await running.publish("@a", "pushed")
            assert [(await phone.receive_message()).msg_id for _ in range(2)] == [acked, pushed]
            assert await phone.ask(frames.MessageAck((acked,))) == frames.Ok()
        await until(lambda: not running.gateway.connections)
        missed = await running.publish("@a", "missed")
    async with comet_gateway(tmp_path) as running, await Phone.connect(comet_port(running), "phone") as phone:
        assert await phone.ask(frames.GetTopicList()) == frames.TopicList(("@a",))
        assert [each.msg_id for each in await phone.fetch_backlog()] == [pushed, missed]
        live = await running.publish("@a", "live")
        assert (await phone.receive_message()).msg_id == live, "pushes go on without a new subscription"


async def test_what_nobody_acks_expires(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wirelake.state.store, "STATE_SWEEP_IDLE_S", 0.02)
    async with (
        comet_gateway(tmp_path, broker={"expire_s": 3.0}) as running,
        await Phone.connect(comet_port(running), "phone") as phone,
    ):
        assert await phone.ask(frames.Subscribe(("@a",))) == frames.Ok()
        await running.publish("@a", "old")
        await phone.receive_message()
        assert len(await phone.fetch_backlog()) == 1
        (row,) = await running.recorded("expire")
        assert (row["note"]["topic"], row["note"]["first"], row["note"]["last"]) == ("@a", 1, 1)
        assert await phone.fetch_backlog() == ()


async def test_a_backlog_comes_in_lists_that_fit_a_frame(tmp_path: Path) -> None:
    async with comet_gateway(tmp_path) as running:
        await running.gateway.state.topics.subscribe("phone", "@a")
        contents = [bytes([number]) * 9000 for number in range(10)]
        for content in contents:
            await running.publish("@a", content)
        async with await Phone.connect(comet_port(running), "phone") as phone:
            fetched: list[bytes] = []
            while waiting := await phone.fetch_backlog():
                assert len(waiting) <= 3
                fetched += [message.content for message in waiting]
                assert await phone.ask(frames.MessageAck(tuple(each.msg_id for each in waiting))) == frames.Ok()
            assert fetched == contents


async def test_what_is_too_long_does_not_hide_what_waits_behind_it(tmp_path: Path) -> None:
    async with comet_gateway(tmp_path) as running:
        topics = running.gateway.state.topics
        for topic in ("@a", "@b"):
            await topics.subscribe("phone", topic)
        long = [await running.publish("@a", bytes(100_000)) for _ in range(3)]
        fits = await running.publish("@b", "fits")
        async with await Phone.connect(comet_port(running), "phone") as phone:
            assert [each.msg_id for each in await phone.fetch_backlog()] == [fits]
            assert await phone.ask(frames.MessageAck((fits,))) == frames.Ok()
            assert await phone.fetch_backlog() == ()
            long.append(await running.publish("@a", bytes(100_000)))
            pushed = await running.publish("@a", "pushed")
            assert (await phone.receive_message()).msg_id == pushed
        untold = await running.recorded("unsayable", 4)
        assert [f"{row['note']['ids']}{row['note']['first']:x}" for row in untold] == long, "each once"
        assert {row["note"]["reason"].split(" bytes")[0] for row in untold} == {"a content of 100000"}
        assert {row["frame"].split(b",", 1)[1] for row in untold} == {b'"phone","comet"]]'}
        delivered = [f"{row['note']['ids']}{row['note']['first']:x}" for row in await running.recorded("deliver", 2)]
        assert delivered == [fits, pushed]
        assert [each.id for each in running.waiting("phone")] == [*long, pushed]


async def test_only_what_a_list_holds_is_delivered(tmp_path: Path) -> None:
    async with comet_gateway(tmp_path) as running:
        await running.gateway.state.topics.subscribe("phone", "@a")
        for _ in range(10):
            await running.publish("@a", bytes(9000))
        async with await Phone.connect(comet_port(running), "phone") as phone:
            assert len(await phone.fetch_backlog()) == 3
        (deliver,) = await running.recorded("deliver")
        assert (deliver["note"]["first"], deliver["note"]["last"]) == (1, 3)


async def test_more_topics_than_a_list_holds(tmp_path: Path) -> None:
    async with comet_gateway(tmp_path) as running, await Phone.connect(comet_port(running), "phone") as phone:
        for part in range(2):
            names = tuple(f"@{part}/{number}" for number in range(100))
            assert await phone.ask(frames.Subscribe(names)) == frames.Ok()
        phone.send(frames.GetTopicList())
        assert await phone.receive_error() == 3
        assert await phone.ask(frames.Heartbeat()) == frames.Ok()


async def test_one_too_long_for_comet_does_not_stop_the_others(tmp_path: Path) -> None:
    async with comet_gateway(tmp_path) as running, await Phone.connect(comet_port(running), "phone") as phone:
        assert await phone.ask(frames.Subscribe(("@a",))) == frames.Ok()
        await running.publish("@a", bytes(40_000))
        fits = await running.publish("@a", "fits")
        assert (await phone.receive_message()).msg_id == fits
        assert [each.msg_id for each in await phone.fetch_backlog()] == [fits]
        assert await phone.ask(frames.MessageAck((fits,))) == frames.Ok()
        assert await phone.fetch_backlog() == ()


async def test_everything_is_in_the_log_in_order(tmp_path: Path) -> None:
    async with comet_gateway(tmp_path) as running:
        async with await Phone.connect(comet_port(running), "phone") as phone:
            assert await phone.ask(frames.Subscribe(("@a",))) == frames.Ok()
            published = await running.publish("@a", "hi")
            await phone.receive_message()
            assert await phone.ask(frames.MessageAck((published,))) == frames.Ok()
        await running.recorded("close")
        (session,) = {row["session"] for row in running.records("open")}
        own = [(row["event"], row["direction"]) for row in running.records(session=session)]
        frame_in, frame_out = ("frame", "in"), ("frame", "out")
        assert own == [
            ("open", ""),
            frame_in,
            ("login", ""),
            frame_out,
            frame_in,
            frame_out,
            frame_in,
            frame_out,
            ("close", ""),
        ]
        (publish,) = running.records("publish")
        assert (publish["frame"], publish["note"]["id"]) == (b"hi", published)
        (deliver,) = running.records("deliver")
        assert deliver["frame"] == f'[["{session}","phone","comet"]]'.encode()
        assert published == f"{deliver['note']['ids']}{deliver['note']['first']:x}"
