"""Serve all others while peers without a token use as much as they can get."""

import asyncio
import contextlib
import logging
import socket
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import uvloop

from gateway.http.calling import Calling, calling
from gateway.running_gateway import HOST, WAIT_S, until
from wirelake.gateway.http import connection as connection_module
from wirelake.gateway.http import limiter as limiter_module
from wirelake.gateway.http.limiter import HealthReserve
from wirelake.limits import (
    CONSOLE_FORM_BYTES_MAX,
    HTTP_HEALTH_CONNECTIONS_MAX,
    HTTP_HEALTH_CONNECTIONS_PER_ADDRESS_MAX,
)
from wirelake.state.tokens import new_token

LOGIN = b"POST /login HTTP/1.1\r\nhost: 127.0.0.1\r\nsec-fetch-site: same-origin\r\n"
UNFINISHED = LOGIN + b"content-length: 100\r\n\r\ntoken="


@asynccontextmanager
async def peers(caller: Calling, *requests: bytes) -> AsyncIterator[list[asyncio.StreamReader]]:
    """Open a connection for each request, send the request, and stay connected."""
    opened = [await asyncio.open_connection(HOST, caller.port("http")) for _ in requests]
    for (_, writer), data in zip(opened, requests, strict=True):
        writer.write(data)
    try:
        yield [reader for reader, _ in opened]
    finally:
        for _, writer in opened:
            writer.close()


async def served(caller: Calling, **how: str | None) -> list[int]:
    paths = ("/healthz", "/readyz", "/api/topics", "/metrics")
    return [(await caller.call("GET", path, **how)).status_code for path in paths]


async def test_a_thousand_unfinished_logins_keep_nobody_out(tmp_path: Path) -> None:
    async with calling(tmp_path) as caller:
        async with peers(caller, *[UNFINISHED] * 1100):
            await until(lambda: caller.http.limiter.unknown_bodies.used_bytes == 1100 * len(b"token="))
            assert caller.http.limiter.open.running == 0
            assert await served(caller) == [200] * 4
            made = (await caller.call("POST", "/api/identities", {"name": "ann"})).json()
            assert await served(caller, bearer=made["token"]) == [200] * 4
            assert (await caller.call("GET", "/login", bearer=None)).status_code == 200
        await until(lambda: caller.http.limiter.unknown_bodies.used_bytes == 0)


async def test_two_thousand_wrong_tokens_keep_nobody_out(tmp_path: Path) -> None:
    async with calling(tmp_path) as caller:
        made = (await caller.call("POST", "/api/identities", {"name": "ann"})).json()
        request = "GET /api/topics HTTP/1.1\r\nhost: 127.0.0.1\r\nauthorization: Bearer {}\r\n\r\n"
        guesses = [f"ann:guess {number}" if number % 2 else new_token() for number in range(2000)]
        async with peers(caller, *(request.format(guess).encode() for guess in guesses)) as bad:
            assert await served(caller) == [200] * 4
            assert await served(caller, bearer=f"ann:{made['token']}") == [200] * 4
            async with asyncio.timeout(WAIT_S):
                statuses = {(await reader.readline()).split()[1] for reader in bad}
        assert statuses <= {b"401", b"429"}


async def test_health_is_answered_when_no_more_connections_are_let_in(tmp_path: Path) -> None:
    async with calling(tmp_path, limits={"connections": 5}) as caller:
        async with peers(caller, *[b""] * (5 + 2 * HTTP_HEALTH_CONNECTIONS_MAX)) as silent:
            await until(lambda: caller.gateway.counters.refused["http", "connections_max"] >= len(silent) - 5)
            assert len(caller.http.limiter.reserve) == HTTP_HEALTH_CONNECTIONS_PER_ADDRESS_MAX
            for path in (b"/healthz", b"/readyz"):
                answer = await caller.raw(b"GET %s HTTP/1.1\r\nhost: x\r\n\r\n" % path)
                assert answer.startswith(b"HTTP/1.1 200"), answer
            token = caller.admin_token.encode()
            answer = await caller.raw(b"GET /api/topics HTTP/1.1\r\nauthorization: Bearer %s\r\n\r\n" % token)
            assert answer.startswith(b"HTTP/1.1 503")
            assert caller.gateway.admission.open == 5
        await until(lambda: not len(caller.http.limiter.reserve) and not caller.gateway.admission.open)
        assert (await caller.call("GET", "/api/topics")).status_code == 200


def test_one_address_does_not_take_the_whole_reserve() -> None:
    reserve = HealthReserve()
    ended: list[str] = []
    reserve.enter("probe", lambda: ended.append("probe"))
    for number in range(2 * HTTP_HEALTH_CONNECTIONS_MAX):
        reserve.enter(f"bad {number % 3}", lambda number=number: ended.append(f"{number}"))  # type: ignore[misc]
    for number in range(HTTP_HEALTH_CONNECTIONS_MAX // 2):
        reserve.enter(f"other {number}", lambda: ended.append("other"))
    assert len(reserve) == HTTP_HEALTH_CONNECTIONS_MAX
    assert "probe" not in ended
    assert "other" not in ended
    assert ended[:3] == ["0", "1", "2"], "the oldest of those that have the most"


async def test_a_login_form_is_cut_while_it_is_read(tmp_path: Path) -> None:
    async with calling(tmp_path) as caller:
        chunk = b"%x\r\n%s\r\n" % (1000, b"x" * 1000)
        reader, writer = await asyncio.open_connection(HOST, caller.port("http"))
        writer.write(LOGIN + b"transfer-encoding: chunked\r\n\r\n" + chunk * (CONSOLE_FORM_BYTES_MAX // 1000 + 1))
        async with asyncio.timeout(WAIT_S):
            assert (await reader.readline()).startswith(b"HTTP/1.1 413"), "long before the end, which never comes"
        writer.close()
        answer = await caller.raw(LOGIN + b"content-length: %d\r\n\r\n" % (CONSOLE_FORM_BYTES_MAX + 1))
        assert answer.startswith(b"HTTP/1.1 413"), "not one byte of it is waited for"
        await until(lambda: caller.http.limiter.unknown_bodies.used_bytes == 0)


async def test_bodies_of_unknown_senders_have_a_budget_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limiter_module, "HTTP_UNKNOWN_BODIES_PER_ADDRESS_BYTES_MAX", 5000)
    body = b"token=" + b"x" * 994
    async with calling(tmp_path) as caller:
        async with peers(caller, *[LOGIN + b"content-length: 2000\r\n\r\n" + body] * 5):
            await until(lambda: caller.http.limiter.unknown_bodies.used_bytes == 5000)
            answer = await caller.raw(LOGIN + b"content-length: 2000\r\n\r\n" + body)
            assert answer.startswith(b"HTTP/1.1 429")
            assert b"retry-after: 1" in answer
            published = await caller.call("POST", "/api/topics/%40a/notifications", {"content": "x" * 100_000})
            assert published.status_code == 201, "who is known has room"
        await until(lambda: caller.http.limiter.unknown_bodies.used_bytes == 0)
        assert caller.http.limiter.bodies.used_bytes == 0


async def test_a_body_is_counted_for_its_sender_once_it_is_known(tmp_path: Path) -> None:
    async with calling(tmp_path) as caller:
        await caller.add_identity("ann", "chosen", at_once=False)
        reader, writer = await asyncio.open_connection(HOST, caller.port("http"))
        head = "POST /api/topics/%40a/notifications HTTP/1.1\r\nhost: x\r\nauthorization: Bearer ann:chosen\r\n"
        writer.write(f'{head}content-length: 15\r\n\r\n{{"content":'.encode())
        await until(lambda: caller.http.limiter.bodies.used_bytes == len('{"content":'))
        assert caller.http.limiter.unknown_bodies.used_bytes == 0
        writer.write(b'"x"}')
        assert b"201" in await reader.readline()
        await until(lambda: caller.http.limiter.bodies.used_bytes == 0)
        writer.close()


async def test_unknown_senders_have_less_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_module, "HTTP_UNKNOWN_REQUEST_S", 0.1)
    async with calling(tmp_path) as caller:
        head = f"POST /api/decode HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {caller.admin_token}\r\n"
        reader, writer = await asyncio.open_connection(HOST, caller.port("http"))
        writer.write(f"{head}content-length: 2\r\n\r\n".encode())
        async with peers(caller, UNFINISHED) as (unknown,), asyncio.timeout(WAIT_S):
            with contextlib.suppress(ConnectionResetError):
                assert not await unknown.read()
        writer.write(b"{}")
        assert b"400" in await reader.readline(), "this one was waited for"
        writer.close()


@pytest.mark.parametrize("runner", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
def test_resets_leave_no_traceback(tmp_path: Path, runner: object, caplog: pytest.LogCaptureFixture) -> None:
    """Reset connections with several requests before the first response."""

    async def work() -> None:
        async with calling(tmp_path) as caller:
            publish = f"POST /api/topics/%40a/notifications HTTP/1.1\r\nauthorization: Bearer {caller.admin_token}\r\n"
            many = f'{publish}content-length: 15\r\n\r\n{{"content":"x"}}'.encode() * 5
            guess = b"GET /api/topics HTTP/1.1\r\nauthorization: Bearer a:b\r\n\r\n"
            for data in (many, UNFINISHED, guess, many + guess, b"GET / HTTP/1.1\r\n\r\n" * 20 + guess) * 10:
                peer = socket.create_connection((HOST, caller.port("http")))
                peer.sendall(data)
                await asyncio.sleep(0.001)
                peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                peer.close()
            await until(lambda: not caller.gateway.counters.connections["http"])
            await until(lambda: caller.http.limiter.receiving == 0 and caller.http.limiter.open.running == 0)

    runner(work())  # type: ignore[operator]
    assert [record.message for record in caplog.records if record.levelno >= logging.WARNING] == []


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.1:7080", "localhost:7080", "[::1]:7080", "gw.example:1", ""])
async def test_metrics_by_address_and_by_names_of_ours(tmp_path: Path, host: str) -> None:
    async with calling(tmp_path, http={"hosts": ["GW.example"]}) as caller:
        answer = await caller.call("GET", "/metrics", bearer=None, headers={"host": host})
        assert answer.status_code == 200


@pytest.mark.parametrize("host", ["evil.example", "evil.example:7080", "127.0.0.1.evil.example", "a b", "[::1"])
async def test_a_name_that_was_made_to_point_here_is_not_served_without_a_token(tmp_path: Path, host: str) -> None:
    async with calling(tmp_path, auth={"open": True}) as caller:
        named = {"host": host}
        assert "http.hosts" in await caller.refused(403, "forbidden", "GET", "/metrics", bearer=None, headers=named)
        assert "http.hosts" in await caller.refused(403, "forbidden", "GET", "/api/topics", bearer=None, headers=named)
        assert (await caller.call("GET", "/metrics", headers=named)).status_code == 200, "a token is enough"
