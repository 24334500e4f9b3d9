"""Check what all routes share: the form of errors, limits of bodies, and handling of failures."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from gateway.http.calling import Provider, calling
from gateway.running_gateway import HOST, until
from wirelake.gateway.http import bodies as bodies_module
from wirelake.gateway.http import limiter as limiter_module
from wirelake.gateway.http.bodies import redact
from wirelake.limits import HTTP_BODY_BYTES_MAX

PUBLISH = "/api/topics/%40news/notifications"


async def test_unknown_paths_and_methods(tmp_path: Path) -> None:
    async with calling(tmp_path) as caller:
        for path in ("/nothing", "/api", "/api/nothing", "/healthz/", "/api/ledger/"):
            assert "/api/openapi.json" in await caller.refused(404, "not_found", "GET", path)
        assert "topic in the path is empty" in await caller.refused(404, "not_found", "GET", "/api/topics/")
        response = await caller.call("PUT", "/api/identities", {})
        assert (response.status_code, response.headers["allow"]) == (405, "POST, GET, HEAD")
        await caller.refused(405, "method_not_allowed", "DELETE", "/healthz")


@pytest.mark.parametrize(
    ("body", "offset"),
    [(b'{"content": nope}', 16), (b'{"content": "x"', 15), (b"\xff", 0), (b'{"content": "x"} x', 18)],
)
async def test_bad_json_is_told_with_its_offset(tmp_path: Path, body: bytes, offset: int) -> None:
    async with calling(tmp_path) as caller:
        message = await caller.refused(400, "bad_json", "POST", PUBLISH, content=body)
        assert message.endswith(f" (byte {offset})")
        assert message.count("byte") == 1
        assert not caller.records("frame", protocol="http")


async def test_json_that_nests_too_deep(tmp_path: Path) -> None:
    async with calling(tmp_path) as caller:
        for depth in (200, 100_000):
            body = b'{"content": ' + b"[" * depth + b"]" * depth + b"}"
            assert "deeper than 128" in await caller.refused(400, "bad_json", "POST", PUBLISH, content=body)


async def test_a_body_over_the_limit_is_refused_before_it_is_read(tmp_path: Path) -> None:
    async with calling(tmp_path) as caller:
        head = f"POST {PUBLISH} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {caller.admin_token}\r\n"
        answer = await caller.raw(f"{head}content-length: {HTTP_BODY_BYTES_MAX + 1}\r\n\r\n".encode())
        assert answer.startswith(b"HTTP/1.1 413")
        assert b"HTTP_BODY_BYTES_MAX" in answer


async def test_a_body_that_grows_over_the_limit_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bodies_module, "HTTP_BODY_BYTES_MAX", 1000)

    async def parts() -> Any:
        for _ in range(3):
            yield b" " * 500

    async with calling(tmp_path) as caller:
        message = await caller.refused(413, "too_large", "POST", PUBLISH, content=parts())
        assert "1000 bytes" in message
        await caller.refused(413, "too_large", "POST", PUBLISH, content=b" " * 1001)
        assert (await caller.call("POST", PUBLISH, {"content": "x"})).status_code == 201


async def test_bodies_under_way_are_limited_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limiter_module, "HTTP_BODIES_BYTES_MAX", 1500)
    async with calling(tmp_path) as caller:
        Provider(caller, "mute", lambda _: [])
        waiting = asyncio.create_task(caller.call("POST", "/api/services/mute/op", {"x": "y" * 1000}))
        await until(lambda: caller.gateway.broker.services.open == 1)
        await caller.refused(429, "busy", "POST", PUBLISH, {"content": "x" * 1000})
        assert (await caller.call("POST", PUBLISH, {"content": "x"})).status_code == 201
        caller.http.cancel_waiting()
        await waiting
        assert (await caller.call("POST", PUBLISH, {"content": "x" * 1000})).status_code == 201


async def test_requests_under_way_are_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limiter_module, "HTTP_REQUESTS_OPEN_MAX", 1)
    async with calling(tmp_path) as caller:
        Provider(caller, "mute", lambda _: [])
        waiting = asyncio.create_task(caller.call("POST", "/api/services/mute/op", {}))
        await until(lambda: caller.gateway.broker.services.open == 1)
        await caller.refused(503, "busy", "GET", "/api/topics")
        for path in ("/healthz", "/readyz"):
            assert (await caller.call("GET", path, bearer=None)).status_code == 200, "these have their own budget"
        caller.http.cancel_waiting()
        await waiting
        assert (await caller.call("GET", "/api/topics")).status_code == 200


async def test_a_fault_of_our_own_is_a_500_that_tells_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with calling(tmp_path) as caller:

        def fail(*_: Any) -> None:
            raise ZeroDivisionError("a secret of the inside")

        monkeypatch.setattr(caller.gateway.broker, "publish", fail)
        assert "secret" not in await caller.refused(500, "internal", "POST", PUBLISH, {"content": "x"})
        assert "ZeroDivisionError" in caplog.text
        monkeypatch.undo()
        assert (await caller.call("POST", PUBLISH, {"content": "x"})).status_code == 201


async def test_a_client_that_goes_away_inside_its_body(tmp_path: Path) -> None:
    async with calling(tmp_path) as caller:
        _, writer = await asyncio.open_connection(HOST, caller.port("http"))
        head = f"POST {PUBLISH} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {caller.admin_token}\r\n"
        writer.write(f'{head}content-length: 100\r\n\r\n{{"content": '.encode())
        await until(lambda: caller.http.limiter.receiving == 1 and caller.http.limiter.bodies.used_bytes == 12)
        assert caller.http.limiter.open.running == 0, "what is not complete holds no slot"
        writer.close()
        await until(lambda: caller.http.limiter.receiving == 0 and caller.http.limiter.bodies.used_bytes == 0)
        assert not caller.records("frame", protocol="http")
        assert (await caller.call("POST", PUBLISH, {"content": "x"})).status_code == 201


async def test_many_at_once_are_all_kept(tmp_path: Path) -> None:
    async with calling(tmp_path) as caller:
        calls = [caller.call("POST", PUBLISH, {"content": str(number)}) for number in range(100)]
        ids = [response.json()["id"] for response in await asyncio.gather(*calls)]
        kept = {
            notification.id: notification.content for notification in caller.gateway.state.topics.read_after("@news", 0)
        }
        assert [kept[id_] for id_ in ids] == [str(number).encode() for number in range(100)]
        assert len(caller.records("frame", protocol="http")) == 200
        assert caller.gateway.log.blocks < 200, "one block for many"


def test_secrets_are_blanked_wherever_they_are_named() -> None:
    assert redact(b'{"name":"a","token":"t"}', ("token",)) == '{"name":"a","token":"…"}'.encode()
    assert redact(b"", ("token",)) == b""
    assert redact(b'{ "as": "sent" }', ()) == b'{ "as": "sent" }'


async def test_whole_numbers_may_be_written_with_a_fraction_of_zero(tmp_path: Path) -> None:
    """Accept 60.0 for an integer, as JSON Schema and clients generated from the description do."""
    async with calling(tmp_path) as caller:
        path = "/api/topics/%40a/notifications"
        assert (await caller.call("POST", path, {"content": 60.0, "type": 60.0})).status_code == 201
        (last,) = (await caller.call("GET", "/api/topics/%40a")).json()["last"]
        assert (last["type"], last["content"]) == (60, "60.0"), "the content is left as it came"
        for wrong in (60.5, "60", 256.0):
            await caller.refused(400, "bad_request", "POST", path, {"content": "x", "type": wrong})
