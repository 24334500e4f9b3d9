"""The server's side before it is known who speaks."""

import pytest

from protocols.redis.talking import answer_to, answered, ask, closing_code, cmd, ready, say, state, wire
from wirelake.message import Credentials, Failure, Op, Operation, control_op
from wirelake.protocols.redis.constants import (
    REDIS_FRAME_BYTES_MAX,
    REDIS_HELD_BYTES_MAX,
    REDIS_HELD_FRAMES_MAX,
    REDIS_LOGIN_FRAME_BYTES_MAX,
)
from wirelake.protocols.redis.frames import Command
from wirelake.protocols.redis.server import ServerSession
from wirelake.protocols.redis.session import SessionSettings
from wirelake.protocols.session import Closing, Step


def test_before_the_login_little_is_served() -> None:
    server = ServerSession(0.0)
    assert say(server, "GET a") == b"-NOAUTH Authentication required.\r\n"
    assert say(server, "PING") == b"-NOAUTH Authentication required.\r\n"
    assert say(server, "HELLO 3").startswith(b"-NOAUTH HELLO must be called with the client already authenticated")
    assert say(server, "FLY me") == b"-ERR unknown command 'FLY', with args beginning with: 'me' \r\n"
    assert say(server, "AUTH") == b"-ERR wrong number of arguments for 'auth' command\r\n"
    assert say(server, "RESET") == b"+RESET\r\n"
    assert server.frame_bytes_max == REDIS_LOGIN_FRAME_BYTES_MAX
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
    assert server.frame_bytes_max == REDIS_FRAME_BYTES_MAX


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
    for _ in range(REDIS_HELD_FRAMES_MAX):
        assert server.receive(cmd("PING"), 0.0).closing is None
    assert server.is_paused
    assert closing_code(server.receive(cmd("PING"), 0.0)) == "too_many_requests"
    server = ServerSession(0.0)
    ask(server, "AUTH anna t0ken")
    assert closing_code(server.receive(Command((b"ECHO", bytes(REDIS_HELD_BYTES_MAX))), 0.0)) == "too_many_requests"


def test_no_login_in_time_closes() -> None:
    server = ServerSession(0.0, settings=SessionSettings(login_s=10.0))
    assert server.tick(9.9).closing is None
    step = server.tick(10.0)
    assert (wire(step), step.closing) == (b"-ERR no login in time\r\n", Closing("login_timeout"))
    server = ServerSession(0.0)
    ask(server, "AUTH anna t0ken")
    step = server.tick(10.0)
    assert (wire(step), step.closing) == (b"-ERR no login in time\r\n", Closing("login_timeout"))
