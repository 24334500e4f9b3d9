"""The bytes that go to an upstream and come back, with a server that answers from a script."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from websockets.asyncio.server import ServerConnection, serve

from gateway.running_gateway import HOST, Running, running_gateway
from gateway.sisnet_client import IDENTITY, Terminal, WebTerminal
from gateway.upstream.gateway_pair import GATEWAY, two_gateways, upstream, wait_until_connected

Script = Callable[[bytes], bytes]  # a request without its first name → the answer without that name
BEHIND = b"\r\n--\r\n"  # between answers to the same request
B_ANSWER = bytes.fromhex("363a6e313a42460136030102ff")


class AuthorsServer:
    """Serve as the authors' server does: read the first name, and answer behind it."""

    def __init__(self, script: Script) -> None:
        self.received: list[bytes] = []
        self.closed = 0
        self._script = script

    async def serve(self, socket: ServerConnection) -> None:
        async for message in socket:
            data = message.encode() if isinstance(message, str) else message
            name, _, rest = data.partition(b":")
            if b'"login"' in rest:
                await socket.send((name + b':{"ans":0}').decode())
                continue
            self.received.append(data)
            for answer in self._script(rest).split(BEHIND):
                await socket.send(name + b":" + answer)
        self.closed += 1


@asynccontextmanager
async def relaying(folder: Path, script: Script, *listeners: str) -> AsyncIterator[tuple[Running, AuthorsServer]]:
    authors = AuthorsServer(script)
    async with serve(authors.serve, HOST, 0) as server:
        port = next(iter(server.sockets)).getsockname()[1]
        settings = {"upstreams": [upstream(port, services=["quotes", "sisdb"])]}
        async with running_gateway(folder, "sisnet", *listeners, identities=[IDENTITY], sisnet=settings) as front:
            await wait_until_connected(front)
            yield front, authors


async def test_a_binary_answer_behind_two_names_reaches_its_asker(tmp_path: Path) -> None:
    def script(rest: bytes) -> bytes:
        name, _, request = rest.partition(b":")
        return name + (B_ANSWER[4:] if b"bytes" in request else b':{"ans":0}')

    async with (
        relaying(tmp_path, script) as (front, authors),
        await WebTerminal.connect(front.port("sisnet")) as terminal,
        await WebTerminal.connect(front.port("sisnet")) as other,
    ):
        for number in range(5):
            assert await terminal.ask("n1", service="quotes", command="x", ask=number) == {"ans": 0}
        requested = '{"service":"quotes","command":"get","ask":{},"fmt":"bytes"}'
        await terminal.send(f"n1:{requested}")
        assert await terminal.receive() == b"n1:" + B_ANSWER[5:]
        assert authors.received[5] == f"6:n1:{requested}".encode(), "the bytes of the answer are those of a real one"
        await other.send('n2:{"service":"quotes","command":"get","ask":{"as":"bytes"}}')
        assert await other.receive() == 'n2:{"ans":6,"msg":"AQL/"}', "where JSON was asked for"
        assert authors.closed == 0


@pytest.mark.parametrize(
    ("sent", "answer", "back"),
    [
        (b'c:{"service":"quotes","command":"get","ask":{}}', b'c:{"ans":5,"msg":{}}', b'c:{"ans":5,"msg":{}}'),
        (
            b'c:{ "cmd" : "quotes.get", "key":"sh600601", "argv":[11,"s",{"min":1.50}] }',
            b"c:[[1,2.50]]",
            b"c:[[1,2.5]]",
        ),
        (
            b'c:{"service":"quotes","cmd":"get","ask":"\\u6d66"}',
            b'c:{"ans":1,"msg":10}',
            b'c:{"ans":1,"msg":10}',
        ),
        (
            b'c:{"x":1e2,"service":"quotes","command":"get","ask":{"b":1,"a":[ ]},"x":2}',
            b'c:{"msg":[ [1.10, 2] ],"ans":4}',
            b'c:{"msg":[ [1.10, 2] ],"ans":4}',
        ),
        (b':{"service":"quotes","command":"get"}', b':{"ans":0}', b':{"ans":0}'),
        (b"c:B\x0e\x03get\x06quotes\x02{}", b"c:B\x46\x010\x00", b"c:B\x46\x010\x00"),
        (b"c:B\x0e\x03get\x06quotes\x02{}", b'c:{"ans":1,"msg":7}', b"c:B\x46\x011\x017"),
        (b'a:c:{"service":"quotes","command":"get"}', b'a:c:{"ans":0}', b'a:c:{"ans":0}'),
        (
            b'c:{"service":"quotes","command":"get","lnk":"x"}',
            b'c:{"ans":0,"lnk":"x"}',
            b'c:{"ans":0,"lnk":"x"}',
        ),
    ],
)
async def test_requests_go_on_behind_the_added_name(tmp_path: Path, sent: bytes, answer: bytes, back: bytes) -> None:
    async with (
        relaying(tmp_path, lambda _rest: answer, "sisnet_tcp") as (front, authors),
        await Terminal.connect(front, *IDENTITY) as terminal,
    ):
        terminal.send(sent)
        assert await terminal.receive() == back
        assert authors.received == [b"1:" + sent]


async def test_requests_in_both_dialects_share_one_and_each_is_answered_in_its_own(tmp_path: Path) -> None:
    newer = '{"service":"quotes","command":"hold","ask":{"key":"a"}, "lnk":"l"}'
    older = '{"cmd":"quotes.hold","argv":{"key":"a"}}'
    async with (
        two_gateways(tmp_path) as (front, back, quotes),
        await WebTerminal.connect(front.port("sisnet")) as first,
        await WebTerminal.connect(front.port("sisnet")) as second,
    ):
        await first.send(f"f:{newer}")
        await quotes.wait_for("hold", 1)
        await second.send(f"s:{older}")
        await second.send('t:{"service":"quotes","cmd":"hold","ask":{"key":"a"}}')
        assert await second.ask("p", command="ping") == {"ans": 0}
        quotes.answer(price=7)
        assert await first.receive() == 'f:{"ans":5,"msg":{"price":7},"lnk":"l"}'
        assert {await second.receive(), await second.receive()} == {
            's:{"price":7}',
            't:{"ans":5,"msg":{"price":7}}',
        }
        assert len(quotes.requests) == 1
        (requested,) = await back.recorded("frame", 1, direction="in", identity=GATEWAY[0])
        assert requested["frame"] == f"1:f:{newer}".encode()


async def test_an_older_sub_goes_on_as_it_came_and_pushes_come_back(tmp_path: Path) -> None:
    sub = '{"cmd":"quotes.sub","key":"k","sdb":"s","argv":{}}'
    async with (
        two_gateways(tmp_path) as (front, back, quotes),
        await WebTerminal.connect(front.port("sisnet")) as terminal,
    ):
        await terminal.send(f"s:{sub}")
        assert await terminal.receive() == 's:{"ans":0}'
        quotes.push(1, 2)
        assert await terminal.receive() == "s:[[1,2]]"
        await terminal.send('u:{"cmd":"quotes.unsub","key":"k","sdb":"s"}')
        assert await terminal.receive() == 'u:{"ans":0}'
        await quotes.wait_for("unsub", 1)
        requested = await back.recorded("frame", 2, direction="in", identity=GATEWAY[0])
        assert [row["frame"] for row in requested] == [
            f"1:s:{sub}".encode(),
            b'2:{"service":"quotes","command":"unsub","ask":{"key":"k","sdb":"s"}}',
        ]


async def test_a_data_line_is_pushed_behind_two_names_or_one(tmp_path: Path) -> None:
    pushed = BEHIND.join([b's:{"ans":0}', b"s:set:k:gt:\x01\x02", b"set:k:gt:\x03"])
    async with (
        relaying(tmp_path, lambda _rest: pushed) as (front, _),
        await WebTerminal.connect(front.port("sisnet")) as terminal,
    ):
        requested = {"service": "quotes", "command": "sub", "ask": {"key": "k", "sdb": "gt"}}
        assert await terminal.ask("s", **requested) == {"ans": 0}
        for packed in ("AQI=", "Aw=="):
            assert await terminal.receive_json("s") == {"ans": 5, "msg": {"key": "k", "sdb": "gt", "payload": packed}}


async def test_packed_records_go_on_as_they_are_once_the_upstream_knows_their_layout(tmp_path: Path) -> None:
    record = (1).to_bytes(8, "little") + bytes.fromhex("c6d6b7a2d2f8d0d0")
    layout = b'{"gt":{"fields":[["time","I",8,1],["nm","C",8,1]]}}'
    async with running_gateway(tmp_path / "back", "sisnet_tcp", identities=[GATEWAY, IDENTITY]) as back:
        settings = {"upstreams": [upstream(back.port("sisnet_tcp"), "tcp", services=["sisdb"])]}
        async with (
            running_gateway(tmp_path / "front", "sisnet_tcp", identities=[IDENTITY], sisnet=settings) as front,
            await Terminal.connect(front, *IDENTITY) as terminal,
            await Terminal.connect(back, *IDENTITY) as provider,
        ):
            await wait_until_connected(front)
            terminal.send(b'2:{"cmd":"dict","argv":{"gt":{"fields":[["time","I",8],["nm","C",8]]}}}')
            await terminal.receive()
            for name in (b"3", b"4"):
                terminal.send(name + b":set:k:gt:" + record)
                assert await terminal.receive() == name + b':{"ans":0}'
            got = {"service": "sisdb", "command": "get", "ask": {"key": "k", "sdb": "gt", "format": "bytes"}}
            provider.send_json("g", **got, fmt="bytes")
            packed = await provider.receive()
            if b'"dict"' in packed:  # the layout comes before the first packed records
                provider.send(packed.partition(b":")[0] + b':{"ans":0}')
                packed = await provider.receive()
            assert packed.endswith(record + record)
            requested = await back.recorded("frame", 3, direction="in", identity=GATEWAY[0])
            assert [row["frame"] for row in requested] == [
                b':{"command":"dict","ask":' + layout + b"}",
                b"1:set:k:gt:" + record,
                b"2:set:k:gt:" + record,
            ]
