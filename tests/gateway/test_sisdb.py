"""Data sets over real sockets: every command, form and refusal."""

import struct
from base64 import b64encode
from pathlib import Path
from typing import Any

import httpx
import pytest
import redis.asyncio

from gateway.running import HOST, WAIT_S, Running, running_gateway, until
from gateway.terminal import Terminal
from gateway.wire import Station, data_lines, to, values
from wirelake.limits import MIB, RECORDS_SUBSCRIPTIONS_MAX, STATE_READ_BYTES_MAX, STATE_READ_ROWS_MAX
from wirelake.protocols.jsontext import read_json, write_json
from wirelake.protocols.sisnet.binary_form import BinaryAnswer, BinaryRequest

OPEN: dict[str, Any] = {"auth": {"open": True}}
DAY = [["time", "I", 8, 1], ["open", "F", 8, 1], ["name", "C", 8, 1]]


async def terminal(running: Running) -> Terminal:
    return await Terminal.call(running, "terminal", "t0ken")


async def filled(line: Terminal) -> None:
    """Two tables with a layout, three keys."""
    assert await line.sisdb("create", key="a", sdb="day,min", fields=DAY) == "ok"
    for place, key in enumerate("abc"):
        rows = [[time, time + place / 10, key] for time in (30, 10, 20)]
        assert await line.sisdb("set", key=key, sdb="day", data=rows) == "ok"
    assert await line.sisdb("set", key="a", sdb="min", data={"time": 1, "open": 2.5, "name": "ä"}) == "ok"


async def test_every_command(tmp_path: Path) -> None:
    async with running_gateway(tmp_path, "sisnet_tcp", **OPEN) as running, await terminal(running) as line:
        await filled(line)
        get, a = [[10, 10.0, "a"], [20, 20.0, "a"], [30, 30.0, "a"]], {"key": "a", "sdb": "day"}
        assert await line.sisdb("get", **a) == get
        assert await line.sisdb("get", **a, min=20) == get[1:]
        assert await line.sisdb("get", **a, max=20) == get[:2]
        assert await line.sisdb("get", **a, min=15, max=25) == get[1:2]
        assert await line.sisdb("get", **a, min=10, count=2) == get[:2], "from there on"
        assert await line.sisdb("get", **a, count=2) == get[1:], "the newest"
        assert await line.sisdb("get", **a, max=20, count=1) == get[1:2]
        assert await line.sisdb("get", **a, min="10", count=-1) == get[2:]
        assert await line.sisdb("get", **a, count=0) == []
        assert await line.sisdb("get", **a, fields=["open", "time"], count=1) == [[30.0, 30]]
        assert await line.sisdb("get", **a, fields="name", count=1) == [["a"]]
        assert await line.sisdb("get", **a, fields={"open": 1}, count=1) == [[30.0]]
        assert await line.sisdb("get", **a, format="json", fields="time,open", count=1) == [{"time": 30, "open": 30.0}]
        assert await line.sisdb("get", **a, fields=True, count=1) == {"a.day": get[2:], "day.fields": DAY}
        assert await line.sisdb("get", key="a,b,none,a", sdb="day", count=1) == {
            "a.day": [[30, 30.0, "a"]],
            "b.day": [[30, 30.1, "b"]],
        }
        assert await line.sisdb("get", key="*", sdb="min,day", count=1, fields="time") == {
            "a.min": [[1]],
            "a.day": [[30]],
            "b.day": [[30]],
            "c.day": [[30]],
        }
        assert await line.sisdb("get", key="a", sdb="*", fields="name", count=1) == {
            "a.day": [["a"]],
            "a.min": [["ä"]],
        }
        assert await line.sisdb("get", key="none", sdb="day") == []
        assert await line.sisdb("get", key="none,a", sdb="none") == []
        assert await line.sisdb("keys") == ["a", "b", "c"]
        assert await line.sisdb("keys", sdb="min") == ["a"]
        assert await line.sisdb("tables") == ["day", "min"]
        assert await line.sisdb("tables", sdb="min,none") == {"min.fields": DAY}
        assert await line.sisdb("del", key="b,c", sdb="*") == 2
        assert await line.sisdb("del", key="b", sdb="day") == 0
        assert await line.sisdb("keys") == ["a"]
        assert await line.sisdb("get", key="b", sdb="day") == []


async def test_the_kind_of_an_answer_is_told(tmp_path: Path) -> None:
    async with running_gateway(tmp_path, "sisnet_tcp", **OPEN) as running, await terminal(running) as line:
        await filled(line)
        asked: dict[str, Any] = {"key": "a", "sdb": "min"}
        assert await line.ask("n", service="sisdb", command="get", ask=asked) == {"ans": 4, "msg": [[1, 2.5, "ä"]]}
        asked = {"key": "a", "sdb": "*", "count": 1, "fields": "time"}
        assert (await line.ask("n", command="get", ask=asked))["ans"] == 5, "without a service it is sisdb's"
        assert await line.ask("n", command="keys", lnk="x") == {"ans": 3, "msg": ["a", "b", "c"], "lnk": "x"}
        assert await line.ask("n", command="del", ask={"key": "a", "sdb": "*"}) == {"ans": 1, "msg": 2}


REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("fly", {}, "Address[20=fly,30=sisdb] not found ServiceHandler"),
    ("get", {}, "get needs a key and an sdb"),
    ("get", {"key": "a"}, "get needs a key and an sdb"),
    ("get", {"key": ["a"], "sdb": "day"}, "key is a text"),
    ("get", {"key": "a:b", "sdb": "day"}, "not a name for a key: 'a:b'"),
    ("get", {"key": "a", "sdb": "day.x"}, "not a name for a sdb: 'day.x'"),
    ("get", {"key": "a,,b", "sdb": "day"}, "not a name for a key: ''"),
    ("get", {"key": "a", "sdb": "day", "min": "x"}, "min is a whole number"),
    ("get", {"key": "a", "sdb": "day", "min": 1.5}, "min is a whole number"),
    ("get", {"key": "a", "sdb": "day", "max": 2**70}, "a time does not fit 64 bits"),
    ("get", {"key": "a", "sdb": "day", "count": 10**6}, f"count is at most {STATE_READ_ROWS_MAX}"),
    ("get", {"key": "a", "sdb": "day", "fields": 7}, "fields are a list of names"),
    ("get", {"key": "a", "sdb": "day", "fields": "none"}, "there is no field 'none'"),
    ("get", {"key": "a", "sdb": "day", "format": "xml"}, "format is one of array, json, bytes"),
    ("get", {"key": "*", "sdb": "day", "format": "bytes"}, "format bytes takes one key and one sdb"),
    ("get", {"key": "a", "sdb": "none", "format": "bytes"}, "table 'none' has no layout to pack records by"),
    ("set", {"key": "a", "sdb": "day"}, "set needs data"),
    ("set", {"key": "a", "sdb": "day", "data": []}, "set needs data"),
    ("set", {"key": "k," * 99 + "k", "sdb": "s," * 99 + "s", "data": {}}, "10000 series at once: at most 4096"),
    ("set", {"key": "k,l", "sdb": "s", "data": [{"a": 1}] * 5_001}, "more than 10000 records at once"),
    ("set", {"key": "k" * 1025, "sdb": "s", "data": {"a": 1}}, "a record's key has 1025 bytes, over the limit of 1024"),
    ("set", {"key": "*", "sdb": "day", "data": [[1, 1, ""]]}, "set takes names, not *"),
    ("set", {"key": "@a", "sdb": "day", "data": [[1, 1, ""]]}, "not a name for a key: '@a'"),
    ("set", {"key": "a", "sdb": "day", "data": [[1, 1]]}, "a record of 'day' is an object, or a row of 3 values"),
    ("set", {"key": "a", "sdb": "day", "data": {"time": 1}}, "a record of 'day' has no field 'open'"),
    ("set", {"key": "a", "sdb": "day", "data": {"time": 1, "open": 1, "x": 1}}, "table 'day' has no field 'x'"),
    (
        "set",
        {"key": "a", "sdb": "day", "data": [["1", 1, ""]]},
        "a record of 'day': required argument is not an integer",
    ),
    ("set", {"key": "a", "sdb": "day", "data": [[1, 1, "too long by far"]]}, "day.name has room for 8 bytes, not 15"),
    ("set", {"key": "a", "sdb": "loose", "data": [[1, 2]]}, "a record of 'loose' is an object, or a row of 0 values"),
    ("set", {"key": "a", "sdb": "loose", "data": {"time": "now"}}, "a record's time is a number"),
    (
        "set",
        {"key": "a", "sdb": "loose", "payload": "AAE="},
        "table 'loose' has no layout: create it, or tell of it in a dict",
    ),
    ("create", {"key": "a"}, "create needs an sdb"),
    ("create", {"sdb": "new"}, "table 'new' has no list of fields"),
    ("create", {"sdb": "new", "fields": [["a", "X", 1]]}, "new.a: there is no type X of 1 bytes"),
    ("create", {"sdb": "day", "fields": [["time", "I", 4]]}, "table 'day' has records of another layout"),
    ("del", {"key": "a"}, "del needs a key and an sdb"),
    ("sub", {"sdb": "day"}, "sub needs a key and an sdb"),
    ("sub", {"key": "*", "sdb": "day", "format": "bytes"}, "format bytes takes one key and one sdb, with all fields"),
    ("sub", {"key": "a", "sdb": "none", "format": "bytes"}, "table 'none' has no layout to pack records by"),
]


async def test_every_refusal(tmp_path: Path) -> None:
    async with running_gateway(tmp_path, "sisnet_tcp", **OPEN) as running, await terminal(running) as line:
        await filled(line)
        before = await line.sisdb("get", key="*", sdb="*")
        for command, asked, why in REFUSED:
            assert await line.sisdb(command, **asked) == f"failed: {why}", (command, asked)
        assert await line.sisdb("get", key="*", sdb="*") == before
        assert await line.sisdb("tables") == ["day", "min"]


async def test_a_layout_can_be_written_in_several_ways_and_given_again(tmp_path: Path) -> None:
    async with running_gateway(tmp_path, "sisnet_tcp", **OPEN) as running, await terminal(running) as line:
        listed = [["time", "U", 4, 1], ["bids", "F", 4, 3]]
        named = {"time": ["U", 4], "bids": ["F", 4, 3]}
        for fields in (listed, named, {"fields": listed}):
            assert await line.sisdb("create", sdb="tick", fields=fields) == "ok"
            assert await line.sisdb("tables", sdb="*") == {"tick.fields": listed}
        assert await line.sisdb("set", key="a", sdb="tick", data=[[7, [1, 2, 3]]]) == "ok"
        assert await line.sisdb("create", sdb="tick", fields=listed) == "ok", "the same one, with records in it"
        assert await line.sisdb("get", key="a", sdb="tick") == [[7, [1.0, 2.0, 3.0]]]
        assert await line.sisdb("del", key="a", sdb="tick") == 1
        assert await line.sisdb("create", sdb="tick", fields=listed[:1]) == "ok", "another one, once they are gone"


async def test_a_table_that_nobody_created_takes_what_comes(tmp_path: Path) -> None:
    async with running_gateway(tmp_path, "sisnet_tcp", **OPEN) as running, await terminal(running) as line:
        set_ = {"key": "sh600601", "sdb": "info"}
        assert await line.sisdb("set", **set_, data=[{"time": 100, "newp": 100.01}]) == "ok"
        assert await line.sisdb("set", **set_, data={"newp": 7, "time": 50.7, "note": ["x", {"y": None}]}) == "ok"
        assert await line.sisdb("set", **set_, data=[[200, 8.5]]) == "ok"
        rows = [[50.7, 7, ["x", {"y": None}]], [100, 100.01, None], [200, 8.5, None]]
        assert await line.sisdb("get", **set_) == rows
        assert await line.sisdb("get", **set_, min=100, fields="newp") == [[100.01], [8.5]]
        assert await line.sisdb("tables", sdb="info") == {
            "info.fields": [["time", "J", 0, 1], ["newp", "J", 0, 1], ["note", "J", 0, 1]]
        }
        assert await line.sisdb("set", key="k", sdb="notes", data=[{"text": "b"}, {"text": "a"}]) == "ok"
        assert await line.sisdb("get", key="k", sdb="notes") == [["b"], ["a"]], "without a time, as they came"


async def test_the_older_dialect(tmp_path: Path) -> None:
    async with running_gateway(tmp_path, "sisnet_tcp", **OPEN) as running, await Terminal.call(running) as line:
        assert await line.ask("1", cmd="login", argv={"username": "x", "password": "y"}) == {"login": "ok"}
        named = {"key": "sh600601", "sdb": "info"}
        assert await line.ask("2", cmd="sisdb.set", **named, argv=[{"time": 100, "newp": 100.01}]) == {"ans": 0}
        assert await line.ask("3", cmd="sisdb.set", **named, argv=[{"time": 10, "newp": 1.5}]) == {"ans": 0}
        assert await line.ask("4", cmd="sisdb.get", **named) == [[10, 1.5], [100, 100.01]]
        argv = [11, "sssss", {"min": 16}]
        assert await line.ask("5", cmd="sisdb.get", **named, argv=argv) == [[100, 100.01]]
        assert await line.ask("6", cmd="sisdb.get", key="*", sdb="info") == {
            "sh600601.info": [[10, 1.5], [100, 100.01]]
        }
        assert await line.ask("7", cmd="sisdb.tables", sdb="info") == {
            "info.fields": [["time", "J", 0, 1], ["newp", "J", 0, 1]]
        }
        assert (await line.ask("8", cmd="sisdb.get"))["ans"] == -1
        assert await line.ask("9", cmd="sisdb.sub", **named) == {"ans": 0}
        line.say("10", cmd="sisdb.set", **named, argv=[{"time": 200, "newp": 2}])
        heard = {message.partition(b":")[0]: message for message in (await line.hear(), await line.hear())}
        assert heard[b"9"] == b"9:[[200,2]]"


async def test_records_in_data_lines_and_binary_messages(tmp_path: Path) -> None:
    layout = struct.Struct("<Id4s")
    packed = layout.pack(200, 2.5, b"b") + layout.pack(100, 1.5, "中".encode("gbk"))
    async with running_gateway(tmp_path, "sisnet_tcp", **OPEN) as running, await terminal(running) as line:
        line.write(b"1:set:sh:tick:" + packed)
        assert (await line.hear_json("1"))["ans"] == -1, "no dict told of the table"
        fields = [["time", "U", 4, 1], ["price", "F", 8, 1], ["name", "C", 4, 1]]
        assert await line.ask("2", cmd="dict", argv={"tick": {"fields": fields}}) == {"ans": 0}
        line.write(b"3:set:sh:tick:" + packed)
        assert await line.hear_json("3") == {"ans": 0}
        rows = [[100, 1.5, "中"], [200, 2.5, "b"]]
        assert await line.sisdb("get", key="sh", sdb="tick") == rows
        assert await line.sisdb("tables", sdb="tick") == {"tick.fields": fields}
        line.write(b"4:get:sh:tick:")
        assert await line.hear_json("4") == {"ans": 4, "msg": rows}
        async with await terminal(running) as other:
            other.write(b"5:set:sh:tick:" + layout.pack(300, 3.5, b"c"))
            assert await other.hear_json("5") == {"ans": 0}, "the table is known by now"
        kept = layout.pack(100, 1.5, "中".encode("gbk")) + layout.pack(200, 2.5, b"b") + layout.pack(300, 3.5, b"c")
        ask = write_json({"key": "sh", "sdb": "tick", "format": "bytes"})
        line.write(BinaryRequest(message_name="6", command=b"get", service=b"sisdb", ask=ask).encode())
        answer = await line.hear_frame()
        assert isinstance(answer, BinaryAnswer)
        assert answer.data == kept
        ask = write_json({"key": "sh", "sdb": "tick", "count": 1})
        line.write(BinaryRequest(message_name="7", command=b"get", service=b"sisdb", ask=ask).encode())
        answer = await line.hear_frame()
        assert isinstance(answer, BinaryAnswer)
        assert (answer.ans, answer.msg) == (b"4", b'[[300,3.5,"c"]]')
        line.write(b"8:set:sh:tick:half")
        assert (await line.hear_json("8"))["ans"] == -1


async def test_followers_hear_of_every_new_record_under_their_requests_name(tmp_path: Path) -> None:
    async with (
        running_gateway(tmp_path, "sisnet_tcp", **OPEN) as running,
        await terminal(running) as line,
        await terminal(running) as writer,
    ):
        await filled(writer)
        for name, asked in {
            "one": {"key": "a", "sdb": "day"},
            "two": {"key": "a,b", "sdb": "day", "fields": "time"},
            "all": {"key": "*", "sdb": "*", "format": "json", "fields": ["open"]},
        }.items():
            assert await line.ask(name, service="sisdb", command="sub", ask=asked) == {"ans": 0}
        assert await writer.sisdb("set", key="a", sdb="day", data=[[40, 1, "x"], [50, 2, "y"]]) == "ok"
        assert [await line.hear() for _ in range(3)] == [
            b'one:{"ans":4,"msg":[[40,1.0,"x"],[50,2.0,"y"]]}',
            b'two:{"ans":5,"msg":{"a.day":[[40],[50]]}}',
            b'all:{"ans":5,"msg":{"a.day":[{"open":1.0},{"open":2.0}]}}',
        ]
        assert await writer.sisdb("set", key="b,z", sdb="day", data=[[60, 3, "z"]]) == "ok"
        assert sorted([await line.hear() for _ in range(3)]) == [
            b'all:{"ans":5,"msg":{"b.day":[{"open":3.0}]}}',
            b'all:{"ans":5,"msg":{"z.day":[{"open":3.0}]}}',
            b'two:{"ans":5,"msg":{"b.day":[[60]]}}',
        ]
        for asked in ({"key": "a,b", "sdb": "day"}, {"key": "*", "sdb": "*"}, {"key": "none", "sdb": "day"}):
            assert await line.ask("u", service="sisdb", command="unsub", ask=asked) == {"ans": 0}
        assert await writer.sisdb("set", key="a", sdb="day", data=[[70, 4, ""]]) == "ok"
        assert await line.hear() == b'one:{"ans":4,"msg":[[70,4.0,""]]}'
        assert await line.ask("end", service="wirelake", command="ping") == {"ans": 0}, "nothing else came"
        assert await line.ask("odd", command="sub", ask={"key": "c", "sdb": "day", "fields": "no"}) == {"ans": 0}
        assert await writer.sisdb("set", key="c", sdb="day", data=[[80, 5, ""]]) == "ok"
        assert await line.hear_json("odd") == {"ans": -100, "msg": "there is no field 'no'"}, "it is dropped"
        assert await writer.sisdb("set", key="c", sdb="day", data=[[90, 5, ""]]) == "ok"
        assert await writer.sisdb("set", key="a", sdb="day", data=[[1, 1]]) != "ok"
        assert await line.ask("end", service="wirelake", command="ping") == {"ans": 0}, "what was refused is no news"


async def test_what_is_pushed_can_be_read_and_is_pushed_once_in_order(tmp_path: Path) -> None:
    async with (
        running_gateway(tmp_path, "sisnet_tcp", **OPEN) as running,
        await terminal(running) as line,
        await terminal(running) as writer,
    ):
        assert await line.ask("s", command="sub", ask={"key": "k", "sdb": "t"}) == {"ans": 0}
        for number in range(200):
            writer.say(str(number), command="set", ask={"key": "k", "sdb": "t", "data": {"time": number}})
        writer.say("last", command="get", ask={"key": "k", "sdb": "t"})
        told = [await line.hear_json("s") for _ in range(200)]
        assert [row for answer in told for row in answer["msg"]] == [[number] for number in range(200)]
        answers = [await writer.hear() for _ in range(201)]
        rows = b",".join(b"[%d]" % number for number in range(200))
        assert b'last:{"ans":4,"msg":[%b]}' % rows in answers, "a question behind a write sees it"


async def test_followers_are_forgotten_with_their_connection_and_bounded(tmp_path: Path) -> None:
    async with running_gateway(tmp_path, "sisnet_tcp", **OPEN) as running:
        async with await terminal(running) as line:
            for number in range(RECORDS_SUBSCRIPTIONS_MAX):
                asked = {"key": f"k{number}", "sdb": "t"}
                assert await line.ask("s", command="sub", ask=asked) == {"ans": 0}
            answer = await line.ask("s", command="sub", ask={"key": "one more", "sdb": "t"})
            assert answer["ans"] == -1
        async with await terminal(running) as line:
            assert await line.sisdb("set", key="k0", sdb="t", data={"time": 1}) == "ok"
            followers = running.gateway.builtin_services.records.followers
            assert not followers


async def test_a_second_data_set_and_the_live_names_of_both(tmp_path: Path) -> None:
    sisnet = {"data_sets": ["sisdb", "other"]}
    async with (
        running_gateway(tmp_path, "sisnet_tcp", "redis", sisnet=sisnet, **OPEN) as running,
        await terminal(running) as line,
        redis.asyncio.Redis(host=HOST, port=running.port("redis")) as app,
        app.pubsub() as pubsub,
    ):
        await pubsub.subscribe("a.day", "other:a.day")
        for _ in range(2):
            assert await pubsub.get_message(timeout=WAIT_S) is not None
        assert await line.sisdb("set", key="a", sdb="day", data={"time": 1}) == "ok"
        assert await line.sisdb("set", "other", key="a", sdb="day", data={"time": 2}) == "ok"
        heard = [await pubsub.get_message(timeout=WAIT_S) for _ in range(2)]
        assert [(each["channel"], each["data"]) for each in heard if each] == [
            (b"a.day", b"[[1]]"),
            (b"other:a.day", b"[[2]]"),
        ]
        assert await line.sisdb("get", key="a", sdb="day") == [[1]]
        assert await line.sisdb("get", "other", key="a", sdb="day") == [[2]]
        assert "not found" in await line.sisdb("get", "third", key="a", sdb="day")


async def test_through_http_and_after_a_restart(tmp_path: Path) -> None:
    async def ask(running: Running, op: str, **fields: Any) -> Any:
        headers = {"Authorization": f"Bearer {running.gateway.keys.admin_token()}"}
        url = f"http://{HOST}:{running.port('http')}/api/services/sisdb/{op}"
        async with httpx.AsyncClient(timeout=WAIT_S) as web:
            answer = await web.post(url, json=fields, headers=headers)
        return answer.json() if answer.status_code == 200 else answer.status_code

    async def before() -> None:
        async with running_gateway(tmp_path, "http") as running:
            assert await ask(running, "create", sdb="day", fields=DAY) == {}
            assert await ask(running, "set", key="a", sdb="day", data=[[1, 2.5, "x"]]) == {}
            assert await ask(running, "set", key="a", sdb="loose", data={"time": 1}) == {}

    async def after() -> None:
        async with running_gateway(tmp_path, "http") as running:
            assert await ask(running, "get", key="a", sdb="day") == {"msg": [[1, 2.5, "x"]]}
            assert await ask(running, "get", key="a", sdb="*", fields=True) == {
                "a.day": [[1, 2.5, "x"]],
                "a.loose": [[1]],
                "day.fields": DAY,
                "loose.fields": [["time", "J", 0, 1]],
            }
            assert await ask(running, "get", key="a") == 400
            assert await ask(running, "fly") == 404

    await before()
    await after()


async def test_through_esnp(tmp_path: Path) -> None:
    async with (
        running_gateway(tmp_path, "esnp", **OPEN) as running,
        await Station.call(running.port("esnp"), "ann") as caller,
        await Station.call(running.port("esnp"), "bob") as follower,
    ):
        named = data_lines(key="a", sdb="day")
        assert (await follower.ask(*to("sisdb", "sub"), *named)).error is None
        rows = data_lines(data=[{"time": 2, "x": 1.5}, {"time": 1, "x": 2}])
        assert (await caller.ask(*to("sisdb", "set"), *named, *rows)).error is None
        assert values(await caller.ask(*to("sisdb", "get"), *named)) == {"msg": [[1, 2], [2, 1.5]]}
        pushed = await follower.message()
        assert pushed.flags == (6,)
        assert values(pushed)["msg"] == [[2, 1.5], [1, 2]]
        caller.say(*to("sisdb", "set", flag=5), *named, *data_lines(data={"time": 3, "x": 0}))
        assert values(await follower.message())["msg"] == [[3, 0]]
        assert (await caller.ask(*to("sisdb", "get"))).error == "get needs a key and an sdb"
        assert values(await caller.ask(*to("redis", "set"), *data_lines(args=["k", "v"]))) == {}
        assert (await caller.ask(*to("redis", "get"), *data_lines(args=["k"]))).payload == b"v"


async def test_more_than_fits_one_packet_comes_in_several(tmp_path: Path) -> None:
    count = 2 * STATE_READ_ROWS_MAX + 5
    async with running_gateway(tmp_path, "sisnet_tcp", **OPEN) as running, await terminal(running) as line:
        assert await line.sisdb("create", sdb="t", fields=[["time", "I", 4], ["n", "I", 4]]) == "ok"
        rows = [[number // 7, number] for number in range(count)]
        for first in (0, STATE_READ_ROWS_MAX, 2 * STATE_READ_ROWS_MAX):
            assert await line.sisdb("set", key="k", sdb="t", data=rows[first : first + STATE_READ_ROWS_MAX]) == "ok"
        for name in ("one", "two"):
            line.say(name, command="get", ask={"key": "k", "sdb": "t"})
        line.say("p", service="wirelake", command="ping")
        heard: dict[str, list[Any]] = {"one": [], "two": [], "p": []}
        while sum(map(len, heard.values())) < 7:
            told, _, rest = (await line.hear()).partition(b":")
            heard[told.decode()].append(read_json(rest))
        for packets in (heard["one"], heard["two"]):
            assert [packet.get("fuc", 0) for packet in packets] == [2, 1, 0]
            assert [row for packet in packets for row in packet["msg"]] == rows
        since = rows[5][0]
        line.say("n", command="get", ask={"key": "k", "sdb": "t", "min": since, "fields": "n", "format": "json"})
        packets = [await line.hear_json("n") for _ in range(3)]
        found = [row["n"] for packet in packets for row in packet["msg"]]
        assert found == [number for time, number in rows if time >= since]
        assert await line.sisdb("get", key="k", sdb="t", max=1) == rows[:14]
        assert await line.sisdb("get", key="k", sdb="t", count=2) == rows[-2:]


async def test_what_cannot_be_answered_whole_is_refused_not_left_out(tmp_path: Path) -> None:
    async with running_gateway(tmp_path, "sisnet_tcp", **OPEN) as running, await terminal(running) as line:
        rows = [{"time": number} for number in range(STATE_READ_ROWS_MAX)]
        assert await line.sisdb("set", key="k", sdb="loose", data=rows) == "ok"
        assert len(await line.sisdb("get", key="k", sdb="loose")) == STATE_READ_ROWS_MAX
        assert await line.sisdb("set", key="k,l", sdb="loose", data={"time": -1}) == "ok"
        assert "more than fits one answer" in await line.sisdb("get", key="k", sdb="loose")
        assert "more than fits one answer" in await line.sisdb("get", key="*", sdb="loose", count=10_000)
        assert await line.sisdb("get", key="k", sdb="loose", max=1) == [[-1], [0], [1]]
        for number in range(3):
            data = {"time": number, "text": "x" * (STATE_READ_BYTES_MAX // 2)}
            assert await line.sisdb("set", key="long", sdb="loose", data=data) == "ok"
        assert "more than fits one answer" in await line.sisdb("get", key="long", sdb="loose")
        assert len(await line.sisdb("get", key="long", sdb="loose", count=1)) == 1
        data = {"time": 9, "text": "x" * (STATE_READ_BYTES_MAX + 1)}
        assert await line.sisdb("set", key="long", sdb="loose", data=data) == "ok"
        assert await line.sisdb("get", key="long", sdb="loose", count=1, fields="time") == [[9]]
        assert "more than fits one answer" in await line.sisdb("get", key="long", sdb="loose", min=9, count=2)


async def test_a_long_answer_waits_for_a_reader_that_is_slow(tmp_path: Path) -> None:
    packets = 8  # more than the sockets' own buffers hold
    text = "x" * 250
    limits = {"pending_bytes": 64 * 1024}
    async with (
        running_gateway(tmp_path, "sisnet_tcp", limits=limits, **OPEN) as running,
        await terminal(running) as line,
        await terminal(running) as gone,
    ):
        assert await line.sisdb("create", sdb="t", fields=[["time", "I", 4], ["text", "C", 250]]) == "ok"
        for number in range(packets):
            rows = [[number, text]] * STATE_READ_ROWS_MAX
            assert await line.sisdb("set", key="k", sdb="t", data=rows) == "ok"
        for each in (line, gone):
            each.pause()
            each.say("g", command="get", ask={"key": "k", "sdb": "t"})
        connections = list(running.gateway.connections.values())
        await until(lambda: all(connection.is_congested for connection in connections))
        assert all(connection.pending_bytes < 8 * MIB for connection in connections)
        line.resume()
        for number in range(packets):
            packet = await line.hear_json("g")
            assert packet["msg"] == [[number, text]] * STATE_READ_ROWS_MAX
            assert packet.get("fuc", 0) == packets - 1 - number


@pytest.mark.parametrize("conflate", [False, True])
async def test_a_follower_that_does_not_read_is_cut_off_or_gets_the_newest(tmp_path: Path, *, conflate: bool) -> None:
    broker = {"slow": "conflate" if conflate else "cut"}
    limits = {"pending_bytes": 64 * 1024}
    async with (
        running_gateway(tmp_path, "sisnet_tcp", broker=broker, limits=limits, **OPEN) as running,
        await terminal(running) as slow,
        await terminal(running) as writer,
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
            while (told := await slow.hear_json("s"))["msg"][0][0] < number:
                pass
            assert told["msg"][0][0] == number
        else:
            with pytest.raises(AssertionError, match="closed"):
                await slow.hear_to_the_end()
        assert await writer.ask("p", service="wirelake", command="ping") == {"ans": 0}


GBK_NAME = "浦发银行".encode("gbk")
GBK_LINE = bytes.fromhex("0100000000000000") + GBK_NAME


async def test_gbk_text_in_a_data_line_stays_as_it_came(tmp_path: Path) -> None:
    """As a terminal of the authors' sends it: a dict, then packed records. Only JSON answers are UTF-8."""
    async with running_gateway(tmp_path, "sisnet_tcp", **OPEN) as running, await terminal(running) as line:
        table = {"gt": {"fields": [["time", "I", 8], ["nm", "C", 8]]}}
        assert await line.ask("d", cmd="dict", argv=table) is not None
        assert GBK_LINE.hex() == "0100000000000000c6d6b7a2d2f8d0d0"
        line.write(b"3:set:k:gt:" + GBK_LINE)
        assert await line.hear_json("3") is not None
        assert await line.sisdb("get", key="k", sdb="gt") == [[1, "浦发银行"]]
        asked = {"key": "k", "sdb": "gt", "format": "bytes"}
        line.say("b", service="sisdb", command="get", ask=asked, fmt="bytes")
        told = await line.hear_frame()
        while not isinstance(told, BinaryAnswer):
            told = await line.hear_frame()
        assert told.data == GBK_LINE


async def test_an_empty_answer_has_its_type_and_a_sub_may_take_bytes(tmp_path: Path) -> None:
    async with (
        running_gateway(tmp_path, "sisnet_tcp", **OPEN) as running,
        await terminal(running) as line,
        await terminal(running) as writer,
    ):
        await filled(writer)
        nothing = {"key": "none", "sdb": "day"}
        assert await line.ask("n", service="sisdb", command="get", ask=nothing) == {"ans": 4, "msg": []}
        line.say("s", service="sisdb", command="sub", ask={"key": "a", "sdb": "day", "format": "bytes"})
        assert (await line.hear()).startswith(b"1:"), "first the table's layout"
        assert await line.hear_json("s") == {"ans": 0}
        assert await writer.sisdb("set", key="a", sdb="day", data=[[40, 1.5, "x"], [50, 2.5, "y"]]) == "ok"
        packed = struct.pack("<qd8s", 40, 1.5, b"x") + struct.pack("<qd8s", 50, 2.5, b"y")
        assert await line.hear_json("s") == {"ans": 6, "msg": b64encode(packed).decode()}
