"""Commands and values as messages, and back."""

from typing import Any

import pytest
from hypothesis import given
from msgspec import to_builtins

from protocols.redis.strategies import client_frames, inline, server_frames
from wirelake.errors import TranslationError
from wirelake.message import Credentials, Failure, Kind, Message, Op, Operation, Topic, control, control_op
from wirelake.protocols.comet import frames as comet
from wirelake.protocols.frame import Sender
from wirelake.protocols.inspection import identify
from wirelake.protocols.redis import frames
from wirelake.protocols.redis.constants import REDIS_DEPTH_MAX
from wirelake.protocols.redis.frames import BulkString, Command, Integer, Pair, RespFrame, SimpleString, Value
from wirelake.protocols.redis.protocol import PROTOCOL
from wirelake.protocols.redis.reader import decode
from wirelake.protocols.redis.translation import LOSSES, from_message, to_message
from wirelake.protocols.redis.values import in_version_2
from wirelake.protocols.text import write_json
from wirelake.protocols.translation import Loss

CLIENT, SERVER = Sender.CLIENT, Sender.SERVER


def redis(op: str, *args: Any, **rest: Any) -> Message:
    return Message(kind=Kind.REQUEST, target=Operation("redis", op), fields={"args": list(args)}, **rest)


COMMANDS = [
    (b"AUTH user secret", control(Op.LOGIN, name="auth", credentials=Credentials("user", "secret"))),
    (
        b"HELLO 3 AUTH user secret SETNAME me",
        control(
            Op.LOGIN,
            name="hello",
            fields={"version": 3, "client_name": "me"},
            credentials=Credentials("user", "secret"),
        ),
    ),
    (b"HELLO 2", Message(kind=Kind.CONTROL, name="hello", fields={"version": 2})),
    (b"HELLO", Message(kind=Kind.CONTROL, name="hello")),
    (b"PING", control(Op.PING, name="ping")),
    (b"PING hi", control(Op.PING, name="ping", payload=b"hi")),
    (b"ECHO hi", control(Op.PING, name="echo", payload=b"hi")),
    (b"QUIT", control(Op.LOGOUT, name="quit")),
    (b"RESET", control(Op.LOGOUT, name="reset")),
    (b"SUBSCRIBE a @b", control(Op.SUBSCRIBE, name="subscribe", fields={"topics": ["a", "@b"]})),
    (b"UNSUBSCRIBE", control(Op.UNSUBSCRIBE, name="unsubscribe", fields={"topics": []})),
    (b"PSUBSCRIBE a*", control(Op.SUBSCRIBE, name="psubscribe", fields={"patterns": ["a*"]})),
    (b"PUNSUBSCRIBE a*", control(Op.UNSUBSCRIBE, name="punsubscribe", fields={"patterns": ["a*"]})),
    (b"PUBLISH @b hi", Message(kind=Kind.NOTIFICATION, name="publish", target=Topic("@b"), payload=b"hi")),
    (b"GET k", redis("get", b"k", name="get")),
    (b"SET k v EX 10 NX", redis("set", b"k", b"v", b"EX", b"10", b"NX", name="set")),
    (b"INFO", redis("info", name="info")),
    (b"CLIENT SETNAME me", redis("client", b"SETNAME", b"me", name="client")),
    (b"FLY away", redis("fly", b"away", name="command")),
]


@pytest.mark.parametrize(("line", "message"), COMMANDS)
def test_commands_and_their_messages(line: bytes, message: Message) -> None:
    command = Command(tuple(line.split()))
    found = to_message(command, CLIENT)
    assert found.protocol == "redis"
    assert found == Message(
        **{**{name: getattr(message, name) for name in message.__struct_fields__}, "protocol": "redis"}
    )
    assert from_message(found, CLIENT) == command


def test_an_inline_command_says_the_same() -> None:
    assert to_message(inline(b"get k\r\n"), CLIENT) == to_message(Command((b"GET", b"k")), CLIENT)
    assert to_message(inline(b"\r\n"), CLIENT) == Message(kind=Kind.CONTROL, name="inline", protocol="redis")
    assert to_message(inline(b"fly\r\n"), CLIENT).name == "inline"


def test_a_password_alone_is_the_default_users() -> None:
    found = to_message(Command((b"AUTH", b"secret")), CLIENT)
    assert found.credentials == Credentials("default", "secret")
    assert from_message(found, CLIENT) == Command((b"AUTH", b"default", b"secret"))


@pytest.mark.parametrize(
    "args",
    [
        (b"AUTH", b"user", b"secret", b"more"),
        (b"AUTH",),
        (b"HELLO", b"3", b"AUTH", b"secret"),
        (b"HELLO", b"9", b"AUTH", b"user", b"secret"),
        (b"HELLO", b"AUTH", b"user", b"secret"),
        (b"auth", b"user", b"secret"),
        (b"HELLO", b"3", b"auth", b"user", b"secret"),
        (b"AUTH", b"\xff", b"secret\xff"),
    ],
)
def test_a_password_is_never_in_the_fields(args: tuple[bytes, ...]) -> None:
    message = to_message(Command(args), CLIENT)
    assert b"secret" not in write_json([message.fields, message.headers, message.payload, message.target])
    assert message.kind is Kind.CONTROL


@given(client_frames)
def test_every_command_has_a_message_that_json_takes(frame: RespFrame) -> None:
    message = to_message(frame, CLIENT)
    write_json(to_builtins(message, str_keys=True))


@given(server_frames)
def test_every_value_has_a_message_that_json_takes_and_an_older_form(frame: Value) -> None:
    message = to_message(frame, SERVER)
    write_json(to_builtins(message, str_keys=True))
    wire = in_version_2(frame).encode()
    assert in_version_2(decode(wire, SERVER)).encode() == wire  # type: ignore[arg-type]
    if message.kind is not Kind.EVENT or message.name == "push":
        from_message(message, SERVER).encode()


def bulks(*words: bytes) -> tuple[Value, ...]:
    return tuple(map(BulkString, words))


@pytest.mark.parametrize(
    ("value", "plain"),
    [
        (SimpleString(b"OK"), "OK"),
        (Integer(-5), -5),
        (frames.Null(), None),
        (frames.Boolean(True), True),
        (frames.Double(b"1.5"), 1.5),
        (frames.Array(()), []),
        (frames.Array(bulks(b"a", b"\xff")), [b"a", b"\xff"]),
        (frames.Map((Pair(BulkString(b"a"), Integer(1)),)), {"a": 1}),
        (frames.Map((Pair(BulkString("é".encode()), Integer(1)),)), {"é": 1}),
    ],
)
def test_values_there_and_back(value: Value, plain: Any) -> None:
    message = to_message(value, SERVER)
    assert message == Message(kind=Kind.RESPONSE, name=value.name, protocol="redis", fields={"value": plain})
    assert from_message(message, SERVER) == value


@pytest.mark.parametrize(
    ("value", "plain"),
    [
        (frames.NullBulkString(), None),
        (frames.NullArray(), None),
        (frames.Set((Integer(1), Integer(1))), [1, 1]),
        (frames.BigNumber(b"12"), 12),
        (frames.BigNumber(b"9" * 30), "9" * 30),
        (frames.Array((frames.SimpleError(b"ERR x"), frames.BulkError(b"ERR y"))), ["ERR x", "ERR y"]),
        (frames.Array((frames.VerbatimString(b"txt", b"a"),)), [b"a"]),
        (frames.Array((frames.Attribute((), Integer(1)),)), [1]),
        (frames.Map((Pair(Integer(1), Integer(2)),)), [[1, 2]]),
        (frames.Map((Pair(BulkString(b"\xff"), Integer(2)),)), [[b"\xff", 2]]),
        (frames.Map((Pair(SimpleString(b"a"), Integer(1)), Pair(BulkString(b"a"), Integer(2)))), [["a", 1], [b"a", 2]]),
        (SimpleString(b"\xff"), "\\xff"),
    ],
)
def test_values_that_come_out_plainer(value: Value, plain: Any) -> None:
    assert to_message(value, SERVER).fields == {"value": plain}


def test_strings_are_payload_and_errors_are_failures() -> None:
    bulk = to_message(BulkString(b""), SERVER)
    assert (bulk.name, bulk.payload, bulk.fields) == ("bulk_string", b"", {})
    assert from_message(bulk, SERVER) == BulkString(b"")
    assert from_message(Message(kind=Kind.RESPONSE, payload=b"x"), SERVER) == BulkString(b"x")
    verbatim = to_message(frames.VerbatimString(b"mkd", b"# hi"), SERVER)
    assert (verbatim.payload, verbatim.headers) == (b"# hi", {"format": "mkd"})
    failed = to_message(frames.SimpleError(b"WRONGTYPE no"), SERVER)
    assert failed.failure == Failure("WRONGTYPE no")
    assert from_message(failed, SERVER) == frames.SimpleError(b"WRONGTYPE no")
    assert to_message(frames.BulkError(b"ERR\nlong"), SERVER).failure == Failure("ERR\nlong")
    noted = to_message(frames.Attribute((Pair(SimpleString(b"ttl"), Integer(1)),), BulkString(b"v")), SERVER)
    assert (noted.payload, noted.headers) == (b"v", {"attributes": {"ttl": 1}})


@pytest.mark.parametrize("kind", [frames.Push, frames.Array])
def test_notifications(kind: type[frames.Push | frames.Array]) -> None:
    message = to_message(kind(bulks(b"message", b"@a", b"\xff")), SERVER)
    assert message == Message(
        kind=Kind.NOTIFICATION, name="message", protocol="redis", target=Topic("@a"), payload=b"\xff"
    )
    assert from_message(message, SERVER) == frames.Push(bulks(b"message", b"@a", b"\xff"))
    matched = to_message(kind(bulks(b"pmessage", b"n.*", b"n.1", b"hi")), SERVER)
    assert (matched.name, matched.headers, matched.target) == ("pmessage", {"pattern": "n.*"}, Topic("n.1"))
    assert from_message(matched, SERVER) == frames.Push(bulks(b"pmessage", b"n.*", b"n.1", b"hi"))
    for other in (bulks(b"message", b"@a"), (*bulks(b"message", b"@a"), Integer(1)), bulks(b"subscribe", b"a", b"b")):
        assert to_message(kind(other), SERVER).kind is (Kind.EVENT if kind is frames.Push else Kind.RESPONSE)
    assert to_message(kind((*bulks(b"message", b"@a", b"x"), Integer(1))), SERVER).target is None


def test_other_pushes_are_events() -> None:
    push = frames.Push((BulkString(b"invalidate"), frames.Array(bulks(b"k"))))
    message = to_message(push, SERVER)
    assert (message.kind, message.fields) == (Kind.EVENT, {"value": [b"invalidate", [b"k"]]})
    assert from_message(message, SERVER) == push
    alone = Message(kind=Kind.EVENT, name="push", protocol="redis", fields={"value": 5})
    assert from_message(alone, SERVER) == frames.Push((Integer(5),))


@pytest.mark.parametrize(
    ("plain", "value"),
    [
        ("two\nlines", BulkString(b"two\nlines")),
        ("x" * 70_000, BulkString(b"x" * 70_000)),
        (["a", 1.0, {"b"}], frames.Array((BulkString(b"a"), frames.Double(b"1.0"), frames.Set(bulks(b"b"))))),
        (2**63, frames.BigNumber(b"9223372036854775808")),
        (float("inf"), frames.Double(b"inf")),
    ],
)
def test_plain_values_find_their_type(plain: Any, value: Value) -> None:
    assert from_message(Message(kind=Kind.RESPONSE, fields={"value": plain}), SERVER) == value


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


def test_what_nests_just_deep_enough_still_fits() -> None:
    deep = from_message(Message(kind=Kind.RESPONSE, fields={"value": nested(REDIS_DEPTH_MAX)}), SERVER)
    assert decode(deep.encode(), SERVER) == deep


@pytest.mark.parametrize(
    "message",
    [
        Message(kind=Kind.RESPONSE, fields={"value": object()}),
        Message(kind=Kind.RESPONSE, fields={"value": nested(REDIS_DEPTH_MAX + 1)}),
        Message(kind=Kind.RESPONSE, fields={"value": 10**5000}),
        Message(kind=Kind.RESPONSE, parts=(Message(kind=Kind.NOTIFICATION),)),
        Message(kind=Kind.REQUEST),
        Message(kind=Kind.EVENT, name="push"),
        Message(kind=Kind.NOTIFICATION, target=Topic("a"), fields={"a": 1}, payload=b"x"),
    ],
)
def test_what_a_server_cannot_say(message: Message) -> None:
    with pytest.raises(TranslationError):
        from_message(message, SERVER)


@pytest.mark.parametrize(
    "message",
    [
        control(Op.SUBSCRIBE),
        control(Op.SUBSCRIBE, fields={"topics": []}),
        control(Op.SUBSCRIBE, fields={"topics": ["a"], "patterns": ["b"]}),
        control(Op.SUBSCRIBE, fields={"topics": [None]}),
        control(Op.TOPICS),
        redis(""),
        redis("get", True),
        redis("get", None),
        redis("get", 2**64),
        Message(kind=Kind.REQUEST, target=Operation("redis", "get"), fields={"key": "a"}),
        Message(kind=Kind.NOTIFICATION, payload=b"x"),
        Message(kind=Kind.RESPONSE),
        Message(kind=Kind.CONTROL, name="hello"),
    ],
)
def test_what_a_client_cannot_say(message: Message) -> None:
    with pytest.raises(TranslationError):
        from_message(message, CLIENT)


def test_commands_are_made_of_texts_and_numbers_too() -> None:
    assert from_message(redis("expire", "k", 10), CLIENT) == Command((b"EXPIRE", b"k", b"10"))
    assert from_message(redis("incrbyfloat", "k", 1.5), CLIENT) == Command((b"INCRBYFLOAT", b"k", b"1.5"))
    assert from_message(redis("set", "k", payload=b"v"), CLIENT) == Command((b"SET", b"k", b"v"))
    assert from_message(control(Op.PING), CLIENT) == Command((b"PING",))
    assert from_message(control(Op.LOGOUT), CLIENT) == Command((b"QUIT",))


def test_misused_commands_still_have_a_message() -> None:
    assert to_message(Command((b"PUBLISH", b"a")), CLIENT).kind is Kind.NOTIFICATION
    assert control_op(to_message(Command((b"SUBSCRIBE", b"\xff")), CLIENT)) is Op.SUBSCRIBE


def test_frames_of_others_are_not_taken() -> None:
    with pytest.raises(TypeError):
        to_message(comet.Ok(), SERVER)


@pytest.mark.parametrize("loss", LOSSES, ids=[loss.what for loss in LOSSES])
def test_a_stated_loss_is_what_happens(loss: Loss) -> None:
    if loss.becomes is None:
        with pytest.raises(TranslationError):
            from_message(loss.example, loss.sender)
        return
    wire = from_message(loss.example, loss.sender).encode()
    assert to_message(decode(wire, loss.sender), loss.sender) == loss.becomes
    assert loss.becomes != loss.example


@pytest.mark.parametrize(
    ("value", "older"),
    [
        (frames.Null(), b"$-1\r\n"),
        (frames.NullArray(), b"*-1\r\n"),
        (frames.Boolean(True), b":1\r\n"),
        (frames.Double(b"1.50"), b"$4\r\n1.50\r\n"),
        (frames.BigNumber(b"123"), b"$3\r\n123\r\n"),
        (frames.VerbatimString(b"txt", b"hi"), b"$2\r\nhi\r\n"),
        (frames.BulkError(b"ERR a\r\nb"), b"-ERR a  b\r\n"),
        (frames.Set((frames.Null(),)), b"*1\r\n$-1\r\n"),
        (frames.Push(bulks(b"a")), b"*1\r\n$1\r\na\r\n"),
        (frames.Map((Pair(BulkString(b"a"), frames.Boolean(False)),)), b"*2\r\n$1\r\na\r\n:0\r\n"),
        (frames.Attribute((), frames.Null()), b"$-1\r\n"),
    ],
)
def test_resp_3_for_those_who_speak_resp_2(value: Value, older: bytes) -> None:
    assert in_version_2(value).encode() == older


def test_bytes_are_known_for_what_they_are() -> None:
    best = identify(Command((b"GET", b"k")).encode(), (PROTOCOL,))[0]
    assert (best.protocol, best.sender) == ("redis", CLIENT)
    best = identify(b"+OK\r\n$2\r\nhi\r\n", (PROTOCOL,))[0]
    assert (best.protocol, best.sender) == ("redis", SERVER)
    assert identify(b"PING\r\n", (PROTOCOL,))[0].sender is CLIENT
    assert identify(bytes(range(256)), (PROTOCOL,)) == []
