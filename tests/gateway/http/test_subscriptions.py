import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from gateway.http.calling import BOB, Calling, calling
from gateway.running_gateway import HOST, WAIT_S, until
from wirelake.gateway.http import subscriber as subscriber_module

BEARER = ":".join(BOB)


class Stream:
    def __init__(self, response: httpx.Response) -> None:
        self.response = response
        self._lines = response.aiter_lines()

    async def next(self) -> dict[str, str]:
        """Return the fields of the next event, without comments."""
        fields: dict[str, str] = {}
        async with asyncio.timeout(WAIT_S):
            async for line in self._lines:
                if not line and fields:
                    return fields
                name, colon, value = line.partition(": ")
                if colon and name:
                    fields[name] = value
        raise EOFError

    async def data(self) -> Any:
        return json.loads((await self.next())["data"])


@asynccontextmanager
async def subscribed(caller: Calling, query: str, bearer: str = BEARER) -> AsyncIterator[Stream]:
    headers = {"authorization": f"Bearer {bearer}"}
    async with caller.client.stream("GET", f"/api/subscribe?{query}", headers=headers) as response:
        assert response.status_code == 200
        assert response.headers["content-type"].startswith("text/event-stream")
        yield Stream(response)


async def test_durable_and_live_notifications_as_events(tmp_path: Path) -> None:
    async with calling(tmp_path, identities=[BOB]) as caller, subscribed(caller, "topic=%40a&topic=b") as stream:
        response = await caller.call("POST", "/api/topics/%40a/notifications", {"content": "hello", "type": 3})
        published = response.json()
        event = await stream.next()
        assert event["id"] == published["id"]
        assert json.loads(event["data"]) == {
            "topic": "@a", "id": published["id"], "type": 3, "ts": published["ts"], "content": "hello",
        }  # fmt: skip
        live = (await caller.call("POST", "/api/topics/b/notifications", {"content": "line 1\nline 2"})).json()
        assert live["receivers"] == 1
        assert (await stream.data())["content"] == "line 1\nline 2"
        await caller.publish("@a", b"\xff")
        binary = await stream.data()
        assert (binary["content"], binary["encoding"]) == ("/w==", "base64")


async def test_what_a_stream_had_for_a_while_is_acked_and_what_was_missed_comes_first(tmp_path: Path) -> None:
    async with calling(tmp_path, identities=[BOB], broker={"implicit_ack_s": 0.3}) as caller:
        async with subscribed(caller, "topic=%40a") as stream:
            await caller.publish("@a", "1")
            assert (await stream.data())["content"] == "1"
            await until(lambda: not caller.waiting("bob"))
        await until(lambda: not caller.http.streams)
        await caller.publish("@a", "2")
        await caller.publish("@a", "3")
        assert [waiting.content for waiting in caller.waiting("bob")] == [b"2", b"3"]
        async with subscribed(caller, "topic=%40a") as stream:
            assert [(await stream.data())["content"] for _ in range(2)] == ["2", "3"]
        (ack, *_) = await caller.recorded("ack")
        assert ack["note"]["identity"] == "bob"


async def test_what_a_stream_that_ended_at_once_may_not_have_read_comes_again(tmp_path: Path) -> None:
    async with calling(tmp_path, identities=[BOB]) as caller:
        async with subscribed(caller, "topic=%40a"):
            await caller.publish("@a", "1")
            await until(lambda: not caller.gateway.broker.waiting)
        await until(lambda: not caller.http.streams)
        async with subscribed(caller, "topic=%40a") as stream:
            assert (await stream.data())["content"] == "1"


async def test_what_a_stream_acked_by_request_does_not_come_again(tmp_path: Path) -> None:
    async with calling(tmp_path, identities=[BOB]) as caller:
        async with subscribed(caller, "topic=%40a") as stream:
            for content in ("1", "2"):
                await caller.publish("@a", content)
            ids = [(await stream.data())["id"] for _ in range(2)]
            assert (await caller.call("POST", "/api/acks", {"ids": ids})).status_code == 204
            assert len(caller.waiting("bob")) == 2, "the admin acks for itself, not for bob"
            acked = await caller.call("POST", "/api/acks", {"ids": [ids[0], "unknown"]}, bearer=BEARER)
            assert acked.status_code == 204
            assert [each.content for each in caller.waiting("bob")] == [b"2"]
        await until(lambda: not caller.http.streams)
        async with subscribed(caller, "topic=%40a") as stream:
            assert (await stream.data())["content"] == "2"


async def test_its_session_is_listed_recorded_and_can_be_ended(tmp_path: Path) -> None:
    async with calling(tmp_path, identities=[BOB]) as caller:
        async with subscribed(caller, "topic=%40a") as stream:
            (row,) = (await caller.call("GET", "/api/sessions")).json()["sessions"]
            assert (row["protocol"], row["identity"], row["state"]) == ("http", "bob", "streaming")
            assert (await caller.call("DELETE", f"/api/sessions/{row['id']}")).status_code == 204
            event = await stream.next()
            assert (event["event"], json.loads(event["data"])["code"]) == ("end", "ended")
            with pytest.raises(EOFError):
                await stream.next()
        await caller.recorded("close", session=row["id"])
        about = [(r["event"], r["frame"]) for r in caller.records(session=row["id"])]
        assert about == [("open", b""), ("frame", b'{"topics":["@a"]}'), ("close", b"")]
        (closed,) = caller.records("close", session=row["id"])
        assert closed["note"]["reason"] == "ended"


async def test_a_subscription_need_not_outlast_the_stream(tmp_path: Path) -> None:
    async with calling(tmp_path, identities=[BOB]) as caller:
        topics = caller.gateway.state.topics
        await topics.subscribe("bob", "@old")
        async with subscribed(caller, "topic=%40old&topic=%40new&keep=false"):
            assert topics.topics_of("bob") == ["@old", "@new"]
        await until(lambda: topics.topics_of("bob") == ["@old"])


async def test_of_two_streams_in_passing_the_last_one_takes_the_subscription_with_it(tmp_path: Path) -> None:
    """Reload a page: it opens its new stream before the gateway knows that the old one has ended."""
    async with calling(tmp_path, identities=[BOB]) as caller:
        topics = caller.gateway.state.topics
        async with subscribed(caller, "topic=%40a&keep=false"):
            async with subscribed(caller, "topic=%40a&keep=false"):
                pass
            await until(lambda: len(caller.http.streams) == 1)
            assert topics.topics_of("bob") == ["@a"]
        await until(lambda: topics.topics_of("bob") == [])
        async with subscribed(caller, "topic=%40a&keep=false"), subscribed(caller, "topic=%40a"):
            pass
        await until(lambda: not caller.http.streams)
        assert topics.topics_of("bob") == ["@a"], "one of them was to outlast its stream"


async def test_a_client_that_goes_away_leaves_nothing_behind(tmp_path: Path) -> None:
    async with calling(tmp_path, identities=[BOB]) as caller:
        async with subscribed(caller, "topic=b"):
            assert caller.gateway.broker.live.names() == {"b": 1}
        await until(lambda: not caller.http.streams and not caller.gateway.broker.live.names())
        (closed,) = await caller.recorded("close", protocol="http")
        assert closed["note"]["reason"] == "peer_closed"


async def test_a_slow_reader_of_a_live_name_is_cut_off(tmp_path: Path) -> None:
    async with calling(tmp_path, identities=[BOB], limits={"pending_bytes": 100_000}) as caller:
        reader, writer = await asyncio.open_connection(HOST, caller.port("http"), limit=1024)
        writer.write(
            f"GET /api/subscribe?topic=b HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {BEARER}\r\n\r\n".encode()
        )
        assert b"200 OK" in await reader.readline()
        content = "x" * 1_000_000
        async with asyncio.timeout(WAIT_S):
            while caller.http.streams:
                await caller.publish("b", content)
                await asyncio.sleep(0)
        assert caller.gateway.broker.live.cut >= 1
        (closed,) = await caller.recorded("close", protocol="http")
        assert closed["note"]["reason"] == "slow_consumer"
        writer.close()


async def test_a_slow_reader_of_a_durable_topic_catches_up(tmp_path: Path) -> None:
    async with calling(tmp_path, identities=[BOB], limits={"pending_bytes": 100_000}) as caller:
        reader, writer = await asyncio.open_connection(HOST, caller.port("http"), limit=1024)
        query = "topic=%40a"
        writer.write(
            f"GET /api/subscribe?{query} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {BEARER}\r\n\r\n".encode()
        )
        assert b"200 OK" in await reader.readline()
        (listener,) = caller.http.streams
        published = 0
        async with asyncio.timeout(WAIT_S):
            while not listener.is_congested:
                await caller.publish("@a", f"{published:06} " + "x" * 500_000)
                published += 1
                await asyncio.sleep(0.02)  # let the network take what it can
        for _ in range(3):
            await caller.publish("@a", f"{published:06} ")
            published += 1
        (row,) = (await caller.call("GET", "/api/sessions")).json()["sessions"]
        assert row["slow"]
        assert row["lag"] > 0
        last = b'"content":"%06d ' % (published - 1)
        seen = b""
        async with asyncio.timeout(WAIT_S):
            while last not in seen:
                seen = seen[-100:] + await reader.read(1 << 20)
        await until(lambda: not listener.is_congested)
        writer.close()


async def test_a_quiet_stream_shows_signs_of_life(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subscriber_module, "HTTP_STREAM_PING_S", 0.01)
    async with (
        calling(tmp_path, identities=[BOB]) as caller,
        subscribed(caller, "topic=b") as stream,
        asyncio.timeout(WAIT_S),
    ):
        lines = stream.response.aiter_lines()
        assert [await anext(lines) for _ in range(4)] == [": still here", "", ": still here", ""]


async def test_a_stopping_gateway_ends_its_streams(tmp_path: Path) -> None:
    async with calling(tmp_path, identities=[BOB]) as caller, subscribed(caller, "topic=%40a") as stream:
        closing = asyncio.create_task(caller.gateway.close())
        event = await stream.next()
        assert json.loads(event["data"])["code"] == "shutdown"
        await closing


@pytest.mark.parametrize("query", ["", "topic=", "topic=a%00", "topic=a&keep=perhaps"])
async def test_bad_questions(tmp_path: Path, query: str) -> None:
    async with calling(tmp_path, identities=[BOB]) as caller:
        await caller.refused(400, "bad_request", "GET", f"/api/subscribe?{query}", bearer=BEARER)
        assert not caller.http.streams
        await caller.refused(405, "method_not_allowed", "POST", "/api/subscribe", {})


async def test_streams_are_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from wirelake.gateway.http.routes import subscriptions as subscriptions_module

    monkeypatch.setattr(subscriptions_module, "HTTP_STREAMS_MAX", 1)
    async with calling(tmp_path, identities=[BOB]) as caller, subscribed(caller, "topic=a"):
        await caller.refused(503, "unavailable", "GET", "/api/subscribe?topic=a", bearer=BEARER)


async def test_a_stream_ends_when_the_time_that_was_asked_for_is_over(tmp_path: Path) -> None:
    async with calling(tmp_path, identities=[BOB]) as caller:
        async with subscribed(caller, "topic=a&for_ms=1") as stream:
            assert await stream.next() == {
                "event": "end", "data": '{"code":"over","message":"the requested duration is over"}',
            }  # fmt: skip
            with pytest.raises(EOFError):
                await stream.next()
        await until(lambda: not caller.http.streams)
        await caller.refused(400, "bad_request", "GET", "/api/subscribe?topic=a&for_ms=86400001")
