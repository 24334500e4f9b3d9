"""Run the JavaScript client in a browser against a real gateway."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from browsing import Browser
from playwright.async_api import Page
from websockets.asyncio.server import ServerConnection, serve

from gateway.running_gateway import HOST, WAIT_S, Running, running_gateway, until
from wirelake.backoff import Backoff
from wirelake.broker.peer import Peer
from wirelake.clients.client import ClientOptions
from wirelake.clients.serving import AnswerPackets, ServiceError, ServiceRequest
from wirelake.clients.sisnet import SisnetClient
from wirelake.errors import AnswerError
from wirelake.message import Failure, Kind, Message, Operation

DESK = ("desk", "secret")
SERVER = ("server", "secret")
LISTENERS = ("http", "sisnet", "sisnet_tcp")
# Messages of Chromium itself when the gateway does not respond or is stopping.
LOST = ("WebSocket connection to", "net::ERR_", "503 (Service Unavailable)")

SCRIPT = """
  import * as sisnet from "/client.js";
  window.sisnet = sisnet;
  window.heard = [];
  window.lost = 0;
  window.start = async (user, token, more) => {
    const client = (window.client = new sisnet.SisnetClient(
      { user, token, backoffFirstMs: 20, backoffMaxMs: 100, ...more }));
    client.addEventListener("lost", () => { window.lost += 1; });
    await client.open();
  };
  window.failure = (work) => work().then(() => null, (error) => `${error.code}: ${error.message}`);
"""


@asynccontextmanager
async def gateway(folder: Path, **options: Any) -> AsyncIterator[Running]:
    async with running_gateway(folder, *LISTENERS, identities=[DESK, SERVER], **options) as running:
        yield running


def back(folder: Path, ports: dict[str, int]) -> AbstractAsyncContextManager[Running]:
    """Run the same gateway again, with the listener of browsers still closed."""
    return running_gateway(folder, "http", "sisnet_tcp", ports=ports)


def server(running: Running) -> SisnetClient:
    url = f"tcp://{HOST}:{running.port('sisnet_tcp')}"
    return SisnetClient(url, *SERVER, options=ClientOptions(backoff=Backoff(first_s=0.01, max_s=0.05)))


async def visit(page: Page, running: Running, host: str = HOST) -> None:
    """Open a page of the gateway itself: browsers let no other page connect to this machine."""
    await page.route("**/favicon.ico", lambda route: route.fulfill(status=204))  # requested by every page
    await page.goto(f"http://{host}:{running.port('http')}/healthz")
    await page.add_script_tag(content=SCRIPT, type="module")
    await page.wait_for_function("!!window.failure")


async def enter(page: Page, running: Running, more: str = "{}") -> None:
    await visit(page, running)
    await page.evaluate(f"start('desk', 'secret', {more})")


@asynccontextmanager
async def entered(page: Page, running: Running, more: str = "{}") -> AsyncIterator[None]:
    """Close the client before the gateway, which it would try to reach."""
    await enter(page, running, more)
    yield
    await page.evaluate("client.close()")


def test_publish_and_be_told(browser: Browser, tmp_path: Path) -> None:
    async def story(page: Page) -> None:
        async with gateway(tmp_path) as running, server(running) as other, entered(page, running):
            await page.evaluate("client.subscribe('@news', (n) => heard.push(n))")
            await page.evaluate("client.subscribe('live', (n) => heard.push(n))")
            await other.subscribe("@news")
            published = await page.evaluate("client.publish('@news', 'grüß Gott', {type: 7})")
            notification = await other.next_notification(WAIT_S)
            assert (notification.id, notification.text, notification.type) == (published, "grüß Gott", 7)
            await page.wait_for_function("heard.length == 1")
            heard = await page.evaluate("heard[0]")
            assert (heard["topic"], heard["id"], heard["content"], heard["type"]) == (
                "@news",
                published,
                "grüß Gott",
                7,
            )
            assert heard["ts"] == notification.at_ms
            await other.publish("live", b"\x00\xff")
            await page.wait_for_function("heard.length == 2")
            assert await page.evaluate("[...heard[1].content]") == [0, 255]
            await page.evaluate("client.publish('@news', new Uint8Array([255, 0, 1]))")
            assert (await other.next_notification(WAIT_S)).content == b"\xff\x00\x01"
            await page.wait_for_function("heard.length == 3")
            await page.evaluate("client.unsubscribe('live')")
            await other.publish("live", "unheard")
            await other.publish("@news", "heard")
            await page.wait_for_function("heard.length == 4")
            assert await page.evaluate("heard[3].content") == "heard"

    browser.run(story)


def test_ask_a_service_of_another_protocol(browser: Browser, tmp_path: Path) -> None:
    async def answer(request: ServiceRequest) -> Any:
        match request.op:
            case "refuse":
                raise ServiceError("not today")
            case "packets":
                return AnswerPackets([[[1, 2]], [[3, 4]]])
            case "parts":
                return AnswerPackets([b"a", b"b"])
        return request.value

    async def story(page: Page) -> None:
        async with gateway(tmp_path) as running, server(running) as other, entered(page, running):
            await other.register("echo", answer)
            for value in (None, 7, 1.5, True, "text", [1, "a"], [[1], [2]], {"a": {"b": [None]}}, {}):
                found = await page.evaluate("(value) => client.ask('echo', 'say', value)", value)
                assert found == (value or None), value
            assert await page.evaluate("client.ask('echo', 'say', new Uint8Array([0, 255])).then((b) => [...b])") == [
                0,
                255,
            ]
            assert await page.evaluate("client.ask('echo', 'packets')") == [[1, 2], [3, 4]]
            assert await page.evaluate("client.ask('echo', 'parts').then((b) => [...b])") == [97, 98]
            assert await page.evaluate("failure(() => client.ask('echo', 'refuse'))") == "-1: not today"
            missing = await page.evaluate("failure(() => client.ask('nobody', 'op'))")
            assert missing.startswith("-1: Address[20=op,30=nobody] not found")
            await page.evaluate("client.ping()")

    browser.run(story)


def test_a_page_provides_a_service(browser: Browser, tmp_path: Path) -> None:
    async def story(page: Page) -> None:
        async with gateway(tmp_path) as running, server(running) as other, entered(page, running):
            await page.evaluate("client.subscribe('@a', () => {})")
            await page.evaluate(
                """client.register("page", async ({ op, value }) => {
                  if (op === "fail") throw new Error("not on this page");
                  if (op === "packets") return new sisnet.Packets([["a"], ["b"]]);
                  return value instanceof Uint8Array ? value.reverse() : value;
                })"""
            )
            for value in (None, 7, 1.5, "text", [1, "a"], [[1], [2]], {"a": [None, True]}):
                assert await other.ask("page", "echo", value) == value
            assert await other.ask("page", "echo", b"\x01\x02") == b"\x02\x01"
            assert await other.ask("page", "packets") == ["a", "b"]
            with pytest.raises(AnswerError, match="not on this page"):
                await other.ask("page", "fail")
            await page.evaluate("client.unregister('page')")
            await until(lambda: "page" not in running.gateway.broker.services.names())

    browser.run(story)


class Records:
    """Provide a data set that pushes to the latest subscriber."""

    def __init__(self, running: Running, *, broken: bool = False) -> None:
        self.peer: Peer | None = None
        self.correlation = ""
        self.called_off = asyncio.Event()
        self._broken = broken
        self._gateway = running.gateway
        running.gateway.broker.register_builtin("sisdb", self.serve)

    def serve(self, peer: Peer, message: Message, _now_s: float) -> None:
        assert isinstance(message.target, Operation)
        failure = Failure("no such table") if self._broken else None
        peer.send(Message(kind=Kind.RESPONSE, correlation=message.correlation, failure=failure))
        if message.target.op == "unsub":
            self.called_off.set()
        elif failure is None:
            self.peer, self.correlation = peer, message.correlation
            self.push([[0]])

    def push(self, rows: list[Any]) -> None:
        assert self.peer is not None
        self.peer.send(Message(kind=Kind.NOTIFICATION, correlation=self.correlation, fields={"msg": rows}))
        self._gateway.flush_soon()


def test_records_as_they_come_and_a_gateway_that_comes_back(browser: Browser, tmp_path: Path) -> None:
    async def story(page: Page) -> None:
        async with gateway(tmp_path) as running:
            ports = {name: running.port(name) for name in LISTENERS}
            records = Records(running)
            await enter(page, running)
            await page.evaluate(
                """(async () => {
                  await client.subscribe("@news", (n) => heard.push(n.content));
                  await client.register("page", () => "here");
                  window.leave = await client.sub("k", "t", (rows) => heard.push(rows));
                })()"""
            )
            records.push([[1]])
            await page.wait_for_function("heard.length == 2")
            assert await page.evaluate("heard.splice(0)") == [[[0]], [[1]]]
            assert await page.evaluate("[client.connected, client.connections]") == [True, 1]
        await page.wait_for_function("lost > 1")
        assert await page.evaluate("client.connected") is False
        await page.evaluate("window.asked = client.ask('echo', 'say', 'waited'); null")
        async with back(tmp_path, ports) as running, server(running) as other:

            async def echo(request: ServiceRequest) -> Any:
                return request.value

            await other.register("echo", echo)
            await running.publish("@news", "missed")
            records = Records(running)
            await running.open_listener("sisnet", ports["sisnet"])
            await page.wait_for_function("client.connected")
            assert await page.evaluate("client.connections") == 2
            assert await page.evaluate("asked") == "waited"
            assert await other.ask("page", "where") == "here"
            await page.wait_for_function("heard.length == 2")
            assert sorted(await page.evaluate("heard.splice(0)"), key=str) == [[[0]], "missed"]
            records.push([[2]])
            await page.wait_for_function("heard.length == 1")
            await page.evaluate("leave()")
            await asyncio.wait_for(records.called_off.wait(), WAIT_S)
            await page.evaluate("client.close()")
            assert (await page.evaluate("failure(() => client.ping())")).startswith("closed: ")

    browser.run(story, forgiving=LOST)


def test_quotes_of_the_gateways_own_data_set(browser: Browser, tmp_path: Path) -> None:
    table = {"key": "sh600000", "sdb": "price"}

    async def story(page: Page) -> None:
        async with gateway(tmp_path) as running, server(running) as other, entered(page, running):
            fields = [["time", "U", 8, 1], ["newp", "F", 8, 1]]
            await page.evaluate("(ask) => client.ask('sisdb', 'create', ask)", {**table, "fields": fields})
            await page.evaluate("client.sub('sh600000', 'price', (rows) => heard.push(rows))")
            for time, price in ((1, 10.5), (2, 10.75)):
                await other.ask("sisdb", "set", {**table, "data": [[time, price]]})
            await page.wait_for_function("heard.length == 2")
            assert await page.evaluate("heard") == [[[1, 10.5]], [[2, 10.75]]]
            assert await page.evaluate("(ask) => client.ask('sisdb', 'get', ask)", table) == [[1, 10.5], [2, 10.75]]

    browser.run(story)


def test_a_feed_that_cannot_be_had_again_says_so(browser: Browser, tmp_path: Path) -> None:
    async def story(page: Page) -> None:
        async with gateway(tmp_path) as running:
            ports = {name: running.port(name) for name in LISTENERS}
            Records(running)
            await enter(page, running)
            await page.evaluate("client.sub('k', 't', () => {}, {onEnd: (error) => heard.push(error.message)})")
        async with back(tmp_path, ports) as running:
            Records(running, broken=True)
            await running.open_listener("sisnet", ports["sisnet"])
            await page.wait_for_function("heard.length == 1")
            assert await page.evaluate("client.ping().then(() => heard[0])") == "no such table"

    browser.run(story, forgiving=LOST)


def test_hundreds_of_topics_are_subscribed_to_again(browser: Browser, tmp_path: Path) -> None:
    """Send more requests than may be open at once."""

    async def story(page: Page) -> None:
        async with gateway(tmp_path) as running, entered(page, running):
            await page.evaluate(
                """(async () => {
                  for (let number = 0; number < 300; number += 1) {
                    await client.subscribe(`live/${number}`, (n) => heard.push(n.topic));
                  }
                })()"""
            )
            (connection,) = running.gateway.connections.values()
            connection.abort()
            await page.wait_for_function("client.connections == 2")
            for number in (0, 299):
                await running.publish(f"live/{number}", "x")
            await page.wait_for_function("heard.length == 2")
            assert await page.evaluate("heard") == ["live/0", "live/299"]

    browser.run(story)


def test_a_url_that_is_none_ends_it(browser: Browser, tmp_path: Path) -> None:
    async def story(page: Page) -> None:
        async with gateway(tmp_path) as running:
            await visit(page, running)
            found = await page.evaluate("failure(() => start('desk', 'secret', {url: 'ftp://nowhere'}))")
            assert found.startswith("refused: SyntaxError")

    browser.run(story)


def test_a_wrong_token_ends_it(browser: Browser, tmp_path: Path) -> None:
    async def story(page: Page) -> None:
        async with gateway(tmp_path) as running:
            await visit(page, running)
            found = await page.evaluate("failure(() => start('desk', 'wrong'))")
            assert found == "refused: invalid token"
            assert (await page.evaluate("failure(() => client.ping())")).startswith("refused: ")
            assert running.gateway.counters.logins["sisnet", "wrong_token"] == 1

    browser.run(story)


def test_no_answer_in_time(browser: Browser, tmp_path: Path) -> None:
    async def never(_: ServiceRequest) -> Any:
        await asyncio.Event().wait()

    async def story(page: Page) -> None:
        async with gateway(tmp_path) as running, server(running) as other, entered(page, running, "{answerMs: 50}"):
            await other.register("never", never)
            assert (await page.evaluate("failure(() => client.ask('never', 'op'))")).startswith("late: ")

    browser.run(story)


def test_pings_go_out_by_themselves(browser: Browser, tmp_path: Path) -> None:
    async def story(page: Page) -> None:
        async with gateway(tmp_path) as running, entered(page, running, "{pingMs: 100}"):
            frames = await running.recorded("frame", 5, protocol="sisnet", direction="in")
            assert any(b'"ping"' in row["frame"] for row in frames)

    browser.run(story)


def test_who_says_nothing_is_called_anew(browser: Browser, tmp_path: Path) -> None:
    calls = []

    async def silent(socket: ServerConnection) -> None:
        calls.append(socket)
        await socket.wait_closed()

    async def story(page: Page) -> None:
        async with gateway(tmp_path) as running, serve(silent, HOST, 0) as server:
            await visit(page, running)
            (listening,) = server.sockets
            url = f"ws://{HOST}:{listening.getsockname()[1]}"
            await page.evaluate(f"void start('desk', 'secret', {{url: '{url}', pingMs: 50}}).catch(() => {{}})")
            await page.wait_for_function("lost > 1")
            assert await page.evaluate("client.trouble") == "no data received"
            assert len(calls) > 1
            await page.evaluate("client.close()")

    browser.run(story, forgiving=LOST)  # the abandoned call may not have a response yet


def test_a_page_of_another_site_may_not_connect(browser: Browser, tmp_path: Path) -> None:
    """Let a page of another site load the client, but nothing else."""

    async def story(page: Page) -> None:
        async with gateway(tmp_path) as running:
            await visit(page, running, "localhost")
            url = f"ws://{HOST}:{running.port('sisnet')}"
            await page.evaluate(f"void start('desk', 'secret', {{url: '{url}'}}).catch(() => {{}})")
            await page.wait_for_function("lost > 0")
            assert running.gateway.counters.logins["sisnet", "accepted"] == 0
            await page.evaluate("client.close()")

    browser.run(story, forgiving=LOST)


def test_a_listener_that_throws_keeps_nobody_from_hearing(browser: Browser, tmp_path: Path) -> None:
    async def story(page: Page) -> None:
        async with gateway(tmp_path) as running, entered(page, running):
            await page.evaluate("client.subscribe('@a', () => { throw new Error('on purpose'); })")
            await page.evaluate("client.subscribe('@a', (n) => heard.push(n.content))")
            await running.publish("@a", "both")
            await page.wait_for_function("heard.length == 1")

    browser.run(story, forgiving=["on purpose"])
