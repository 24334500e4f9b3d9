"""Fetching through a real gateway from real HTTP servers, well-behaved and not."""

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from gateway.certificates import make_certificate
from gateway.running_gateway import HOST, Running, running_gateway, until
from gateway.sisnet_client import IDENTITY, WebTerminal
from wirelake.config import FetchSection
from wirelake.errors import InputError

Serve = Callable[[bytes, bytes, asyncio.StreamWriter], Awaitable[None]]  # head, body, where to answer


def answer(body: bytes, kind: bytes = b"application/json") -> bytes:
    return b"HTTP/1.1 200 OK\r\nContent-Type: %s\r\nContent-Length: %d\r\n\r\n%s" % (kind, len(body), body)


class Site:
    """An HTTP server that keeps what it was asked."""

    def __init__(self, serve: Serve) -> None:
        self.asked: list[tuple[bytes, bytes]] = []
        self.hung_up = 0
        self.serve = serve

    async def connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            length = next((int(line[16:]) for line in head.split(b"\r\n") if line.startswith(b"Content-Length: ")), 0)
            body = await reader.readexactly(length)
            self.asked.append((head, body))
            await self.serve(head, body, writer)
            await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            self.hung_up += 1
        finally:
            writer.close()


@asynccontextmanager
async def site(serve: Serve, tls: ssl.SSLContext | None = None) -> AsyncIterator[tuple[Site, int]]:
    there = Site(serve)
    server = await asyncio.start_server(there.connected, HOST, 0, ssl=tls)
    async with server:
        yield there, server.sockets[0].getsockname()[1]


def saying(wire: bytes) -> Serve:
    async def serve(_head: bytes, _body: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(wire)

    return serve


@asynccontextmanager
async def fetching(folder: Path, **fetch: Any) -> AsyncIterator[tuple[Running, WebTerminal]]:
    async with (
        running_gateway(folder, "sisnet", identities=[IDENTITY], fetch=fetch) as running,
        await WebTerminal.connect(running.port("sisnet")) as terminal,
    ):
        yield running, terminal


async def fetch(terminal: WebTerminal, url: str, command: str = "", **ask: Any) -> dict[str, Any]:
    found: dict[str, Any] = await terminal.ask("f", fmt="http", service=url, command=command, ask=ask)
    return found


@pytest.mark.parametrize(
    ("wire", "expected"),
    [
        (answer(b'{"a": [1]}'), {"ans": 5, "msg": {"a": [1]}}),
        (answer(b"[1,2]"), {"ans": 3, "msg": [1, 2]}),
        (answer(b"[[1],[2]]"), {"ans": 4, "msg": [[1], [2]]}),
        (answer(b"7"), {"ans": 1, "msg": 7}),
        (answer(b'"x"'), {"ans": 2, "msg": "x"}),
        (answer(b'{"a":1}', b"text/plain"), {"ans": 5, "msg": {"a": 1}}),
        (answer(b"plain words", b"text/plain"), {"ans": 2, "msg": "plain words"}),
        (answer(b"{ no json", b"text/html"), {"ans": 2, "msg": "{ no json"}),
        (answer("浦发".encode("gbk"), b"text/plain; charset=gbk"), {"ans": 2, "msg": "浦发"}),
        (answer("浦发银行".encode("gbk"), b"text/plain"), {"ans": 2, "msg": "浦发银行"}),
        (answer('{"n":"浦发银行"}'.encode("gbk")), {"ans": 5, "msg": {"n": "浦发银行"}}),
        (answer(b"\x00\xff", b"application/octet-stream"), {"ans": 6, "msg": "AP8="}),
        (b"HTTP/1.1 204 No Content\r\n\r\n", {"ans": 0}),
        (
            b'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\n{"a\r\n4\r\n":1}\r\n0\r\n\r\n',
            {"ans": 5, "msg": {"a": 1}},
        ),
        (b"HTTP/1.1 100 Continue\r\n\r\n" + answer(b"[]"), {"ans": 3, "msg": []}),
        (b"HTTP/1.0 200 OK\r\n\r\nto the end", {"ans": 2, "msg": "to the end"}),
        (
            b"HTTP/1.1 404 Not Found\r\nContent-Length: 7\r\n\r\nno\r\nway",
            {"ans": -1, "msg": "HTTP 404: no way"},
        ),
        (b"HTTP/1.1 500 Oops\r\nContent-Length: 0\r\n\r\n", {"ans": -1, "msg": "HTTP 500"}),
        (b"HTTP/1.1 500 Oops\r\n\r\na\x1b[2J\x07", {"ans": -1, "msg": "HTTP 500: a?[2J?"}),
    ],
)
async def test_answers_become_sisnets(tmp_path: Path, wire: bytes, expected: dict[str, Any]) -> None:
    async with site(saying(wire)) as (there, port):
        url = f"http://{HOST}:{port}/v1/"
        async with fetching(tmp_path, allow=[url]) as (_, terminal):
            assert await fetch(terminal, url, "x", a=1) == expected
            assert there.asked[0][0].startswith(b"GET /v1/x?a=1 HTTP/1.1\r\nHost: %s:%d\r\n" % (HOST.encode(), port))


async def test_form_h_posts_and_headers(tmp_path: Path) -> None:
    async with site(saying(answer(b'{"ok":true}'))) as (there, port):
        url = f"http://{HOST}:{port}/"
        async with fetching(tmp_path, allow=[url]) as (_, terminal):
            asked = {"service": url, "command": "m", "ask": {"post": {"b": 2}, "headers": {"X-Key": "k"}}}
            await terminal.send(f"h:H{json.dumps(asked)}".encode())
            assert await terminal.receive_json("h") == {"ans": 5, "msg": {"ok": True}}
            head, body = there.asked[0]
            assert head.startswith(b"POST /m HTTP/1.1\r\n")
            assert b"\r\nX-Key: k\r\n" in head
            assert body == b'{"b":2}'
            await terminal.send(b"h:Hnonsense")
            assert (await terminal.receive_json("h"))["ans"] == -1


@pytest.mark.parametrize(
    ("allow", "url"),
    [
        ([], "http://{host}:{port}/"),
        (["http://{host}:{port}/v1/"], "http://{host}:{port}/"),
        (["http://{host}:{port}/v1/"], "http://{host}:{port}/v2/"),
        (["http://{host}:{port}/"], "http://localhost:{port}/"),
        (["http://{host}:{port}/"], "http://[::ffff:127.0.0.1]:{port}/"),
        (["http://{host}:1/"], "http://{host}:{port}/"),
        (["https://{host}:{port}/"], "http://{host}:{port}/"),
        (["http://{host}:{port}/"], "file:///etc/passwd"),
    ],
)
async def test_what_is_not_listed_is_not_fetched(tmp_path: Path, allow: list[str], url: str) -> None:
    async with site(saying(answer(b"{}"))) as (there, port):
        listed = [each.format(host=HOST, port=port) for each in allow]
        async with fetching(tmp_path, allow=listed) as (_, terminal):
            assert (await fetch(terminal, url.format(host=HOST, port=port)))["ans"] == -1
            assert there.asked == []


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1",
        "10.0.0.1",
        "169.254.169.254",
        "224.0.0.1",
        "0.0.0.0",  # noqa: S104
        "::1",
        "::ffff:127.0.0.1",
        "fe80::1",
        "fd00::1",
        "2002:7f00:1::",
        "64:ff9b::7f00:1",
    ],
)
async def test_a_listed_name_at_an_address_of_ones_own_is_not_fetched(tmp_path: Path, address: str) -> None:
    async with (
        site(saying(answer(b"{}"))) as (there, port),
        fetching(tmp_path, allow=[f"http://api.test:{port}/"]) as (running, terminal),
    ):

        async def resolve(_host: str, _port: int) -> list[str]:
            return [address]

        running.gateway.fetcher.resolve = resolve
        answered = await fetch(terminal, f"http://api.test:{port}/")
        assert answered == {"ans": -1, "msg": "api.test has an address that may not be fetched from"}
        assert there.asked == []


async def test_a_name_is_looked_up_once_and_that_address_is_called(tmp_path: Path) -> None:
    """A name that is at a fit address when it is looked at and elsewhere a moment later gains nothing."""
    looked_up: list[str] = []

    async def resolve(host: str, _port: int) -> list[str]:
        looked_up.append(host)
        return [HOST] if len(looked_up) == 1 else ["::1"]

    async with site(saying(answer(b"[]"))) as (there, port):
        allow = [f"http://api.test:{port}/", f"http://{HOST}:{port}/"]  # the address is written out beside it
        async with fetching(tmp_path, allow=allow) as (running, terminal):
            running.gateway.fetcher.resolve = resolve
            assert await fetch(terminal, f"http://api.test:{port}/") == {"ans": 3, "msg": []}
            assert looked_up == ["api.test"]
            assert b"\r\nHost: api.test:%d\r\n" % port in there.asked[0][0]
            assert (await fetch(terminal, f"http://api.test:{port}/"))["ans"] == -1
            assert len(there.asked) == 1


async def test_localhost_may_be_listed_by_name(tmp_path: Path) -> None:
    async with site(saying(answer(b"[]"))) as (_, port):
        url = f"http://localhost:{port}/"
        async with fetching(tmp_path, allow=[url]) as (_, terminal):
            assert await fetch(terminal, url) == {"ans": 3, "msg": []}


def redirecting(status: int, location: str) -> Serve:
    async def serve(head: bytes, _body: bytes, writer: asyncio.StreamWriter) -> None:
        if b"/start " in head:
            writer.write(f"HTTP/1.1 {status} Moved\r\nLocation: {location}\r\nContent-Length: 0\r\n\r\n".encode())
        else:
            writer.write(answer(b"[1]"))

    return serve


@pytest.mark.parametrize(
    ("status", "method"), [(301, b"GET"), (302, b"GET"), (303, b"GET"), (307, b"POST"), (308, b"POST")]
)
async def test_redirects_are_followed_where_they_are_allowed(tmp_path: Path, status: int, method: bytes) -> None:
    async with site(redirecting(status, "/end?x=1")) as (there, port):
        url = f"http://{HOST}:{port}/"
        async with fetching(tmp_path, allow=[url]) as (_, terminal):
            assert await fetch(terminal, url, "start", post={"a": 1}) == {"ans": 3, "msg": [1]}
            assert there.asked[1][0].startswith(method + b" /end?x=1 HTTP/1.1\r\n")
            assert there.asked[1][1] == (b'{"a":1}' if method == b"POST" else b"")


@pytest.mark.parametrize(
    "location",
    [
        "http://169.254.169.254/latest/meta-data/",
        "http://[::1]/",
        "http://10.0.0.1/",
        "/private/x",
        "/open/../private",
        "file:///etc/passwd",
        "//other.test/open/",
        "https://{host}:{port}/open/x",
        "http://user@{host}:{port}/open/x",
        "/open/start",  # round and round
    ],
)
async def test_redirects_elsewhere_are_not_followed(tmp_path: Path, location: str) -> None:
    async with site(saying(b"")) as (there, port):
        url = f"http://{HOST}:{port}/open/"
        there.serve = redirecting(302, location.format(host=HOST, port=port))
        async with fetching(tmp_path, allow=[url], redirects_max=2) as (_, terminal):
            answered = await fetch(terminal, url, "start")
            assert answered["ans"] == -1, answered
            assert all(b" /open/start" in head for head, _ in there.asked)
            assert len(there.asked) <= 3


async def _endless(_head: bytes, _body: bytes, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
    while True:
        writer.write(bytes(65536))
        await writer.drain()


async def _endless_head(_head: bytes, _body: bytes, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\n")
    while True:
        writer.write(b"X-More: " + b"x" * 1000 + b"\r\n")
        await writer.drain()


async def _silent(_head: bytes, _body: bytes, _writer: asyncio.StreamWriter) -> None:
    await asyncio.sleep(60)


async def _dripping(_head: bytes, _body: bytes, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
    while True:
        writer.write(b"x")
        await writer.drain()
        await asyncio.sleep(0.05)


@pytest.mark.parametrize(
    ("serve", "why"),
    [
        (_endless, "the response exceeds 100000 bytes"),
        (_endless_head, "the response's headers exceed 65536 bytes"),
        (_silent, "no complete response within 0.5 s"),
        (_dripping, "no complete response within 0.5 s"),
        (saying(b"HTTP/1.1 200 OK\r\nContent-Length: 100001\r\n\r\n"), "the response exceeds 100000 bytes"),
        (saying(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nabc"), "the response ended early"),
        (saying(b"HTTP/1.1 200 OK\r\nContent-Le"), "the response ended early"),
        (saying(b""), "the response ended early"),
        (saying(b"SSH-2.0-OpenSSH\r\n"), "the response is not HTTP: "),
        (
            saying(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
            "the response is not HTTP: ",
        ),
        (saying(b"HTTP/1.1 101 Switching\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n"), "the response is not HTTP: "),
        (
            saying(b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 3\r\n\r\n\x1f\x8b\x08"),
            "the response is compressed, which was not requested",
        ),
    ],
)
async def test_servers_that_misbehave(tmp_path: Path, serve: Serve, why: str) -> None:
    async with site(serve) as (_, port):
        url = f"http://{HOST}:{port}/"
        async with fetching(tmp_path, allow=[url], bytes_max=100_000, timeout_s=0.5) as (_, terminal):
            answered = await fetch(terminal, url)
            assert answered["ans"] == -1
            assert answered["msg"].startswith(why)
            assert await terminal.ask("p", command="ping") == {"ans": 0}


async def test_the_list_changes_with_a_reload_or_not_at_all(tmp_path: Path) -> None:
    async with (
        site(saying(answer(b"[]"))) as (_, port),
        fetching(tmp_path) as (running, terminal),
    ):
        gateway, url = running.gateway, f"http://{HOST}:{port}/"
        assert (await fetch(terminal, url))["ans"] == -1
        for bad in (FetchSection(allow=(url, "nonsense")), FetchSection(allow=(url,), ca="/nowhere")):
            with pytest.raises(InputError, match="fetch"):
                gateway.reload(replace(gateway.settings, fetch=bad))
        assert (await fetch(terminal, url))["ans"] == -1
        gateway.reload(replace(gateway.settings, fetch=FetchSection(allow=(url,))))
        assert await fetch(terminal, url) == {"ans": 3, "msg": []}


async def test_nobody_there(tmp_path: Path) -> None:
    async with site(saying(b"")) as (_, port):
        pass
    url = f"http://{HOST}:{port}/"
    async with fetching(tmp_path, allow=[url]) as (_, terminal):
        answered = await fetch(terminal, url)
        assert answered["ans"] == -1
        assert answered["msg"].startswith(HOST)


async def test_a_name_that_cannot_be_looked_up(tmp_path: Path) -> None:
    url = f"http://{'x' * 64}.test/"
    async with fetching(tmp_path, allow=[url]) as (_, terminal):
        assert (await fetch(terminal, url))["ans"] == -1


async def test_so_many_at_once_and_no_more(tmp_path: Path) -> None:
    most = under_way = 0
    go_on = asyncio.Event()

    async def serve(_head: bytes, _body: bytes, writer: asyncio.StreamWriter) -> None:
        nonlocal most, under_way
        under_way += 1
        most = max(most, under_way)
        await go_on.wait()
        under_way -= 1
        writer.write(answer(b"[]"))

    async with site(serve) as (_, port):
        url = f"http://{HOST}:{port}/"
        async with fetching(tmp_path, allow=[url], open_max=3) as (_, terminal):
            for _ in range(10):
                await terminal.send_json("f", fmt="http", service=url, command="")
            await until(lambda: under_way == 3)
            go_on.set()
            assert [await terminal.receive_json("f") for _ in range(10)] == [{"ans": 3, "msg": []}] * 10
            assert most == 3


async def test_tls_needs_a_certificate_for_the_name(tmp_path: Path) -> None:
    cert, key = make_certificate(tmp_path, "api.test")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(cert, key)

    async def resolve(_host: str, _port: int) -> list[str]:
        return [HOST]

    async with site(saying(answer(b"[]")), context) as (there, port):
        allow = [f"https://api.test:{port}/", f"https://other.test:{port}/", f"https://{HOST}:{port}/"]
        async with fetching(tmp_path / "trusting", allow=allow, ca=str(cert)) as (running, terminal):
            running.gateway.fetcher.resolve = resolve
            assert await fetch(terminal, allow[0]) == {"ans": 3, "msg": []}
            for url in allow[1:]:
                refused = await fetch(terminal, url)
                assert refused["ans"] == -1
                assert "certificate" in refused["msg"]
        async with fetching(tmp_path / "wary", allow=allow) as (running, terminal):
            running.gateway.fetcher.resolve = resolve
            assert "certificate" in (await fetch(terminal, allow[0]))["msg"]
        assert len(there.asked) == 1
