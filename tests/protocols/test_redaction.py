"""`Protocol.redact` of every protocol: same length, still decodable, no secret; other frames are the same objects."""

from base64 import b64encode
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pipeline.ingest.inputs import frame_records, log_batch

from protocols.test_secrets import LOGINS, SID, TOKEN, esnp_login, resp, shown, spellings
from wirelake.errors import ProtocolError
from wirelake.protocols import registry
from wirelake.protocols.comet import frames as comet
from wirelake.protocols.esnp import lines
from wirelake.protocols.esnp.frames import EsnpMessage
from wirelake.protocols.esnp.values import var_of
from wirelake.protocols.frame import Sender
from wirelake.protocols.magline import frames as magline
from wirelake.protocols.protocol import unredacted
from wirelake.protocols.redaction import redact_json
from wirelake.protocols.sisnet.binary import BinaryRequest, Extension
from wirelake.protocols.sisnet.forms import DataLine, Json, Redis
from wirelake.protocols.text import read_json, write_json

SECRET = TOKEN.encode()
NO_SECRETS = {"apostol"}  # a device proves itself by what it encrypts; its key never crosses the network
CLIENT = Sender.CLIENT


def esnp_request(service: str, op: str, *body: lines.Line) -> bytes:
    head = (lines.flag_line(4), lines.address_line(30, service), lines.address_line(20, op))
    return EsnpMessage((*head, *body)).encode()


def sisnet_json(**values: Any) -> bytes:
    return Json.of("7", values).encode()


IN_BASE64 = b64encode(resp(b"AUTH", b"ann", SECRET)).decode()
MORE_LOGINS = [
    ("comet", comet.ExchangeKey(SECRET * 20).encode()),
    ("esnp", esnp_request("wirelake", "login", lines.data_line("token", var_of([TOKEN, {"x": TOKEN}])))),
    ("esnp", esnp_request("wirelake", "login", lines.data_line("token", var_of(SECRET)))),
    ("esnp", esnp_request("wirelake", "login", lines.data_line("token", var_of(TOKEN * 40)))),
    ("esnp", esnp_request("shop", "login", lines.data_line("password", var_of(TOKEN)))),
    ("esnp", esnp_request("redis", "command", lines.payload_line(resp(b"AUTH", SECRET)))),
    ("esnp", esnp_request("redis", "x", *map(lines.payload_line, (b"AUTH ann ", SECRET, b"\r\n")))),
    ("sisnet", sisnet_json(command="login", ask={"name": "ann", "password": {"deep": [TOKEN, {TOKEN: TOKEN}]}})),
    ("sisnet", sisnet_json(command="login", ask={"name": "ann"}, password=TOKEN)),
    ("sisnet", b'7:{"comm\\u0061nd":"lo\\u0067in","ask":{"name":"ann", "password" : "' + SECRET + b'"}}'),
    ("sisnet", b'7:{"command":"LOGIN","ask":{"password":"' + SECRET + b'\\"' + SECRET + b'"}}'),
    ("sisnet", b'1:2:{"command":"login","ask":{"name":"ann","password":"' + SECRET + b'"}}'),
    ("sisnet", sisnet_json(service="redis", command="", ask={"payload": IN_BASE64})),
    ("sisnet", BinaryRequest("1", service=b"redis", command=b"x", ask=resp(b"AUTH", SECRET)).encode()),
    ("sisnet", BinaryRequest("1", command=b"login", extensions=(Extension(b"password", SECRET),)).encode()),
    ("sisnet", Redis("1", b"AUTH " + SECRET).encode()),
    ("redis", b'AUTH ann "' + SECRET + b'"\r\n'),
    ("redis", b"hello 3 auth ann '" + SECRET + b"' setname cli\r\n"),
    ("redis", resp(b"HELLO", b"3", b"AUTH", b"ann", SECRET, b"SETNAME", b"cli")),
    ("redis", resp(b"HELLO", b"3", SECRET)),
]
UNREADABLE = [
    ("comet", comet.Auth("ann", TOKEN).encode()[:-1]),
    ("comet", b"\xff\xff\x00\x00\x03ann" + SECRET),
    ("magline", magline.Syn(bytes(32), bytes(32), SID, seq=1).encode()[:-2]),
    ("magline", magline.Req(1, b"not an hmac 1234", write_json({"token": TOKEN}), seq=1).encode()),
    ("magline", magline.Req(1, magline.OPENED, write_json({"token": TOKEN}), seq=1).encode()[:-3]),
    ("esnp", esnp_login("login")[:-5]),
    ("esnp", b"\x00\x00\x00\x09" + esnp_login("login")),
    ("sisnet", b'\x207:{"command":"login","ask":{"password":"' + SECRET),
    ("sisnet", b'7:{"password":"' + SECRET + b'", "command": "log'),
    ("sisnet", b"7:B\x0a\x05login\xff" + SECRET),
    ("redis", b"*3\r\n$4\r\nAUTH\r\n$3\r\nann\r\n$12\r\n" + SECRET),
    ("redis", b"*3\r\n$7\r\nAUTH\r\n$3\r\nann\r\n$x\r\n" + SECRET),
    ("redis", b"AUTH ann " + SECRET),
    ("redis", b'AUTH ann "' + SECRET + b"\r\n"),
]
OTHERS = [
    ("comet", comet.Subscribe(("@token/auth",)).encode()),
    ("comet", comet.Heartbeat().encode()),
    ("magline", magline.Req(4, magline.OPENED, b'{"topic":"@login","content":"token"}', seq=3).encode()),
    ("magline", magline.Syn(bytes(32), bytes(32), seq=1).encode()),
    ("esnp", esnp_request("shop", "buy", lines.data_line("token", var_of("voucher")))),
    ("esnp", esnp_request("wirelake", "publish", lines.data_line("content", var_of("login token")))),
    ("sisnet", sisnet_json(service="wirelake", command="publish", ask={"topic": "@login", "content": "auth token"})),
    ("sisnet", DataLine("1", "set", "login", "auth", b"hello").encode()),
    ("sisnet", Redis("1", resp(b"SET", b"auth", b"hello")).encode()),
    ("sisnet", sisnet_json(service="redis", command="", ask={"payload": b64encode(resp(b"PING")).decode()})),
    ("redis", resp(b"PUBLISH", b"auth", b"AUTH ann token")),
    ("redis", resp(b"MGET", b"auth")),
    ("redis", resp(*[b"DEL"] * 12, b"auth")),
    ("redis", b"GET auth\r\n"),
]


def test_every_protocol_is_considered() -> None:
    """A protocol with logins has a `redact`, and cases here; add them, or say why it has no secrets."""
    with_cases = {name for name, _ in LOGINS}
    for name in registry.BUILT_IN:
        assert (registry.get(name).redact is not unredacted) == (name not in NO_SECRETS), name
        assert (name in with_cases) == (name not in NO_SECRETS), name


@pytest.mark.parametrize(("name", "frame"), [*LOGINS, *MORE_LOGINS])
def test_a_login_is_blanked_and_means_the_same(name: str, frame: bytes) -> None:
    redact, decode = registry.get(name).redact, registry.get(name).decode
    blanked = redact(frame, CLIENT)
    assert blanked != frame
    assert len(blanked) == len(frame)
    for spelling in (*spellings(SECRET), *spellings(SID), *spellings(IN_BASE64.encode())):
        assert spelling not in blanked
    assert type(decode(blanked, CLIENT)) is type(decode(frame, CLIENT))
    assert redact(blanked, CLIENT) == blanked, "redacting twice changes nothing"
    assert registry.get(name).redact_all([frame], CLIENT) == [blanked]


@pytest.mark.parametrize(("name", "frame"), LOGINS)
def test_a_blanked_login_has_the_same_row(name: str, frame: bytes) -> None:
    blanked = registry.get(name).redact(frame, CLIENT)
    before, after = (shown(log_batch(*frame_records(name, [(each, CLIENT)]))) for each in (frame, blanked))
    assert after.replace(b"*", b"") == before.replace(b"*", b"")


@pytest.mark.parametrize(("name", "data"), UNREADABLE)
def test_what_resembles_a_login_is_blanked_too(name: str, data: bytes) -> None:
    blanked = registry.get(name).redact(data, CLIENT)
    assert len(blanked) == len(data)
    assert SECRET not in blanked
    assert SID[:14] not in blanked


@pytest.mark.parametrize(("name", "frame"), OTHERS)
def test_other_frames_stay_as_they_are(name: str, frame: bytes) -> None:
    protocol = registry.get(name)
    protocol.decode(frame, CLIENT)
    assert protocol.redact(frame, CLIENT) is frame
    assert protocol.redact_all([frame], CLIENT)[0] is frame


@pytest.mark.parametrize(("name", "frame"), [*LOGINS, *MORE_LOGINS])
def test_a_login_is_found_among_others(name: str, frame: bytes) -> None:
    protocol = registry.get(name)
    others = [other for each, other in OTHERS if each == name]
    for before, after in ((others, others), ([others[0]] * 70, []), ([], [others[-1]] * 70)):
        redacted = protocol.redact_all([*before, frame, *after], CLIENT)
        assert list(redacted) == [*before, protocol.redact(frame, CLIENT), *after]


@pytest.mark.parametrize("name", registry.BUILT_IN)
@given(data=st.binary(max_size=80), sender=st.sampled_from(Sender), login=st.sampled_from([*LOGINS, *MORE_LOGINS]))
@example(data=b"", sender=CLIENT, login=LOGINS[0])
def test_redact_is_total(name: str, data: bytes, sender: Sender, login: tuple[str, bytes]) -> None:
    protocol = registry.get(name)
    frame = login[1]
    place = len(data) % (len(frame) + 1)
    for each in (data, frame, frame[:place] + data, data + frame, frame[:place] + data + frame[place + 1 :]):
        blanked = protocol.redact(each, sender)
        assert len(blanked) == len(each)
        try:
            protocol.decode(each, sender)
        except ProtocolError:
            continue
        protocol.decode(blanked, sender)


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(), st.lists))
def test_json_is_blanked_whatever_it_holds(value: Any) -> None:
    text = write_json({"user": "ann", "token": value, "deep": {"user": value}})
    blanked = redact_json(text)
    assert len(blanked) == len(text)
    assert read_json(blanked)["user"] == "ann"
    assert not set(b"023456789") & set(blanked)
    assert _texts(read_json(blanked)["token"]) <= {"*"}
    assert _texts(read_json(blanked)["deep"]) <= {"*"}


def _texts(value: Any) -> set[str]:
    """All characters of the texts in a value."""
    if isinstance(value, dict):
        value = [each for item in value.items() for each in item]
    if isinstance(value, list):
        return {char for each in value for char in _texts(each)}
    return set(value) if isinstance(value, str) else set()
