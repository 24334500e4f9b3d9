"""RESP conversations, both sides real, through real bytes."""

from typing import Any

import pytest

from protocols.conversation import Conversation
from protocols.resp.strategies import inline
from wirelake.errors import ProtocolError, StateError
from wirelake.limits import (
    RESP_ANSWERS_BYTES_MAX,
    RESP_ANSWERS_PAUSE_BYTES,
    RESP_FRAME_BYTES_MAX,
    RESP_HELD_BYTES_MAX,
    RESP_HELD_FRAMES_MAX,
    RESP_LOGIN_FRAME_BYTES_MAX,
    RESP_REQUESTS_OPEN_MAX,
    RESP_REQUESTS_PAUSE_AT,
    RESP_SUBSCRIPTIONS_MAX,
)
from wirelake.message import Credentials, Failure, Kind, Message, Op, Operation, Topic, control, control_op
from wirelake.protocols.frame import Frame, Sender
from wirelake.protocols.resp import frames
from wirelake.protocols.resp.client import ClientSession
from wirelake.protocols.resp.frames import Command, SimpleString
from wirelake.protocols.resp.protocol import PROTOCOL
from wirelake.protocols.resp.server import ServerSession
from wirelake.protocols.resp.session import ClientState, Settings
from wirelake.protocols.session import Closing, Session, Step

LOGIN = control(Op.LOGIN, credentials=Credentials("anna", "t0ken"), correlation="in")
OPEN = Settings(open=True)


def cmd(line: str) -> Command:
    return Command(tuple(line.encode().split()))


def state(session: Session) -> str:
    return session.state.name


def wire(step: Step) -> bytes:
    return b"".join(frame.encode() for frame in step.frames)


def say(server: ServerSession, line: str) -> bytes:
    """What the server answers at once."""
    return wire(server.receive(cmd(line), 0.0))


def ask(server: ServerSession, line: str) -> Message:
    """What goes up for this command."""
    step = server.receive(cmd(line), 0.0)
    assert step.frames == []
    (message,) = step.messages
    return message


def answer_to(question: Message, **rest: Any) -> Message:
    return Message(kind=Kind.RESPONSE, correlation=question.correlation, **rest)


def answered(server: ServerSession, question: Message, **rest: Any) -> bytes:
    return wire(server.send(answer_to(question, **rest), 0.0))


def news(topic: str, content: bytes, **rest: Any) -> Message:
    return Message(kind=Kind.NOTIFICATION, target=Topic(topic), payload=content, **rest)


def ready(version: int = 2, **settings: Any) -> ServerSession:
    server = ServerSession(0.0, 7, Settings(open=True, **settings))
    if version == 3:
        say(server, "HELLO 3")
    return server


def closing_code(step: Step) -> str:
    assert step.closing is not None
    return step.closing.code


# The server: logging in


def test_before_the_login_little_is_served() -> None:
    server = ServerSession(0.0)
    assert say(server, "GET a") == b"-NOAUTH Authentication required.\r\n"
    assert say(server, "PING") == b"-NOAUTH Authentication required.\r\n"
    assert say(server, "HELLO 3").startswith(b"-NOAUTH HELLO must be called with the client already authenticated")
    assert say(server, "FLY me") == b"-ERR unknown command 'FLY', with args beginning with: 'me' \r\n"
    assert say(server, "AUTH") == b"-ERR wrong number of arguments for 'auth' command\r\n"
    assert say(server, "RESET") == b"+RESET\r\n"
    assert server.frame_bytes_max == RESP_LOGIN_FRAME_BYTES_MAX
    step = server.receive(cmd("QUIT"), 0.0)
    assert (wire(step), closing_code(step)) == (b"+OK\r\n", "quit")


def test_a_login_by_auth() -> None:
    server = ServerSession(0.0)
    login = ask(server, "AUTH anna t0ken")
    assert (control_op(login), login.credentials) == (Op.LOGIN, Credentials("anna", "t0ken"))
    assert state(server) == "CHECKING"
    assert answered(server, login) == b"+OK\r\n"
    assert state(server) == "READY"
    assert server.deadline_s is None
    assert server.frame_bytes_max == RESP_FRAME_BYTES_MAX


def test_a_wrong_password_can_be_tried_again() -> None:
    server = ServerSession(0.0)
    login = ask(server, "AUTH wrong")
    assert login.credentials == Credentials("default", "wrong")
    refusal = b"-WRONGPASS invalid username-password pair or user is disabled.\r\n"
    assert answered(server, login, failure=Failure("no such token")) == refusal
    assert state(server) == "NEW"
    assert server.deadline_s == 10.0
    login = ask(server, "AUTH wrong")
    assert answered(server, login, failure=Failure("LATER try again")) == b"-LATER try again\r\n"
    assert answered(server, ask(server, "AUTH right")) == b"+OK\r\n"


def test_a_login_by_hello_switches_the_version() -> None:
    server = ServerSession(0.0, 7)
    login = ask(server, "HELLO 3 SETNAME me AUTH anna t0ken")
    assert login.credentials == Credentials("anna", "t0ken")
    assert answered(server, login, failure=Failure("no")).startswith(b"-WRONGPASS")
    assert server.version == 2
    hello = answered(server, ask(server, "HELLO 3 SETNAME me AUTH anna t0ken"))
    assert hello.startswith(
        b"%7\r\n$6\r\nserver\r\n$5\r\nredis\r\n$7\r\nversion\r\n$5\r\n7.4.0\r\n$5\r\nproto\r\n:3\r\n"
    )
    assert b"$2\r\nid\r\n:7\r\n" in hello
    assert say(server, "CLIENT GETNAME") == b"$2\r\nme\r\n"
    assert say(server, "HELLO 2").startswith(b"*14\r\n$6\r\nserver\r\n")
    assert say(server, "HELLO").startswith(b"*14\r\n")


@pytest.mark.parametrize(
    ("line", "error"),
    [
        ("HELLO 4", b"-NOPROTO unsupported protocol version\r\n"),
        ("HELLO -1", b"-NOPROTO unsupported protocol version\r\n"),
        ("HELLO three", b"-ERR Protocol version is not an integer or out of range\r\n"),
        ("HELLO 3 AUTH anna", b"-ERR Syntax error in HELLO option 'AUTH'\r\n"),
        ("HELLO 3 SETNAME", b"-ERR Syntax error in HELLO option 'SETNAME'\r\n"),
        ("HELLO 3 FLY", b"-ERR Syntax error in HELLO option 'FLY'\r\n"),
        ("HELLO 3 SETNAME \x01", b"-ERR Client names cannot contain spaces, newlines or special characters.\r\n"),
    ],
)
def test_a_hello_that_asks_in_vain(line: str, error: bytes) -> None:
    server = ready()
    assert say(server, line) == error
    assert server.version == 2


def test_commands_sent_before_the_verdict_are_served_after_it() -> None:
    server = ServerSession(0.0)
    login = ask(server, "AUTH anna t0ken")
    for line in ("PING", "GET a", "AUTH other t0ken", "PING"):
        assert server.receive(cmd(line), 0.0) == Step()
    step = server.send(answer_to(login), 0.0)
    assert wire(step) == b"+OK\r\n+PONG\r\n"
    get, second = step.messages
    assert get.target == Operation("redis", "get")
    assert state(server) == "CHECKING"
    assert answered(server, get, payload=b"x") == b"$1\r\nx\r\n"
    assert answered(server, second, failure=Failure("no")).endswith(b"disabled.\r\n+PONG\r\n")
    assert state(server) == "READY"
    assert server.deadline_s is None


def test_a_quit_before_the_verdict() -> None:
    server = ServerSession(0.0)
    login = ask(server, "AUTH anna t0ken")
    server.receive(cmd("QUIT"), 0.0)
    server.receive(cmd("PING"), 0.0)
    step = server.send(answer_to(login), 0.0)
    assert (wire(step), closing_code(step)) == (b"+OK\r\n+OK\r\n", "quit")


def test_a_refused_login_refuses_what_was_held() -> None:
    server = ServerSession(0.0)
    login = ask(server, "AUTH anna t0ken")
    server.receive(cmd("GET a"), 0.0)
    assert answered(server, login, failure=Failure("no")).endswith(b"-NOAUTH Authentication required.\r\n")


def test_too_much_before_the_verdict_closes() -> None:
    server = ServerSession(0.0)
    ask(server, "AUTH anna t0ken")
    for _ in range(RESP_HELD_FRAMES_MAX):
        assert server.receive(cmd("PING"), 0.0).closing is None
    assert server.paused
    assert closing_code(server.receive(cmd("PING"), 0.0)) == "too_many_requests"
    server = ServerSession(0.0)
    ask(server, "AUTH anna t0ken")
    assert closing_code(server.receive(Command((b"ECHO", bytes(RESP_HELD_BYTES_MAX))), 0.0)) == "too_many_requests"


def test_no_login_in_time_closes() -> None:
    server = ServerSession(0.0, settings=Settings(login_s=10.0))
    assert server.tick(9.9).closing is None
    step = server.tick(10.0)
    assert (wire(step), step.closing) == (b"-ERR no login in time\r\n", Closing("login_timeout"))
    server = ServerSession(0.0)
    ask(server, "AUTH anna t0ken")
    step = server.tick(10.0)
    assert (wire(step), step.closing) == (b"-ERR no login in time\r\n", Closing("login_timeout"))


# The server: what it answers by itself


@pytest.mark.parametrize(
    ("line", "answer"),
    [
        ("PING", b"+PONG\r\n"),
        ("ping hi", b"$2\r\nhi\r\n"),
        ("ECHO hi", b"$2\r\nhi\r\n"),
        ("SELECT 0", b"+OK\r\n"),
        ("SELECT 1", b"-ERR DB index is out of range\r\n"),
        ("SELECT x", b"-ERR value is not an integer or out of range\r\n"),
        ("CLIENT ID", b":7\r\n"),
        ("CLIENT GETNAME", b"$-1\r\n"),
        ("CLIENT SETNAME me", b"+OK\r\n"),
        ("CLIENT SETNAME \x01", b"-ERR Client names cannot contain spaces, newlines or special characters.\r\n"),
        ("CLIENT SETINFO LIB-NAME redis-py", b"+OK\r\n"),
        ("CLIENT SETINFO lib-ver \x7f", b"-ERR lib-ver cannot contain spaces, newlines or special characters.\r\n"),
        ("CLIENT SETINFO shoe 42", b"-ERR Unrecognized option 'shoe'\r\n"),
        ("CLIENT SETNAME", b"-ERR wrong number of arguments for 'client|setname' command\r\n"),
        ("CLIENT KILL", b"-ERR unknown subcommand 'KILL'. Try CLIENT HELP.\r\n"),
        ("CLIENT LIST", b"$16\r\nid=7 name= db=0\n\r\n"),
        ("CLIENT NO-EVICT on", b"+OK\r\n"),
        ("COMMAND COUNT", b":32\r\n"),
        ("COMMAND DOCS", b"*0\r\n"),
        (
            "COMMAND INFO get fly",
            b"*2\r\n*10\r\n$3\r\nget\r\n:2\r\n*0\r\n:1\r\n:1\r\n:1\r\n*0\r\n*0\r\n*0\r\n*0\r\n$-1\r\n",
        ),
        (
            "COMMAND INFO MGET",
            b"*1\r\n*10\r\n$4\r\nmget\r\n:-2\r\n*0\r\n:1\r\n:-1\r\n:1\r\n*0\r\n*0\r\n*0\r\n*0\r\n",
        ),
        ("COMMAND GETKEYS", b"-ERR unknown subcommand 'GETKEYS'. Try COMMAND HELP.\r\n"),
        ("get", b"-ERR wrong number of arguments for 'get' command\r\n"),
        ("GET a b", b"-ERR wrong number of arguments for 'get' command\r\n"),
        ("FLY", b"-ERR unknown command 'FLY', with args beginning with: \r\n"),
    ],
)
def test_small_commands(line: str, answer: bytes) -> None:
    assert say(ready(), line) == answer


def test_nulls_and_maps_in_both_versions() -> None:
    assert say(ready(3), "CLIENT GETNAME") == b"_\r\n"
    assert say(ready(3), "COMMAND DOCS") == b"%0\r\n"
    for version, null, table in (
        (2, b"$-1\r\n", b"*2\r\n$1\r\na\r\n:1\r\n"),
        (3, b"_\r\n", b"%1\r\n$1\r\na\r\n:1\r\n"),
    ):
        server = ready(version)
        assert answered(server, ask(server, "GET a"), fields={"value": None}) == null
        assert answered(server, ask(server, "INFO"), fields={"a": 1}) == table
    assert say(ready(), "COMMAND LIST").startswith(b"*32\r\n$4\r\nauth\r\n")


def test_an_unknown_command_is_quoted_but_not_endlessly_and_on_one_line() -> None:
    server = ready()
    step = server.receive(Command((b"F\r\nLY", b"a\nb", b"x" * 300, b"never shown")), 0.0)
    assert wire(step).startswith(b"-ERR unknown command 'F  LY', with args beginning with: 'a b' 'xxx")
    assert b"never" not in wire(step)
    assert len(wire(step)) < 300


def test_nothing_is_answered_to_nothing() -> None:
    server = ready()
    for frame in (Command(()), inline(b"\r\n"), inline(b"   \n")):
        assert server.receive(frame, 0.0) == Step()
    assert ServerSession(0.0).receive(Command(()), 0.0) == Step()
    assert wire(server.receive(inline(b"PING\r\n"), 0.0)) == b"+PONG\r\n"


@pytest.mark.parametrize("line", [b"POST / HTTP/1.1\r\n", b"Host: example.org\r\n"])
def test_a_browsers_request_closes_without_a_word(line: bytes) -> None:
    for server in (ServerSession(0.0), ready()):
        step = server.receive(inline(line), 0.0)
        assert (step.frames, closing_code(step)) == ([], "http")


# The server: what goes up and comes back


def test_requests_go_up_and_answers_keep_their_order() -> None:
    server = ready()
    get = ask(server, "GET a")
    assert (get.kind, get.target, get.fields) == (Kind.REQUEST, Operation("redis", "get"), {"args": [b"a"]})
    put = ask(server, "SET a b EX 5 NX")
    assert say(server, "PING") == b""
    assert answered(server, put) == b""
    assert answered(server, get, payload=b"x") == b"$1\r\nx\r\n+OK\r\n+PONG\r\n"
    assert answered(server, get, payload=b"again") == b""
    assert answered(server, Message(kind=Kind.RESPONSE, correlation="99")) == b""


@pytest.mark.parametrize(
    ("line", "answer", "said"),
    [
        ("GET a", {"payload": b""}, b"$0\r\n\r\n"),
        ("GET a", {"failure": Failure("gone", 3)}, b"-ERR gone\r\n"),
        ("SET a b", {}, b"+OK\r\n"),
        ("DEL a b", {"fields": {"value": 2}}, b":2\r\n"),
        ("MGET a b", {"fields": {"value": [b"1", None]}}, b"*2\r\n$1\r\n1\r\n$-1\r\n"),
        ("SCAN 0", {"fields": {"value": ["0", [b"a"]]}}, b"*2\r\n$1\r\n0\r\n*1\r\n$1\r\na\r\n"),
        ("PUBLISH a x", {}, b":0\r\n"),
        ("PUBLISH a x", {"fields": {"receivers": 3}}, b":3\r\n"),
        ("PUBLISH a x", {"fields": {"id": "1"}}, b":0\r\n"),
        ("PUBLISH a x", {"failure": Failure("FULL up")}, b"-FULL up\r\n"),
        (
            "KEYS *",
            {"fields": {"value": object()}},
            b"-ERR the answer does not fit: RESP has no value for a object\r\n",
        ),
        ("TTL a", {"more": 1}, b"-ERR the answer does not fit: an answer in several parts\r\n"),
    ],
)
def test_answers(line: str, answer: dict[str, Any], said: bytes) -> None:
    server = ready()
    assert answered(server, ask(server, line), **answer) == said


def test_an_answer_has_the_version_that_the_question_was_asked_in() -> None:
    server = ready()
    get = ask(server, "GET a")
    assert say(server, "HELLO 3") == b""
    later = ask(server, "GET b")
    assert answered(server, later, fields={"value": None}) == b""
    first = answered(server, get, fields={"value": None})
    assert first.startswith(b"$-1\r\n%7\r\n")
    assert first.endswith(b"_\r\n")


def test_publishing_goes_up_as_a_notification() -> None:
    publish = ask(ready(), "PUBLISH @a hi")
    assert (publish.kind, publish.target, publish.payload) == (Kind.NOTIFICATION, Topic("@a"), b"hi")
    bad = ready().receive(Command((b"PUBLISH", b"\xff", b"hi")), 0.0)
    assert wire(bad) == b"-ERR channel names and patterns are UTF-8 text here\r\n"


def test_pipelines_pause_the_reading_and_floods_close() -> None:
    server = ready()
    first = ask(server, "GET a")
    for _ in range(RESP_REQUESTS_PAUSE_AT - 1):
        assert not server.paused
        server.receive(cmd("PING"), 0.0)
    assert server.paused
    for _ in range(RESP_REQUESTS_OPEN_MAX - RESP_REQUESTS_PAUSE_AT):
        server.receive(cmd("PING"), 0.0)
    assert closing_code(server.receive(cmd("PING"), 0.0)) == "too_many_requests"
    assert server.receive(cmd("PING"), 0.0) == Step()
    with pytest.raises(StateError):
        server.send(answer_to(first), 0.0)


def test_answers_held_back_are_bounded_in_bytes() -> None:
    server = ready()
    first = ask(server, "GET a")
    big = Command((b"ECHO", bytes(RESP_ANSWERS_PAUSE_BYTES)))
    paused = [server.paused]
    server.receive(big, 0.0)
    paused.append(server.paused)
    assert len(answered(server, first)) > RESP_ANSWERS_PAUSE_BYTES
    assert [*paused, server.paused] == [False, True, False]
    ask(server, "GET a")
    for _ in range(RESP_ANSWERS_BYTES_MAX // RESP_ANSWERS_PAUSE_BYTES):
        assert server.receive(big, 0.0).closing is None
    assert closing_code(server.receive(big, 0.0)) == "too_many_requests"


# The server: subscriptions


def test_subscriptions_are_confirmed_one_by_one() -> None:
    server = ready()
    question = ask(server, "SUBSCRIBE a @b a")
    assert (control_op(question), question.fields) == (Op.SUBSCRIBE, {"topics": ["a", "@b", "a"]})
    assert answered(server, question) == (
        b"*3\r\n$9\r\nsubscribe\r\n$1\r\na\r\n:1\r\n"
        b"*3\r\n$9\r\nsubscribe\r\n$2\r\n@b\r\n:2\r\n"
        b"*3\r\n$9\r\nsubscribe\r\n$1\r\na\r\n:2\r\n"
    )
    assert state(server) == "SUBSCRIBED"
    question = ask(server, "PSUBSCRIBE n.*")
    assert question.fields == {"patterns": ["n.*"]}
    assert answered(server, question) == b"*3\r\n$10\r\npsubscribe\r\n$3\r\nn.*\r\n:3\r\n"
    question = ask(server, "UNSUBSCRIBE a x")
    assert (control_op(question), question.fields) == (Op.UNSUBSCRIBE, {"topics": ["a"]})
    assert answered(server, question) == (
        b"*3\r\n$11\r\nunsubscribe\r\n$1\r\na\r\n:2\r\n*3\r\n$11\r\nunsubscribe\r\n$1\r\nx\r\n:2\r\n"
    )
    assert say(server, "UNSUBSCRIBE x") == b"*3\r\n$11\r\nunsubscribe\r\n$1\r\nx\r\n:2\r\n"
    question = ask(server, "UNSUBSCRIBE")
    assert question.fields == {"topics": ["@b"]}
    assert answered(server, question) == b"*3\r\n$11\r\nunsubscribe\r\n$2\r\n@b\r\n:1\r\n"
    assert answered(server, ask(server, "PUNSUBSCRIBE")) == b"*3\r\n$12\r\npunsubscribe\r\n$3\r\nn.*\r\n:0\r\n"
    assert state(server) == "READY"
    assert say(server, "UNSUBSCRIBE") == b"*3\r\n$11\r\nunsubscribe\r\n$-1\r\n:0\r\n"
    assert say(ready(3), "PUNSUBSCRIBE") == b">3\r\n$12\r\npunsubscribe\r\n_\r\n:0\r\n"


def test_resp_2_subscribers_may_send_little_else() -> None:
    server = ready()
    answered(server, ask(server, "SUBSCRIBE a"))
    refusal = (
        b"-ERR Can't execute 'get': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed"
        b" in this context\r\n"
    )
    assert say(server, "GET a") == refusal
    assert say(server, "HELLO 3").startswith(b"-ERR Can't execute 'hello'")
    assert say(server, "PING") == b"*2\r\n$4\r\npong\r\n$0\r\n\r\n"
    assert say(server, "PING hi") == b"*2\r\n$4\r\npong\r\n$2\r\nhi\r\n"
    assert say(server, "FLY").startswith(b"-ERR unknown command")
    assert say(server, "SUBSCRIBE").startswith(b"-ERR wrong number")
    assert server.receive(Command(()), 0.0) == Step()
    step = server.receive(cmd("QUIT"), 0.0)
    assert (wire(step), closing_code(step)) == (b"+OK\r\n", "quit")


def test_resp_3_subscribers_may_send_anything() -> None:
    server = ready(3)
    answered(server, ask(server, "SUBSCRIBE a"))
    assert state(server) == "READY"
    assert say(server, "PING") == b"+PONG\r\n"
    assert answered(server, ask(server, "GET a"), payload=b"x") == b"$1\r\nx\r\n"
    assert say(server, "HELLO 2") == b"-ERR unsubscribe before you change the protocol version\r\n"
    assert say(server, "HELLO 3").startswith(b"%7\r\n")


def test_notifications_in_both_versions() -> None:
    for version, sign in ((2, b"*"), (3, b">")):
        server = ready(version)
        answered(server, ask(server, "SUBSCRIBE a"))
        answered(server, ask(server, "PSUBSCRIBE n.*"))
        told = server.send(news("a", b"hi"), 0.0)
        assert wire(told) == sign + b"3\r\n$7\r\nmessage\r\n$1\r\na\r\n$2\r\nhi\r\n"
        assert server.encoded(news("a", b"hi")) == wire(told)
        matched = news("n.1", b"hi", headers={"pattern": "n.*"})
        assert wire(server.send(matched, 0.0)) == (
            sign + b"4\r\n$8\r\npmessage\r\n$3\r\nn.*\r\n$3\r\nn.1\r\n$2\r\nhi\r\n"
        )


def test_notifications_for_what_is_not_subscribed_are_dropped() -> None:
    server = ready()
    assert server.send(news("a", b"hi"), 0.0) == Step()
    answered(server, ask(server, "SUBSCRIBE a"))
    ask(server, "UNSUBSCRIBE a")
    assert server.send(news("a", b"crossed"), 0.0) == Step()
    assert server.send(news("a", b"crossed", headers={"pattern": "a*"}), 0.0) == Step()
    assert ServerSession(0.0).send(news("a", b"hi"), 0.0) == Step()


def test_in_resp_2_notifications_wait_behind_open_answers() -> None:
    server = ready()
    get = ask(server, "GET a")
    subscribe = ask(server, "SUBSCRIBE a")
    assert server.audience is None
    assert answered(server, subscribe) == b""
    assert wire(server.send(news("a", b"hi"), 0.0)) == b""
    released = answered(server, get, payload=b"x")
    assert released.startswith(b"$1\r\nx\r\n*3\r\n$9\r\nsubscribe\r\n")
    assert released.endswith(b"$2\r\nhi\r\n")
    assert server.audience == "resp 2"


def test_in_resp_2_notifications_that_cannot_wait_close() -> None:
    server = ready()
    ask(server, "SUBSCRIBE a")
    for _ in range(RESP_ANSWERS_BYTES_MAX // RESP_ANSWERS_PAUSE_BYTES):
        assert server.send(news("a", bytes(RESP_ANSWERS_PAUSE_BYTES)), 0.0).closing is None
    assert closing_code(server.send(news("a", b"one more"), 0.0)) == "too_many_requests"


def test_who_is_told_in_the_same_bytes() -> None:
    assert ServerSession(0.0).audience is None
    assert ready(3).audience == "resp 3"
    server = ready()
    audiences = [server.audience]
    subscribe = ask(server, "SUBSCRIBE a")
    audiences.append(server.audience)
    answered(server, subscribe)
    assert [*audiences, server.audience] == [None, "resp 2", "resp 2"]


def test_a_refused_subscription_is_none() -> None:
    server = ready()
    question = ask(server, "SUBSCRIBE a b")
    assert state(server) == "SUBSCRIBED"
    assert answered(server, question, failure=Failure("NOPERM not here")) == b"-NOPERM not here\r\n"
    assert state(server) == "READY"
    assert answered(server, ask(server, "SUBSCRIBE a")).endswith(b":1\r\n")
    question = ask(server, "PSUBSCRIBE a*")
    answered(server, question, failure=Failure("no"))
    assert answered(server, ask(server, "PSUBSCRIBE b*")).endswith(b":2\r\n")


def test_subscriptions_have_bounds_and_are_text() -> None:
    server = ready()
    step = server.receive(Command((b"SUBSCRIBE", b"\xff")), 0.0)
    assert wire(step) == b"-ERR channel names and patterns are UTF-8 text here\r\n"
    names = tuple([b"%d" % number for number in range(RESP_SUBSCRIPTIONS_MAX + 1)])
    assert wire(server.receive(Command((b"SUBSCRIBE", *names)), 0.0)) == b"-ERR too many subscriptions\r\n"
    assert len(server.receive(Command((b"SUBSCRIBE", *names[1:])), 0.0).messages) == 1


def test_another_login_while_subscribed() -> None:
    server = ready(3)
    answered(server, ask(server, "SUBSCRIBE a"))
    login = ask(server, "AUTH anna t0ken")
    assert wire(server.send(news("a", b"hi"), 0.0)).startswith(b">3\r\n")
    assert answered(server, login) == b"+OK\r\n"


# The server: the end


def test_reset_forgets_everything() -> None:
    server = ServerSession(0.0)
    answered(server, ask(server, "HELLO 3 AUTH anna t0ken SETNAME me"))
    answered(server, ask(server, "SUBSCRIBE a"))
    answered(server, ask(server, "PSUBSCRIBE b*"))
    get = ask(server, "GET a")
    step = server.receive(cmd("RESET"), 5.0)
    assert step.frames == []
    assert [(control_op(each), each.fields) for each in step.messages] == [
        (Op.UNSUBSCRIBE, {"topics": ["a"]}),
        (Op.UNSUBSCRIBE, {"patterns": ["b*"]}),
    ]
    assert (state(server), server.version, server.deadline_s) == ("NEW", 2, 15.0)
    assert answered(server, get, fields={"value": None}) == b"_\r\n+RESET\r\n"
    assert server.send(answer_to(step.messages[0]), 5.0) == Step()
    assert say(server, "GET a").startswith(b"-NOAUTH")
    open_to_all = ready(3)
    assert say(open_to_all, "RESET") == b"+RESET\r\n"
    assert state(open_to_all) == "READY"


def test_quit_waits_for_the_open_answers() -> None:
    server = ready()
    get = ask(server, "GET a")
    assert server.receive(cmd("QUIT"), 0.0) == Step()
    assert state(server) == "LEAVING"
    assert server.receive(cmd("PING"), 0.0) == Step()
    assert server.send(news("a", b"hi"), 0.0) == Step()
    assert server.fail(ProtocolError("x", "y", 0), 0.0) == Step()
    step = server.send(answer_to(get, payload=b"x"), 0.0)
    assert (wire(step), closing_code(step)) == (b"$1\r\nx\r\n+OK\r\n", "quit")
    with pytest.raises(StateError):
        server.receive(cmd("PING"), 0.0)


def test_quit_does_not_wait_forever() -> None:
    server = ready(leave_s=5.0)
    ask(server, "GET a")
    server.receive(cmd("QUIT"), 0.0)
    assert server.tick(4.9) == Step()
    step = server.tick(5.0)
    assert (wire(step), closing_code(step)) == (b"-ERR the answer took too long\r\n+OK\r\n", "quit")


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"*1\r\n*1\r\n", b"expected '$', got '*'"),
        (b"*1\r\n:1\r\n", b"expected '$', got ':'"),
        (b"*x\r\n", b"invalid multibulk length"),
        (b"*1\r\n$x\r\n", b"invalid bulk length"),
        (b"x" * 70_000, b"too big inline request"),
    ],
)
def test_bytes_that_cannot_be_read_get_an_error_in_turn_and_close(data: bytes, text: bytes) -> None:
    talking = Conversation(PROTOCOL, ClientSession(0.0), ready())
    step = talking.inject(Sender.CLIENT, data)
    assert talking.closings[Sender.CLIENT].code == "unexpected_frame"
    assert wire(step) == b"-ERR Protocol error: " + text + b"\r\n"
    assert Sender.SERVER in talking.closings
    server = ready()
    get = ask(server, "GET a")
    assert server.fail(ProtocolError("quotes", "unbalanced quotes in request", 3), 0.0) == Step()
    step = server.send(answer_to(get), 0.0)
    assert wire(step) == b"$0\r\n\r\n-ERR Protocol error: unbalanced quotes in request\r\n"
    assert closing_code(step) == "quotes"


def test_goodbye_answers_what_is_open() -> None:
    server = ready()
    assert server.goodbye(Closing("shutdown"), 0.0) == Step(closing=Closing("shutdown"))
    server = ready()
    ask(server, "GET a")
    get = ask(server, "GET b")
    answered(server, get, payload=b"x")
    step = server.goodbye(Closing("shutdown", "the gateway stops"), 0.0)
    assert wire(step) == b"-ERR the gateway stops\r\n$1\r\nx\r\n"
    assert step.closing == Closing("shutdown", "the gateway stops")


IN_STATE = [
    ("PING", "READY"),
    ("RESET", "NEW"),
    ("AUTH x", "CHECKING"),
    ("SUBSCRIBE a", "SUBSCRIBED"),
    ("QUIT", "LEAVING"),
]


def in_state(line: str) -> tuple[ServerSession, list[Message]]:
    """A server that has two questions open, and then went into a state by this command."""
    server = ServerSession(0.0, settings=Settings(idle_s=5.0, login_s=99.0, leave_s=99.0))
    answered(server, ask(server, "AUTH anna t0ken"))
    questions = [ask(server, "GET a"), ask(server, "GET b")]
    server.receive(cmd(line), 0.0)
    return server, questions


@pytest.mark.parametrize(("line", "name"), IN_STATE)
def test_the_end_comes_in_every_state(line: str, name: str) -> None:
    server, _ = in_state(line)
    assert state(server) == name
    step = server.goodbye(Closing("shutdown"), 0.0)
    assert wire(step).startswith(b"-ERR shutdown\r\n-ERR shutdown\r\n")
    assert step.closing == Closing("shutdown")

    server, _ = in_state(line)
    step = server.fail(ProtocolError("quotes", "unbalanced quotes in request", 3), 0.0)
    assert (step, state(server)) == (Step(), "LEAVING")

    server, questions = in_state(line)
    assert answered(server, questions[1], payload=bytes(RESP_ANSWERS_BYTES_MAX)) == b""
    assert closing_code(server.receive(cmd("PING"), 0.0)) == "too_many_requests"

    server, _ = in_state(line)
    step = server.tick(5.0)
    assert step.closing == (None if name == "SUBSCRIBED" else Closing("idle", "nothing heard for 5 s"))


def test_subscribers_add_to_their_subscriptions_and_lose_all_with_reset() -> None:
    server = ready()
    answered(server, ask(server, "SUBSCRIBE a"))
    assert answered(server, ask(server, "SUBSCRIBE b")).endswith(b"b\r\n:2\r\n")
    assert closing_code(server.receive(inline(b"POST / HTTP/1.1\r\n"), 0.0)) == "http"
    server = ready()
    answered(server, ask(server, "SUBSCRIBE a"))
    step = server.receive(cmd("RESET"), 0.0)
    assert (wire(step), state(server)) == (b"+RESET\r\n", "READY")
    assert [each.fields for each in step.messages] == [{"topics": ["a"]}]


def test_silence_closes_only_if_it_is_set_and_nothing_is_subscribed() -> None:
    assert ready().deadline_s is None
    assert ready(idle_s=5.0).tick(5.0).closing == Closing("idle", "nothing heard for 5 s")
    server = ready(idle_s=5.0)
    server.receive(cmd("PING"), 3.0)
    assert server.tick(5.0) == Step()
    assert closing_code(server.tick(8.0)) == "idle"
    server = ready(idle_s=5.0)
    answered(server, ask(server, "SUBSCRIBE a"))
    assert server.tick(5.0) == Step()
    assert server.deadline_s == 10.0


def test_a_server_reads_commands_only() -> None:
    with pytest.raises(StateError, match="integer"):
        ready().receive(frames.Integer(1), 0.0)


# Both sides


def talk(version: int = 3, **settings: Any) -> Conversation:
    chosen = Settings(version=version, **settings)
    talking = Conversation(PROTOCOL, ClientSession(0.0, chosen), ServerSession(0.0, 7))
    (login,) = talking.client_says(LOGIN)
    assert login.credentials == Credentials("anna", "t0ken")
    talking.server_says(answer_to(login))
    assert talking.sessions[Sender.CLIENT].state is ClientState.READY
    return talking


@pytest.mark.parametrize("version", [2, 3])
def test_a_conversation(version: int) -> None:
    talking = talk(version)
    assert [message.correlation for message in talking.client_messages] == ["in"]
    get = Message(kind=Kind.REQUEST, target=Operation("redis", "get"), fields={"args": ["k"]}, correlation="g")
    (question,) = talking.client_says(get)
    talking.client_says(control(Op.PING, correlation="p"))
    answers = talking.server_says(answer_to(question, payload=b"v"))
    assert [(answer.correlation, answer.payload, answer.fields) for answer in answers] == [
        ("g", b"v", {}),
        ("p", b"", {"value": "PONG"}),
    ]
    (question,) = talking.client_says(control(Op.SUBSCRIBE, fields={"topics": ["a", "@b"]}, correlation="s"))
    (confirmed,) = talking.server_says(answer_to(question))
    assert (confirmed.correlation, confirmed.failure) == ("s", None)
    (question,) = talking.client_says(control(Op.SUBSCRIBE, fields={"patterns": ["n.*"]}))
    talking.server_says(answer_to(question))
    (heard,) = talking.server_says(news("@b", b"hi"))
    assert (heard.kind, heard.target, heard.payload) == (Kind.NOTIFICATION, Topic("@b"), b"hi")
    (heard,) = talking.server_says(news("n.1", b"hi", headers={"pattern": "n.*"}))
    assert heard.headers == {"pattern": "n.*"}
    (question,) = talking.client_says(control(Op.UNSUBSCRIBE, fields={"topics": []}, correlation="u"))
    assert question.fields == {"topics": ["a", "@b"]}
    (gone,) = talking.server_says(answer_to(question))
    assert gone.correlation == "u"
    (question,) = talking.client_says(control(Op.UNSUBSCRIBE, fields={"patterns": ["n.*"]}))
    talking.server_says(answer_to(question))
    (question,) = talking.client_says(news("@b", b"out", correlation="n"))
    (reached,) = talking.server_says(answer_to(question, fields={"receivers": 1}))
    assert (reached.correlation, reached.fields) == ("n", {"value": 1})
    talking.client_says(control(Op.LOGOUT, correlation="q"))
    assert talking.client_messages[-1].correlation == "q"
    assert {closing.code for closing in talking.closings.values()} == {"quit"}


def test_a_refused_login_closes_the_client() -> None:
    talking = Conversation(PROTOCOL, ClientSession(0.0), ServerSession(0.0))
    (login,) = talking.client_says(LOGIN)
    (refused,) = talking.server_says(answer_to(login, failure=Failure("no")))
    assert refused.correlation == "in"
    assert refused.failure is not None
    assert talking.closings[Sender.CLIENT].code == "login_refused"


def test_a_client_without_credentials_says_hello() -> None:
    for version in (2, 3):
        client = ClientSession(0.0, Settings(version=version))
        assert client.send(control(Op.LOGIN), 0.0).frames == [cmd(f"HELLO {version}")]
    assert ClientSession(0.0, Settings(version=2)).send(LOGIN, 0.0).frames == [cmd("AUTH anna t0ken")]


def client_ready(version: int = 3, **settings: Any) -> ClientSession:
    client = ClientSession(0.0, Settings(version=version, **settings))
    client.send(LOGIN, 0.0)
    client.receive(SimpleString(b"OK"), 0.0)
    return client


def bulks(*words: bytes) -> tuple[frames.Value, ...]:
    return tuple(map(frames.BulkString, words))


def test_an_array_is_an_answer_unless_the_client_is_subscribed() -> None:
    message = frames.Array(bulks(b"message", b"a", b"hi"))
    keys = Message(kind=Kind.REQUEST, target=Operation("redis", "keys"), fields={"args": ["*"]}, correlation="k")
    for version in (2, 3):
        client = client_ready(version)
        client.send(keys, 0.0)
        assert [each.correlation for each in client.receive(message, 0.0).messages] == ["k"]
    client = client_ready(2)
    client.send(control(Op.SUBSCRIBE, fields={"topics": ["a"]}, correlation="s"), 0.0)
    confirmation = frames.Array((*bulks(b"subscribe", b"a"), frames.Integer(1)))
    assert [each.correlation for each in client.receive(confirmation, 0.0).messages] == ["s"]
    client.send(control(Op.PING, correlation="p"), 0.0)
    assert [each.kind for each in client.receive(message, 0.0).messages] == [Kind.NOTIFICATION]
    pong = frames.Array(bulks(b"pong", b""))
    assert [each.correlation for each in client.receive(pong, 0.0).messages] == ["p"]


def test_a_subscription_may_be_refused_and_one_may_be_ended_by_the_server() -> None:
    client = client_ready()
    client.send(control(Op.SUBSCRIBE, fields={"topics": ["a", "b"]}, correlation="s"), 0.0)
    (refused,) = client.receive(frames.SimpleError(b"NOPERM no"), 0.0).messages
    assert (refused.correlation, refused.failure) == ("s", Failure("NOPERM no"))
    ended = frames.Push((*bulks(b"unsubscribe", b"a"), frames.Integer(0)))
    assert client.receive(ended, 0.0) == Step()
    assert client.send(control(Op.UNSUBSCRIBE, fields={"topics": []}, correlation="u"), 0.0).frames == [
        cmd("UNSUBSCRIBE")
    ]
    nothing = frames.Push((frames.BulkString(b"unsubscribe"), frames.Null(), frames.Integer(0)))
    assert [each.correlation for each in client.receive(nothing, 0.0).messages] == ["u"]


def test_other_pushes_are_events_at_any_time() -> None:
    push = frames.Push(bulks(b"invalidate", b"k"))
    client = ClientSession(0.0)
    client.send(LOGIN, 0.0)
    for _ in range(2):
        assert [each.kind for each in client.receive(push, 0.0).messages] == [Kind.EVENT]
        if client.state is ClientState.LOGGING_IN:
            client.receive(SimpleString(b"OK"), 0.0)


def test_a_client_closes_on_what_answers_nothing() -> None:
    step = client_ready().receive(SimpleString(b"OK"), 0.0)
    assert step.closing == Closing("unexpected_frame", "simple_string answers nothing")


def test_a_client_refuses_to_ask_more_than_a_server_takes() -> None:
    client = client_ready(ping_s=1.0)
    for _ in range(RESP_REQUESTS_OPEN_MAX):
        client.send(control(Op.PING), 0.0)
    with pytest.raises(StateError, match="open already"):
        client.send(control(Op.PING), 0.0)
    assert client.tick(1.0) == Step()


def test_a_client_pings_by_itself_and_tells_nobody() -> None:
    talking = talk(ping_s=10.0)
    before = len(talking.client_messages)
    talking.pass_time(10.0)
    talking.pass_time(10.0)
    assert [raw for sender, raw in talking.wire if b"PING" in raw] == [b"*1\r\n$4\r\nPING\r\n"] * 2
    assert talking.client_messages[before:] == []


@pytest.mark.parametrize("frame", [frames.SimpleError(b"ERR x"), frames.BulkError(b"ERR x")])
def test_a_client_takes_both_errors_for_a_refused_login(frame: Frame) -> None:
    client = ClientSession(0.0)
    client.send(LOGIN, 0.0)
    assert client.receive(frame, 0.0).closing == Closing("login_refused", "ERR x")


def test_a_client_gives_up() -> None:
    client = ClientSession(0.0)
    client.send(LOGIN, 0.0)
    assert client.tick(10.0).closing == Closing("login_timeout")
    client = client_ready()
    client.send(control(Op.LOGOUT), 0.0)
    assert client.tick(5.0).closing == Closing("quit")
    assert ClientSession(0.0, Settings(idle_s=5.0)).tick(6.0).closing == Closing("idle", "nothing heard for 5 s")
    assert ClientSession(0.0).goodbye(Closing("done"), 0.0).closing == Closing("done")
    assert closing_code(ClientSession(0.0).fail(ProtocolError("short", "…", 1), 0.0)) == "short"


@pytest.mark.parametrize("name", ["NEW", "LOGGING_IN", "READY", "LEAVING"])
def test_a_client_ends_in_every_state(name: str) -> None:
    def client() -> ClientSession:
        client = ClientSession(0.0, Settings(idle_s=3.0))
        if name != "NEW":
            client.send(LOGIN, 0.0)
        if name in ("READY", "LEAVING"):
            client.receive(SimpleString(b"OK"), 0.0)
        if name == "LEAVING":
            client.send(control(Op.LOGOUT), 0.0)
        assert state(client) == name
        return client

    assert client().goodbye(Closing("done"), 0.0) == Step(closing=Closing("done"))
    assert closing_code(client().fail(ProtocolError("short", "…", 1), 0.0)) == "short"
    assert closing_code(client().tick(3.0)) == "idle"


def test_a_client_that_leaves_still_takes_what_comes_before_the_end() -> None:
    client = client_ready()
    keys = Message(kind=Kind.REQUEST, target=Operation("redis", "keys"), fields={"args": ["*"]}, correlation="k")
    client.send(keys, 0.0)
    client.send(control(Op.LOGOUT, correlation="q"), 0.0)
    told = frames.Push(bulks(b"message", b"a", b"hi"))
    assert [each.kind for each in client.receive(told, 0.0).messages] == [Kind.NOTIFICATION]
    assert [each.correlation for each in client.receive(frames.Array(()), 0.0).messages] == ["k"]
    step = client.receive(SimpleString(b"OK"), 0.0)
    assert ([each.correlation for each in step.messages], step.closing) == (["q"], Closing("quit"))
