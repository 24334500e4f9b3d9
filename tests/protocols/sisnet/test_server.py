"""The gateway's end, frame by frame."""

from typing import Any

import pytest

from protocols.sisnet.talk import OK, answer_to, ask, hear, ready_server, said
from wirelake.errors import ProtocolError, StateError, TranslationError
from wirelake.message import Credentials, Failure, FailureCode, Kind, Message, Op, Operation, Topic, control, control_op
from wirelake.protocols.frame import Sender
from wirelake.protocols.session import Closing
from wirelake.protocols.sisnet import snappy
from wirelake.protocols.sisnet.constants import (
    SISNET_HELD_FRAMES_MAX,
    SISNET_REQUESTS_OPEN_MAX,
    SISNET_SUBSCRIPTIONS_MAX,
    SISNET_TABLES_MAX,
    SISNET_UNSUB_BYTES_MAX,
    Dialect,
)
from wirelake.protocols.sisnet.frames import decode
from wirelake.protocols.sisnet.server import ServerSession
from wirelake.protocols.sisnet.session import ServerState, SessionSettings
from wirelake.protocols.text import write_json

NEW_LOGIN = b'1:{"command":"login","ask":{"name":"u","password":"p"}}'
OLD_LOGIN = b'1:{"cmd":"login","argv":{"version":1,"format":"json","username":"u","password":"p"}}'


@pytest.mark.parametrize(
    ("login", "ok", "refused"),
    [
        (NEW_LOGIN, b'1:{"ans":0}', b'1:{"ans":-1,"msg":"wrong"}'),
        (OLD_LOGIN, b'1:{"login":"ok"}', b'1:{"logout":"wrong"}'),
        (OLD_LOGIN.replace(b'"argv"', b'"ask"'), b'1:{"ans":0}', b'1:{"ans":-1,"msg":"wrong"}'),
        (NEW_LOGIN.replace(b'"ask"', b'"fmt":"bytes","ask"'), b"1:B\x40", b"1:B\x46\x02-1\x05wrong"),
    ],
)
def test_a_login_is_answered_in_its_own_dialect(login: bytes, ok: bytes, refused: bytes) -> None:
    server = ServerSession(0.0)
    (message,) = hear(server, login).messages
    assert (control_op(message), message.credentials) == (Op.LOGIN, Credentials("u", "p"))
    assert server.state.name == "CHECKING"
    assert said(server.send(OK, 0.0)) == [ok]
    assert server.state is ServerState.READY
    other = ServerSession(0.0)
    hear(other, login)
    step = other.send(Message(kind=Kind.RESPONSE, failure=Failure("wrong")), 0.0)
    assert said(step) == [refused]
    assert step.closing == Closing("login_refused", "wrong")
    assert other.state is ServerState.CLOSED


@pytest.mark.parametrize(
    ("login", "answer"),
    [
        (OLD_LOGIN.replace(b'"json"', b'"xml"'), b'1:{"logout":"format is not supported: xml"}'),
        (OLD_LOGIN.replace(b'"version":1', b'"compress":"zip"'), b'1:{"logout":"compress is not supported: zip"}'),
        (NEW_LOGIN.replace(b'"ask"', b'"fmt":"xml","ask"'), b'1:{"ans":-1,"msg":"format is not supported: xml"}'),
    ],
)
def test_a_login_with_what_we_do_not_have_is_refused(login: bytes, answer: bytes) -> None:
    server = ServerSession(0.0)
    step = hear(server, login)
    assert said(step) == [answer]
    assert step.messages == []
    assert step.closing is not None
    assert step.closing.code == "login_refused"
    assert server.state is ServerState.CLOSED


@pytest.mark.parametrize(
    ("wire", "answer"),
    [
        (b'p:{"command":"ping"}', b'p:{"ans":0}'),
        (b'p:{"service":"wirelake","command":"ping","fmt":"bytes"}', b"p:B\x40"),
        (b'n:{"command":"get","ask":{}}', b'n:{"ans":-1,"msg":"log in first"}'),
        (b'n:{"cmd":"sisdb.get"}', b'n:{"ans":-1,"msg":"log in first"}'),
        (b'n:{"cmd":"dict","argv":{}}', b'n:{"ans":-1,"msg":"log in first"}'),
        (b"n:B\x02\x03get", b"n:B\x46\x02-1\x0clog in first"),
        (b"n:set:k:s:", b'n:{"ans":-1,"msg":"log in first"}'),
        (b"n:H{}", b'n:{"ans":-1,"msg":"log in first"}'),
        (b"n:R*1\r\n", b"n:R-ERR log in first\r\n"),
    ],
)
def test_before_the_login_only_pings_are_served(wire: bytes, answer: bytes) -> None:
    server = ServerSession(0.0)
    step = hear(server, wire)
    assert (said(step), step.messages, step.closing) == ([answer], [], None)
    assert server.state is ServerState.NEW


def test_answers_to_nothing_are_ignored() -> None:
    for server in (ServerSession(0.0), ready_server()):
        step = hear(server, b'n:{"ans":0}')
        assert (step.frames, step.messages, step.closing) == ([], [], None)


def test_frames_sent_before_the_verdict_are_served_after_it() -> None:
    server = ServerSession(0.0)
    hear(server, NEW_LOGIN)
    assert hear(server, b'p:{"command":"ping"}').frames == []
    assert hear(server, b'n:{"command":"get"}').messages == []
    step = server.send(OK, 0.0)
    assert said(step) == [b'1:{"ans":0}', b'p:{"ans":0}']
    assert [message.target for message in step.messages] == [Operation("sisdb", "get")]


def test_what_is_held_behind_a_logout_is_dropped() -> None:
    server = ServerSession(0.0)
    hear(server, NEW_LOGIN)
    hear(server, b'o:{"command":"logout"}')
    hear(server, b'p:{"command":"ping"}')
    step = server.send(OK, 0.0)
    assert said(step) == [b'1:{"ans":0}', b'o:{"ans":0}']
    assert step.closing == Closing("logout")


def test_held_frames_are_unpacked_as_the_login_asked() -> None:
    server = ServerSession(0.0)
    hear(server, NEW_LOGIN.replace(b'"name"', b'"compress":"snappy","name"'))
    hear(server, b"n:set:k:s:" + snappy.pack(b"hello"))
    hear(server, b"n:set:k:s:hello")
    step = server.send(OK, 0.0)
    assert [message.payload for message in step.messages] == [b"hello"]
    assert step.closing is not None
    assert step.closing.code == "bad_snappy"
    assert server.state is ServerState.CLOSED


def test_too_many_frames_before_the_verdict_close() -> None:
    server = ServerSession(0.0)
    hear(server, NEW_LOGIN)
    for _ in range(SISNET_HELD_FRAMES_MAX):
        assert hear(server, b'p:{"command":"ping"}').closing is None
    step = hear(server, b'p:{"command":"ping"}')
    assert said(step) == [b':{"logout":"too many frames before the login was decided"}']
    assert step.closing is not None
    assert step.closing.code == "too_many_requests"


@pytest.mark.parametrize("login", [b"", NEW_LOGIN])
def test_no_login_in_time_closes(login: bytes) -> None:
    server = ServerSession(0.0, SessionSettings(login_s=10.0))
    if login:
        hear(server, login)
    assert server.deadline_s == 10.0
    assert server.tick(9.9).closing is None
    step = server.tick(10.0)
    assert said(step) == [b':{"logout":"no login in time"}']
    assert step.closing == Closing("login_timeout")


def test_a_second_login_is_refused_and_harms_nothing() -> None:
    server = ready_server()
    step = hear(server, NEW_LOGIN)
    assert said(step) == [b'1:{"ans":-1,"msg":"already logged in"}']
    assert server.state is ServerState.READY


@pytest.mark.parametrize("server", [ServerSession(0.0), ready_server()])
def test_logout_closes(server: ServerSession) -> None:
    step = hear(server, b'n:{"command":"logout"}')
    assert said(step) == [b'n:{"ans":0}']
    assert [control_op(message) for message in step.messages] == [Op.LOGOUT]
    assert step.closing == Closing("logout")
    with pytest.raises(StateError):
        hear(server, b'n:{"command":"ping"}')


def test_logout_in_the_older_words() -> None:
    assert said(hear(ready_server(Dialect.OLD), b'n:{"cmd":"logout"}')) == [b'n:{"logout":"ok"}']
    step = hear(ready_server(Dialect.OLD), b':{"logout":"bye"}')
    assert (step.frames, step.closing) == ([], Closing("logout"))


@pytest.mark.parametrize(
    ("wire", "rest", "answer"),
    [
        (b'n:{"command":"get"}', {"fields": {"msg": [[1]]}}, b'n:{"ans":4,"msg":[[1]]}'),
        (b'n:{"command":"get","fmt":"byte"}', {"fields": {"msg": [[1]]}}, b"n:B\x46\x014\x05[[1]]"),
        (b'n:{"command":"get","fmt":"bytes"}', {"payload": b"\x01"}, b"n:B\x40\x01\x01"),
        (b'n:{"command":"get"}', {"payload": b"\x01"}, b'n:{"ans":6,"msg":"AQ=="}'),
        (b'n:{"cmd":"sisdb.get"}', {"fields": {"msg": [[1]]}}, b"n:[[1]]"),
        (b'n:{"cmd":"sisdb.get"}', {"fields": {"k.info": []}}, b'n:{"k.info":[]}'),
        (b'n:{"cmd":"sisdb.get"}', {"failure": Failure("no", 7)}, b'n:{"ans":-1,"msg":"no"}'),
        (b'n:{"cmd":"sisdb.set"}', {}, b'n:{"ans":0}'),
        (b'n:{"service":"sisdb","cmd":"get","ask":{}}', {"fields": {"msg": [[1]]}}, b'n:{"ans":4,"msg":[[1]]}'),
        (b'n:{"service":"sisdb","cmd":"get"}', {"fields": {"a": 1}}, b'n:{"ans":5,"msg":{"a":1}}'),
        (b'n:{"cmd":"sisdb.get","ask":{"key":"k"}}', {"fields": {"a": 1}}, b'n:{"ans":5,"msg":{"a":1}}'),
        (b'n:{"cmd":"sisdb.get","argv":{"key":"k"}}', {"fields": {"a": 1}}, b'n:{"a":1}'),
        (b"n:B\x02\x03get", {"fields": {"msg": 7}}, b"n:B\x46\x011\x017"),
        (b"n:B\x12\x03get\x04json", {"fields": {"msg": 7}}, b'n:{"ans":1,"msg":7}'),
        (b'n:{"command":"get","lnk":"a.b"}', {}, b'n:{"ans":0,"lnk":"a.b"}'),
        (b"n:B\x22\x03get\x03a.b", {}, b"n:B\x62\x010\x03a.b"),
        (b'17:n:{"command":"get","fmt":"bytes"}', {}, b"17:n:B\x40"),
        (b'6:n1:{"command":"get","fmt":"bytes"}', {"payload": b"\1\2\xff"}, b"6:n1:B\x40\x03\1\2\xff"),
        (b'5:17:Bob:{"command":"get","fmt":"bytes"}', {}, b'5:17:Bob:{"ans":0}'),
        (b"6:n1:B\x06\x03get\x06quotes", {"fields": {"msg": 7}}, b"6:n1:B\x46\x011\x017"),
        (b"6::B\x06\x03get\x06quotes", {}, b"6::B\x40"),
        (b':{"command":"get"}', {}, b':{"ans":0}'),
        (b"n:set:k:s:\x01", {}, b'n:{"ans":0}'),
        (b'n:H{"service":"https://api.com/","command":"x"}', {"fields": {"a": 1}}, b'n:{"ans":5,"msg":{"a":1}}'),
        (b"n:RGET k", {"payload": b"v"}, b"n:R$1\r\nv\r\n"),
        (b"n:RGET k", {"failure": Failure("no\nway")}, b"n:R-ERR no way\r\n"),
        (b"n:R*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$1\r\nv\r\n", {}, b"n:R+OK\r\n"),
    ],
)
def test_answers_come_under_the_name_and_in_the_way_of_the_question(
    wire: bytes, rest: dict[str, Any], answer: bytes
) -> None:
    server = ready_server()
    (question,) = hear(server, wire).messages
    assert said(server.send(answer_to(question, **rest), 0.0)) == [answer]
    assert said(server.send(answer_to(question, **rest), 0.0)) == []


def test_the_format_of_the_login_holds_where_a_request_has_none() -> None:
    server = ServerSession(0.0)
    hear(server, OLD_LOGIN.replace(b'"json"', b'"bytes"'))
    assert said(server.send(OK, 0.0)) == [b'1:{"login":"ok"}']
    (question,) = hear(server, b'n:{"cmd":"sisdb.get"}').messages
    assert said(server.send(answer_to(question), 0.0)) == [b"n:B\x40"]
    (question,) = hear(server, b'n:{"cmd":"sisdb.get","fmt":"json"}').messages
    assert said(server.send(answer_to(question, fields={"msg": [1]}), 0.0)) == [b"n:[1]"]


def test_a_data_line_is_answered_in_the_dialect_of_the_login() -> None:
    server = ready_server(Dialect.OLD)
    (question,) = hear(server, b"n:get:k:s:").messages
    assert said(server.send(answer_to(question, fields={"msg": [[1]]}), 0.0)) == [b"n:[[1]]"]


def test_several_requests_may_share_a_name() -> None:
    server = ready_server()
    (first,) = hear(server, b'n:{"command":"get"}').messages
    (second,) = hear(server, b'n:{"command":"get"}').messages
    assert first.correlation != second.correlation
    assert said(server.send(answer_to(second, fields={"msg": 2}), 0.0)) == [b'n:{"ans":1,"msg":2}']
    assert said(server.send(answer_to(first, fields={"msg": 1}), 0.0)) == [b'n:{"ans":1,"msg":1}']


def test_an_answer_in_packets_says_how_many_follow() -> None:
    server = ready_server()
    (question,) = hear(server, b'n:{"command":"get"}').messages
    packets = [said(server.send(answer_to(question, fields={"msg": more}, more=more), 0.0)) for more in (2, 1, 0, 0)]
    assert packets == [
        [b'n:{"ans":1,"msg":2,"fuc":2}'],
        [b'n:{"ans":1,"msg":1,"fuc":1}'],
        [b'n:{"ans":1,"msg":0}'],
        [],
    ]


def test_what_cannot_be_said_leaves_the_question_open() -> None:
    server = ready_server()
    (question,) = hear(server, b'n:{"command":"get"}').messages
    with pytest.raises(TranslationError):
        server.send(answer_to(question, fields={"a": object()}), 0.0)
    assert said(server.send(answer_to(question), 0.0)) == [b'n:{"ans":0}']


def test_too_many_open_requests_are_refused_by_name() -> None:
    server = ready_server()
    for _ in range(SISNET_REQUESTS_OPEN_MAX):
        assert len(hear(server, b'n:{"command":"get"}').messages) == 1
    assert said(hear(server, b'n:{"command":"get"}')) == [b'n:{"ans":-1,"msg":"too many requests open"}']
    assert said(hear(server, b'n:{"command":"ping"}')) == [b'n:{"ans":0}']


def subscribe(server: ServerSession, wire: bytes) -> Message:
    (question,) = hear(server, wire).messages
    assert len(server.send(answer_to(question), 0.0).frames) == 1
    return question


SUB = b's:{"service":"sisdb","command":"sub","ask":{"key":"k","sdb":"i"}}'


def test_records_are_pushed_under_the_name_of_the_sub_until_unsub() -> None:
    server = ready_server()
    sub = subscribe(server, SUB)
    rows = Message(kind=Kind.NOTIFICATION, correlation=sub.correlation, fields={"msg": [[1, 2]]})
    assert said(server.send(rows, 0.0)) == [b's:{"ans":4,"msg":[[1,2]]}']
    subscribe(server, b'u:{"service":"sisdb","command":"unsub","ask":{"key":"other","sdb":"i"}}')
    assert len(server.send(rows, 0.0).frames) == 1
    subscribe(server, b'u:{"service":"sisdb","command":"unsub","ask":{"key":"k","sdb":"i"}}')
    assert server.send(rows, 0.0).frames == []


def test_pushes_have_the_dialect_and_format_of_the_sub() -> None:
    server = ready_server()
    old = subscribe(server, b's:{"cmd":"sisdb.sub","key":"k","sdb":"i"}')
    rows = Message(kind=Kind.NOTIFICATION, correlation=old.correlation, fields={"msg": [[1, 2]]})
    assert said(server.send(rows, 0.0)) == [b"s:[[1,2]]"]
    raw = subscribe(server, SUB.replace(b'"ask"', b'"fmt":"bytes","ask"'))
    packed = Message(kind=Kind.NOTIFICATION, correlation=raw.correlation, payload=b"\x01\x02")
    assert said(server.send(packed, 0.0)) == [b"s:B\x40\x02\x01\x02"]


def test_a_failed_sub_subscribes_to_nothing() -> None:
    server = ready_server()
    (question,) = hear(server, SUB).messages
    server.send(answer_to(question, failure=Failure("no")), 0.0)
    assert server.send(Message(kind=Kind.NOTIFICATION, correlation=question.correlation), 0.0).frames == []


@pytest.mark.parametrize(("code", "ans"), [(-100, b"-100"), (0, b"-1")])
def test_a_failure_ends_a_subscription(code: int, ans: bytes) -> None:
    server = ready_server()
    sub = subscribe(server, SUB)
    assert server.send(answer_to(sub), 0.0).frames == []
    step = server.send(answer_to(sub, failure=Failure("gone", code)), 0.0)
    assert said(step) == [b's:{"ans":' + ans + b',"msg":"gone"}']
    assert server.send(Message(kind=Kind.NOTIFICATION, correlation=sub.correlation), 0.0).frames == []


TOPICS = b's:{"service":"wirelake","command":"subscribe","ask":{"topic":["@a","@b"]}}'


def news(topic: str, **rest: Any) -> Message:
    return Message(kind=Kind.NOTIFICATION, target=Topic(topic), id="7", type=3, at_ms=9, payload=b"hi", **rest)


def test_notifications_of_topics_find_their_subscription() -> None:
    server = ready_server()
    sub = subscribe(server, TOPICS)
    wire = b's:{"ans":5,"msg":{"topic":"@a","id":"7","type":3,"ts":9,"content":"hi"},"command":"publish"}'
    assert said(server.send(news("@a"), 0.0)) == [wire]
    assert said(server.send(news("@a", correlation=sub.correlation), 0.0)) == [wire]
    assert said(server.send(news("@a", correlation="of another"), 0.0)) == [wire]
    assert said(server.send(news("@c"), 0.0))[0].startswith(b':{"ans":5')
    assert server.send(news("@c", correlation="of another"), 0.0).frames == []
    assert said(server.send(Message(kind=Kind.NOTIFICATION), 0.0))[0].startswith(b':{"ans":5')


def test_topics_are_called_off_one_by_one() -> None:
    server = ready_server()
    sub = subscribe(server, TOPICS)
    subscribe(server, b'u:{"service":"wirelake","command":"unsubscribe","ask":{"topic":"@a"}}')
    assert said(server.send(news("@b", correlation=sub.correlation), 0.0))[0].startswith(b"s:")
    subscribe(server, b'u:{"service":"wirelake","command":"unsubscribe","ask":{"topic":"@b"}}')
    assert server.send(news("@b", correlation=sub.correlation), 0.0).frames == []


def test_a_failure_ends_a_subscription_to_topics_that_no_later_one_took() -> None:
    server = ready_server()
    first = subscribe(server, TOPICS)
    second = subscribe(server, TOPICS.replace(b"s:", b"t:", 1).replace(b',"@b"', b""))
    server.send(answer_to(first, failure=Failure("over")), 0.0)
    assert said(server.send(news("@a"), 0.0))[0].startswith(b"t:")
    assert said(server.send(news("@b"), 0.0))[0].startswith(b":")
    assert said(server.send(answer_to(second, failure=Failure("over")), 0.0)) == [b't:{"ans":-1,"msg":"over"}']


def test_a_topic_goes_under_the_name_that_asked_last() -> None:
    server = ready_server()
    first = subscribe(server, TOPICS)
    subscribe(server, TOPICS.replace(b"s:", b"t:", 1))
    assert said(server.send(news("@a", correlation=first.correlation), 0.0))[0].startswith(b"t:")
    for _ in range(SISNET_SUBSCRIPTIONS_MAX):
        subscribe(server, TOPICS)  # takes the place of the one before


def test_subscriptions_are_bounded() -> None:
    server = ready_server()
    many = write_json([f"@{number}" for number in range(SISNET_SUBSCRIPTIONS_MAX + 1)])
    step = hear(server, b's:{"service":"wirelake","command":"subscribe","ask":{"topic":' + many + b"}}")
    assert said(step) == [b's:{"ans":-1,"msg":"too many subscriptions"}']
    for _ in range(SISNET_SUBSCRIPTIONS_MAX - 1):
        subscribe(server, SUB)
    (pending,) = hear(server, SUB).messages
    assert said(hear(server, SUB)) == [b's:{"ans":-1,"msg":"too many subscriptions"}']
    server.send(answer_to(pending), 0.0)
    assert said(hear(server, SUB)) == [b's:{"ans":-1,"msg":"too many subscriptions"}']


DICT = b'2:{"cmd":"dict","argv":{"info":{"fields":[["time","U",4,1],["price","F",8,1]]}}}'


def test_after_a_dict_data_lines_are_understood() -> None:
    server = ready_server()
    step = hear(server, DICT)
    assert said(step) == [b'2:{"ans":0}']
    assert [(message.kind, message.name, message.correlation) for message in step.messages] == [
        (Kind.CONTROL, "dict", "")
    ]
    wire = b"3:set:sh600600:info:" + bytes.fromhex("64000000000000000000f83f65000000000000000000f0bf")
    (message,) = hear(server, wire).messages
    assert message.target == Operation("sisdb", "set")
    assert message.payload == b""
    assert message.fields == {
        "key": "sh600600",
        "sdb": "info",
        "data": [{"time": 100, "price": 1.5}, {"time": 101, "price": -1.0}],
        "fields": [["time", "U", 4, 1], ["price", "F", 8, 1]],
    }


def test_records_of_unknown_tables_go_up_as_bytes() -> None:
    server = ready_server()
    (message,) = hear(server, b"3:set:k:other:\x01").messages
    assert message.payload == b"\x01"


def test_half_a_record_is_answered_and_harms_nothing() -> None:
    server = ready_server()
    hear(server, DICT)
    step = hear(server, b"3:set:k:info:\x01")
    assert said(step) == [b'3:{"ans":-1,"msg":"1 bytes are no whole records of 12 bytes, as \'info\' has them"}']
    assert step.messages == []
    assert server.state is ServerState.READY


def test_a_bad_dict_is_answered_and_harms_nothing() -> None:
    server = ready_server()
    step = hear(server, b'2:{"cmd":"dict","argv":7}')
    assert said(step) == [b'2:{"ans":-1,"msg":"a dict is an object of tables"}']
    assert step.messages == []
    for number in range(2):
        tables = {f"{number}.{each}": {"fields": [["v", "I", 1]]} for each in range(SISNET_TABLES_MAX // 2 + number)}
        step = hear(server, b'2:{"cmd":"dict","argv":' + write_json(tables) + b"}")
    assert said(step) == [b'2:{"ans":-1,"msg":"257 tables: at most 256"}']
    assert len(server.tables) == 128


def test_our_tables_are_told_under_a_name_of_ours() -> None:
    server = ready_server()
    fields = {"info": {"fields": [["time", "U", 4, 1]]}}
    step = server.send(Message(kind=Kind.CONTROL, name="dict", fields=fields, correlation="d"), 0.0)
    assert said(step) == [b'1:{"command":"dict","ask":{"info":{"fields":[["time","U",4,1]]}}}']
    assert [message.correlation for message in hear(server, b'1:{"ans":0}').messages] == ["d"]
    (message,) = hear(server, b"3:set:k:info:\x01\0\0\0").messages
    assert message.fields["data"] == [{"time": 1}]
    with pytest.raises(TranslationError):
        server.send(Message(kind=Kind.CONTROL, name="dict", fields={"info": 7}), 0.0)


def test_a_registered_client_is_asked_under_names_of_ours() -> None:
    server = ready_server()
    first = server.send(ask("calc", "add", fields={"a": 1}, correlation="x"), 0.0)
    second = server.send(ask("calc", "add", payload=b"\xff", correlation="y"), 0.0)
    assert said(first) == [b'1:{"service":"calc","command":"add","ask":{"a":1}}']
    assert said(second) == [b'2:{"service":"calc","command":"add","ask":{"payload":"/w=="}}']
    (answer,) = hear(server, b'2:{"ans":2,"msg":"later"}').messages
    assert (answer.correlation, answer.fields) == ("y", {"msg": "later"})
    packets = [hear(server, wire).messages[0] for wire in (b'1:{"ans":1,"msg":1,"fuc":1}', b"1:B\x46\x02-1\x02no")]
    assert [(packet.correlation, packet.more, packet.failure) for packet in packets] == [
        ("x", 1, None),
        ("x", 0, Failure("no", -1)),
    ]
    assert hear(server, b'1:{"ans":0}').messages == []


def test_an_event_is_asked_under_no_name_and_its_answer_ignored() -> None:
    server = ready_server()
    event = Message(kind=Kind.EVENT, target=Operation("calc", "add"), correlation="x")
    assert said(server.send(event, 0.0)) == [b':{"service":"calc","command":"add"}']
    assert hear(server, b':{"ans":0}').messages == []


def test_what_a_client_does_not_answer_fails_in_time() -> None:
    server = ServerSession(0.0, SessionSettings(answer_s=30.0))
    server.receive(decode(NEW_LOGIN, Sender.CLIENT), 0.0)
    server.send(OK, 0.0)
    server.send(ask("calc", "add", correlation="x"), 0.0)
    server.send(ask("calc", "add", correlation="y"), 10.0)
    server.receive(decode(b'1:{"ans":0,"fuc":1}', Sender.CLIENT), 20.0)
    assert server.deadline_s == 30.0
    assert server.tick(30.0).messages == []
    (late,) = server.tick(40.0).messages
    assert (late.kind, late.correlation, late.failure) == (Kind.RESPONSE, "y", Failure("timeout", FailureCode.TIMEOUT))
    (late,) = server.tick(50.0).messages
    assert late.correlation == "x"
    assert server.receive(decode(b'1:{"ans":0}', Sender.CLIENT), 51.0).messages == []


def test_a_client_is_asked_only_so_much_at_once() -> None:
    server = ready_server()
    for _ in range(SISNET_REQUESTS_OPEN_MAX):
        server.send(ask("calc", "add"), 0.0)
    with pytest.raises(StateError, match="open already"):
        server.send(ask("calc", "add"), 0.0)


def test_contents_are_packed_once_a_login_asked_for_it() -> None:
    server = ServerSession(0.0)
    hear(server, NEW_LOGIN.replace(b'"name"', b'"compress":"snappy","name"'))
    assert said(server.send(OK, 0.0)) == [b'1:{"ans":0}']
    (question,) = hear(server, b"n:B\x0a\x03get" + b"\x0b" + snappy.pack(b'{"key":1}')).messages
    assert question.fields == {"key": 1}
    assert said(server.send(answer_to(question, payload=b"hello"), 0.0)) == [b"n:B\x40\x07\x05\x10hello"]
    step = hear(server, b"n:B\x0a\x03get\x02{}")
    assert said(step) == [step.frames[0].encode()]
    assert step.closing is not None
    assert step.closing.code == "bad_snappy"


def test_content_that_grows_too_long_closes() -> None:
    server = ServerSession(0.0, SessionSettings(inflated_bytes_max=10))
    hear(server, NEW_LOGIN.replace(b'"name"', b'"compress":"snappy","name"'))
    server.send(OK, 0.0)
    step = hear(server, b"n:set:k:s:" + snappy.pack(b"x" * 11))
    assert step.closing is not None
    assert step.closing.code == "sisnet_inflated_bytes_max"


def test_bytes_that_cannot_be_read_are_answered_and_closed() -> None:
    server = ready_server()
    step = server.fail(ProtocolError("bad_json", "JSON is malformed", 5), 0.0)
    assert said(step) == [b':{"ans":-1,"msg":"JSON is malformed"}']
    assert step.closing is not None
    assert step.closing.code == "bad_json"
    assert server.fail(ProtocolError("x", "y", 0), 0.0).frames == []


@pytest.mark.parametrize("server", [ServerSession(0.0), ready_server()])
def test_goodbye_says_why(server: ServerSession) -> None:
    step = server.close(Closing("shutdown", "back at nine"), 0.0)
    assert said(step) == [b':{"logout":"back at nine"}']
    assert step.closing == Closing("shutdown", "back at nine")


def test_silence_closes() -> None:
    server = ready_server()
    assert server.tick(119.0).closing is None
    assert server.tick(121.0).closing == Closing("idle", "no data received for 120 s")


def test_a_client_provides_only_so_many_subscriptions() -> None:
    server = ready_server()
    for number in range(1, SISNET_SUBSCRIPTIONS_MAX + 1):
        server.send(ask("feed", "sub", fields={"key": str(number)}, correlation=str(number)), 0.0)
        (answer,) = hear(server, b'%d:{"ans":0}' % number).messages
        assert answer.continues
    with pytest.raises(StateError, match="too many subscriptions"):
        server.send(ask("feed", "sub", fields={"key": "k"}, correlation="x"), 0.0)
    (stop,) = said(server.send(control(Op.UNSUBSCRIBE, correlation="7"), 0.0))
    assert stop == b':{"service":"feed","command":"unsub","ask":{"key":"7"}}'
    assert said(server.send(control(Op.UNSUBSCRIBE, correlation="7"), 0.0)) == []
    assert hear(server, b'7:{"ans":1,"msg":1}').messages == []
    server.send(ask("feed", "sub", fields={"key": "k"}, correlation="x"), 0.0)


def test_an_unsub_that_is_too_long_to_keep_names_key_and_table() -> None:
    server = ready_server()
    fields = {"key": "k", "sdb": "s", "rest": "x" * SISNET_UNSUB_BYTES_MAX}
    server.send(ask("feed", "sub", fields=fields, correlation="x"), 0.0)
    hear(server, b'1:{"ans":0}')
    (stop,) = said(server.send(control(Op.UNSUBSCRIBE, correlation="x"), 0.0))
    assert stop == b':{"service":"feed","command":"unsub","ask":{"key":"k","sdb":"s"}}'
