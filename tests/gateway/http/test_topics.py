import base64
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from gateway.comet_client import Phone
from gateway.http.calling import BOB, calling
from gateway.running_gateway import running_gateway
from wirelake.errors import LogWriteError, StorageError
from wirelake.protocols.comet import frames

PUBLISH = "/api/topics/%40news/notifications"


async def test_a_published_notification_is_answered_when_it_and_its_frames_are_on_disk(tmp_path: Path) -> None:
    async with calling(tmp_path) as caller:
        response = await caller.call("POST", PUBLISH, {"content": "hello", "type": 7})
        assert response.status_code == 201
        published = response.json()
        assert published.keys() == {"id", "topic", "ts"}
        assert published["topic"] == "@news"

        kept = caller.gateway.state.topics.find(published["id"])  # reads only what is durable
        assert kept is not None
        assert (kept.content, kept.type, kept.publisher, kept.at_ms) == (b"hello", 7, "admin", published["ts"])

        came, went = caller.records("frame", protocol="http")
        assert (came["direction"], came["frame"]) == ("in", b'{"content":"hello","type":7}')
        assert (went["direction"], went["frame"]) == ("out", response.content)
        assert came["session"] == went["session"]
        assert (came["identity"], came["note"]) == ("admin", {"method": "POST", "path": PUBLISH})
        assert went["note"]["status"] == 201
        (record,) = caller.records("publish")
        assert record["note"]["id"] == published["id"]
        assert came["seq"] < record["seq"] < went["seq"]


async def test_it_is_there_after_a_restart(tmp_path: Path) -> None:
    ids: list[str] = []
    async with calling(tmp_path) as caller:
        response = await caller.call("POST", PUBLISH, {"content": "kept"})
        ids.append(response.json()["id"])
    async with running_gateway(tmp_path) as running:
        kept = running.gateway.state.topics.find(ids[0])
        assert kept is not None
        assert kept.content == b"kept"


@pytest.mark.parametrize(
    ("body", "content"),
    [
        ({"content": "grüß"}, "grüß".encode()),
        ({"content": ""}, b""),
        ({"content": base64.b64encode(b"\xff\x00").decode(), "encoding": "base64"}, b"\xff\x00"),
        ({"content": {"a": [1, None]}}, b'{"a":[1,null]}'),
        ({"content": [1, 2]}, b"[1,2]"),
        ({"content": 7}, b"7"),
    ],
)
async def test_content_may_be_text_base64_or_json(tmp_path: Path, body: Any, content: bytes) -> None:
    async with calling(tmp_path) as caller:
        response = await caller.call("POST", PUBLISH, body)
        kept = caller.gateway.state.topics.find(response.json()["id"])
        assert kept is not None
        assert kept.content == content


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ({}, "`content`"),
        ({"content": "x", "tpye": 1}, "tpye"),
        ({"content": "x", "type": 256}, "255"),
        ({"content": "x", "encoding": "hex"}, "hex"),
        ({"content": "no base64!", "encoding": "base64"}, "not base64"),
        ({"content": 1, "encoding": "base64"}, "base64"),
        ([], "object"),
    ],
)
async def test_a_bad_body_is_told_by_its_place(tmp_path: Path, body: Any, says: str) -> None:
    async with calling(tmp_path) as caller:
        assert says in await caller.refused(400, "bad_request", "POST", PUBLISH, body)
        assert not caller.records("publish")


async def test_a_topic_with_slashes_and_percent_signs(tmp_path: Path) -> None:
    async with calling(tmp_path) as caller:
        for name in ("@a/b", "@a%2Fb", "@ä/notifications"):
            path = f"/api/topics/{quote(name, safe='')}/notifications"
            response = await caller.call("POST", path, {"content": "x"})
            assert response.json()["topic"] == name
        plain = await caller.call("POST", "/api/topics/@a/b/notifications", {"content": "x"})
        assert plain.json()["topic"] == "@a/b"
        assert "256" in await caller.refused(
            400, "bad_request", "POST", f"/api/topics/@{'x' * 256}/notifications", {"content": ""}
        )
        await caller.refused(400, "bad_request", "POST", "/api/topics/%ff/notifications", {"content": ""})
        await caller.refused(404, "not_found", "POST", "/api/topics//notifications", {"content": ""})


async def test_a_live_name_reaches_those_who_listen_and_is_not_kept(tmp_path: Path) -> None:
    async with calling(tmp_path) as caller:
        response = await caller.call("POST", "/api/topics/ticker/notifications", {"content": "1"})
        found = response.json()
        assert (response.status_code, found["receivers"]) == (201, 0)
        (record, _) = caller.records("frame", protocol="http")
        assert found["id"] == record["session"], "its frame in the log is found by this"
        assert not list(caller.gateway.state.topics.names())


async def test_a_comet_subscriber_gets_what_http_published(tmp_path: Path) -> None:
    async with (
        calling(tmp_path, "comet", identities=[BOB]) as caller,
        await Phone.connect(caller.port("comet"), *BOB) as phone,
    ):
        assert await phone.ask(frames.Subscribe(("@news",))) == frames.Ok()
        published = (await caller.call("POST", PUBLISH, {"content": "hello", "type": 7})).json()
        assert await phone.receive() == frames.Message(7, published["id"], b"hello", published["ts"])

        (row,) = (await caller.call("GET", "/api/topics")).json()["topics"]
        assert row == {"topic": "@news", "durable": True, "subscribers": 1, "connected": 1, "head": 1, "lag": 1}
        assert await phone.ask(frames.MessageAck((published["id"],))) == frames.Ok()
        (row,) = (await caller.call("GET", "/api/topics")).json()["topics"]
        assert row["lag"] == 0


async def test_the_list_is_paged_and_an_identity_sees_its_own(tmp_path: Path) -> None:
    async with calling(tmp_path, identities=[BOB]) as caller:
        for name in ("@b", "@a", "@c", "x"):
            await caller.publish(name, "1")
        await caller.gateway.state.topics.subscribe("bob", "@a")
        await caller.publish("@a", "2")

        first = (await caller.call("GET", "/api/topics?limit=2")).json()
        assert ([row["topic"] for row in first["topics"]], first["next"]) == (["@a", "@b"], "@b")
        second = (await caller.call("GET", "/api/topics", params={"after": "@b"})).json()
        assert ([row["topic"] for row in second["topics"]], second["next"]) == (["@c"], None)
        assert (await caller.call("GET", "/api/topics", params={"prefix": "@c"})).json()["topics"][0]["head"] == 1
        assert "1 to 10000" in await caller.refused(400, "bad_request", "GET", "/api/topics?limit=0")

        (own,) = (await caller.call("GET", "/api/topics", bearer=":".join(BOB))).json()["topics"]
        assert (own["topic"], own["head"], own["lag"]) == ("@a", 2, 1)


async def test_a_log_that_refuses_is_a_503_and_nothing_is_promised(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with calling(tmp_path) as caller:

        def refuse(*_: Any) -> None:
            raise LogWriteError("the log cannot be written: no space left on device")

        monkeypatch.setattr(caller.gateway.log, "append", refuse)
        assert "no space" in await caller.refused(503, "storage", "POST", PUBLISH, {"content": "x"})
        monkeypatch.undo()
        assert caller.gateway.state.topics.head("@news") == 0
        assert (await caller.call("POST", PUBLISH, {"content": "x"})).status_code == 201


async def test_a_log_that_is_behind_is_a_429(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with calling(tmp_path) as caller:
        monkeypatch.setattr("wirelake.gateway.gateway.GATEWAY_LOG_BEHIND", -1)  # of the buffer: it is always behind
        response = await caller.call("POST", PUBLISH, {"content": "x"})
        assert (response.status_code, response.headers["retry-after"]) == (429, "1")
        monkeypatch.undo()


async def test_a_state_that_cannot_be_written_is_a_503(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with calling(tmp_path) as caller:

        def refuse() -> None:
            raise StorageError("the state cannot be written: disk I/O error")

        monkeypatch.setattr(caller.gateway.state.writer, "check_writable", refuse)
        assert "disk I/O" in await caller.refused(503, "storage", "POST", PUBLISH, {"content": "x"})
        monkeypatch.undo()
        came, went = caller.records("frame", protocol="http")
        assert (came["direction"], went["note"]["status"]) == ("in", 503), "what was refused is in the log as well"
