"""Check the limits below the application: peers that are slow, many, or do not speak HTTP."""

import asyncio
import contextlib
from pathlib import Path

import pytest

from gateway.http.calling import calling
from gateway.running_gateway import HOST, WAIT_S, until
from wirelake.gateway.http import connection as connection_module
from wirelake.limits import HTTP_HEAD_BYTES_MAX


async def cut_off(reader: asyncio.StreamReader) -> None:
    """Wait until the gateway closes the connection without a response."""
    async with asyncio.timeout(WAIT_S):
        with contextlib.suppress(ConnectionResetError):
            assert not await reader.read()


@pytest.mark.parametrize(
    "data", [b"\x00\x01\x06", b"nonsense\r\n\r\n", b"GET / HTTP/9\r\n\r\n", b"GET \xff HTTP/1.1\r\n\r\n"]
)
async def test_bytes_that_are_not_http(tmp_path: Path, data: bytes) -> None:
    async with calling(tmp_path) as caller:
        answer = await caller.raw(data)
        assert answer.startswith(b"HTTP/1.1 400")
        assert b'{"error":{"code":"bad_http"' in answer
        assert caller.gateway.counters.closed["http", "bad_http"] == 1
        assert (await caller.call("GET", "/healthz")).status_code == 200


async def test_a_head_without_end(tmp_path: Path) -> None:
    async with calling(tmp_path) as caller:
        answer = await caller.raw(b"GET / HTTP/1.1\r\n" + b"x: y\r\n" * (HTTP_HEAD_BYTES_MAX // 6 + 1))
        assert answer.startswith(b"HTTP/1.1 431")


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"GET /healthz HT",
        b"\r\n",
        b"POST /api/decode HTTP/1.1\r\ncontent-length: 9\r\nauthorization: Bearer TOKEN\r\n\r\n{",
    ],
)
async def test_a_request_that_never_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, data: bytes) -> None:
    monkeypatch.setattr(connection_module, "HTTP_REQUEST_S", 0.05)
    async with calling(tmp_path) as caller:
        reader, writer = await asyncio.open_connection(HOST, caller.port("http"))
        writer.write(data.replace(b"TOKEN", caller.admin_token.encode()))
        await cut_off(reader)
        writer.close()
        assert caller.gateway.counters.closed["http", "request_timeout"] == 1
        assert caller.gateway.admission.open == 0


async def test_line_breaks_between_requests_buy_no_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_module, "HTTP_REQUEST_S", 0.1)
    async with calling(tmp_path) as caller:
        reader, writer = await asyncio.open_connection(HOST, caller.port("http"))
        writer.write(b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n")
        await reader.readuntil(b'{"status":"ok"}')
        async with asyncio.timeout(WAIT_S):
            while not reader.at_eof() and not caller.gateway.counters.closed["http", "request_timeout"]:
                writer.write(b"\r\n")
                await asyncio.sleep(0.01)
        writer.close()


async def test_connections_are_counted_and_limited_with_all_others(tmp_path: Path) -> None:
    async with calling(tmp_path, limits={"connections": 2}) as caller:
        opened = [await asyncio.open_connection(HOST, caller.port("http")) for _ in range(2)]
        await until(lambda: caller.gateway.counters.connections["http"] == 2)
        refused, writer = await asyncio.open_connection(HOST, caller.port("http"))
        await cut_off(refused)
        writer.close()
        assert caller.gateway.counters.refused["http", "connections_max"] == 1
        for _, other in opened:
            other.close()
        await until(lambda: caller.gateway.admission.open == 0)
        assert caller.gateway.counters.connections["http"] == 0
        assert (await caller.call("GET", "/healthz")).status_code == 200


async def test_requests_one_behind_the_other_are_answered_in_turn(tmp_path: Path) -> None:
    async with calling(tmp_path) as caller:
        request = b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n"
        last = b"GET /nothing HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"
        answer = await caller.raw(request * 3 + last)
        assert answer.count(b"HTTP/1.1 200") == 3
        assert answer.count(b"HTTP/1.1 404") == 1
        assert answer.rfind(b"HTTP/1.1 200") < answer.find(b"HTTP/1.1 404")
