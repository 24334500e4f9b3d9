"""comet over real sockets: every command, every error code, and what time does to both."""

import asyncio
import os
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

import wirelake.state.sweep
from gateway.running import Running, running_gateway, until
from gateway.wire import Phone
from wirelake.limits import COMET_HELD_FRAMES_MAX, COMET_REQUESTS_OPEN_MAX
from wirelake.protocols.comet import crypto, frames

OPEN = {"auth": {"open": True}}


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(work)


@asynccontextmanager
async def gateway(folder: Path, **settings: Any) -> AsyncIterator[Running]:
    async with running_gateway(folder, "comet", **({} if "identities" in settings else OPEN) | settings) as running:
        yield running


def caller(running: Running) -> int:
    return running.port("comet")


async def told(phone: Phone) -> frames.Message:
    heard = await phone.hear()
    assert isinstance(heard, frames.Message), heard
    return heard


async def backlog(phone: Phone) -> tuple[frames.Message, ...]:
    heard = await phone.ask(frames.GetMessageList())
    assert isinstance(heard, frames.MessageList), heard
    return heard.messages


def test_every_command(tmp_path: Path) -> None:
    async def work() -> None:
        async with gateway(tmp_path) as running, await Phone.call(caller(running)) as phone:
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
            message = await told(phone)
            assert (message.msg_id, message.content, message.msg_type) == (published, b"for us", 9)
            assert await backlog(phone) == (message,)
            assert await phone.ask(frames.MessageAck((published, "unknown", published))) == frames.Ok()
            assert await backlog(phone) == ()
            secret = os.urandom(32)
            wrapped = crypto.wrap_secret(secret, success.encrypt_key)
            assert await phone.ask(frames.ExchangeKey(wrapped)) == frames.Ok()
            sealed_id = await running.publish("@b", "sealed")
            message = await told(phone)
            assert crypto.open_content(message.content, sealed_id, secret) == b"sealed"

    run(work())


def test_answers_keep_the_order_of_the_questions(tmp_path: Path) -> None:
    """Slow ones (durable) before quick ones."""

    async def work() -> None:
        async with gateway(tmp_path) as running, await Phone.call(caller(running), "phone") as phone:
            phone.say(frames.Subscribe(("@a",)), frames.GetTopicList(), frames.Subscribe(("bad",)), frames.Heartbeat())
            phone.say(frames.Unsubscribe(("@a",)), frames.GetTopicList())
            heard = [await phone.hear() for _ in range(6)]
            names = [frame.name if frame else None for frame in heard]
            assert names == ["ok", "topic_list", "error", "ok", "ok", "topic_list"]
            assert heard[1] == frames.TopicList(("@a",))
            assert heard[5] == frames.TopicList(())

    run(work())


def test_content_is_sealed_from_the_ok_of_the_exchange_on(tmp_path: Path) -> None:
    """Also where the exchange waits its turn behind requests that wait for the disk."""

    async def work() -> None:
        async with gateway(tmp_path) as running, await Phone.call(caller(running)) as phone:
            success = await phone.ask(frames.Auth("phone", ""))
            assert isinstance(success, frames.AuthSuccess)
            assert await phone.ask(frames.Subscribe(("@a",))) == frames.Ok()
            secret = os.urandom(32)
            wrapped = crypto.wrap_secret(secret, success.encrypt_key)
            phone.say(frames.Subscribe(("@b",)), frames.ExchangeKey(wrapped), frames.GetTopicList())
            ids = [await running.publish("@a", f"{number}") for number in range(5)]
            heard = [await phone.hear() for _ in range(3 + len(ids))]
            assert [frame for frame in heard if not isinstance(frame, frames.Message)] == [
                frames.Ok(),
                frames.Ok(),
                frames.TopicList(("@a", "@b")),
            ]
            exchanged = [place for place, frame in enumerate(heard) if frame == frames.Ok()][1]
            for place, frame in enumerate(heard):
                if isinstance(frame, frames.Message):
                    content = frame.content
                    if place > exchanged:
                        content = crypto.open_content(content, frame.msg_id, secret)
                    assert content == b"%d" % ids.index(frame.msg_id)

    run(work())


def test_error_0_and_1(tmp_path: Path) -> None:
    async def work() -> None:
        async with gateway(tmp_path, identities=[("phone", "right")]) as running:
            for name, token, code in (("phone", "wrong", 0), ("phone", "", 0), ("nobody", "right", 1)):
                async with await Phone.call(caller(running)) as phone:
                    phone.say(frames.Auth(name, token))
                    assert await phone.error() == code
                    assert await phone.hear() is None
            reasons = [row["note"]["reason"] for row in await running.recorded("refuse", 3)]
            assert reasons == ["wrong_token", "wrong_token", "unknown"]
            logged = b"".join(row["frame"] for row in running.records() if row["event"] != "frame")
            assert b"wrong" not in logged
            async with await Phone.call(caller(running), "phone", "right"):
                pass

    run(work())


def test_error_2_for_the_older_one(tmp_path: Path) -> None:
    async def work() -> None:
        async with gateway(tmp_path) as running:
            async with await Phone.call(caller(running), "phone") as older:
                assert await older.ask(frames.Subscribe(("@a",))) == frames.Ok()
                async with await Phone.call(caller(running), "phone") as newer:
                    assert await older.error() == 2
                    assert await older.hear() is None
                    await running.publish("@a", "hi")
                    assert (await told(newer)).content == b"hi"
            closed = [row["note"]["reason"] for row in await running.recorded("close", 2)]
            assert closed == ["replaced", "peer_closed"]

    run(work())


def test_error_2_for_the_newer_one(tmp_path: Path) -> None:
    async def work() -> None:
        async with gateway(tmp_path, comet={"second": "refuse"}) as running:
            async with await Phone.call(caller(running), "phone") as older:
                async with await Phone.call(caller(running)) as newer:
                    newer.say(frames.Auth("phone", ""))
                    assert await newer.error() == 2
                    assert await newer.hear() is None
                assert await older.ask(frames.Heartbeat()) == frames.Ok()
            await until(lambda: not running.gateway.connections)
            async with await Phone.call(caller(running), "phone"):
                pass

    run(work())


def test_error_3_when_the_gateway_stops(tmp_path: Path) -> None:
    async def work() -> None:
        async with gateway(tmp_path) as running:
            phone = await Phone.call(caller(running), "phone")
        async with phone:
            assert await phone.error() == 3
            assert await phone.hear() is None

    run(work())


def test_error_3_when_the_disk_refuses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from wirelake.errors import StorageError

    async def work() -> None:
        async with gateway(tmp_path) as running, await Phone.call(caller(running), "phone") as phone:

            def refuse(*_: object) -> None:
                raise StorageError("the disk is full")

            with monkeypatch.context() as patch:
                patch.setattr(running.gateway.state.topics, "subscribe", refuse)
                phone.say(frames.Subscribe(("@a",)))
                assert await phone.error() == 3
            assert await phone.ask(frames.Subscribe(("@a",))) == frames.Ok(), "and goes on"

    run(work())


@pytest.mark.parametrize(
    ("wire", "code"),
    [
        ("0001 09", "type"),
        ("0000", "short"),
        ("0003 03 01 00", "short"),
        ("0002 06 00", "trailing"),
        ("0006 03 01 0002 ff fe", "bad_utf8"),
    ],
)
def test_error_4_for_bytes_that_are_no_frame(tmp_path: Path, wire: str, code: str) -> None:
    async def work() -> None:
        async with gateway(tmp_path) as running, await Phone.call(caller(running), "phone") as phone:
            phone.write(frames.Heartbeat().encode() + bytes.fromhex(wire) + frames.Heartbeat().encode())
            assert await phone.hear() == frames.Ok()
            assert await phone.error() == 4
            assert await phone.hear() is None
            (row,) = await running.recorded("fault")
            assert row["frame"] == bytes.fromhex(wire)
            assert len(running.records("frame", direction="in")) == 4, "it is there once, as the frame that it was"
            assert row["note"]["code"]
            assert running.gateway.counters.quarantined["comet"] == 1

    run(work())


def test_error_4_also_for_a_client_that_goes_on_sending(tmp_path: Path) -> None:
    async def work() -> None:
        async with gateway(tmp_path) as running:
            for _ in range(20):  # a connection closed with bytes on it that nobody read is reset, now and then
                async with await Phone.call(caller(running)) as phone:
                    phone.write(b"\x00\x01\xff" + bytes(2_000_000))
                    assert await phone.error() == 4
                    assert await phone.hear() is None

    run(work())


def test_error_4_for_topics_and_a_second_login(tmp_path: Path) -> None:
    async def work() -> None:
        async with gateway(tmp_path) as running, await Phone.call(caller(running), "phone") as phone:
            for bad in ("news", "", "@a b", "@ü", "@" + "x" * 256):
                phone.say(frames.Subscribe(("@good", bad)))
                assert await phone.error() == 4
                phone.say(frames.Unsubscribe((bad,)))
                assert await phone.error() == 4
            assert await phone.ask(frames.GetTopicList()) == frames.TopicList(()), "all or nothing"
            assert await phone.ask(frames.Subscribe(("@" + "x" * 255, "@a/b_c-d@e$f.g"))) == frames.Ok()
            phone.say(frames.Auth("phone", ""))
            assert await phone.error() == 4
            assert await phone.hear() is None

    run(work())


def test_error_4_for_a_secret_that_is_none(tmp_path: Path) -> None:
    async def work() -> None:
        async with gateway(tmp_path) as running, await Phone.call(caller(running), "phone") as phone:
            phone.say(frames.ExchangeKey(bytes(256)))
            assert await phone.error() == 4
            assert await phone.hear() is None

    run(work())


def test_error_5_before_the_login(tmp_path: Path) -> None:
    async def work() -> None:
        early = (
            frames.ExchangeKey(b"x"),
            frames.GetTopicList(),
            frames.Subscribe(("@a",)),
            frames.Unsubscribe(("@a",)),
            frames.GetMessageList(),
            frames.MessageAck(("1",)),
            frames.ReportEnviron(0, 0, "", ()),
        )
        async with gateway(tmp_path) as running, await Phone.call(caller(running)) as phone:
            for frame in early:
                phone.say(frame)
                assert await phone.error() == 5
            assert isinstance(await phone.ask(frames.Auth("phone", "")), frames.AuthSuccess)

    run(work())


@pytest.mark.parametrize("secret_bytes", [16, 32])
def test_error_5_without_a_key_where_one_is_required(tmp_path: Path, secret_bytes: int) -> None:
    async def work() -> None:
        async with (
            gateway(tmp_path, comet={"require_key": True}) as running,
            await Phone.call(caller(running)) as phone,
        ):
            success = await phone.ask(frames.Auth("phone", ""))
            assert isinstance(success, frames.AuthSuccess)
            phone.say(frames.Subscribe(("@a",)), frames.GetMessageList())
            assert [await phone.error(), await phone.error()] == [5, 5]
            assert await phone.ask(frames.Heartbeat()) == frames.Ok()
            secret = os.urandom(secret_bytes)
            wrapped = crypto.wrap_secret(secret, success.encrypt_key)
            assert await phone.ask(frames.ExchangeKey(wrapped)) == frames.Ok()
            assert await phone.ask(frames.Subscribe(("@a",))) == frames.Ok()
            await running.publish("@a", "pushed")
            message = await told(phone)
            (listed,) = await backlog(phone)
            assert message.content != listed.content, "sealed anew each time"
            for sealed in (message, listed):
                assert b"pushed" not in sealed.content
                assert crypto.open_content(sealed.content, sealed.msg_id, secret) == b"pushed"

    run(work())


def test_no_push_in_clear_where_a_key_is_required(tmp_path: Path) -> None:
    async def work() -> None:
        async with gateway(tmp_path, comet={"require_key": True}) as running:
            await running.gateway.state.topics.subscribe("phone", "@a")
            async with await Phone.call(caller(running), "phone") as phone:
                await running.publish("@a", "secret")
                assert await phone.ask(frames.Heartbeat()) == frames.Ok()
                assert [each.content for each in running.waiting("phone")] == [b"secret"], "it waits"

    run(work())


def test_error_5_when_no_login_comes(tmp_path: Path) -> None:
    async def work() -> None:
        async with gateway(tmp_path, comet={"login_s": 0.05}) as running:
            async with await Phone.call(caller(running)) as phone:
                assert await phone.error() == 5
                assert await phone.hear() is None
            (row,) = await running.recorded("close")
            assert row["note"]["reason"] == "login_timeout"

    run(work())


def test_error_6_for_too_many_open_requests(tmp_path: Path) -> None:
    async def work() -> None:
        async with gateway(tmp_path) as running, await Phone.call(caller(running), "phone") as phone:
            asked = COMET_REQUESTS_OPEN_MAX + 3
            phone.say(*[frames.Subscribe((f"@{number}",)) for number in range(asked)])
            heard = [await phone.hear() for _ in range(asked)]
            assert heard[:COMET_REQUESTS_OPEN_MAX] == [frames.Ok()] * COMET_REQUESTS_OPEN_MAX
            assert [getattr(frame, "code", None) for frame in heard[COMET_REQUESTS_OPEN_MAX:]] == [6] * 3
            assert await phone.ask(frames.Subscribe(("@later",))) == frames.Ok()

    run(work())


def test_error_6_for_too_much_before_the_login_is_decided(tmp_path: Path) -> None:
    async def work() -> None:
        async with running_gateway(tmp_path, "comet") as running:
            await running.add_identity("phone", "right", at_once=False)
            async with await Phone.call(caller(running)) as phone:
                phone.say(frames.Auth("phone", "right"), *[frames.Heartbeat()] * (COMET_HELD_FRAMES_MAX + 1))
                assert await phone.error() == 6
                assert await phone.hear() is None
            async with await Phone.call(caller(running)) as phone:
                phone.say(frames.Auth("phone", "right"), frames.Subscribe(("@a",)), frames.GetTopicList())
                assert isinstance(await phone.hear(), frames.AuthSuccess)
                assert await phone.hear() == frames.Ok(), "what came while the login was checked is served after it"
                assert await phone.hear() == frames.TopicList(("@a",))

    run(work())


def test_silence_ends_a_connection(tmp_path: Path) -> None:
    async def work() -> None:
        async with gateway(tmp_path, comet={"idle_s": 2.0}) as running:
            async with await Phone.call(caller(running), "phone") as phone:
                for _ in range(6):
                    await asyncio.sleep(0.4)
                    assert await phone.ask(frames.Heartbeat()) == frames.Ok()
                assert await phone.hear() is None
            (row,) = await running.recorded("close")
            assert row["note"]["reason"] == "idle"

    run(work())


def test_what_is_not_acked_is_sent_again(tmp_path: Path) -> None:
    async def work() -> None:
        async with gateway(tmp_path, broker={"resend_s": 1.0}) as running:
            async with await Phone.call(caller(running), "phone") as phone:
                assert await phone.ask(frames.Subscribe(("@a",))) == frames.Ok()
                for content in ("one", "two"):
                    await running.publish("@a", content)
                one, two = await told(phone), await told(phone)
                phone.say(frames.MessageAck((one.msg_id,)))
                heard = [await phone.hear() for _ in range(3)]
                assert frames.Ok() in heard
                heard.remove(frames.Ok())
                assert heard == [two, two], "again and again, the acked one never"
                phone.say(frames.MessageAck((two.msg_id,)))
                while await phone.hear() != frames.Ok():
                    pass
            attempts = [row["note"]["attempt"] for row in await running.recorded("deliver", 3)]
            assert attempts[0] == 1
            assert max(attempts) > 1

    run(work())


def test_what_is_not_acked_is_offered_after_a_reconnect(tmp_path: Path) -> None:
    async def work() -> None:
        async with gateway(tmp_path) as running:
            async with await Phone.call(caller(running), "phone") as phone:
                assert await phone.ask(frames.Subscribe(("@a",))) == frames.Ok()
                acked = await running.publish("@a", "acked")
                pushed = await running.publish("@a", "pushed")
                assert [(await told(phone)).msg_id for _ in range(2)] == [acked, pushed]
                assert await phone.ask(frames.MessageAck((acked,))) == frames.Ok()
            await until(lambda: not running.gateway.connections)
            missed = await running.publish("@a", "missed")
        async with gateway(tmp_path) as running, await Phone.call(caller(running), "phone") as phone:
            assert await phone.ask(frames.GetTopicList()) == frames.TopicList(("@a",))
            assert [each.msg_id for each in await backlog(phone)] == [pushed, missed]
            live = await running.publish("@a", "live")
            assert (await told(phone)).msg_id == live, "pushes go on without a new subscription"

    run(work())


def test_what_nobody_acks_expires(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wirelake.state.sweep, "STATE_SWEEP_IDLE_S", 0.02)

    async def work() -> None:
        async with (
            gateway(tmp_path, broker={"expire_s": 3.0}) as running,
            await Phone.call(caller(running), "phone") as phone,
        ):
            assert await phone.ask(frames.Subscribe(("@a",))) == frames.Ok()
            await running.publish("@a", "old")
            await told(phone)
            assert len(await backlog(phone)) == 1
            (row,) = await running.recorded("expire")
            assert (row["note"]["topic"], row["note"]["first"], row["note"]["last"]) == ("@a", 1, 1)
            assert await backlog(phone) == ()

    run(work())


def test_a_backlog_comes_in_lists_that_fit_a_frame(tmp_path: Path) -> None:
    async def work() -> None:
        async with gateway(tmp_path) as running:
            await running.gateway.state.topics.subscribe("phone", "@a")
            contents = [bytes([number]) * 9000 for number in range(10)]
            for content in contents:
                await running.publish("@a", content)
            async with await Phone.call(caller(running), "phone") as phone:
                fetched: list[bytes] = []
                while waiting := await backlog(phone):
                    assert len(waiting) <= 3
                    fetched += [message.content for message in waiting]
                    assert await phone.ask(frames.MessageAck(tuple(each.msg_id for each in waiting))) == frames.Ok()
                assert fetched == contents

    run(work())


def test_what_is_too_long_does_not_hide_what_waits_behind_it(tmp_path: Path) -> None:
    async def work() -> None:
        async with gateway(tmp_path) as running:
            topics = running.gateway.state.topics
            for topic in ("@a", "@b"):
                await topics.subscribe("phone", topic)
            long = [await running.publish("@a", bytes(100_000)) for _ in range(3)]
            fits = await running.publish("@b", "fits")
            async with await Phone.call(caller(running), "phone") as phone:
                assert [each.msg_id for each in await backlog(phone)] == [fits]
                assert await phone.ask(frames.MessageAck((fits,))) == frames.Ok()
                assert await backlog(phone) == ()
                long.append(await running.publish("@a", bytes(100_000)))
                pushed = await running.publish("@a", "pushed")
                assert (await told(phone)).msg_id == pushed
            untold = await running.recorded("unsayable", 4)
            assert [f"{row['note']['ids']}{row['note']['first']:x}" for row in untold] == long, "each once"
            assert {row["note"]["reason"].split(" bytes")[0] for row in untold} == {"a content of 100000"}
            assert {row["frame"].split(b",", 1)[1] for row in untold} == {b'"phone","comet"]]'}
            delivered = [
                f"{row['note']['ids']}{row['note']['first']:x}" for row in await running.recorded("deliver", 2)
            ]
            assert delivered == [fits, pushed]
            assert [each.id for each in running.waiting("phone")] == [*long, pushed]

    run(work())


def test_only_what_a_list_holds_is_delivered(tmp_path: Path) -> None:
    async def work() -> None:
        async with gateway(tmp_path) as running:
            await running.gateway.state.topics.subscribe("phone", "@a")
            for _ in range(10):
                await running.publish("@a", bytes(9000))
            async with await Phone.call(caller(running), "phone") as phone:
                assert len(await backlog(phone)) == 3
            (deliver,) = await running.recorded("deliver")
            assert (deliver["note"]["first"], deliver["note"]["last"]) == (1, 3)

    run(work())


def test_more_topics_than_a_list_holds(tmp_path: Path) -> None:
    async def work() -> None:
        async with gateway(tmp_path) as running, await Phone.call(caller(running), "phone") as phone:
            for part in range(2):
                names = tuple(f"@{part}/{number}" for number in range(100))
                assert await phone.ask(frames.Subscribe(names)) == frames.Ok()
            phone.say(frames.GetTopicList())
            assert await phone.error() == 3
            assert await phone.ask(frames.Heartbeat()) == frames.Ok()

    run(work())


def test_one_too_long_for_comet_does_not_stop_the_others(tmp_path: Path) -> None:
    async def work() -> None:
        async with gateway(tmp_path) as running, await Phone.call(caller(running), "phone") as phone:
            assert await phone.ask(frames.Subscribe(("@a",))) == frames.Ok()
            await running.publish("@a", bytes(40_000))
            fits = await running.publish("@a", "fits")
            assert (await told(phone)).msg_id == fits
            assert [each.msg_id for each in await backlog(phone)] == [fits]
            assert await phone.ask(frames.MessageAck((fits,))) == frames.Ok()
            assert await backlog(phone) == ()

    run(work())


def test_everything_is_in_the_log_in_order(tmp_path: Path) -> None:
    async def work() -> None:
        async with gateway(tmp_path) as running:
            async with await Phone.call(caller(running), "phone") as phone:
                assert await phone.ask(frames.Subscribe(("@a",))) == frames.Ok()
                published = await running.publish("@a", "hi")
                await told(phone)
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

    run(work())
