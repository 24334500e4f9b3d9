"""sisnet conversations, both sides real, through real bytes."""

from typing import Any

import pytest

from protocols.sisnet.talk import LOGIN, answer_to, ask, logged_in, said, said_by, talk
from wirelake.errors import ProtocolError, StateError, TranslationError
from wirelake.message import Failure, FailureCode, Kind, Message, Op, Operation, Topic, control, control_op
from wirelake.protocols.frame import Sender
from wirelake.protocols.packed_records import read_tables
from wirelake.protocols.protocol import Carrier
from wirelake.protocols.session import Closing
from wirelake.protocols.sisnet.client import ClientSession
from wirelake.protocols.sisnet.constants import SISNET_REQUESTS_OPEN_MAX, SISNET_SUBSCRIPTIONS_MAX, Dialect
from wirelake.protocols.sisnet.forms import DataLine, Json
from wirelake.protocols.sisnet.frames import decode
from wirelake.protocols.sisnet.session import ClientState, ServerState, SessionSettings

Way = dict[str, Any]
WAYS: list[Way] = [
    {},
    {"dialect": Dialect.OLD},
    {"binary": True},
    {"compress": True},
    {"binary": True, "compress": True},
    {"dialect": Dialect.OLD, "binary": True, "compress": True},
    {"carrier": Carrier.WEBSOCKET},
]


@pytest.mark.parametrize("way", WAYS)
def test_a_login_makes_both_ready(way: Way) -> None:
    talking = logged_in(**way)
    assert [(message.correlation, message.failure) for message in talking.client_messages] == [("in", None)]
    assert talking.sessions[Sender.CLIENT].state is ClientState.READY
    assert talking.sessions[Sender.SERVER].state is ServerState.READY


@pytest.mark.parametrize("way", WAYS)
def test_a_refused_login_is_told_and_closed(way: Way) -> None:
    talking = talk(**way)
    (login,) = talking.client_says(LOGIN)
    talking.server_says(answer_to(login, failure=Failure("wrong token")))
    assert [(message.correlation, message.failure) for message in talking.client_messages] == [
        ("in", Failure("wrong token", -1))
    ]
    assert {closing.code for closing in talking.closings.values()} == {"login_refused"}
    assert len(talking.closings) == 2


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    "message",
    [
        ask("sisdb", "get", fields={"key": "k", "sdb": "s"}, correlation="c"),
        ask("calc", "add", fields={"a": [1, {"b": None}]}, correlation="c"),
        ask("calc", "add", payload=b"\x00\xff", correlation="c"),
        ask("calc", "add", payload=b'{"looks":"like JSON"}', correlation="c"),
        ask("sisdb", "set", fields={"key": "k", "sdb": "s"}, payload=b"\x01\x02", correlation="c"),
        control(Op.SUBSCRIBE, fields={"topics": ["@a", "@b"]}, correlation="c"),
        control(Op.UNSUBSCRIBE, fields={"topics": ["@a"]}, correlation="c"),
        control(Op.REGISTER, fields={"service": "calc"}, correlation="c"),
        control(Op.UNREGISTER, fields={"service": "calc"}, correlation="c"),
        Message(kind=Kind.NOTIFICATION, target=Topic("@a"), type=3, payload=b"\xff", correlation="c"),
    ],
)
def test_what_is_asked_arrives_and_is_answered(way: Way, message: Message) -> None:
    talking = logged_in(**way)
    (question,) = talking.client_says(message)
    assert (question.kind, question.target, question.fields, question.payload, question.type) == (
        message.kind,
        message.target,
        message.fields,
        message.payload,
        message.type,
    )
    (answer,) = talking.server_says(answer_to(question, fields={"rows": [[1, 2.5, "x"]]}))
    assert (answer.kind, answer.correlation, answer.fields) == (Kind.RESPONSE, "c", {"rows": [[1, 2.5, "x"]]})


@pytest.mark.parametrize("way", WAYS)
def test_bytes_and_packets_come_back(way: Way) -> None:
    talking = logged_in(**way)
    (question,) = talking.client_says(ask("sisdb", "get", correlation="c"))
    (first,) = talking.server_says(answer_to(question, payload=b"\xff" * 300, more=1))
    (last,) = talking.server_says(answer_to(question, failure=Failure("broke")))
    assert (first.payload, first.more, first.correlation) == (b"\xff" * 300, 1, "c")
    assert (last.failure, last.more, last.correlation) == (Failure("broke", -1), 0, "c")


@pytest.mark.parametrize("way", WAYS)
def test_topics_are_subscribed_to_and_called_off(way: Way) -> None:
    talking = logged_in(**way)
    (question,) = talking.client_says(control(Op.SUBSCRIBE, fields={"topics": ["@a"]}, correlation="sub"))
    talking.server_says(answer_to(question))
    news = Message(kind=Kind.NOTIFICATION, target=Topic("@a"), id="7", type=3, at_ms=9, payload=b"\xff")
    (heard,) = talking.server_says(news)
    assert (heard.kind, heard.correlation, heard.target, heard.id) == (Kind.NOTIFICATION, "sub", Topic("@a"), "7")
    assert (heard.type, heard.at_ms, heard.payload) == (3, 9, b"\xff")
    (question,) = talking.client_says(control(Op.UNSUBSCRIBE, fields={"topics": ["@a"]}, correlation="unsub"))
    talking.server_says(answer_to(question))
    (stray,) = talking.server_says(news)
    assert (stray.kind, stray.correlation) == (Kind.NOTIFICATION, "")


@pytest.mark.parametrize("way", WAYS)
def test_records_are_pushed_until_the_request_is_no_longer_valid(way: Way) -> None:
    talking = logged_in(**way)
    (sub,) = talking.client_says(ask("sisdb", "sub", fields={"key": "k", "sdb": "s"}, correlation="sub"))
    talking.server_says(answer_to(sub))
    rows = Message(kind=Kind.NOTIFICATION, correlation=sub.correlation, fields={"msg": [[1, 2]]})
    (heard,) = talking.server_says(rows)
    assert (heard.kind, heard.correlation, heard.fields) == (Kind.NOTIFICATION, "sub", {"msg": [[1, 2]]})
    (over,) = talking.server_says(answer_to(sub, failure=Failure("closed", -100)))
    assert (over.kind, over.correlation, over.failure) == (Kind.RESPONSE, "sub", Failure("closed", -100))
    talking.inject(Sender.SERVER, talking.splitters[Sender.SERVER].wrap(b"1:[[3,4]]"))
    assert talking.client_messages[-1] == over


def test_a_subscription_is_called_off_on_both_sides() -> None:
    talking = logged_in()
    (sub,) = talking.client_says(ask("sisdb", "sub", fields={"key": "k", "sdb": "s"}, correlation="sub"))
    talking.server_says(answer_to(sub))
    (unsub,) = talking.client_says(ask("sisdb", "unsub", fields={"key": "k", "sdb": "s"}, correlation="unsub"))
    talking.server_says(answer_to(unsub))
    before = len(talking.client_messages)
    talking.inject(Sender.SERVER, talking.splitters[Sender.SERVER].wrap(b"1:[[3,4]]"))
    assert len(talking.client_messages) == before


def test_packed_records_come_under_the_name_of_the_sub() -> None:
    talking = logged_in()
    tables = {"info": {"fields": [["time", "U", 4, 1]]}}
    talking.server_says(Message(kind=Kind.CONTROL, name="dict", fields=tables, correlation="d"))
    assert (talking.client_messages[-1].name, talking.client_messages[-1].fields) == ("dict", tables)
    assert talking.server_messages[-1].correlation == "d"
    (sub,) = talking.client_says(ask("sisdb", "sub", fields={"key": "k", "sdb": "info"}, correlation="sub"))
    talking.server_says(answer_to(sub))
    client = talking.sessions[Sender.CLIENT]
    (heard,) = client.receive(DataLine("1", "set", "k", "info", b"\x07\0\0\0"), 0.0).messages
    assert (heard.kind, heard.correlation) == (Kind.NOTIFICATION, "sub")
    assert heard.fields == {"key": "k", "sdb": "info", "data": [{"time": 7}], **tables["info"]}
    step = client.receive(DataLine("1", "set", "k", "info", b"\x07"), 0.0)
    assert step.messages == []
    assert said(step)[0].startswith(b'1:{"ans":-1,')


@pytest.mark.parametrize("way", WAYS)
def test_records_are_packed_by_the_client_and_understood_by_the_server(way: Way) -> None:
    talking = logged_in(**way)
    tables = {"info": {"fields": [["time", "U", 4, 1], ["name", "C", 8, 1]]}}
    (told,) = talking.client_says(Message(kind=Kind.CONTROL, name="dict", fields=tables, correlation="d"))
    assert (told.name, told.fields) == ("dict", tables)
    assert (talking.client_messages[-1].correlation, talking.client_messages[-1].failure) == ("d", None)
    records = [{"time": 7, "name": "浦发"}, {"time": 8, "name": ""}]
    packed = read_tables(tables)["info"].pack(records)
    (line,) = talking.client_says(ask("sisdb", "set", fields={"key": "k", "sdb": "info"}, payload=packed))
    assert line.fields == {"key": "k", "sdb": "info", "data": records, **tables["info"]}


@pytest.mark.parametrize("way", WAYS)
def test_a_registered_client_serves(way: Way) -> None:
    talking = logged_in(**way)
    (question,) = talking.server_says(ask("calc", "add", fields={"a": 1}, correlation="from elsewhere"))
    assert (question.target, question.fields) == (Operation("calc", "add"), {"a": 1})
    (answer,) = talking.client_says(answer_to(question, fields={"msg": 3}))
    assert (answer.kind, answer.correlation, answer.fields) == (Kind.RESPONSE, "from elsewhere", {"msg": 3})
    assert talking.client_says(answer_to(question, fields={"msg": 3})) == []


def test_a_client_takes_no_subscriptions_and_no_logins() -> None:
    client = ready_client()
    step = client.receive(Json.of("1", {"command": "sub"}), 0.0)
    assert said(step) == [b'1:{"ans":-1,"msg":"too many subscriptions"}']
    step = client.receive(Json.of("1", {"command": "login"}), 0.0)
    assert said(step) == [b'1:{"ans":-1,"msg":"not served here"}']
    assert said(client.receive(Json.of("1", {"command": "ping"}), 0.0)) == [b'1:{"ans":0}']


def ready_client(settings: SessionSettings = SessionSettings()) -> ClientSession:
    client = ClientSession(0.0, settings)
    client.send(LOGIN, 0.0)
    client.receive(Json.of("login", {"ans": 0}), 0.0)
    assert client.state is ClientState.READY
    return client


@pytest.mark.parametrize("way", [{}, {"dialect": Dialect.OLD}])
def test_pings_and_logouts(way: Way) -> None:
    talking = logged_in(**way)
    talking.client_says(control(Op.PING, correlation="p"))
    assert (talking.client_messages[-1].correlation, talking.client_messages[-1].failure) == ("p", None)
    (up,) = talking.client_says(control(Op.LOGOUT, correlation="o"))
    assert control_op(up) is Op.LOGOUT
    assert (talking.client_messages[-1].correlation, talking.client_messages[-1].failure) == ("o", None)
    assert talking.closings[Sender.SERVER] == Closing("logout")


def test_goodbye_is_heard() -> None:
    talking = logged_in()
    step = talking.sessions[Sender.SERVER].close(Closing("shutdown"), 0.0)
    (frame,) = step.frames
    talking.inject(Sender.SERVER, talking.splitters[Sender.SERVER].wrap(frame.encode()))
    assert talking.closings[Sender.CLIENT] == Closing("logout", "shutdown")


def test_a_server_that_asks_for_logout_is_heard() -> None:
    client = ready_client()
    assert client.receive(Json.of("", {"cmd": "logout"}), 0.0).closing == Closing("logout")


def test_what_the_server_could_not_read_is_handed_up() -> None:
    talking = logged_in()
    talking.inject(Sender.CLIENT, b"\xff")
    assert talking.closings[Sender.SERVER].code == "size_form"
    assert talking.client_messages[-1].failure == Failure("no size begins with FF", -1)


def test_what_answers_nothing_is_ignored() -> None:
    client = ready_client()
    step = client.receive(Json.of("99", {"ans": 0}), 0.0)
    assert (step.messages, step.frames, step.closing) == ([], [], None)


def test_a_client_waits_for_its_own_login() -> None:
    client = ClientSession(0.0)
    assert said(client.send(LOGIN, 0.0)) == [
        b'login:{"command":"login","ask":{"name":"terminal-1","password":"t0ken"},"fmt":"json"}'
    ]
    for wire in (b'n:{"ans":0}', b'n:{"command":"ping"}'):
        step = client.receive(decode(wire, Sender.SERVER), 0.0)
        assert (step.frames, step.messages) == ([], [])
        assert client.state is ClientState.LOGGING_IN
    with pytest.raises(StateError):
        client.send(control(Op.PING), 0.0)
    step = client.receive(Json.of("", {"ans": -1, "msg": "cannot read that"}), 0.0)
    assert step.closing == Closing("login_refused", "cannot read that")


def test_the_older_login() -> None:
    client = ClientSession(0.0, dialect=Dialect.OLD, compress=True)
    (wire,) = said(client.send(LOGIN, 0.0))
    assert wire == (
        b'login:{"cmd":"login","argv":{"version":1,"format":"json","username":"terminal-1",'
        b'"password":"t0ken","compress":"snappy"}}'
    )
    step = client.receive(Json.of("login", {"logout": "no"}), 0.0)
    assert step.closing == Closing("login_refused", "no")
    odd = ClientSession(0.0)
    odd.send(LOGIN, 0.0)
    assert odd.receive(Json.of("login", {"logout": "ok"}), 0.0).closing == Closing("login_refused")


def test_a_login_needs_credentials() -> None:
    with pytest.raises(TranslationError):
        ClientSession(0.0).send(control(Op.LOGIN), 0.0)


def test_a_client_gives_up_on_a_login_that_is_never_answered() -> None:
    client = ClientSession(0.0)
    client.send(LOGIN, 0.0)
    assert client.tick(10.0).closing == Closing("login_timeout")


def test_pings_keep_the_connection() -> None:
    talking = logged_in()
    for _ in range(10):
        talking.pass_time(40.0)
    assert not talking.closings
    assert len(talking.client_messages) == 1
    assert said_by(talking, Sender.CLIENT)[-1].encode() == b'10:{"service":"wirelake","command":"ping"}'


def test_what_the_server_does_not_answer_fails_in_time() -> None:
    client = ready_client(SessionSettings(answer_s=5.0, ping_s=1.0))
    client.tick(1.0)
    client.send(ask("calc", "add", correlation="c"), 1.0)
    (late,) = client.tick(6.0).messages
    assert (late.correlation, late.failure) == ("c", Failure("timeout", FailureCode.TIMEOUT))


def test_a_client_asks_only_so_much_at_once() -> None:
    client = ready_client(SessionSettings(answer_s=1000.0))
    for _ in range(SISNET_REQUESTS_OPEN_MAX):
        client.send(ask("calc", "add"), 0.0)
    with pytest.raises(StateError, match="open already"):
        client.send(ask("calc", "add"), 0.0)
    assert client.tick(40.0).frames == []


def test_a_client_subscribes_only_to_so_much() -> None:
    client = ready_client()
    topics = [f"@{number}" for number in range(SISNET_SUBSCRIPTIONS_MAX)]
    client.send(control(Op.SUBSCRIBE, fields={"topics": topics}), 0.0)
    with pytest.raises(StateError, match="too many subscriptions"):
        client.send(control(Op.SUBSCRIBE, fields={"topics": ["@x"]}), 0.0)
    client.receive(Json.of("1", {"ans": 0}), 0.0)
    with pytest.raises(StateError, match="too many subscriptions"):
        client.send(control(Op.SUBSCRIBE, fields={"topics": ["@x"]}), 0.0)


def test_a_client_ends_quietly_by_itself() -> None:
    client = ClientSession(0.0, SessionSettings(idle_s=5.0))
    assert client.tick(6.0).closing == Closing("idle", "no data received for 5 s")
    assert ClientSession(0.0).close(Closing("done"), 0.0).closing == Closing("done")
    unreadable = ClientSession(0.0).fail(ProtocolError("short", "…", 1), 0.0)
    assert unreadable.closing is not None
    assert unreadable.closing.code == "short"
