"""sisnet over real sockets: both dialects, both forms, every answer code, packets, snappy, dicts, names."""

import asyncio
import json
import struct
from base64 import b64encode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import cramjam
import httpx
import pytest

from gateway.esnp_client import Station, data_lines, to, values
from gateway.running_gateway import HOST, WAIT_S, Running, running_gateway
from gateway.sisnet_client import Terminal
from wirelake.protocols.esnp import lines
from wirelake.protocols.esnp.lines import SeqNo
from wirelake.protocols.sisnet.binary import BinaryAnswer, BinaryRequest
from wirelake.protocols.sisnet.forms import Json

OPEN = {"auth": {"open": True}}
ANN = ("ann", "t0ken")


@asynccontextmanager
async def gateway(folder: Path, *listeners: str, **settings: Any) -> AsyncIterator[Running]:
    async with running_gateway(folder, "sisnet_tcp", *listeners, **(OPEN | settings)) as running:
        yield running


@asynccontextmanager
async def asker_and_provider(running: Running) -> AsyncIterator[tuple[Terminal, Terminal]]:
    async with (
        await Terminal.connect(running, "asker", "x") as requester,
        await Terminal.connect(running, "bob", "x") as provider,
    ):
        assert await provider.ask("r", service="wirelake", command="register", ask={"service": "calc"}) == {"ans": 0}
        yield requester, provider


async def receive_request(provider: Terminal) -> str:
    """Receive a request of the gateway, and return its name."""
    frame = await provider.receive_frame()
    assert isinstance(frame, Json)
    assert frame.is_request
    return frame.message_name


# Logging in and out


@pytest.mark.parametrize(
    ("login", "ok", "refused"),
    [
        ({"command": "login", "ask": {"name": "ann", "password": "t0ken"}}, {"ans": 0}, "ans"),
        (
            {"cmd": "login", "argv": {"version": 1, "format": "json", "username": "ann", "password": "t0ken"}},
            {"login": "ok"},
            "logout",
        ),
    ],
)
async def test_logging_in_in_both_dialects(
    tmp_path: Path, login: dict[str, Any], ok: dict[str, Any], refused: str
) -> None:
    async with running_gateway(tmp_path, "sisnet_tcp", identities=[ANN]) as running:
        async with await Terminal.connect(running) as terminal:
            assert await terminal.ask("1", command="get") == {"ans": -1, "msg": "log in first"}
            assert await terminal.ask("2", command="ping") == {"ans": 0}
            assert await terminal.ask("3", **login) == ok
            assert await terminal.ask("4", service="wirelake", command="ping") == {"ans": 0}
        async with await Terminal.connect(running) as terminal:
            wrong = json.loads(json.dumps(login).replace("t0ken", "wrong"))
            answer = await terminal.ask("3", **wrong)
            text = "invalid token"
            assert answer == ({"ans": -1, "msg": text} if refused == "ans" else {"logout": text})
            with pytest.raises(AssertionError, match="closed"):
                await terminal.receive()


@pytest.mark.parametrize(
    ("sent", "answer"), [({"command": "logout"}, {"ans": 0}), ({"cmd": "logout"}, {"logout": "ok"})]
)
async def test_logging_out_in_both_dialects(tmp_path: Path, sent: dict[str, Any], answer: dict[str, Any]) -> None:
    async with gateway(tmp_path) as running, await Terminal.connect(running, "ann", "x") as terminal:
        assert await terminal.ask("o", **sent) == answer
        with pytest.raises(AssertionError, match="closed"):
            await terminal.receive()
        (closed,) = await running.recorded("close", 1, identity="ann")
        assert closed["note"]["reason"] == "logout"


# What comes back


@pytest.mark.parametrize(
    ("sent", "received", "in_bytes"),
    [
        ({"ans": -100, "msg": "over"}, {"ans": -100, "msg": "over"}, (b"-100", b"over")),
        ({"ans": -1, "msg": "why"}, {"ans": -1, "msg": "why"}, (b"-1", b"why")),
        ({"ans": -2, "msg": "why"}, {"ans": -1, "msg": "why"}, (b"-1", b"why")),
        ({"ans": -3, "msg": "why"}, {"ans": -1, "msg": "why"}, (b"-1", b"why")),
        ({"ans": 0}, {"ans": 0}, (None, None)),
        ({"ans": 1, "msg": 10}, {"ans": 1, "msg": 10}, (b"1", b"10")),
        ({"ans": 2, "msg": "x"}, {"ans": 2, "msg": "x"}, (b"2", b"x")),
        ({"ans": 3, "msg": [1, "a"]}, {"ans": 3, "msg": [1, "a"]}, (b"3", b'[1,"a"]')),
        ({"ans": 4, "msg": [[1], [2]]}, {"ans": 4, "msg": [[1], [2]]}, (b"4", b"[[1],[2]]")),
        ({"ans": 5, "msg": {"a": 1}}, {"ans": 5, "msg": {"a": 1}}, (b"5", b'{"a":1}')),
        ({"ans": 6, "msg": "AP8="}, {"ans": 6, "msg": "AP8="}, b"\x00\xff"),
    ],
)
async def test_every_answer_code_crosses_in_both_forms(
    tmp_path: Path, sent: dict[str, Any], received: dict[str, Any], in_bytes: Any
) -> None:
    async with gateway(tmp_path) as running, asker_and_provider(running) as (requester, provider):
        requester.send_json("j", service="calc", command="x")
        provider.send_json(await receive_request(provider), **sent)
        assert await requester.receive_json("j") == received
        requester.send_json("b", service="calc", command="x", fmt="bytes")
        provider.send_json(await receive_request(provider), **sent)
        answer = await requester.receive_frame()
        assert isinstance(answer, BinaryAnswer)
        assert answer.message_name == "b"
        assert (answer.data if isinstance(in_bytes, bytes) else (answer.ans, answer.msg)) == in_bytes


async def test_an_empty_answer_of_a_provider_keeps_its_type(tmp_path: Path) -> None:
    async with gateway(tmp_path) as running, asker_and_provider(running) as (requester, provider):
        for sent in ({"ans": 5, "msg": {}}, {"ans": 4, "msg": []}, {"ans": 3, "msg": []}, {"ans": 0}):
            requester.send_json("q", service="calc", command="get")
            provider.send_json(await receive_request(provider), **sent)
            assert await requester.receive_json("q") == sent


async def test_the_askers_fmt_chooses_and_not_the_providers_form(tmp_path: Path) -> None:
    gbk = "浦发银行".encode("gbk")
    async with gateway(tmp_path) as running, asker_and_provider(running) as (requester, provider):
        answers: list[tuple[dict[str, Any], dict[str, Any]]] = [
            ({"data": b"\x00\xff"}, {"ans": 6, "msg": b64encode(b"\x00\xff").decode()}),
            ({"ans": b"6", "msg": b"\x00\xff"}, {"ans": 6, "msg": b64encode(b"\x00\xff").decode()}),
            ({"ans": b"2", "msg": gbk}, {"ans": 2, "msg": "浦发银行"}),
            ({"ans": b"-1", "msg": gbk}, {"ans": -1, "msg": "浦发银行"}),
            ({"ans": b"5", "msg": b'{"a":1}'}, {"ans": 5, "msg": {"a": 1}}),
            ({}, {"ans": 0}),
        ]
        for answer, received in answers:
            requester.send_json("j", service="calc", command="x", fmt="json")
            provider.send(BinaryAnswer(message_name=await receive_request(provider), **answer).encode())
            assert await requester.receive_json("j") == received
        request = BinaryRequest(message_name="b", command=b"x", service=b"calc", ask=b'{"a":1}', fmt=b"json")
        requester.send(request.encode())
        name = await receive_request(provider)
        provider.send_json(name, ans=6, msg="AP8=")
        assert await requester.receive_json("b") == {"ans": 6, "msg": "AP8="}


async def test_the_older_dialect_is_answered_in_its_own_words(tmp_path: Path) -> None:
    async with gateway(tmp_path) as running, asker_and_provider(running) as (requester, provider):
        for msg in ([[1, 2]], {"k.info": [[1]]}):
            requester.send_json("o", cmd="calc.get", key="k", sdb="info", argv={"min": 1})
            frame = await provider.receive_frame()
            assert isinstance(frame, Json)
            assert frame.values == {
                "service": "calc",
                "command": "get",
                "ask": {"key": "k", "sdb": "info", "min": 1},
            }
            provider.send_json(frame.message_name, ans=4 if isinstance(msg, list) else 5, msg=msg)
            assert await requester.receive_json("o") == msg


# Packets


async def test_an_esnp_provider_answers_a_sisnet_asker_in_packets(tmp_path: Path) -> None:
    async with (
        gateway(tmp_path, "esnp") as running,
        await Station.connect(running.port("esnp"), "provider") as provider,
        await Terminal.connect(running, "asker", "x") as requester,
    ):
        assert (await provider.ask_gateway("register", service="list")).error is None
        for name, fmt in (("j", "json"), ("b", "bytes")):
            requester.send_json(name, service="list", command="all", fmt=fmt)
            question = await provider.receive_message()
            for current in (1, 2, 3):
                provider.answer(question, lines.seq_no_line(current, 3), *data_lines(part=current))
            if fmt == "json":
                assert [await requester.receive_json("j") for _ in range(3)] == [
                    {"ans": 5, "msg": {"part": 1}, "fuc": 2},
                    {"ans": 5, "msg": {"part": 2}, "fuc": 1},
                    {"ans": 5, "msg": {"part": 3}},
                ]
            else:
                received = [await requester.receive_frame() for _ in range(3)]
                assert [each.fuc for each in received if isinstance(each, BinaryAnswer)] == [b"2", b"1", None]


async def test_a_sisnet_provider_answers_every_asker_in_packets(tmp_path: Path) -> None:
    async with (
        gateway(tmp_path, "esnp", "http") as running,
        asker_and_provider(running) as (requester, provider),
        await Station.connect(running.port("esnp"), "station") as station,
        httpx.AsyncClient(timeout=WAIT_S) as web,
    ):

        async def answer() -> None:
            name = await receive_request(provider)
            for part, more in ((1, 2), (2, 1), (3, 0)):
                provider.send_json(name, ans=5, msg={"part": part}, **({"fuc": more} if more else {}))

        requester.send_json("s", service="calc", command="x")
        await answer()
        assert [(await requester.receive_json("s")).get("fuc", 0) for _ in range(3)] == [2, 1, 0]
        station.send(*to("calc", "x", number=1))
        await answer()
        parts = [await station.receive_message() for _ in range(3)]
        assert [part.seq_no for part in parts] == [SeqNo(1, 3), SeqNo(2, 3), SeqNo(3, 3)]
        assert [values(part)["part"] for part in parts] == [1, 2, 3]
        headers = {"Authorization": f"Bearer {running.gateway.keys.admin_token()}"}
        url = f"http://{HOST}:{running.port('http')}/api/services/calc/x"
        asking = asyncio.create_task(web.post(url, json={}, headers=headers))
        await answer()
        assert (await asking).json() == {"parts": [{"part": 1}, {"part": 2}, {"part": 3}]}


async def test_a_packet_gives_the_next_one_time(tmp_path: Path) -> None:
    """Restart the timeout with each packet: the answer as a whole may take longer."""
    async with (
        gateway(tmp_path, broker={"call_s": 2.0}) as running,
        asker_and_provider(running) as (requester, provider),
    ):
        requester.send_json("s", service="calc", command="x")
        name = await receive_request(provider)
        for more in (3, 2, 1):
            await asyncio.sleep(0.8)
            provider.send_json(name, ans=1, msg=more, fuc=more)
            assert (await requester.receive_json("s"))["fuc"] == more
        assert await requester.receive_json("s") == {"ans": -1, "msg": "timeout"}


# Snappy, dicts, names


async def test_snappy_holds_for_what_binary_messages_carry(tmp_path: Path) -> None:
    def packed(data: bytes) -> bytes:
        return bytes(cramjam.snappy.compress_raw(data))

    async with (
        gateway(tmp_path) as running,
        asker_and_provider(running) as (_, provider),
        await Terminal.connect(running) as requester,
    ):
        login = {"name": "ann", "password": "x", "compress": "snappy"}
        assert await requester.ask("in", command="login", ask=login) == {"ans": 0}
        long = json.dumps({"a": "x" * 5000}).encode()
        requester.send(BinaryRequest(message_name="b", command=b"x", service=b"calc", ask=packed(long)).encode())
        frame = await provider.receive_frame()
        assert isinstance(frame, Json)
        assert frame.values["ask"] == {"a": "x" * 5000}, "whose connection is not compressed"
        provider.send_json(frame.message_name, ans=2, msg="y" * 5000)
        answer = await requester.receive_frame()
        assert isinstance(answer, BinaryAnswer)
        assert answer.msg is not None
        assert len(answer.msg) < 1000
        assert bytes(cramjam.snappy.decompress_raw(answer.msg)) == b"y" * 5000
        assert await requester.ask("j", service="wirelake", command="ping") == {"ans": 0}, "JSON stays as it is"
        requester.send(BinaryRequest(message_name="b", command=b"x", ask=b"no snappy").encode())
        assert (await requester.receive_json(""))["ans"] == -1


async def test_dicts_go_both_ways(tmp_path: Path) -> None:
    layout = struct.Struct("<Id")
    fields = [["time", "U", 4, 1], ["newp", "F", 8, 1]]
    async with gateway(tmp_path) as running, await Terminal.connect(running, "teller", "x") as publisher:
        assert await publisher.ask("2", cmd="dict", argv={"tick": {"fields": fields}}) == {"ans": 0}
        publisher.send(b"3:set:sh:tick:" + layout.pack(7, 2.5))
        assert await publisher.receive_json("3") == {"ans": 0}
        async with await Terminal.connect(running, "learner", "x") as learner:
            asking = {"key": "sh", "sdb": "tick", "format": "bytes"}
            learner.send_json("g", service="sisdb", command="get", ask=asking, fmt="bytes")
            delivered = await learner.receive_frame()
            assert isinstance(delivered, Json), "the layout comes before the first records in it"
            assert delivered.values == {"command": "dict", "ask": {"tick": {"fields": fields}}}
            learner.send_json(delivered.message_name, ans=0)
            answer = await learner.receive_frame()
            assert isinstance(answer, BinaryAnswer)
            assert answer.data == layout.pack(7, 2.5)
            learner.send_json("g", service="sisdb", command="get", ask=asking, fmt="bytes")
            assert isinstance(await learner.receive_frame(), BinaryAnswer), "it is told once"


@pytest.mark.parametrize(
    "message",
    [
        b"x" * 129 + b':{"command":"ping"}',
        b'a{b:{"command":"ping"}',
        b'a(b:{"command":"ping"}',
        b'a}:{"command":"ping"}',
        b'a):{"command":"ping"}',
        b'1:2:3:x{:{"command":"ping"}',
        b"no colon",
    ],
)
async def test_names_that_are_none_are_refused(tmp_path: Path, message: bytes) -> None:
    async with gateway(tmp_path) as running, await Terminal.connect(running, "ann", "x") as terminal:
        assert await terminal.ask("n" * 128, command="ping") == {"ans": 0}
        terminal.send(message)
        assert (await terminal.receive_json(""))["ans"] == -1
        with pytest.raises(AssertionError, match="closed"):
            await terminal.receive()
        (stored,) = await running.recorded("fault", 1)
        assert stored["frame"].endswith(message)
