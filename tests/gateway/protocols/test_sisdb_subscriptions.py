"""Subscriptions to the records of data sets, over real sockets."""

from pathlib import Path

import pytest

from gateway.protocols.sisdb_tables import OPEN, connect_terminal, fill_tables
from gateway.running_gateway import running_gateway
from wirelake.limits import RECORDS_SUBSCRIPTIONS_MAX


async def test_followers_hear_of_every_new_record_under_their_requests_name(tmp_path: Path) -> None:
    async with (
        running_gateway(tmp_path, "sisnet_tcp", **OPEN) as running,
        await connect_terminal(running) as terminal,
        await connect_terminal(running) as writer,
    ):
        await fill_tables(writer)
        for name, arguments in {
            "one": {"key": "a", "sdb": "day"},
            "two": {"key": "a,b", "sdb": "day", "fields": "time"},
            "all": {"key": "*", "sdb": "*", "format": "json", "fields": ["open"]},
        }.items():
            assert await terminal.ask(name, service="sisdb", command="sub", ask=arguments) == {"ans": 0}
        assert await writer.sisdb("set", key="a", sdb="day", data=[[40, 1, "x"], [50, 2, "y"]]) == "ok"
        assert [await terminal.receive() for _ in range(3)] == [
            b'one:{"ans":4,"msg":[[40,1.0,"x"],[50,2.0,"y"]]}',
            b'two:{"ans":5,"msg":{"a.day":[[40],[50]]}}',
            b'all:{"ans":5,"msg":{"a.day":[{"open":1.0},{"open":2.0}]}}',
        ]
        assert await writer.sisdb("set", key="b,z", sdb="day", data=[[60, 3, "z"]]) == "ok"
        assert sorted([await terminal.receive() for _ in range(3)]) == [
            b'all:{"ans":5,"msg":{"b.day":[{"open":3.0}]}}',
            b'all:{"ans":5,"msg":{"z.day":[{"open":3.0}]}}',
            b'two:{"ans":5,"msg":{"b.day":[[60]]}}',
        ]
        for arguments in ({"key": "a,b", "sdb": "day"}, {"key": "*", "sdb": "*"}, {"key": "none", "sdb": "day"}):
            assert await terminal.ask("u", service="sisdb", command="unsub", ask=arguments) == {"ans": 0}
        assert await writer.sisdb("set", key="a", sdb="day", data=[[70, 4, ""]]) == "ok"
        assert await terminal.receive() == b'one:{"ans":4,"msg":[[70,4.0,""]]}'
        assert await terminal.ask("end", service="wirelake", command="ping") == {"ans": 0}, "nothing else came"
        assert await terminal.ask("odd", command="sub", ask={"key": "c", "sdb": "day", "fields": "no"}) == {"ans": 0}
        assert await writer.sisdb("set", key="c", sdb="day", data=[[80, 5, ""]]) == "ok"
        assert await terminal.receive_json("odd") == {"ans": -100, "msg": "there is no field 'no'"}, "it is dropped"
        assert await writer.sisdb("set", key="c", sdb="day", data=[[90, 5, ""]]) == "ok"
        assert await writer.sisdb("set", key="a", sdb="day", data=[[1, 1]]) != "ok"
        assert await terminal.ask("end", service="wirelake", command="ping") == {"ans": 0}, (
            "what was refused is no news"
        )


async def test_what_is_pushed_can_be_read_and_is_pushed_once_in_order(tmp_path: Path) -> None:
    async with (
        running_gateway(tmp_path, "sisnet_tcp", **OPEN) as running,
        await connect_terminal(running) as terminal,
        await connect_terminal(running) as writer,
    ):
        assert await terminal.ask("s", command="sub", ask={"key": "k", "sdb": "t"}) == {"ans": 0}
        for number in range(200):
            writer.send_json(str(number), command="set", ask={"key": "k", "sdb": "t", "data": {"time": number}})
        writer.send_json("last", command="get", ask={"key": "k", "sdb": "t"})
        pushed = [await terminal.receive_json("s") for _ in range(200)]
        assert [row for answer in pushed for row in answer["msg"]] == [[number] for number in range(200)]
        answers = [await writer.receive() for _ in range(201)]
        rows = b",".join(b"[%d]" % number for number in range(200))
        assert b'last:{"ans":4,"msg":[%b]}' % rows in answers, "a question behind a write sees it"


async def test_followers_are_forgotten_with_their_connection_and_bounded(tmp_path: Path) -> None:
    async with running_gateway(tmp_path, "sisnet_tcp", **OPEN) as running:
        async with await connect_terminal(running) as terminal:
            for number in range(RECORDS_SUBSCRIPTIONS_MAX):
                arguments = {"key": f"k{number}", "sdb": "t"}
                assert await terminal.ask("s", command="sub", ask=arguments) == {"ans": 0}
            answer = await terminal.ask("s", command="sub", ask={"key": "one more", "sdb": "t"})
            assert answer["ans"] == -1
        async with await connect_terminal(running) as terminal:
            assert await terminal.sisdb("set", key="k0", sdb="t", data={"time": 1}) == "ok"
            followers = running.gateway.builtin_services.records.subscriptions
            assert not followers


@pytest.mark.parametrize("conflate", [False, True])
async def test_a_follower_that_does_not_read_is_cut_off_or_gets_the_newest(tmp_path: Path, *, conflate: bool) -> None:
    broker = {"slow": "conflate" if conflate else "cut"}
    limits = {"pending_bytes": 64 * 1024}
    async with (
        running_gateway(tmp_path, "sisnet_tcp", broker=broker, limits=limits, **OPEN) as running,
        await connect_terminal(running) as slow,
        await connect_terminal(running) as writer,
    ):
        assert await slow.ask("s", command="sub", ask={"key": "k", "sdb": "t"}) == {"ans": 0}
        slow.pause()
        live = running.gateway.broker.live
        number = 0
        while not (live.conflated if conflate else live.cut):
            number += 1
            assert await writer.sisdb("set", key="k", sdb="t", data={"time": number, "x": "x" * 100_000}) == "ok"
            assert number < 1000
        slow.resume()
        if conflate:
            while (pushed := await slow.receive_json("s"))["msg"][0][0] < number:
                pass
            assert pushed["msg"][0][0] == number
        else:
            with pytest.raises(AssertionError, match="closed"):
                await slow.receive_until_closed()
        assert await writer.ask("p", service="wirelake", command="ping") == {"ans": 0}
