import base64
from pathlib import Path
from urllib.parse import quote

from gateway.comet_client import Phone
from gateway.http.calling import BOB, calling
from gateway.running_gateway import until
from wirelake.limits import HTTP_TOPIC_CONTENT_CHARS, HTTP_TOPIC_LAST_BYTES, HTTP_TOPIC_LAST_ROWS
from wirelake.protocols.comet import frames

NEWS = "/api/topics/%40news"


async def test_subscribers_with_their_lag_and_the_last_notifications(tmp_path: Path) -> None:
    async with calling(tmp_path, "comet", identities=[BOB]) as caller:
        topics = caller.gateway.state.topics
        await topics.subscribe("carol", "@news")
        async with await Phone.connect(caller.port("comet"), *BOB) as phone:
            assert await phone.ask(frames.Subscribe(("@news",))) == frames.Ok()
            first = await caller.publish("@news", "one", type=7)
            await caller.publish("@news", b"\xff\x00")
            await phone.receive(), await phone.receive()
            assert await phone.ask(frames.MessageAck((first,))) == frames.Ok()
            found = (await caller.call("GET", NEWS)).json()
            assert found["who"] == [
                {"identity": "carol", "connected": 0, "lag": 2, "acked": 0, "expired": 0},
                {"identity": "bob", "connected": 1, "lag": 1, "acked": 1, "expired": 0},
            ]
            assert (found["subscribers"], found["connected"], found["head"], found["lag"]) == (2, 1, 2, 2)
            newest, oldest = found["last"]
            assert (newest["content"], newest["encoding"], newest["bytes"]) == (
                base64.b64encode(b"\xff\x00").decode(),
                "base64",
                2,
            )
            assert (oldest["id"], oldest["content"], oldest["type"], oldest["publisher"]) == (first, "one", 7, "test")
            assert "encoding" not in oldest
        assert topics.lag("@news") == 2, "to look is not to ack"


async def test_the_newest_are_shown_within_bounds_and_long_ones_cut(tmp_path: Path) -> None:
    async with calling(tmp_path) as caller:
        for number in range(HTTP_TOPIC_LAST_ROWS + 5):
            await caller.publish("@news", str(number))
        shown = (await caller.call("GET", NEWS)).json()["last"]
        assert [each["content"] for each in shown] == [str(number) for number in range(54, 4, -1)]
        for _ in range(3):
            await caller.publish("@news", "x" * (HTTP_TOPIC_LAST_BYTES // 2))
        shown = (await caller.call("GET", NEWS)).json()["last"]
        assert len(shown) == 2
        assert (shown[0]["truncated"], len(shown[0]["content"])) == (True, HTTP_TOPIC_CONTENT_CHARS)
        assert shown[0]["bytes"] == HTTP_TOPIC_LAST_BYTES // 2


async def test_what_all_have_acked_is_shown_while_it_is_in_memory(tmp_path: Path) -> None:
    async with calling(tmp_path) as caller:
        await caller.publish("@news", "nobody wants it")
        topics = caller.gateway.state.topics
        topics.sweep(caller.gateway.now_ms(), 1_000_000, 100)
        assert topics.floor("@news") == 1
        assert [each["content"] for each in (await caller.call("GET", NEWS)).json()["last"]] == ["nobody wants it"]


async def test_an_identity_sees_what_is_told_to_itself(tmp_path: Path) -> None:
    async with calling(tmp_path, identities=[BOB]) as caller:
        await caller.publish("@news", "before")
        for path, name in ((NEWS, "@news"), ("/api/topics/live", "live")):
            message = await caller.refused(403, "forbidden", "GET", path, bearer=":".join(BOB))
            assert message == f"access denied: see topics/{name}"
        for identity in ("bob", "carol"):
            await caller.gateway.state.topics.subscribe(identity, "@news")
        await caller.publish("@news", "after")
        found = (await caller.call("GET", NEWS, bearer=":".join(BOB))).json()
        assert [each["identity"] for each in found["who"]] == ["bob"]
        assert [each["content"] for each in found["last"]] == ["after"]
        assert (found["lag"], found["subscribers"]) == (1, 2)


async def test_a_live_name_and_one_that_nobody_has_used(tmp_path: Path) -> None:
    async with calling(tmp_path, identities=[BOB]) as caller:
        async with caller.client.stream(
            "GET", "/api/subscribe?topic=ticker", headers={"authorization": "Bearer " + ":".join(BOB)}
        ):
            await until(lambda: caller.gateway.broker.live.names())
            found = (await caller.call("GET", "/api/topics/ticker")).json()
        assert found["who"] == [{"identity": "bob", "connected": 1, "lag": 0, "acked": 0, "expired": 0}]
        assert (found["durable"], found["connected"], found["last"]) == (False, 1, [])
        unused = (await caller.call("GET", f"/api/topics/{quote('@a/b', safe='')}")).json()
        assert (unused["topic"], unused["head"], unused["who"]) == ("@a/b", 0, [])
        assert not caller.gateway.state.topics.names(), "to look makes no topic"
        await caller.refused(400, "bad_request", "GET", f"/api/topics/@{'x' * 256}")


async def test_the_retained_value(tmp_path: Path) -> None:
    async with calling(tmp_path) as caller:
        for body in ({"content": "kept", "retain": True}, {"content": "passing"}):
            await caller.call("POST", f"{NEWS}/notifications", body)
        found = (await caller.call("GET", NEWS)).json()
        assert (found["retained"]["content"], found["last"][0]["content"]) == ("kept", "passing")
