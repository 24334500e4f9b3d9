"""The sisnet door over real sockets: both dialects, both forms, every answer code, packets, snappy, dicts, names."""

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

from gateway.running import HOST, WAIT_S, Running, running_gateway
from gateway.terminal import Terminal
from gateway.wire import Station, data_lines, to, values
from wirelake.protocols.esnp import lines
from wirelake.protocols.esnp.lines import SeqNo
from wirelake.protocols.sisnet.binary_form import BinaryAnswer, BinaryRequest
from wirelake.protocols.sisnet.json_form import Json

OPEN = {"auth": {"open": True}}
ANN = ("ann", "t0ken")


@asynccontextmanager
async def gateway(folder: Path, *doors: str, **settings: Any) -> AsyncIterator[Running]:
    async with running_gateway(folder, "sisnet_tcp", *doors, **(OPEN | settings)) as running:
        yield running


@asynccontextmanager
async def asker_and_provider(running: Running) -> AsyncIterator[tuple[Terminal, Terminal]]:
    async with (
        await Terminal.call(running, "asker", "x") as asker,
        await Terminal.call(running, "bob", "x") as provider,
    ):
        assert await provider.ask("r", service="wirelake", command="register", ask={"service": "calc"}) == {"ans": 0}
        yield asker, provider


async def asked(provider: Terminal) -> str:
    """The name under which the gateway asks."""
    frame = await provider.hear_frame()
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
        async with await Terminal.call(running) as terminal:
            assert await terminal.ask("1", command="get") == {"ans": -1, "msg": "log in first"}
            assert await terminal.ask("2", command="ping") == {"ans": 0}
            assert await terminal.ask("3", **login) == ok
            assert await terminal.ask("4", service="wirelake", command="ping") == {"ans": 0}
        async with await Terminal.call(running) as terminal:
            wrong = json.loads(json.dumps(login).replace("t0ken", "wrong"))
            answer = await terminal.ask("3", **wrong)
            text = "invalid token"
            assert answer == ({"ans": -1, "msg": text} if refused == "ans" else {"logout": text})
            with pytest.raises(AssertionError, match="closed"):
                await terminal.hear()


@pytest.mark.parametrize(
    ("said", "answer"), [({"command": "logout"}, {"ans": 0}), ({"cmd": "logout"}, {"logout": "ok"})]
)
async def test_logging_out_in_both_dialects(tmp_path: Path, said: dict[str, Any], answer: dict[str, Any]) -> None:
    async with gateway(tmp_path) as running, await Terminal.call(running, "ann", "x") as terminal:
        assert await terminal.ask("o", **said) == answer
        with pytest.raises(AssertionError, match="closed"):
            await terminal.hear()
        (closed,) = await running.recorded("close", 1, identity="ann")
        assert closed["note"]["reason"] == "logout"


# What comes back


@pytest.mark.parametrize(
    ("said", "heard", "in_bytes"),
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
    tmp_path: Path, said: dict[str, Any], heard: dict[str, Any], in_bytes: Any
) -> None:
    async with gateway(tmp_path) as running, asker_and_provider(running) as (asker, provider):
        asker.say("j", service="calc", command="x")
        provider.say(await asked(provider), **said)
        assert await asker.hear_json("j") == heard
        asker.say("b", service="calc", command="x", fmt="bytes")
        provider.say(await asked(provider), **said)
        answer = await asker.hear_frame()
        assert isinstance(answer, BinaryAnswer)
        assert answer.message_name == "b"
        assert (answer.data if isinstance(in_bytes, bytes) else (answer.ans, answer.msg)) == in_bytes


async def test_an_empty_answer_of_a_provider_keeps_its_type(tmp_path: Path) -> None:
    async with gateway(tmp_path) as running, asker_and_provider(running) as (asker, provider):
        for said in ({"ans": 5, "msg": {}}, {"ans": 4, "msg": []}, {"ans": 3, "msg": []}, {"ans": 0}):
            asker.say("q", service="calc", command="get")
            provider.say(await asked(provider), **said)
            assert await asker.hear_json("q") == said


async def test_the_askers_fmt_chooses_and_not_the_providers_form(tmp_path: Path) -> None:
    gbk = "浦发银行".encode("gbk")
    async with gateway(tmp_path) as running, asker_and_provider(running) as (asker, provider):
        answers: list[tuple[dict[str, Any], dict[str, Any]]] = [
            ({"data": b"\x00\xff"}, {"ans": 6, "msg": b64encode(b"\x00\xff").decode()}),
            ({"ans": b"6", "msg": b"\x00\xff"}, {"ans": 6, "msg": b64encode(b"\x00\xff").decode()}),
            ({"ans": b"2", "msg": gbk}, {"ans": 2, "msg": "浦发银行"}),
            ({"ans": b"-1", "msg": gbk}, {"ans": -1, "msg": "浦发银行"}),
            ({"ans": b"5", "msg": b'{"a":1}'}, {"ans": 5, "msg": {"a": 1}}),
            ({}, {"ans": 0}),
        ]
        for answer, heard in answers:
            asker.say("j", service="calc", command="x", fmt="json")
            provider.write(BinaryAnswer(message_name=await asked(provider), **answer).encode())
            assert await asker.hear_json("j") == heard
        request = BinaryRequest(message_name="b", command=b"x", service=b"calc", ask=b'{"a":1}', fmt=b"json")
        asker.write(request.encode())
        name = await asked(provider)
        provider.say(name, ans=6, msg="AP8=")
        assert await asker.hear_json("b") == {"ans": 6, "msg": "AP8="}


async def test_the_older_dialect_is_answered_in_its_own_words(tmp_path: Path) -> None:
    async with gateway(tmp_path) as running, asker_and_provider(running) as (asker, provider):
        for msg in ([[1, 2]], {"k.info": [[1]]}):
            asker.say("o", cmd="calc.get", key="k", sdb="info", argv={"min": 1})
            frame = await provider.hear_frame()
            assert isinstance(frame, Json)
            assert frame.values == {
                "service": "calc",
                "command": "get",
                "ask": {"key": "k", "sdb": "info", "min": 1},
            }
            provider.say(frame.message_name, ans=4 if isinstance(msg, list) else 5, msg=msg)
            assert await asker.hear_json("o") == msg


# Packets


async def test_an_esnp_provider_answers_a_sisnet_asker_in_packets(tmp_path: Path) -> None:
    async with (
        gateway(tmp_path, "esnp") as running,
        await Station.call(running.port("esnp"), "provider") as provider,
        await Terminal.call(running, "asker", "x") as asker,
    ):
        assert (await provider.ask_gateway("register", service="list")).error is None
        for name, fmt in (("j", "json"), ("b", "bytes")):
            asker.say(name, service="list", command="all", fmt=fmt)
            question = await provider.message()
            for current in (1, 2, 3):
                provider.answer(question, lines.seq_no_line(current, 3), *data_lines(part=current))
            if fmt == "json":
                assert [await asker.hear_json("j") for _ in range(3)] == [
                    {"ans": 5, "msg": {"part": 1}, "fuc": 2},
                    {"ans": 5, "msg": {"part": 2}, "fuc": 1},
                    {"ans": 5, "msg": {"part": 3}},
                ]
            else:
                heard = [await asker.hear_frame() for _ in range(3)]
                assert [each.fuc for each in heard if isinstance(each, BinaryAnswer)] == [b"2", b"1", None]


async def test_a_sisnet_provider_answers_every_asker_in_packets(tmp_path: Path) -> None:
    async with (
        gateway(tmp_path, "esnp", "http") as running,
        asker_and_provider(running) as (asker, provider),
        await Station.call(running.port("esnp"), "station") as station,
        httpx.AsyncClient(timeout=WAIT_S) as web,
    ):

        async def answer() -> None:
            name = await asked(provider)
            for part, more in ((1, 2), (2, 1), (3, 0)):
                provider.say(name, ans=5, msg={"part": part}, **({"fuc": more} if more else {}))

        asker.say("s", service="calc", command="x")
        await answer()
        assert [(await asker.hear_json("s")).get("fuc", 0) for _ in range(3)] == [2, 1, 0]
        station.say(*to("calc", "x", number=1))
        await answer()
        parts = [await station.message() for _ in range(3)]
        assert [part.seq_no for part in parts] == [SeqNo(1, 3), SeqNo(2, 3), SeqNo(3, 3)]
        assert [values(part)["part"] for part in parts] == [1, 2, 3]
        headers = {"Authorization": f"Bearer {running.gateway.keys.admin_token()}"}
        url = f"http://{HOST}:{running.port('http')}/api/services/calc/x"
        asking = asyncio.create_task(web.post(url, json={}, headers=headers))
        await answer()
        assert (await asking).json() == {"parts": [{"part": 1}, {"part": 2}, {"part": 3}]}


async def test_a_packet_gives_the_next_one_time(tmp_path: Path) -> None:
    """As much as there was for the first: an answer as a whole may take longer."""
    async with (
        gateway(tmp_path, broker={"call_s": 2.0}) as running,
        asker_and_provider(running) as (asker, provider),
    ):
        asker.say("s", service="calc", command="x")
        name = await asked(provider)
        for more in (3, 2, 1):
            await asyncio.sleep(0.8)
            provider.say(name, ans=1, msg=more, fuc=more)
            assert (await asker.hear_json("s"))["fuc"] == more
        assert await asker.hear_json("s") == {"ans": -1, "msg": "timeout"}


# Snappy, dicts, names


async def test_snappy_holds_for_what_binary_messages_carry(tmp_path: Path) -> None:
    def packed(data: bytes) -> bytes:
        return bytes(cramjam.snappy.compress_raw(data))

    async with (
        gateway(tmp_path) as running,
        asker_and_provider(running) as (_, provider),
        await Terminal.call(running) as asker,
    ):
        login = {"name": "ann", "password": "x", "compress": "snappy"}
        assert await asker.ask("in", command="login", ask=login) == {"ans": 0}
        long = json.dumps({"a": "x" * 5000}).encode()
        asker.write(BinaryRequest(message_name="b", command=b"x", service=b"calc", ask=packed(long)).encode())
        frame = await provider.hear_frame()
        assert isinstance(frame, Json)
        assert frame.values["ask"] == {"a": "x" * 5000}, "whose connection is not compressed"
        provider.say(frame.message_name, ans=2, msg="y" * 5000)
        answer = await asker.hear_frame()
        assert isinstance(answer, BinaryAnswer)
        assert answer.msg is not None
        assert len(answer.msg) < 1000
        assert bytes(cramjam.snappy.decompress_raw(answer.msg)) == b"y" * 5000
        assert await asker.ask("j", service="wirelake", command="ping") == {"ans": 0}, "JSON stays as it is"
        asker.write(BinaryRequest(message_name="b", command=b"x", ask=b"no snappy").encode())
        assert (await asker.hear_json(""))["ans"] == -1


async def test_dicts_go_both_ways(tmp_path: Path) -> None:
    layout = struct.Struct("<Id")
    fields = [["time", "U", 4, 1], ["newp", "F", 8, 1]]
    async with gateway(tmp_path) as running, await Terminal.call(running, "teller", "x") as teller:
        assert await teller.ask("2", cmd="dict", argv={"tick": {"fields": fields}}) == {"ans": 0}
        teller.write(b"3:set:sh:tick:" + layout.pack(7, 2.5))
        assert await teller.hear_json("3") == {"ans": 0}
        async with await Terminal.call(running, "learner", "x") as learner:
            asking = {"key": "sh", "sdb": "tick", "format": "bytes"}
            learner.say("g", service="sisdb", command="get", ask=asking, fmt="bytes")
            told = await learner.hear_frame()
            assert isinstance(told, Json), "the layout comes before the first records in it"
            assert told.values == {"command": "dict", "ask": {"tick": {"fields": fields}}}
            learner.say(told.message_name, ans=0)
            answer = await learner.hear_frame()
            assert isinstance(answer, BinaryAnswer)
            assert answer.data == layout.pack(7, 2.5)
            learner.say("g", service="sisdb", command="get", ask=asking, fmt="bytes")
            assert isinstance(await learner.hear_frame(), BinaryAnswer), "it is told once"


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
    async with gateway(tmp_path) as running, await Terminal.call(running, "ann", "x") as terminal:
        assert await terminal.ask("n" * 128, command="ping") == {"ans": 0}
        terminal.write(message)
        assert (await terminal.hear_json(""))["ans"] == -1
        with pytest.raises(AssertionError, match="closed"):
            await terminal.hear()
        (kept,) = await running.recorded("fault", 1)
        assert kept["frame"].endswith(message)
