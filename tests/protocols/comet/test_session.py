"""comet conversations, both sides real, through real bytes."""

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa

from protocols.conversation import Conversation
from wirelake.errors import ProtocolError, StateError, TranslationError
from wirelake.message import Credentials, Failure, Kind, Message, Op, control, control_op
from wirelake.protocols.comet import crypto, frames
from wirelake.protocols.comet.client import ClientSession
from wirelake.protocols.comet.constants import (
    COMET_ANSWERS_WAITING_MAX,
    COMET_CONTENT_BYTES_MAX,
    COMET_HELD_FRAMES_MAX,
    COMET_REQUESTS_OPEN_MAX,
    ErrorCode,
)
from wirelake.protocols.comet.protocol import PROTOCOL
from wirelake.protocols.comet.server import ServerSession
from wirelake.protocols.comet.session import ClientState, ServerState, SessionSettings
from wirelake.protocols.frame import Sender
from wirelake.protocols.session import ACCESS_DENIED, Closing

LOGIN = control(Op.LOGIN, credentials=Credentials("phone-1", "t0ken"), correlation="in")
OK = Message(kind=Kind.RESPONSE)


@pytest.fixture(scope="module")
def private() -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(crypto.RSA_EXPONENT, crypto.RSA_BITS)


ROOM = {"rows_max": 127, "bytes_max": 32765, "each_bytes": 41, "content_bytes_max": 32640}  # of one message_list


def random(size: int) -> bytes:
    """Not random at all: tests want the same bytes each time."""
    return bytes(range(size))


def talk(private: rsa.RSAPrivateKey, *, secret_bytes: int = 0, **settings: float) -> Conversation:
    server_settings = SessionSettings(**settings)  # type: ignore[arg-type]
    server = ServerSession(0.0, private, random, server_settings)
    client = ClientSession(0.0, random, secret_bytes)
    return Conversation(PROTOCOL, client, server)


def logged_in(private: rsa.RSAPrivateKey, *, secret_bytes: int = 0, **settings: float) -> Conversation:
    talking = talk(private, secret_bytes=secret_bytes, **settings)
    (login,) = talking.client_says(LOGIN)
    assert login.credentials == Credentials("phone-1", "t0ken")
    talking.server_says(Message(kind=Kind.RESPONSE, correlation=login.correlation))
    return talking


def answer_to(question: Message, **rest: object) -> Message:
    return Message(kind=Kind.RESPONSE, correlation=question.correlation, **rest)  # type: ignore[arg-type]


def said_by_server(talking: Conversation) -> list[frames.CometFrame]:
    return [frames.decode(raw, sender) for sender, raw in talking.wire if sender is Sender.SERVER]


def test_a_login_is_answered_with_the_key_and_both_are_ready(private: rsa.RSAPrivateKey) -> None:
    talking = logged_in(private)
    assert [message.correlation for message in talking.client_messages] == ["in"]
    assert said_by_server(talking) == [frames.AuthSuccess(crypto.encrypt_key(private))]
    assert talking.sessions[Sender.CLIENT].state is ClientState.READY
    assert talking.sessions[Sender.SERVER].state is ServerState.READY


def test_a_refused_login_is_told_and_closed(private: rsa.RSAPrivateKey) -> None:
    talking = talk(private)
    (login,) = talking.client_says(LOGIN)
    talking.server_says(answer_to(login, failure=Failure("wrong token", ErrorCode.TOKEN_WRONG)))
    assert talking.client_messages[0].failure == Failure("wrong token", 0)
    assert {sender: closing.code for sender, closing in talking.closings.items()} == {
        Sender.CLIENT: "login_refused",
        Sender.SERVER: "login_refused",
    }


def test_before_the_login_only_heartbeats_are_served(private: rsa.RSAPrivateKey) -> None:
    server = ServerSession(0.0, private, random)
    assert server.receive(frames.Heartbeat(), 1.0).frames == [frames.Ok()]
    step = server.receive(frames.Subscribe(("@a",)), 1.0)
    assert step.frames == [frames.Error(ErrorCode.NOT_AUTHENTICATED, "subscribe: log in first")]
    assert step.closing is None


def test_frames_sent_before_the_verdict_are_served_after_it(private: rsa.RSAPrivateKey) -> None:
    server = ServerSession(0.0, private, random)
    server.receive(frames.Auth("a", "b"), 0.0)
    assert server.receive(frames.Heartbeat(), 0.0).frames == []
    assert server.receive(frames.Subscribe(("@a",)), 0.0).messages == []
    step = server.send(OK, 0.0)
    assert [frame.name for frame in step.frames] == ["auth_success", "ok"]
    assert [control_op(message) for message in step.messages] == [Op.SUBSCRIBE]


def test_too_many_frames_before_the_verdict_close(private: rsa.RSAPrivateKey) -> None:
    server = ServerSession(0.0, private, random)
    server.receive(frames.Auth("a", "b"), 0.0)
    for _ in range(COMET_HELD_FRAMES_MAX):
        assert server.receive(frames.Heartbeat(), 0.0).closing is None
    step = server.receive(frames.Heartbeat(), 0.0)
    assert step.closing is not None
    assert step.frames == [frames.Error(ErrorCode.TOO_MANY_REQUESTS, "too many frames before the login")]


def test_no_login_in_time_closes(private: rsa.RSAPrivateKey) -> None:
    server = ServerSession(0.0, private, random, SessionSettings(login_s=10.0))
    assert server.deadline_s == 10.0
    assert server.tick(9.9).closing is None
    step = server.tick(10.0)
    assert step.closing == Closing("login_timeout")
    assert step.frames == [frames.Error(ErrorCode.NOT_AUTHENTICATED, "no login in time")]


@pytest.mark.parametrize(
    ("message", "op", "fields"),
    [
        (control(Op.SUBSCRIBE, fields={"topics": ["@a", "@b/c"]}), Op.SUBSCRIBE, {"topics": ["@a", "@b/c"]}),
        (control(Op.UNSUBSCRIBE, fields={"topics": ["@a"]}), Op.UNSUBSCRIBE, {"topics": ["@a"]}),
        (control(Op.ACK, fields={"ids": ["1", "2"]}), Op.ACK, {"ids": ["1", "2"]}),
        (control(Op.TOPICS), Op.TOPICS, {}),
        (control(Op.BACKLOG), Op.BACKLOG, ROOM),
    ],
)
def test_requests_go_up_and_their_answers_come_back(
    private: rsa.RSAPrivateKey, message: Message, op: Op, fields: dict[str, object]
) -> None:
    talking = logged_in(private)
    (question,) = talking.client_says(message)
    assert (control_op(question), question.fields) == (op, fields)
    (answer,) = talking.server_says(answer_to(question))
    assert answer.kind is Kind.RESPONSE
    assert answer.failure is None


def test_answers_keep_the_order_of_the_questions(private: rsa.RSAPrivateKey) -> None:
    talking = logged_in(private)
    (first,) = talking.client_says(control(Op.TOPICS, correlation="first"))
    (second,) = talking.client_says(control(Op.BACKLOG, correlation="second"))
    talking.client_says(control(Op.PING, correlation="third"))
    assert talking.server_says(answer_to(second, name="message_list")) == []
    answers = talking.server_says(answer_to(first, fields={"topics": ["@a"]}))
    assert [(answer.correlation, answer.name) for answer in answers] == [
        ("first", "topic_list"),
        ("second", "message_list"),
        ("third", "ok"),
    ]


def test_an_answer_given_twice_or_to_nobody_is_dropped(private: rsa.RSAPrivateKey) -> None:
    talking = logged_in(private)
    (question,) = talking.client_says(control(Op.TOPICS))
    assert len(talking.server_says(answer_to(question))) == 1
    assert talking.server_says(answer_to(question)) == []


@pytest.mark.parametrize("topic", ["news", "", "@a b", "@a\n", "@" + "a" * 256, "@a👍", "@a(b)"])
def test_a_bad_topic_name_gets_error_4_and_stays(private: rsa.RSAPrivateKey, topic: str) -> None:
    talking = logged_in(private)
    assert talking.client_says(control(Op.SUBSCRIBE, fields={"topics": ["@ok", topic]})) == []
    assert talking.client_messages[-1].failure is not None
    assert talking.client_messages[-1].failure.code == ErrorCode.BAD_ARGUMENTS
    assert not talking.closings


@pytest.mark.parametrize("topic", ["@新闻", "@погода/北京", "@é", "@a_b-c$d.e"])
def test_topics_have_letters_of_any_script(private: rsa.RSAPrivateKey, topic: str) -> None:
    talking = logged_in(private)
    (asked,) = talking.client_says(control(Op.SUBSCRIBE, fields={"topics": [topic]}))
    assert asked.fields == {"topics": [topic]}


def test_a_notification_is_pushed(private: rsa.RSAPrivateKey) -> None:
    talking = logged_in(private)
    news = Message(kind=Kind.NOTIFICATION, id="n1", type=3, payload=b"hi", at_ms=1234)
    (heard,) = talking.server_says(news)
    assert (heard.id, heard.type, heard.payload, heard.at_ms) == ("n1", 3, b"hi", 1234)


@pytest.mark.parametrize("size", [16, 32])
def test_with_a_secret_content_is_sealed_on_the_wire_and_open_above(private: rsa.RSAPrivateKey, size: int) -> None:
    talking = logged_in(private, secret_bytes=size)
    (heard,) = talking.server_says(Message(kind=Kind.NOTIFICATION, id="n1", payload=b"in clear"))
    assert heard.payload == b"in clear"
    (question,) = talking.client_says(control(Op.BACKLOG))
    waiting = Message(kind=Kind.NOTIFICATION, id="n2", payload=b"waited")
    (backlog,) = talking.server_says(answer_to(question, parts=(waiting,)))
    assert [part.payload for part in backlog.parts] == [b"waited"]
    wire = b"".join(raw for _, raw in talking.wire)
    assert b"in clear" not in wire
    assert b"waited" not in wire


def test_changed_content_closes_the_client(private: rsa.RSAPrivateKey) -> None:
    talking = logged_in(private, secret_bytes=16)
    forged = frames.Message(0, "n1", bytes(40), 0)
    talking.inject(Sender.SERVER, forged.encode())
    assert talking.closings[Sender.CLIENT].code == "bad_seal"
    assert talking.client_messages[-1].failure is not None


def test_a_listener_can_require_a_key(private: rsa.RSAPrivateKey) -> None:
    talking = logged_in(private, require_key=True)
    assert talking.sessions[Sender.SERVER].state.name == "KEYLESS"
    talking.client_says(control(Op.BACKLOG))
    talking.client_says(control(Op.PING))
    assert [message.failure for message in talking.client_messages[-2:]] == [
        Failure("get_message_list: exchange a key first", ErrorCode.NOT_AUTHENTICATED),
        None,
    ]
    with pytest.raises(StateError):
        talking.server_says(Message(kind=Kind.NOTIFICATION, id="n1"))
    sealing = logged_in(private, require_key=True, secret_bytes=32)
    assert sealing.sessions[Sender.SERVER].state is ServerState.READY


@pytest.mark.parametrize("secret_bytes", [0, 32])
def test_the_longest_content_fits_with_any_id_and_seal(private: rsa.RSAPrivateKey, secret_bytes: int) -> None:
    talking = logged_in(private, secret_bytes=secret_bytes)
    longest = Message(kind=Kind.NOTIFICATION, id="i" * 60, payload=bytes(COMET_CONTENT_BYTES_MAX))
    (pushed,) = talking.server_says(longest)
    assert len(pushed.payload) == COMET_CONTENT_BYTES_MAX
    (question,) = talking.client_says(control(Op.BACKLOG))
    (listed,) = talking.server_says(answer_to(question, parts=(longest,)))
    assert len(listed.parts[0].payload) == COMET_CONTENT_BYTES_MAX
    with pytest.raises(TranslationError, match="bytes: comet carries"):
        talking.server_says(Message(kind=Kind.NOTIFICATION, id="n", payload=bytes(COMET_CONTENT_BYTES_MAX + 1)))


def test_an_answer_that_fits_no_frame_says_so(private: rsa.RSAPrivateKey) -> None:
    talking = logged_in(private)
    (question,) = talking.client_says(control(Op.TOPICS))
    (answer,) = talking.server_says(answer_to(question, fields={"topics": [f"@{n}" for n in range(128)]}))
    assert answer.failure is not None
    assert (answer.failure.code, "128" in answer.failure.text) == (ErrorCode.SERVER_ERROR, True)
    assert not talking.closings


def test_a_key_behind_open_requests_seals_from_its_ok_on(private: rsa.RSAPrivateKey) -> None:
    """Answers keep the order of the requests, so what goes out before the `ok` is still in clear."""
    server = ServerSession(0.0, private, random)
    server.receive(frames.Auth("phone-1", "t0ken"), 0.0)
    server.send(answer_to(Message(kind=Kind.RESPONSE, correlation="login")), 0.0)
    secret = bytes(range(32))
    news = Message(kind=Kind.NOTIFICATION, id="n1", payload=b"in clear")
    (subscribe,) = server.receive(frames.Subscribe(("@a",)), 0.0).messages
    wrapped = crypto.wrap_secret(secret, crypto.encrypt_key(private))
    assert server.receive(frames.ExchangeKey(wrapped), 0.0).frames == []
    (backlog,) = server.receive(frames.GetMessageList(), 0.0).messages
    assert server.send(answer_to(backlog, parts=(news,)), 0.0).frames == [], "its turn has not come"
    audiences = [server.encoding_key]
    (early,) = server.send(news, 0.0).frames
    assert isinstance(early, frames.Message)
    assert early.content == b"in clear"
    ok, exchanged, waiting = server.send(answer_to(subscribe), 0.0).frames
    assert (ok, exchanged) == (frames.Ok(), frames.Ok())
    assert isinstance(waiting, frames.MessageList)
    assert crypto.open_content(waiting.messages[0].content, "n1", secret) == b"in clear"
    assert [*audiences, server.encoding_key] == ["comet", None]
    (late,) = server.send(news, 0.0).frames
    assert isinstance(late, frames.Message)
    assert crypto.open_content(late.content, "n1", secret) == b"in clear"


def test_a_bad_key_exchange_is_refused_and_closed(private: rsa.RSAPrivateKey) -> None:
    talking = logged_in(private)
    talking.inject(Sender.CLIENT, frames.ExchangeKey(b"nonsense").encode())
    assert talking.closings[Sender.SERVER].code == "bad_seal"
    assert said_by_server(talking)[-1].name == "error"


def test_a_key_that_is_none_closes_the_client() -> None:
    client = ClientSession(0.0, random, 16)
    client.send(LOGIN, 0.0)
    step = client.receive(frames.AuthSuccess(b"no key"), 0.0)
    assert step.closing is not None
    assert step.closing.code == "bad_key"


def test_a_backlog_holds_as_many_as_fit_oldest_first(private: rsa.RSAPrivateKey) -> None:
    talking = logged_in(private)
    (question,) = talking.client_says(control(Op.BACKLOG))
    waiting = tuple(Message(kind=Kind.NOTIFICATION, id=str(n), payload=b"x" * 10_000) for n in range(5))
    (answer,) = talking.server_says(answer_to(question, parts=waiting))
    assert [part.id for part in answer.parts] == ["0", "1", "2"]
    (question,) = talking.client_says(control(Op.BACKLOG))
    small = tuple(Message(kind=Kind.NOTIFICATION, id=str(n)) for n in range(200))
    (answer,) = talking.server_says(answer_to(question, parts=small))
    assert len(answer.parts) == 127


def test_a_notification_that_fits_no_frame_is_left_out(private: rsa.RSAPrivateKey) -> None:
    talking = logged_in(private)
    (question,) = talking.client_says(control(Op.BACKLOG))
    long = Message(kind=Kind.NOTIFICATION, id="long", payload=b"x" * 40_000)
    short = Message(kind=Kind.NOTIFICATION, id="short", payload=b"x")
    longer = Message(kind=Kind.NOTIFICATION, id="longer", payload=b"x" * 70_000)
    (answer,) = talking.server_says(answer_to(question, parts=(long, longer, short, long)))
    assert [part.id for part in answer.parts] == ["short"]
    with pytest.raises(TranslationError):
        talking.server_says(long)
    (told,) = talking.server_says(short)
    assert told.id == "short", "and nothing is spoiled by it"


def test_too_many_open_requests_get_error_6_in_turn(private: rsa.RSAPrivateKey) -> None:
    server = ServerSession(0.0, private, random)
    server.receive(frames.Auth("a", "b"), 0.0)
    server.send(OK, 0.0)
    for _ in range(COMET_REQUESTS_OPEN_MAX):
        assert len(server.receive(frames.GetTopicList(), 0.0).messages) == 1
    assert server.receive(frames.GetTopicList(), 0.0).messages == []
    answered = [
        frame
        for number in range(1, COMET_REQUESTS_OPEN_MAX + 1)
        for frame in server.send(Message(kind=Kind.RESPONSE, correlation=str(number)), 0.0).frames
    ]
    assert answered[:-1] == [frames.Ok()] * COMET_REQUESTS_OPEN_MAX
    assert answered[-1] == frames.Error(ErrorCode.TOO_MANY_REQUESTS, "too many requests open")


def test_a_flood_behind_one_unanswered_question_closes(private: rsa.RSAPrivateKey) -> None:
    server = ServerSession(0.0, private, random)
    server.receive(frames.Auth("a", "b"), 0.0)
    server.send(OK, 0.0)
    server.receive(frames.GetTopicList(), 0.0)
    for _ in range(COMET_ANSWERS_WAITING_MAX - 1):
        assert server.receive(frames.Heartbeat(), 0.0).closing is None
    step = server.receive(frames.Heartbeat(), 0.0)
    assert step.closing is not None
    assert step.closing.code == "too_many_requests"


def test_our_client_refuses_to_ask_more_than_the_server_takes(private: rsa.RSAPrivateKey) -> None:
    client = ClientSession(0.0, random)
    client.send(LOGIN, 0.0)
    client.receive(frames.AuthSuccess(b""), 0.0)
    for _ in range(COMET_REQUESTS_OPEN_MAX):
        client.send(control(Op.TOPICS), 0.0)
    with pytest.raises(StateError, match="open already"):
        client.send(control(Op.TOPICS), 0.0)


def test_a_second_auth_gets_error_4_and_closes(private: rsa.RSAPrivateKey) -> None:
    talking = logged_in(private)
    talking.inject(Sender.CLIENT, frames.Auth("x", "y").encode())
    assert talking.closings[Sender.SERVER].code == "second_auth"


def test_bytes_that_cannot_be_read_get_error_4_and_close(private: rsa.RSAPrivateKey) -> None:
    talking = logged_in(private)
    step = talking.sessions[Sender.SERVER].fail(ProtocolError("trailing", "2 bytes too many", 5), 0.0)
    assert step.frames == [frames.Error(ErrorCode.BAD_ARGUMENTS, "2 bytes too many")]
    assert step.closing is not None
    assert talking.sessions[Sender.SERVER].fail(ProtocolError("x", "y", 0), 0.0).frames == []


@pytest.mark.parametrize(
    ("reason", "code"),
    [
        ("replaced", ErrorCode.CONNECTED_ELSEWHERE),
        ("shutdown", ErrorCode.SERVER_ERROR),
        (ACCESS_DENIED, ErrorCode.ACCESS_DENIED),
    ],
)
def test_goodbye_says_why(private: rsa.RSAPrivateKey, reason: str, code: ErrorCode) -> None:
    talking = logged_in(private)
    step = talking.sessions[Sender.SERVER].close(Closing(reason), 0.0)
    assert step.frames == [frames.Error(code, reason)]
    talking.inject(Sender.SERVER, step.frames[0].encode())
    assert talking.client_messages[-1].failure == Failure(reason, code)
    assert talking.closings[Sender.CLIENT].code == "server_error"


def test_silence_closes_and_heartbeats_prevent_it(private: rsa.RSAPrivateKey) -> None:
    talking = logged_in(private)
    for _ in range(10):
        talking.pass_time(40.0)
    assert not talking.closings
    silent = logged_in(private)
    server = silent.sessions[Sender.SERVER]
    assert server.tick(119.0).closing is None
    assert server.tick(121.0).closing == Closing("idle", "no data received for 120 s")
    with pytest.raises(StateError):
        server.receive(frames.Heartbeat(), 122.0)


def test_the_environment_is_reported(private: rsa.RSAPrivateKey) -> None:
    talking = logged_in(private)
    environ = {"network_type": 1, "isp": 2, "phone_type": "p", "extra": ["x"]}
    (report,) = talking.client_says(Message(kind=Kind.EVENT, name="report_environ", fields=environ))
    assert (report.kind, report.fields) == (Kind.EVENT, environ)
    assert len(talking.server_says(answer_to(report))) == 1


def test_a_client_closes_on_what_answers_nothing(private: rsa.RSAPrivateKey) -> None:
    for frame in (frames.Ok(), frames.AuthSuccess(b"")):
        talking = logged_in(private)
        talking.inject(Sender.SERVER, frame.encode())
        assert talking.closings[Sender.CLIENT].code == "unexpected_frame"


def test_a_client_gives_up_on_a_login_that_is_never_answered() -> None:
    client = ClientSession(0.0, random)
    client.send(LOGIN, 0.0)
    assert client.tick(10.0).closing == Closing("login_timeout")


def test_a_client_ends_quietly_by_itself() -> None:
    client = ClientSession(0.0, random, settings=SessionSettings(idle_s=5.0))
    assert client.tick(6.0).closing == Closing("idle", "no data received for 5 s")
    assert ClientSession(0.0, random).close(Closing("done"), 0.0).closing == Closing("done")
    unreadable = ClientSession(0.0, random).fail(ProtocolError("short", "…", 1), 0.0)
    assert unreadable.closing is not None
    assert unreadable.closing.code == "short"
