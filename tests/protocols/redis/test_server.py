"""What the server answers by itself, what goes up and comes back, and how it ends."""

from typing import Any

import pytest

from protocols.conversation import Conversation
from protocols.redis.strategies import inline
from protocols.redis.talking import (
    answer_to,
    answered,
    ask,
    closing_code,
    cmd,
    news,
    ready,
    say,
    state,
    wire,
)
from wirelake.errors import ProtocolError, StateError
from wirelake.message import Failure, Kind, Message, Op, Operation, Topic, control_op
from wirelake.protocols.frame import Sender
from wirelake.protocols.redis import frames
from wirelake.protocols.redis.client import ClientSession
from wirelake.protocols.redis.constants import (
    REDIS_ANSWERS_BYTES_MAX,
    REDIS_ANSWERS_PAUSE_BYTES,
    REDIS_REQUESTS_OPEN_MAX,
    REDIS_REQUESTS_PAUSE_AT,
)
from wirelake.protocols.redis.frames import Command
from wirelake.protocols.redis.protocol import PROTOCOL
from wirelake.protocols.redis.server import ServerSession
from wirelake.protocols.redis.session import SessionSettings
from wirelake.protocols.session import Closing, Step


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
        (
            "CLIENT LIST",
            (
                b"$101\r\nid=7 name= age=0 idle=0 flags=N db=0 sub=0 psub=0 multi=-1 cmd=client|list lib-name= "
                b"lib-ver= resp=2\n\r\n"
            ),
        ),
        ("CLIENT LIST ID 6 8", b"$0\r\n\r\n"),
        ("CLIENT LIST TYPE pubsub", b"$0\r\n\r\n"),
        ("CLIENT LIST TYPE foo", b"-ERR Unknown client type 'foo'\r\n"),
        ("CLIENT LIST ID", b"-ERR syntax error\r\n"),
        ("CLIENT LIST ID x", b"-ERR Invalid client ID\r\n"),
        ("CLIENT LIST FOO", b"-ERR syntax error\r\n"),
        ("CLIENT INFO x", b"-ERR wrong number of arguments for 'client|info' command\r\n"),
        ("CLIENT NO-EVICT on", b"+OK\r\n"),
        ("COMMAND COUNT", b":57\r\n"),
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
    assert say(ready(), "COMMAND LIST").startswith(b"*57\r\n$3\r\nacl\r\n$6\r\nappend\r\n")


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
    for _ in range(REDIS_REQUESTS_PAUSE_AT - 1):
        assert not server.is_paused
        server.receive(cmd("PING"), 0.0)
    assert server.is_paused
    for _ in range(REDIS_REQUESTS_OPEN_MAX - REDIS_REQUESTS_PAUSE_AT):
        server.receive(cmd("PING"), 0.0)
    assert closing_code(server.receive(cmd("PING"), 0.0)) == "too_many_requests"
    assert server.receive(cmd("PING"), 0.0) == Step()
    with pytest.raises(StateError):
        server.send(answer_to(first), 0.0)


def test_answers_held_back_are_bounded_in_bytes() -> None:
    server = ready()
    first = ask(server, "GET a")
    big = Command((b"ECHO", bytes(REDIS_ANSWERS_PAUSE_BYTES)))
    paused = [server.is_paused]
    server.receive(big, 0.0)
    paused.append(server.is_paused)
    assert len(answered(server, first)) > REDIS_ANSWERS_PAUSE_BYTES
    assert [*paused, server.is_paused] == [False, True, False]
    ask(server, "GET a")
    for _ in range(REDIS_ANSWERS_BYTES_MAX // REDIS_ANSWERS_PAUSE_BYTES):
        assert server.receive(big, 0.0).closing is None
    assert closing_code(server.receive(big, 0.0)) == "too_many_requests"


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
    assert server.close(Closing("shutdown"), 0.0) == Step(closing=Closing("shutdown"))
    server = ready()
    ask(server, "GET a")
    get = ask(server, "GET b")
    answered(server, get, payload=b"x")
    step = server.close(Closing("shutdown", "the gateway stops"), 0.0)
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
    server = ServerSession(0.0, settings=SessionSettings(idle_s=5.0, login_s=99.0, leave_s=99.0))
    answered(server, ask(server, "AUTH anna t0ken"))
    questions = [ask(server, "GET a"), ask(server, "GET b")]
    server.receive(cmd(line), 0.0)
    return server, questions


@pytest.mark.parametrize(("line", "name"), IN_STATE)
def test_the_end_comes_in_every_state(line: str, name: str) -> None:
    server, _ = in_state(line)
    assert state(server) == name
    step = server.close(Closing("shutdown"), 0.0)
    assert wire(step).startswith(b"-ERR shutdown\r\n-ERR shutdown\r\n")
    assert step.closing == Closing("shutdown")

    server, _ = in_state(line)
    step = server.fail(ProtocolError("quotes", "unbalanced quotes in request", 3), 0.0)
    assert (step, state(server)) == (Step(), "LEAVING")

    server, questions = in_state(line)
    assert answered(server, questions[1], payload=bytes(REDIS_ANSWERS_BYTES_MAX)) == b""
    assert closing_code(server.receive(cmd("PING"), 0.0)) == "too_many_requests"

    server, _ = in_state(line)
    step = server.tick(5.0)
    assert step.closing == (None if name == "SUBSCRIBED" else Closing("idle", "no data received for 5 s"))


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
    assert ready(idle_s=5.0).tick(5.0).closing == Closing("idle", "no data received for 5 s")
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
