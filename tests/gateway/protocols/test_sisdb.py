"""Data sets over real sockets: every command, form and refusal."""

import struct
from base64 import b64encode
from pathlib import Path
from typing import Any

import httpx
import redis.asyncio

from gateway.esnp_client import Station, data_lines, to, values
from gateway.protocols.sisdb_tables import DAY, OPEN, connect_terminal, fill_tables
from gateway.running_gateway import HOST, WAIT_S, Running, running_gateway, until
from gateway.sisnet_client import Terminal
from wirelake.limits import MIB, STATE_READ_BYTES_MAX, STATE_READ_ROWS_MAX
from wirelake.protocols.sisnet.binary import BinaryAnswer, BinaryRequest
from wirelake.protocols.text import read_json, write_json


async def test_every_command(tmp_path: Path) -> None:
    async with running_gateway(tmp_path, "sisnet_tcp", **OPEN) as running, await connect_terminal(running) as terminal:
        await fill_tables(terminal)
        get, a = [[10, 10.0, "a"], [20, 20.0, "a"], [30, 30.0, "a"]], {"key": "a", "sdb": "day"}
        assert await terminal.sisdb("get", **a) == get
        assert await terminal.sisdb("get", **a, min=20) == get[1:]
        assert await terminal.sisdb("get", **a, max=20) == get[:2]
        assert await terminal.sisdb("get", **a, min=15, max=25) == get[1:2]
        assert await terminal.sisdb("get", **a, min=10, count=2) == get[:2], "from there on"
        assert await terminal.sisdb("get", **a, count=2) == get[1:], "the newest"
        assert await terminal.sisdb("get", **a, max=20, count=1) == get[1:2]
        assert await terminal.sisdb("get", **a, min="10", count=-1) == get[2:]
        assert await terminal.sisdb("get", **a, count=0) == []
        assert await terminal.sisdb("get", **a, fields=["open", "time"], count=1) == [[30.0, 30]]
        assert await terminal.sisdb("get", **a, fields="name", count=1) == [["a"]]
        assert await terminal.sisdb("get", **a, fields={"open": 1}, count=1) == [[30.0]]
        assert await terminal.sisdb("get", **a, format="json", fields="time,open", count=1) == [
            {"time": 30, "open": 30.0}
        ]
        assert await terminal.sisdb("get", **a, fields=True, count=1) == {"a.day": get[2:], "day.fields": DAY}
        assert await terminal.sisdb("get", key="a,b,none,a", sdb="day", count=1) == {
            "a.day": [[30, 30.0, "a"]],
            "b.day": [[30, 30.1, "b"]],
        }
        assert await terminal.sisdb("get", key="*", sdb="min,day", count=1, fields="time") == {
            "a.min": [[1]],
            "a.day": [[30]],
            "b.day": [[30]],
            "c.day": [[30]],
        }
        assert await terminal.sisdb("get", key="a", sdb="*", fields="name", count=1) == {
            "a.day": [["a"]],
            "a.min": [["ä"]],
        }
        assert await terminal.sisdb("get", key="none", sdb="day") == []
        assert await terminal.sisdb("get", key="none,a", sdb="none") == []
        assert await terminal.sisdb("keys") == ["a", "b", "c"]
        assert await terminal.sisdb("keys", sdb="min") == ["a"]
        assert await terminal.sisdb("tables") == ["day", "min"]
        assert await terminal.sisdb("tables", sdb="min,none") == {"min.fields": DAY}
        assert await terminal.sisdb("del", key="b,c", sdb="*") == 2
        assert await terminal.sisdb("del", key="b", sdb="day") == 0
        assert await terminal.sisdb("keys") == ["a"]
        assert await terminal.sisdb("get", key="b", sdb="day") == []


async def test_the_kind_of_an_answer_is_told(tmp_path: Path) -> None:
    async with running_gateway(tmp_path, "sisnet_tcp", **OPEN) as running, await connect_terminal(running) as terminal:
        await fill_tables(terminal)
        arguments: dict[str, Any] = {"key": "a", "sdb": "min"}
        assert await terminal.ask("n", service="sisdb", command="get", ask=arguments) == {
            "ans": 4,
            "msg": [[1, 2.5, "ä"]],
        }
        arguments = {"key": "a", "sdb": "*", "count": 1, "fields": "time"}
        assert (await terminal.ask("n", command="get", ask=arguments))["ans"] == 5, "without a service it is sisdb's"
        assert await terminal.ask("n", command="keys", lnk="x") == {"ans": 3, "msg": ["a", "b", "c"], "lnk": "x"}
        assert await terminal.ask("n", command="del", ask={"key": "a", "sdb": "*"}) == {"ans": 1, "msg": 2}


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
        "table 'loose' has no layout: create it, or describe it in a dict",
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
    async with running_gateway(tmp_path, "sisnet_tcp", **OPEN) as running, await connect_terminal(running) as terminal:
        await fill_tables(terminal)
        before = await terminal.sisdb("get", key="*", sdb="*")
        for command, arguments, why in REFUSED:
            assert await terminal.sisdb(command, **arguments) == f"failed: {why}", (command, arguments)
        assert await terminal.sisdb("get", key="*", sdb="*") == before
        assert await terminal.sisdb("tables") == ["day", "min"]


async def test_a_layout_can_be_written_in_several_ways_and_given_again(tmp_path: Path) -> None:
    async with running_gateway(tmp_path, "sisnet_tcp", **OPEN) as running, await connect_terminal(running) as terminal:
        listed = [["time", "U", 4, 1], ["bids", "F", 4, 3]]
        named = {"time": ["U", 4], "bids": ["F", 4, 3]}
        for fields in (listed, named, {"fields": listed}):
            assert await terminal.sisdb("create", sdb="tick", fields=fields) == "ok"
            assert await terminal.sisdb("tables", sdb="*") == {"tick.fields": listed}
        assert await terminal.sisdb("set", key="a", sdb="tick", data=[[7, [1, 2, 3]]]) == "ok"
        assert await terminal.sisdb("create", sdb="tick", fields=listed) == "ok", "the same one, with records in it"
        assert await terminal.sisdb("get", key="a", sdb="tick") == [[7, [1.0, 2.0, 3.0]]]
        assert await terminal.sisdb("del", key="a", sdb="tick") == 1
        assert await terminal.sisdb("create", sdb="tick", fields=listed[:1]) == "ok", "another one, once they are gone"


async def test_a_table_that_nobody_created_takes_what_comes(tmp_path: Path) -> None:
    async with running_gateway(tmp_path, "sisnet_tcp", **OPEN) as running, await connect_terminal(running) as terminal:
        set_ = {"key": "sh600601", "sdb": "info"}
        assert await terminal.sisdb("set", **set_, data=[{"time": 100, "newp": 100.01}]) == "ok"
        assert await terminal.sisdb("set", **set_, data={"newp": 7, "time": 50.7, "note": ["x", {"y": None}]}) == "ok"
        assert await terminal.sisdb("set", **set_, data=[[200, 8.5]]) == "ok"
        rows = [[50.7, 7, ["x", {"y": None}]], [100, 100.01, None], [200, 8.5, None]]
        assert await terminal.sisdb("get", **set_) == rows
        assert await terminal.sisdb("get", **set_, min=100, fields="newp") == [[100.01], [8.5]]
        assert await terminal.sisdb("tables", sdb="info") == {
            "info.fields": [["time", "J", 0, 1], ["newp", "J", 0, 1], ["note", "J", 0, 1]]
        }
        assert await terminal.sisdb("set", key="k", sdb="notes", data=[{"text": "b"}, {"text": "a"}]) == "ok"
        assert await terminal.sisdb("get", key="k", sdb="notes") == [["b"], ["a"]], "without a time, as they came"


async def test_the_older_dialect(tmp_path: Path) -> None:
    async with running_gateway(tmp_path, "sisnet_tcp", **OPEN) as running, await Terminal.connect(running) as terminal:
        assert await terminal.ask("1", cmd="login", argv={"username": "x", "password": "y"}) == {"login": "ok"}
        named = {"key": "sh600601", "sdb": "info"}
        assert await terminal.ask("2", cmd="sisdb.set", **named, argv=[{"time": 100, "newp": 100.01}]) == {"ans": 0}
        assert await terminal.ask("3", cmd="sisdb.set", **named, argv=[{"time": 10, "newp": 1.5}]) == {"ans": 0}
        assert await terminal.ask("4", cmd="sisdb.get", **named) == [[10, 1.5], [100, 100.01]]
        argv = [11, "sssss", {"min": 16}]
        assert await terminal.ask("5", cmd="sisdb.get", **named, argv=argv) == [[100, 100.01]]
        assert await terminal.ask("6", cmd="sisdb.get", key="*", sdb="info") == {
            "sh600601.info": [[10, 1.5], [100, 100.01]]
        }
        assert await terminal.ask("7", cmd="sisdb.tables", sdb="info") == {
            "info.fields": [["time", "J", 0, 1], ["newp", "J", 0, 1]]
        }
        assert (await terminal.ask("8", cmd="sisdb.get"))["ans"] == -1
        assert await terminal.ask("9", cmd="sisdb.sub", **named) == {"ans": 0}
        terminal.send_json("10", cmd="sisdb.set", **named, argv=[{"time": 200, "newp": 2}])
        received = {
            message.partition(b":")[0]: message for message in (await terminal.receive(), await terminal.receive())
        }
        assert received[b"9"] == b"9:[[200,2]]"


async def test_records_in_data_lines_and_binary_messages(tmp_path: Path) -> None:
    layout = struct.Struct("<Id4s")
    packed = layout.pack(200, 2.5, b"b") + layout.pack(100, 1.5, "中".encode("gbk"))
    async with running_gateway(tmp_path, "sisnet_tcp", **OPEN) as running, await connect_terminal(running) as terminal:
        terminal.send(b"1:set:sh:tick:" + packed)
        assert (await terminal.receive_json("1"))["ans"] == -1, "no dict told of the table"
        fields = [["time", "U", 4, 1], ["price", "F", 8, 1], ["name", "C", 4, 1]]
        assert await terminal.ask("2", cmd="dict", argv={"tick": {"fields": fields}}) == {"ans": 0}
        terminal.send(b"3:set:sh:tick:" + packed)
        assert await terminal.receive_json("3") == {"ans": 0}
        rows = [[100, 1.5, "中"], [200, 2.5, "b"]]
        assert await terminal.sisdb("get", key="sh", sdb="tick") == rows
        assert await terminal.sisdb("tables", sdb="tick") == {"tick.fields": fields}
        terminal.send(b"4:get:sh:tick:")
        assert await terminal.receive_json("4") == {"ans": 4, "msg": rows}
        async with await connect_terminal(running) as other:
            other.send(b"5:set:sh:tick:" + layout.pack(300, 3.5, b"c"))
            assert await other.receive_json("5") == {"ans": 0}, "the table is known by now"
        stored = layout.pack(100, 1.5, "中".encode("gbk")) + layout.pack(200, 2.5, b"b") + layout.pack(300, 3.5, b"c")
        ask = write_json({"key": "sh", "sdb": "tick", "format": "bytes"})
        terminal.send(BinaryRequest(message_name="6", command=b"get", service=b"sisdb", ask=ask).encode())
        answer = await terminal.receive_frame()
        assert isinstance(answer, BinaryAnswer)
        assert answer.data == stored
        ask = write_json({"key": "sh", "sdb": "tick", "count": 1})
        terminal.send(BinaryRequest(message_name="7", command=b"get", service=b"sisdb", ask=ask).encode())
        answer = await terminal.receive_frame()
        assert isinstance(answer, BinaryAnswer)
        assert (answer.ans, answer.msg) == (b"4", b'[[300,3.5,"c"]]')
        terminal.send(b"8:set:sh:tick:half")
        assert (await terminal.receive_json("8"))["ans"] == -1


async def test_a_second_data_set_and_the_live_names_of_both(tmp_path: Path) -> None:
    sisnet = {"data_sets": ["sisdb", "other"]}
    async with (
        running_gateway(tmp_path, "sisnet_tcp", "redis", sisnet=sisnet, **OPEN) as running,
        await connect_terminal(running) as terminal,
        redis.asyncio.Redis(host=HOST, port=running.port("redis")) as app,
        app.pubsub() as pubsub,
    ):
        await pubsub.subscribe("a.day", "other:a.day")
        for _ in range(2):
            assert await pubsub.get_message(timeout=WAIT_S) is not None
        assert await terminal.sisdb("set", key="a", sdb="day", data={"time": 1}) == "ok"
        assert await terminal.sisdb("set", "other", key="a", sdb="day", data={"time": 2}) == "ok"
        received = [await pubsub.get_message(timeout=WAIT_S) for _ in range(2)]
        assert [(each["channel"], each["data"]) for each in received if each] == [
            (b"a.day", b"[[1]]"),
            (b"other:a.day", b"[[2]]"),
        ]
        assert await terminal.sisdb("get", key="a", sdb="day") == [[1]]
        assert await terminal.sisdb("get", "other", key="a", sdb="day") == [[2]]
        assert "not found" in await terminal.sisdb("get", "third", key="a", sdb="day")


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
        await Station.connect(running.port("esnp"), "ann") as caller,
        await Station.connect(running.port("esnp"), "bob") as follower,
    ):
        named = data_lines(key="a", sdb="day")
        assert (await follower.ask(*to("sisdb", "sub"), *named)).error is None
        rows = data_lines(data=[{"time": 2, "x": 1.5}, {"time": 1, "x": 2}])
        assert (await caller.ask(*to("sisdb", "set"), *named, *rows)).error is None
        assert values(await caller.ask(*to("sisdb", "get"), *named)) == {"msg": [[1, 2], [2, 1.5]]}
        pushed = await follower.receive_message()
        assert pushed.flags == (6,)
        assert values(pushed)["msg"] == [[2, 1.5], [1, 2]]
        caller.send(*to("sisdb", "set", flag=5), *named, *data_lines(data={"time": 3, "x": 0}))
        assert values(await follower.receive_message())["msg"] == [[3, 0]]
        assert (await caller.ask(*to("sisdb", "get"))).error == "get needs a key and an sdb"
        assert values(await caller.ask(*to("redis", "set"), *data_lines(args=["k", "v"]))) == {}
        assert (await caller.ask(*to("redis", "get"), *data_lines(args=["k"]))).payload == b"v"


async def test_more_than_fits_one_packet_comes_in_several(tmp_path: Path) -> None:
    count = 2 * STATE_READ_ROWS_MAX + 5
    async with running_gateway(tmp_path, "sisnet_tcp", **OPEN) as running, await connect_terminal(running) as terminal:
        assert await terminal.sisdb("create", sdb="t", fields=[["time", "I", 4], ["n", "I", 4]]) == "ok"
        rows = [[number // 7, number] for number in range(count)]
        for first in (0, STATE_READ_ROWS_MAX, 2 * STATE_READ_ROWS_MAX):
            assert await terminal.sisdb("set", key="k", sdb="t", data=rows[first : first + STATE_READ_ROWS_MAX]) == "ok"
        for name in ("one", "two"):
            terminal.send_json(name, command="get", ask={"key": "k", "sdb": "t"})
        terminal.send_json("p", service="wirelake", command="ping")
        received: dict[str, list[Any]] = {"one": [], "two": [], "p": []}
        while sum(map(len, received.values())) < 7:
            reply, _, rest = (await terminal.receive()).partition(b":")
            received[reply.decode()].append(read_json(rest))
        for packets in (received["one"], received["two"]):
            assert [packet.get("fuc", 0) for packet in packets] == [2, 1, 0]
            assert [row for packet in packets for row in packet["msg"]] == rows
        since = rows[5][0]
        terminal.send_json(
            "n", command="get", ask={"key": "k", "sdb": "t", "min": since, "fields": "n", "format": "json"}
        )
        packets = [await terminal.receive_json("n") for _ in range(3)]
        found = [row["n"] for packet in packets for row in packet["msg"]]
        assert found == [number for time, number in rows if time >= since]
        assert await terminal.sisdb("get", key="k", sdb="t", max=1) == rows[:14]
        assert await terminal.sisdb("get", key="k", sdb="t", count=2) == rows[-2:]


async def test_what_cannot_be_answered_whole_is_refused_not_left_out(tmp_path: Path) -> None:
    async with running_gateway(tmp_path, "sisnet_tcp", **OPEN) as running, await connect_terminal(running) as terminal:
        rows = [{"time": number} for number in range(STATE_READ_ROWS_MAX)]
        assert await terminal.sisdb("set", key="k", sdb="loose", data=rows) == "ok"
        assert len(await terminal.sisdb("get", key="k", sdb="loose")) == STATE_READ_ROWS_MAX
        assert await terminal.sisdb("set", key="k,l", sdb="loose", data={"time": -1}) == "ok"
        assert "more than fits one answer" in await terminal.sisdb("get", key="k", sdb="loose")
        assert "more than fits one answer" in await terminal.sisdb("get", key="*", sdb="loose", count=10_000)
        assert await terminal.sisdb("get", key="k", sdb="loose", max=1) == [[-1], [0], [1]]
        for number in range(3):
            data = {"time": number, "text": "x" * (STATE_READ_BYTES_MAX // 2)}
            assert await terminal.sisdb("set", key="long", sdb="loose", data=data) == "ok"
        assert "more than fits one answer" in await terminal.sisdb("get", key="long", sdb="loose")
        assert len(await terminal.sisdb("get", key="long", sdb="loose", count=1)) == 1
        data = {"time": 9, "text": "x" * (STATE_READ_BYTES_MAX + 1)}
        assert await terminal.sisdb("set", key="long", sdb="loose", data=data) == "ok"
        assert await terminal.sisdb("get", key="long", sdb="loose", count=1, fields="time") == [[9]]
        assert "more than fits one answer" in await terminal.sisdb("get", key="long", sdb="loose", min=9, count=2)


async def test_a_long_answer_waits_for_a_reader_that_is_slow(tmp_path: Path) -> None:
    packets = 8  # more than the sockets' own buffers hold
    text = "x" * 250
    limits = {"pending_bytes": 64 * 1024}
    async with (
        running_gateway(tmp_path, "sisnet_tcp", limits=limits, **OPEN) as running,
        await connect_terminal(running) as terminal,
        await connect_terminal(running) as gone,
    ):
        assert await terminal.sisdb("create", sdb="t", fields=[["time", "I", 4], ["text", "C", 250]]) == "ok"
        for number in range(packets):
            rows = [[number, text]] * STATE_READ_ROWS_MAX
            assert await terminal.sisdb("set", key="k", sdb="t", data=rows) == "ok"
        for each in (terminal, gone):
            each.pause()
            each.send_json("g", command="get", ask={"key": "k", "sdb": "t"})
        connections = list(running.gateway.connections.values())
        await until(lambda: all(connection.is_congested for connection in connections))
        assert all(connection.pending_bytes < 8 * MIB for connection in connections)
        terminal.resume()
        for number in range(packets):
            packet = await terminal.receive_json("g")
            assert packet["msg"] == [[number, text]] * STATE_READ_ROWS_MAX
            assert packet.get("fuc", 0) == packets - 1 - number


GBK_NAME = "浦发银行".encode("gbk")
GBK_LINE = bytes.fromhex("0100000000000000") + GBK_NAME


async def test_gbk_text_in_a_data_line_stays_as_it_came(tmp_path: Path) -> None:
    """Send a dict, then packed records, as the authors' terminal does. Only JSON answers are UTF-8."""
    async with running_gateway(tmp_path, "sisnet_tcp", **OPEN) as running, await connect_terminal(running) as terminal:
        table = {"gt": {"fields": [["time", "I", 8], ["nm", "C", 8]]}}
        assert await terminal.ask("d", cmd="dict", argv=table) is not None
        assert GBK_LINE.hex() == "0100000000000000c6d6b7a2d2f8d0d0"
        terminal.send(b"3:set:k:gt:" + GBK_LINE)
        assert await terminal.receive_json("3") is not None
        assert await terminal.sisdb("get", key="k", sdb="gt") == [[1, "浦发银行"]]
        arguments = {"key": "k", "sdb": "gt", "format": "bytes"}
        terminal.send_json("b", service="sisdb", command="get", ask=arguments, fmt="bytes")
        reply = await terminal.receive_frame()
        while not isinstance(reply, BinaryAnswer):
            reply = await terminal.receive_frame()
        assert reply.data == GBK_LINE


async def test_an_empty_answer_has_its_type_and_a_sub_may_take_bytes(tmp_path: Path) -> None:
    async with (
        running_gateway(tmp_path, "sisnet_tcp", **OPEN) as running,
        await connect_terminal(running) as terminal,
        await connect_terminal(running) as writer,
    ):
        await fill_tables(writer)
        nothing = {"key": "none", "sdb": "day"}
        assert await terminal.ask("n", service="sisdb", command="get", ask=nothing) == {"ans": 4, "msg": []}
        terminal.send_json("s", service="sisdb", command="sub", ask={"key": "a", "sdb": "day", "format": "bytes"})
        assert (await terminal.receive()).startswith(b"1:"), "first the table's layout"
        assert await terminal.receive_json("s") == {"ans": 0}
        assert await writer.sisdb("set", key="a", sdb="day", data=[[40, 1.5, "x"], [50, 2.5, "y"]]) == "ok"
        packed = struct.pack("<qd8s", 40, 1.5, b"x") + struct.pack("<qd8s", 50, 2.5, b"y")
        assert await terminal.receive_json("s") == {"ans": 6, "msg": b64encode(packed).decode()}
