"""The client's side, alone and with a real server at the other end."""

from typing import Any

import pytest

from protocols.conversation import Conversation
from protocols.redis.talking import (
    LOGIN,
    answer_to,
    closing_code,
    cmd,
    news,
    state,
)
from wirelake.errors import ProtocolError, StateError
from wirelake.message import Credentials, Failure, Kind, Message, Op, Operation, Topic, control
from wirelake.protocols.frame import Frame, Sender
from wirelake.protocols.redis import frames
from wirelake.protocols.redis.client import ClientSession
from wirelake.protocols.redis.constants import REDIS_REQUESTS_OPEN_MAX
from wirelake.protocols.redis.frames import SimpleString
from wirelake.protocols.redis.protocol import PROTOCOL
from wirelake.protocols.redis.server import ServerSession
from wirelake.protocols.redis.session import ClientState, SessionSettings
from wirelake.protocols.session import Closing, Step


def talk(version: int = 3, **settings: Any) -> Conversation:
    chosen = SessionSettings(version=version, **settings)
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
        client = ClientSession(0.0, SessionSettings(version=version))
        assert client.send(control(Op.LOGIN), 0.0).frames == [cmd(f"HELLO {version}")]
    assert ClientSession(0.0, SessionSettings(version=2)).send(LOGIN, 0.0).frames == [cmd("AUTH anna t0ken")]


def client_ready(version: int = 3, **settings: Any) -> ClientSession:
    client = ClientSession(0.0, SessionSettings(version=version, **settings))
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
    assert step.closing == Closing("unexpected_frame", "simple_string answers no request")


def test_a_client_refuses_to_ask_more_than_a_server_takes() -> None:
    client = client_ready(ping_s=1.0)
    for _ in range(REDIS_REQUESTS_OPEN_MAX):
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
    assert ClientSession(0.0, SessionSettings(idle_s=5.0)).tick(6.0).closing == Closing(
        "idle", "no data received for 5 s"
    )
    assert ClientSession(0.0).close(Closing("done"), 0.0).closing == Closing("done")
    assert closing_code(ClientSession(0.0).fail(ProtocolError("short", "…", 1), 0.0)) == "short"


@pytest.mark.parametrize("name", ["NEW", "LOGGING_IN", "READY", "LEAVING"])
def test_a_client_ends_in_every_state(name: str) -> None:
    def client() -> ClientSession:
        client = ClientSession(0.0, SessionSettings(idle_s=3.0))
        if name != "NEW":
            client.send(LOGIN, 0.0)
        if name in ("READY", "LEAVING"):
            client.receive(SimpleString(b"OK"), 0.0)
        if name == "LEAVING":
            client.send(control(Op.LOGOUT), 0.0)
        assert state(client) == name
        return client

    assert client().close(Closing("done"), 0.0) == Step(closing=Closing("done"))
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
