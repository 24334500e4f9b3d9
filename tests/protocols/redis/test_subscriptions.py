"""The server's side of subscribing, in both versions of the protocol."""

from protocols.redis.talking import answered, ask, closing_code, cmd, news, ready, say, state, wire
from wirelake.message import Failure, Op, control_op
from wirelake.protocols.redis.constants import (
    REDIS_ANSWERS_BYTES_MAX,
    REDIS_ANSWERS_PAUSE_BYTES,
    REDIS_SUBSCRIPTIONS_MAX,
)
from wirelake.protocols.redis.frames import Command
from wirelake.protocols.redis.server import ServerSession
from wirelake.protocols.session import Step


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
        assert server.encode_notification(news("a", b"hi")) == wire(told)
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
    assert server.encoding_key is None
    assert answered(server, subscribe) == b""
    assert wire(server.send(news("a", b"hi"), 0.0)) == b""
    released = answered(server, get, payload=b"x")
    assert released.startswith(b"$1\r\nx\r\n*3\r\n$9\r\nsubscribe\r\n")
    assert released.endswith(b"$2\r\nhi\r\n")
    assert server.encoding_key == "resp 2"


def test_in_resp_2_notifications_that_cannot_wait_close() -> None:
    server = ready()
    ask(server, "SUBSCRIBE a")
    for _ in range(REDIS_ANSWERS_BYTES_MAX // REDIS_ANSWERS_PAUSE_BYTES):
        assert server.send(news("a", bytes(REDIS_ANSWERS_PAUSE_BYTES)), 0.0).closing is None
    assert closing_code(server.send(news("a", b"one more"), 0.0)) == "too_many_requests"


def test_who_is_told_in_the_same_bytes() -> None:
    assert ServerSession(0.0).encoding_key is None
    assert ready(3).encoding_key == "resp 3"
    server = ready()
    audiences = [server.encoding_key]
    subscribe = ask(server, "SUBSCRIBE a")
    audiences.append(server.encoding_key)
    answered(server, subscribe)
    assert [*audiences, server.encoding_key] == [None, "resp 2", "resp 2"]


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
    names = tuple([b"%d" % number for number in range(REDIS_SUBSCRIPTIONS_MAX + 1)])
    assert wire(server.receive(Command((b"SUBSCRIBE", *names)), 0.0)) == b"-ERR too many subscriptions\r\n"
    assert len(server.receive(Command((b"SUBSCRIBE", *names[1:])), 0.0).messages) == 1


def test_another_login_while_subscribed() -> None:
    server = ready(3)
    answered(server, ask(server, "SUBSCRIBE a"))
    login = ask(server, "AUTH anna t0ken")
    assert wire(server.send(news("a", b"hi"), 0.0)).startswith(b">3\r\n")
    assert answered(server, login) == b"+OK\r\n"
