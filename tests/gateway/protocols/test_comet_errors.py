"""comet over real sockets: every error code."""

import os
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from gateway.comet_client import Phone, comet_gateway, comet_port
from gateway.running_gateway import running_gateway, until
from wirelake.protocols.comet import crypto, frames
from wirelake.protocols.comet.constants import COMET_HELD_FRAMES_MAX, COMET_REQUESTS_OPEN_MAX


async def test_error_0_for_a_wrong_token_and_an_unknown_name_alike(tmp_path: Path) -> None:
    async with comet_gateway(tmp_path, identities=[("phone", "right")]) as running:
        for name, token, code in (("phone", "wrong", 0), ("phone", "", 0), ("nobody", "right", 0)):
            async with await Phone.connect(comet_port(running)) as phone:
                phone.send(frames.Auth(name, token))
                assert await phone.receive_error() == code
                assert await phone.receive() is None
        reasons = [row["note"]["reason"] for row in await running.recorded("refuse", 3)]
        assert reasons == ["wrong_token", "wrong_token", "unknown"]
        logged = b"".join(row["frame"] for row in running.records() if row["event"] != "frame")
        assert b"wrong" not in logged
        async with await Phone.connect(comet_port(running), "phone", "right"):
            pass


async def test_error_2_for_the_older_one(tmp_path: Path) -> None:
    async with comet_gateway(tmp_path) as running:
        async with await Phone.connect(comet_port(running), "phone") as older:
            assert await older.ask(frames.Subscribe(("@a",))) == frames.Ok()
            async with await Phone.connect(comet_port(running), "phone") as newer:
                assert await older.receive_error() == 2
                assert await older.receive() is None
                await running.publish("@a", "hi")
                assert (await newer.receive_message()).content == b"hi"
        closed = [row["note"]["reason"] for row in await running.recorded("close", 2)]
        assert closed == ["replaced", "peer_closed"]


async def test_error_2_for_the_newer_one(tmp_path: Path) -> None:
    async with comet_gateway(tmp_path, comet={"second": "refuse"}) as running:
        async with await Phone.connect(comet_port(running), "phone") as older:
            async with await Phone.connect(comet_port(running)) as newer:
                newer.send(frames.Auth("phone", ""))
                assert await newer.receive_error() == 2
                assert await newer.receive() is None
            assert await older.ask(frames.Heartbeat()) == frames.Ok()
        await until(lambda: not running.gateway.connections)
        async with await Phone.connect(comet_port(running), "phone"):
            pass


async def test_error_3_when_the_gateway_stops(tmp_path: Path) -> None:
    async with comet_gateway(tmp_path) as running:
        phone = await Phone.connect(comet_port(running), "phone")
    async with phone:
        assert await phone.receive_error() == 3
        assert await phone.receive() is None


async def test_error_3_when_the_disk_refuses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from wirelake.errors import StorageError

    async with comet_gateway(tmp_path) as running, await Phone.connect(comet_port(running), "phone") as phone:

        def refuse(*_: object) -> None:
            raise StorageError("the disk is full")

        with monkeypatch.context() as patch:
            patch.setattr(running.gateway.state.topics, "subscribe", refuse)
            phone.send(frames.Subscribe(("@a",)))
            assert await phone.receive_error() == 3
        assert await phone.ask(frames.Subscribe(("@a",))) == frames.Ok(), "and goes on"


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
async def test_error_4_for_bytes_that_are_no_frame(tmp_path: Path, wire: str, code: str) -> None:
    async with comet_gateway(tmp_path) as running, await Phone.connect(comet_port(running), "phone") as phone:
        phone.write(frames.Heartbeat().encode() + bytes.fromhex(wire) + frames.Heartbeat().encode())
        assert await phone.receive() == frames.Ok()
        assert await phone.receive_error() == 4
        assert await phone.receive() is None
        (row,) = await running.recorded("fault")
        assert row["frame"] == bytes.fromhex(wire)
        assert len(running.records("frame", direction="in")) == 4, "it is there once, as the frame that it was"
        assert row["note"]["code"]
        assert running.gateway.counters.quarantined["comet"] == 1


async def test_error_4_also_for_a_client_that_goes_on_sending(tmp_path: Path) -> None:
    async with comet_gateway(tmp_path) as running:
        for _ in range(20):  # a connection that is closed with unread bytes is sometimes reset
            async with await Phone.connect(comet_port(running)) as phone:
                phone.write(b"\x00\x01\xff" + bytes(2_000_000))
                assert await phone.receive_error() == 4
                assert await phone.receive() is None


async def test_error_4_for_topics_and_a_second_login(tmp_path: Path) -> None:
    async with comet_gateway(tmp_path) as running, await Phone.connect(comet_port(running), "phone") as phone:
        for bad in ("news", "", "@a b", "@a👍", "@" + "x" * 256):
            phone.send(frames.Subscribe(("@good", bad)))
            assert await phone.receive_error() == 4
            phone.send(frames.Unsubscribe((bad,)))
            assert await phone.receive_error() == 4
        assert await phone.ask(frames.GetTopicList()) == frames.TopicList(()), "all or nothing"
        assert await phone.ask(frames.Subscribe(("@" + "x" * 255, "@a/b_c-d@e$f.g", "@新闻"))) == frames.Ok()
        phone.send(frames.Auth("phone", ""))
        assert await phone.receive_error() == 4
        assert await phone.receive() is None


async def test_error_4_for_a_secret_that_is_none(tmp_path: Path) -> None:
    async with comet_gateway(tmp_path) as running, await Phone.connect(comet_port(running), "phone") as phone:
        phone.send(frames.ExchangeKey(bytes(256)))
        assert await phone.receive_error() == 4
        assert await phone.receive() is None


async def test_error_5_before_the_login(tmp_path: Path) -> None:
    early = (
        frames.ExchangeKey(b"x"),
        frames.GetTopicList(),
        frames.Subscribe(("@a",)),
        frames.Unsubscribe(("@a",)),
        frames.GetMessageList(),
        frames.MessageAck(("1",)),
        frames.ReportEnviron(0, 0, "", ()),
    )
    async with comet_gateway(tmp_path) as running, await Phone.connect(comet_port(running)) as phone:
        for frame in early:
            phone.send(frame)
            assert await phone.receive_error() == 5
        assert isinstance(await phone.ask(frames.Auth("phone", "")), frames.AuthSuccess)


@pytest.mark.parametrize("secret_bytes", [16, 32])
async def test_error_5_without_a_key_where_one_is_required(tmp_path: Path, secret_bytes: int) -> None:
    async with (
        comet_gateway(tmp_path, comet={"require_key": True}) as running,
        await Phone.connect(comet_port(running)) as phone,
    ):
        success = await phone.ask(frames.Auth("phone", ""))
        assert isinstance(success, frames.AuthSuccess)
        phone.send(frames.Subscribe(("@a",)), frames.GetMessageList())
        assert [await phone.receive_error(), await phone.receive_error()] == [5, 5]
        assert await phone.ask(frames.Heartbeat()) == frames.Ok()
        secret = os.urandom(secret_bytes)
        wrapped = crypto.wrap_secret(secret, success.encrypt_key)
        assert await phone.ask(frames.ExchangeKey(wrapped)) == frames.Ok()
        assert await phone.ask(frames.Subscribe(("@a",))) == frames.Ok()
        await running.publish("@a", "pushed")
        message = await phone.receive_message()
        (listed,) = await phone.fetch_backlog()
        assert message.content != listed.content, "sealed anew each time"
        for sealed in (message, listed):
            assert b"pushed" not in sealed.content
            assert crypto.open_content(sealed.content, sealed.msg_id, secret) == b"pushed"


async def test_no_push_in_clear_where_a_key_is_required(tmp_path: Path) -> None:
    async with comet_gateway(tmp_path, comet={"require_key": True}) as running:
        await running.gateway.state.topics.subscribe("phone", "@a")
        async with await Phone.connect(comet_port(running), "phone") as phone:
            await running.publish("@a", "secret")
            assert await phone.ask(frames.Heartbeat()) == frames.Ok()
            assert [each.content for each in running.waiting("phone")] == [b"secret"], "it waits"


async def test_error_5_when_no_login_comes(tmp_path: Path) -> None:
    async with comet_gateway(tmp_path, comet={"login_s": 0.05}) as running:
        async with await Phone.connect(comet_port(running)) as phone:
            assert await phone.receive_error() == 5
            assert await phone.receive() is None
        (row,) = await running.recorded("close")
        assert row["note"]["reason"] == "login_timeout"


async def test_error_6_for_too_many_open_requests(tmp_path: Path) -> None:
    async with comet_gateway(tmp_path) as running, await Phone.connect(comet_port(running), "phone") as phone:
        requests = COMET_REQUESTS_OPEN_MAX + 3
        (connection,) = running.gateway.connections.values()
        with closing(sqlite3.connect(tmp_path / "data" / "state.db")) as other:
            other.execute("BEGIN IMMEDIATE")  # nothing is durable, so there is no answer
            phone.send(*[frames.Subscribe((f"@{number}",)) for number in range(requests)])
            await until(lambda: connection.frames_in > requests and not connection.has_more)
        received = [await phone.receive() for _ in range(requests)]
        assert received[:COMET_REQUESTS_OPEN_MAX] == [frames.Ok()] * COMET_REQUESTS_OPEN_MAX
        assert [getattr(frame, "code", None) for frame in received[COMET_REQUESTS_OPEN_MAX:]] == [6] * 3
        assert await phone.ask(frames.Subscribe(("@later",))) == frames.Ok()


async def test_error_6_for_too_much_before_the_login_is_decided(tmp_path: Path) -> None:
    async with running_gateway(tmp_path, "comet") as running:
        await running.add_identity("phone", "right", at_once=False)
        async with await Phone.connect(comet_port(running)) as phone:
            phone.send(frames.Auth("phone", "right"), *[frames.Heartbeat()] * (COMET_HELD_FRAMES_MAX + 1))
            assert await phone.receive_error() == 6
            assert await phone.receive() is None
        async with await Phone.connect(comet_port(running)) as phone:
            phone.send(frames.Auth("phone", "right"), frames.Subscribe(("@a",)), frames.GetTopicList())
            assert isinstance(await phone.receive(), frames.AuthSuccess)
            assert await phone.receive() == frames.Ok(), "what came while the login was checked is served after it"
            assert await phone.receive() == frames.TopicList(("@a",))
