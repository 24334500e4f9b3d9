"""sisnet frames and common messages, both ways."""

from typing import Any

import pytest
from hypothesis import example, given

from protocols.sisnet.strategies import json_values, words
from wirelake.errors import TranslationError
from wirelake.message import Credentials, Device, Failure, Kind, Message, Op, Operation, Topic, control
from wirelake.protocols.frame import Sender
from wirelake.protocols.sisnet.answer import Answer, read_answer, write_answer
from wirelake.protocols.sisnet.binary import BinaryAnswer, BinaryRequest, Extension
from wirelake.protocols.sisnet.constants import Dialect
from wirelake.protocols.sisnet.envelope import SisnetFrame
from wirelake.protocols.sisnet.forms import DataLine, Http, Json, Redis
from wirelake.protocols.sisnet.frames import decode
from wirelake.protocols.sisnet.request import read_request
from wirelake.protocols.sisnet.translation import from_message, request_from_message, to_message


def asked(frame: SisnetFrame) -> Message:
    return to_message(frame, Sender.CLIENT)


def answered(frame: SisnetFrame) -> Message:
    return to_message(frame, Sender.SERVER)


def request(**rest: Any) -> Message:
    return Message(kind=Kind.REQUEST, name="json", protocol="sisnet", correlation="n", **rest)


SISDB_GET = Operation("sisdb", "get")


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (
            {"service": "sisdb", "command": "get", "ask": {"key": "k", "sdb": "s"}},
            request(target=SISDB_GET, fields={"key": "k", "sdb": "s"}),
        ),
        ({"command": "get", "ask": {"key": "k"}}, request(target=SISDB_GET, fields={"key": "k"})),
        (
            {"cmd": "sisdb.get", "key": "k", "sdb": "s", "argv": {"min": 16}},
            request(target=SISDB_GET, fields={"key": "k", "sdb": "s", "min": 16}),
        ),
        (
            {"cmd": "sisdb.get", "key": "k", "argv": [11, "s"]},
            request(target=SISDB_GET, fields={"key": "k", "msg": [11, "s"]}),
        ),
        (
            {"cmd": "sisdb.set", "key": "k", "sdb": "s", "argv": [{"time": 100}]},
            request(target=Operation("sisdb", "set"), fields={"key": "k", "sdb": "s", "data": [{"time": 100}]}),
        ),
        ({"cmd": "sisdb.keys", "key": "*"}, request(target=Operation("sisdb", "keys"), fields={"key": "*"})),
        ({"cmd": "keys"}, request(target=Operation("sisdb", "keys"))),
        ({"cmd": "a.b.keys"}, request(target=Operation("a.b", "keys"))),
        ({"service": "x", "cmd": "a.b"}, request(target=Operation("x", "a.b"))),
        (
            {"service": "calc", "command": "add", "ask": [1, 2]},
            request(target=Operation("calc", "add"), fields={"msg": [1, 2]}),
        ),
        ({"service": "calc", "command": 5}, request(target=Operation("calc", "5"))),
        (
            {"service": "calc", "command": "add", "ask": {"a": 1, "payload": "aGk="}},
            request(target=Operation("calc", "add"), fields={"a": 1}, payload=b"hi"),
        ),
        (
            {"service": "calc", "command": "add", "ask": {"payload": "not base64!"}},
            request(target=Operation("calc", "add"), fields={"payload": "not base64!"}),
        ),
        (
            {"service": "calc", "command": "add", "object": "o", "ver": "1.0", "lnk": "a.b", "x": 1},
            request(target=Operation("calc", "add", "o"), headers={"ver": "1.0", "lnk": "a.b", "x": 1}),
        ),
        (
            {"fmt": "http", "service": "https://api.com/v1/", "command": "get.json", "ask": {"a": "E"}},
            request(target=Operation("https://api.com/v1/", "get.json"), fields={"a": "E"}, headers={"fmt": "http"}),
        ),
        ({"ask": None}, request(target=Operation("sisdb", ""))),
        ({"service": "wirelake", "command": "fly"}, request(target=Operation("wirelake", "fly"))),
        ({"command": "subscribe"}, request(target=Operation("sisdb", "subscribe"))),
    ],
)
def test_json_requests(values: dict[str, Any], message: Message) -> None:
    assert asked(Json.of("n", values)) == message


def ours(op: Op, **rest: Any) -> Message:
    return control(op, name="json", protocol="sisnet", correlation="n", **rest)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (
            {"command": "login", "fmt": "bytes", "ask": {"name": "guest", "password": "pw"}},
            ours(Op.LOGIN, credentials=Credentials("guest", "pw"), headers={"fmt": "bytes"}),
        ),
        (
            {"cmd": "login", "argv": {"version": 1, "compress": "snappy", "username": "u", "password": "p"}},
            ours(Op.LOGIN, credentials=Credentials("u", "p"), fields={"version": 1, "compress": "snappy"}),
        ),
        ({"command": "login"}, ours(Op.LOGIN, credentials=Credentials("", ""))),
        ({"command": "ping"}, ours(Op.PING)),
        ({"service": "wirelake", "command": "ping"}, ours(Op.PING)),
        ({"cmd": "logout"}, ours(Op.LOGOUT)),
        (
            {"service": "wirelake", "command": "subscribe", "ask": {"topic": "@a"}},
            ours(Op.SUBSCRIBE, fields={"topics": ["@a"]}),
        ),
        (
            {"service": "wirelake", "command": "unsubscribe", "ask": {"topic": ["@a", 7]}},
            ours(Op.UNSUBSCRIBE, fields={"topics": ["@a", "7"]}),
        ),
        ({"cmd": "wirelake.subscribe", "argv": 7}, ours(Op.SUBSCRIBE, fields={"topics": []})),
        (
            {"service": "wirelake", "command": "register", "ask": {"service": "calc"}},
            ours(Op.REGISTER, fields={"service": "calc"}),
        ),
        (
            {"cmd": "dict", "argv": {"t": {"fields": []}}},
            Message(kind=Kind.CONTROL, name="dict", protocol="sisnet", correlation="n", fields={"t": {"fields": []}}),
        ),
    ],
)
def test_requests_to_the_gateway(values: dict[str, Any], message: Message) -> None:
    assert asked(Json.of("n", values)) == message


@pytest.mark.parametrize(
    ("ask", "topic", "payload", "headers"),
    [
        ({"topic": "@a", "content": "hi"}, "@a", b"hi", {}),
        ({"topic": "@a", "content": "/w==", "encoding": "base64"}, "@a", b"\xff", {}),
        ({"topic": "@a", "content": "no base64", "encoding": "base64"}, "@a", b"no base64", {}),
        ({"topic": "@a", "content": {"x": 1}, "lang": "de"}, "@a", b'{"x":1}', {"lang": "de"}),
        ({"topic": "@a", "payload": "/w=="}, "@a", b"\xff", {}),
        ({"topic": "@a"}, "@a", b"", {}),
        (None, "", b"", {}),
    ],
)
def test_publishing(ask: Any, topic: str, payload: bytes, headers: dict[str, Any]) -> None:
    frame = Json.of("n", {"service": "wirelake", "command": "publish", "ask": ask})
    assert asked(frame) == Message(
        kind=Kind.NOTIFICATION,
        name="json",
        protocol="sisnet",
        correlation="n",
        target=Topic(topic),
        payload=payload,
        headers=headers,
    )


def test_a_publication_has_a_type() -> None:
    for said, type_ in ((3, 3), (True, 0), ("3", 0)):
        ask = {"topic": "@a", "type": said, "content": ""}
        assert asked(Json.of("n", {"service": "wirelake", "command": "publish", "ask": ask})).type == type_


def answer(**rest: Any) -> Message:
    return Message(kind=Kind.RESPONSE, name="json", protocol="sisnet", correlation="n", **rest)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"ans": -1, "msg": "bad"}, answer(failure=Failure("bad", -1))),
        ({"ans": -2, "msg": "bad"}, answer(failure=Failure("bad", -1))),
        ({"ans": -3}, answer(failure=Failure("", -1))),
        ({"ans": -100}, answer(failure=Failure("", -100))),
        ({"ans": 0}, answer()),
        ({"ans": 0, "fuc": 3}, answer(more=3)),
        ({"ans": 0, "fuc": "3"}, answer(more=3)),
        ({"ans": 0, "fuc": -3}, answer()),
        ({"ans": 1, "msg": 10}, answer(fields={"msg": 10})),
        ({"ans": 2, "msg": "x"}, answer(fields={"msg": "x"})),
        ({"ans": "2", "msg": "x"}, answer(fields={"msg": "x"})),
        ({"ans": 3, "msg": [1]}, answer(fields={"msg": [1]})),
        ({"ans": 4, "msg": [[1]]}, answer(fields={"msg": [[1]]})),
        ({"ans": 5, "msg": {"a": 1}}, answer(fields={"a": 1})),
        ({"ans": 6, "msg": "aGk="}, answer(payload=b"hi")),
        ({"ans": 6, "msg": "not base64!"}, answer(fields={"msg": "not base64!"})),
        ({"ans": 6, "msg": 7}, answer(fields={"msg": 7})),
        ({"ans": 99, "msg": 7}, answer(fields={"msg": 7})),
        ({"ans": None, "msg": {"a": 1}}, answer(fields={"a": 1})),
        ({"ans": True}, answer()),
        ({"msg": "x"}, answer(fields={"msg": "x"})),
        ({"ans": 0, "lnk": "a.b", "x": 1}, answer(headers={"lnk": "a.b", "x": 1})),
        ({"ans": 5, "msg": {"payload": "aGk="}}, answer(fields={"payload": "aGk="})),
        ({"login": "ok"}, answer()),
        ({"logout": "why"}, answer(failure=Failure("why", -1))),
        ({"logout": "ok"}, answer()),
        ([[1, 2]], answer(fields={"msg": [[1, 2]]})),
        ([], answer(fields={"msg": []})),
        ({"k.info": [[1]], "info.fields": []}, answer(fields={"k.info": [[1]], "info.fields": []})),
        ({}, answer()),
        (
            {"ans": 5, "command": "publish", "msg": {"topic": "@a", "id": "7", "type": 3, "ts": 9, "content": "hi"}},
            Message(
                kind=Kind.NOTIFICATION,
                name="json",
                protocol="sisnet",
                correlation="n",
                target=Topic("@a"),
                id="7",
                type=3,
                at_ms=9,
                payload=b"hi",
            ),
        ),
        (
            {"ans": 5, "command": "publish", "msg": {}},
            Message(kind=Kind.NOTIFICATION, name="json", protocol="sisnet", correlation="n"),
        ),
    ],
)
def test_json_answers(values: Any, message: Message) -> None:
    assert answered(Json.of("n", values)) == message


@pytest.mark.parametrize(
    ("frame", "rest"),
    [
        (BinaryAnswer(message_name="n"), {}),
        (BinaryAnswer(message_name="n", data=b"\xff"), {"payload": b"\xff"}),
        (BinaryAnswer(message_name="n", msg=b"\xff"), {"payload": b"\xff"}),
        (BinaryAnswer(message_name="n", ans=b"6", msg=b"aGk="), {"payload": b"aGk="}),
        (BinaryAnswer(message_name="n", ans=b"0", fuc=b"2"), {"more": 2}),
        (BinaryAnswer(message_name="n", ans=b"0", msg=b"fine"), {"fields": {"msg": "fine"}}),
        (BinaryAnswer(message_name="n", ans=b"1", msg=b"-7"), {"fields": {"msg": -7}}),
        (BinaryAnswer(message_name="n", ans=b"1", msg=b"x"), {"fields": {"msg": "x"}}),
        (BinaryAnswer(message_name="n", ans=b"2", msg="浦".encode("gbk")), {"fields": {"msg": "浦"}}),
        (BinaryAnswer(message_name="n", ans=b"2"), {"fields": {"msg": ""}}),
        (BinaryAnswer(message_name="n", ans=b"4", msg=b"[[1]]"), {"fields": {"msg": [[1]]}}),
        (BinaryAnswer(message_name="n", ans=b"5", msg=b'{"a":1}'), {"fields": {"a": 1}}),
        (BinaryAnswer(message_name="n", ans=b"5", msg=b"{bad"), {"payload": b"{bad"}),
        (BinaryAnswer(message_name="n", ans=b"-1", msg=b"bad"), {"failure": Failure("bad", -1)}),
        (BinaryAnswer(message_name="n", ans=b"-1"), {"failure": Failure("", -1)}),
        (
            BinaryAnswer(message_name="n", ver=b"1", lnk=b"a", extensions=(Extension(b"k", b"v"),)),
            {"headers": {"k": "v", "ver": "1", "lnk": "a"}},
        ),
    ],
)
def test_binary_answers(frame: BinaryAnswer, rest: dict[str, Any]) -> None:
    expected = Message(kind=Kind.RESPONSE, name="binary_answer", protocol="sisnet", correlation="n", **rest)
    assert answered(frame) == expected


@pytest.mark.parametrize(
    ("frame", "rest"),
    [
        (BinaryRequest(message_name="n", data=b'{"a":1}'), {"target": Operation("sisdb", ""), "payload": b'{"a":1}'}),
        (
            BinaryRequest(message_name="n", service=b"calc", command=b"add", ask=b'{"a":1}', fmt=b"bytes"),
            {"target": Operation("calc", "add"), "fields": {"a": 1}, "headers": {"fmt": "bytes"}},
        ),
        (
            BinaryRequest(message_name="n", service=b"calc", command=b"add", ask=b"\xff"),
            {"target": Operation("calc", "add"), "payload": b"\xff"},
        ),
        (
            BinaryRequest(
                message_name="n", service=b"calc", command=b"add", ask=b"[1", extensions=(Extension(b"object", b"o"),)
            ),
            {"target": Operation("calc", "add", "o"), "payload": b"[1"},
        ),
        (
            BinaryRequest(message_name="n", service=b"calc", command=b"add", ver=b"1", lnk=b"a"),
            {"target": Operation("calc", "add"), "headers": {"ver": "1", "lnk": "a"}},
        ),
    ],
)
def test_binary_requests(frame: BinaryRequest, rest: dict[str, Any]) -> None:
    expected = Message(kind=Kind.REQUEST, name="binary_request", protocol="sisnet", correlation="n", **rest)
    assert asked(frame) == expected


def test_a_data_line_is_a_request_with_packed_records() -> None:
    line = DataLine("n", "set", "k", "s", b"\x01\x02")
    message = asked(line)
    assert message.target == Operation("sisdb", "set")
    assert (message.fields, message.payload) == ({"key": "k", "sdb": "s"}, b"\x01\x02")
    assert from_message(message, Sender.CLIENT) == line


@pytest.mark.parametrize(
    ("fields", "op"),
    [({"key": "a:b", "sdb": "s"}, "set"), ({"key": 7, "sdb": "s"}, "set"), ({"key": "k", "sdb": "s"}, "Read")],
)
def test_what_fits_no_data_line_is_said_in_json(fields: dict[str, Any], op: str) -> None:
    message = Message(kind=Kind.REQUEST, target=Operation("sisdb", op), fields=fields, payload=b"\x01")
    frame = from_message(message, Sender.CLIENT)
    assert isinstance(frame, Json)
    assert frame.values == {"service": "sisdb", "command": op, "ask": fields | {"payload": "AQ=="}}
    assert decode(frame.encode(), Sender.CLIENT) == frame


def test_redis_and_http_ride_along() -> None:
    ping = Redis("n", b"*1\r\n$4\r\nPING\r\n")
    assert asked(ping).target == Operation("redis", "")
    assert from_message(asked(ping), Sender.CLIENT) == ping
    assert answered(Redis("n", b"+PONG\r\n")).payload == b"+PONG\r\n"
    http = Http("n", b'{"service":"https://api.com/","command":"get.json","ask":{"a":1}}')
    assert asked(http).target == Operation("https://api.com/", "get.json")
    assert (asked(http).headers, asked(http).fields) == ({"fmt": "http"}, {"a": 1})
    assert asked(Http("n", b"GET /")).payload == b"GET /"
    assert asked(Http("n", b"[1]")).fields == {"msg": [1]}
    assert answered(Http("n", b"x")).kind is Kind.RESPONSE


@pytest.mark.parametrize(
    ("message", "values"),
    [
        (Message(kind=Kind.RESPONSE), {"ans": 0}),
        (Message(kind=Kind.RESPONSE, failure=Failure("bad", 3)), {"ans": -1, "msg": "bad"}),
        (Message(kind=Kind.RESPONSE, failure=Failure("gone", -100)), {"ans": -100, "msg": "gone"}),
        (Message(kind=Kind.RESPONSE, fields={"msg": 7}), {"ans": 1, "msg": 7}),
        (Message(kind=Kind.RESPONSE, fields={"msg": "x"}, more=2), {"ans": 2, "msg": "x", "fuc": 2}),
        (Message(kind=Kind.RESPONSE, fields={"msg": [1]}), {"ans": 3, "msg": [1]}),
        (Message(kind=Kind.RESPONSE, fields={"msg": [[1], [2]]}), {"ans": 4, "msg": [[1], [2]]}),
        (Message(kind=Kind.RESPONSE, fields={"msg": True}), {"ans": 5, "msg": {"msg": True}}),
        (Message(kind=Kind.RESPONSE, fields={"msg": 1.5}), {"ans": 5, "msg": {"msg": 1.5}}),
        (Message(kind=Kind.RESPONSE, fields={"msg": {"a": 1}}), {"ans": 5, "msg": {"msg": {"a": 1}}}),
        (Message(kind=Kind.RESPONSE, fields={"a": 1}), {"ans": 5, "msg": {"a": 1}}),
        (Message(kind=Kind.RESPONSE, payload=b"hi", more=1), {"ans": 6, "msg": "aGk=", "fuc": 1}),
        (Message(kind=Kind.RESPONSE, headers={"lnk": "a", "ans": 9}), {"ans": 0, "lnk": "a"}),
        (Message(kind=Kind.RESPONSE, fields={"a": 1}, payload=b"hi"), {"ans": 5, "msg": {"a": 1, "payload": "aGk="}}),
        (
            Message(kind=Kind.RESPONSE, parts=(Message(kind=Kind.NOTIFICATION, payload=b"hi"),)),
            {"ans": 3, "msg": [{"topic": "", "id": "", "type": 0, "ts": 0, "content": "hi"}]},
        ),
        (
            Message(kind=Kind.NOTIFICATION, target=Topic("@a"), id="7", type=3, at_ms=9, payload=b"\xff"),
            {
                "ans": 5,
                "msg": {"topic": "@a", "id": "7", "type": 3, "ts": 9, "content": "/w==", "encoding": "base64"},
                "command": "publish",
            },
        ),
    ],
)
def test_answers_are_written_with_the_type_of_what_they_hold(message: Message, values: dict[str, Any]) -> None:
    frame = from_message(message, Sender.SERVER)
    assert isinstance(frame, Json)
    assert frame.values == values


@given(json_values, words)
def test_what_an_answer_holds_comes_back(value: Any, name: str) -> None:
    fields = value if isinstance(value, dict) else {"msg": value}
    frame = from_message(Message(kind=Kind.RESPONSE, correlation=name, fields=fields), Sender.SERVER)
    back = to_message(decode(frame.encode(), Sender.SERVER), Sender.SERVER)
    assert (back.correlation, back.fields, back.failure) == (name, fields, None)


@pytest.mark.parametrize("dialect", Dialect)
@pytest.mark.parametrize("binary", [False, True])
@given(value=json_values)
@example(value=10**18)
def test_every_dialect_and_form_of_an_answer_says_the_same(dialect: Dialect, binary: bool, value: Any) -> None:
    fields = value if isinstance(value, dict) else {"msg": value}
    message = Message(kind=Kind.RESPONSE, fields=fields)
    said = read_answer(from_message(message, Sender.SERVER))
    frame = write_answer(Answer(ans=said.ans, msg=said.msg, payload=said.payload, dialect=dialect), "n", binary=binary)
    assert to_message(decode(frame.encode(), Sender.SERVER), Sender.SERVER).fields == fields


@pytest.mark.parametrize(
    ("answer_", "text"),
    [
        (Answer(ans=4, msg=[[1]]), b"[[1]]"),
        (Answer(ans=5, msg={"k.info": []}), b'{"k.info":[]}'),
        (Answer(ans=5, msg={"ans": 7}), b'{"ans":5,"msg":{"ans":7}}'),
        (Answer(ans=5, msg={}), b'{"ans":5,"msg":{}}'),
        (Answer(ans=4, msg=[[1]], more=1), b'{"ans":4,"msg":[[1]],"fuc":1}'),
        (Answer(ans=4, msg=[[1]], headers={"lnk": "a"}), b'{"ans":4,"msg":[[1]],"lnk":"a"}'),
        (Answer(ans=-1, msg="bad"), b'{"ans":-1,"msg":"bad"}'),
        (Answer(ans=6, payload=b"hi"), b'{"ans":6,"msg":"aGk="}'),
        (Answer(), b'{"ans":0}'),
    ],
)
def test_the_older_dialect_answers_with_bare_arrays_and_objects(answer_: Answer, text: bytes) -> None:
    older = Answer(
        ans=answer_.ans,
        msg=answer_.msg,
        payload=answer_.payload,
        more=answer_.more,
        headers=answer_.headers,
        dialect=Dialect.OLD,
    )
    frame = write_answer(older, "n")
    assert isinstance(frame, Json)
    assert frame.text == text


def test_logins_are_answered_in_their_dialect() -> None:
    old = Answer(dialect=Dialect.OLD)
    assert write_answer(old, "1", login=True).encode() == b'1:{"login":"ok"}'
    assert (
        write_answer(Answer(ans=-1, msg="why", dialect=Dialect.OLD), "1", login=True).encode() == b'1:{"logout":"why"}'
    )
    assert write_answer(Answer(), "1", login=True).encode() == b'1:{"ans":0}'
    assert write_answer(Answer(), "1", login=True, binary=True).encode() == b"1:B\x40"


@pytest.mark.parametrize(
    ("answer_", "wire"),
    [
        (Answer(ans=6, payload=b"hi"), b"n:B\x40\x02hi"),
        (Answer(ans=6, payload=b"hi", more=2), b"n:B\x4e\x016\x02hi\x012"),
        (Answer(ans=-1, msg="no"), b"n:B\x46\x02-1\x02no"),
        (Answer(ans=1, msg=7), b"n:B\x46\x011\x017"),
        (Answer(ans=4, msg=[[1]]), b"n:B\x46\x014\x05[[1]]"),
        (Answer(headers={"lnk": "a"}), b"n:B\x62\x010\x01a"),
        (Answer(headers={"ver": "1", "x": "y"}), b"n:B\xc3\x01\x011\x010\x01x\x01y"),
        (Answer(headers={"x": "y"}), b"n:B\xc2\x01\x010\x01x\x01y"),
    ],
)
def test_binary_answers_are_written_short(answer_: Answer, wire: bytes) -> None:
    assert write_answer(answer_, "n", binary=True).encode() == wire


@pytest.mark.parametrize(
    ("message", "values"),
    [
        (
            control(Op.LOGIN, credentials=Credentials("u", "p"), fields={"compress": "snappy"}),
            {"command": "login", "ask": {"compress": "snappy", "name": "u", "password": "p"}},
        ),
        (control(Op.LOGOUT), {"command": "logout"}),
        (control(Op.PING), {"service": "wirelake", "command": "ping"}),
        (
            control(Op.SUBSCRIBE, fields={"topics": ["@a"]}),
            {"service": "wirelake", "command": "subscribe", "ask": {"topic": "@a"}},
        ),
        (
            control(Op.UNSUBSCRIBE, fields={"topics": ["@a", "@b"]}),
            {"service": "wirelake", "command": "unsubscribe", "ask": {"topic": ["@a", "@b"]}},
        ),
        (
            control(Op.REGISTER, fields={"service": "calc"}),
            {"service": "wirelake", "command": "register", "ask": {"service": "calc"}},
        ),
        (Message(kind=Kind.CONTROL, name="dict", fields={"t": 1}), {"command": "dict", "ask": {"t": 1}}),
        (
            Message(kind=Kind.NOTIFICATION, target=Topic("@a"), type=3, payload=b"hi"),
            {"service": "wirelake", "command": "publish", "ask": {"topic": "@a", "type": 3, "content": "hi"}},
        ),
        (
            Message(kind=Kind.NOTIFICATION, target=Topic("@a"), payload=b"\xff"),
            {
                "service": "wirelake",
                "command": "publish",
                "ask": {"topic": "@a", "content": "/w==", "encoding": "base64"},
            },
        ),
        (
            Message(kind=Kind.REQUEST, target=Operation("calc", "add"), fields={"msg": [1]}, headers={"fmt": "json"}),
            {"service": "calc", "command": "add", "ask": [1], "fmt": "json"},
        ),
    ],
)
def test_requests_are_written_and_read_back(message: Message, values: dict[str, Any]) -> None:
    frame = from_message(message, Sender.CLIENT)
    assert isinstance(frame, Json)
    assert frame.values == values
    back = asked(frame)
    assert (back.kind, back.target, back.fields, back.payload) == (
        message.kind,
        message.target,
        message.fields,
        message.payload,
    )
    old = request_from_message(message, "n", Dialect.OLD)
    assert isinstance(old, Json)
    assert read_request(old).dialect is Dialect.OLD
    assert (asked(old).target, asked(old).fields) == (message.target, message.fields)
    binary = request_from_message(message, "n", binary=True)
    assert isinstance(binary, BinaryRequest)
    assert (asked(binary).target, asked(binary).fields) == (message.target, message.fields)


@pytest.mark.parametrize(("payload", "ask"), [(b"\xff", b"\xff"), (b"[1]", b'{"payload":"WzFd"}'), (b"[1", b"[1")])
def test_a_payload_goes_raw_into_a_binary_request_unless_it_looks_like_json(payload: bytes, ask: bytes) -> None:
    message = Message(kind=Kind.REQUEST, target=Operation("calc", "add", "o"), payload=payload)
    frame = request_from_message(message, "n", binary=True)
    assert isinstance(frame, BinaryRequest)
    assert frame.ask == ask
    assert (asked(frame).payload, asked(frame).target) == (payload, message.target)


@pytest.mark.parametrize(
    "message",
    [
        control(Op.LOGIN),
        Message(kind=Kind.CONTROL),
        Message(kind=Kind.TELEMETRY, target=Operation("calc", "add")),
        Message(kind=Kind.REQUEST),
        Message(kind=Kind.REQUEST, target=Device("1234")),
        Message(kind=Kind.NOTIFICATION, payload=b"x"),
        Message(kind=Kind.REQUEST, target=Operation("calc", "add"), fields={"a": object()}),
        Message(kind=Kind.REQUEST, target=Operation("calc", "add"), fields={"a": "\ud800"}),
    ],
)
def test_what_sisnet_cannot_say_is_refused(message: Message) -> None:
    with pytest.raises(TranslationError):
        from_message(message, Sender.CLIENT)
