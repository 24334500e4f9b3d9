"""No token, password or session id is in silver.messages, whatever a login looks like."""

from base64 import b64encode
from typing import Any

import pytest
from pipeline.ingest.inputs import frame_records, log_batch

from wirelake.gateway.http.assembly import ROUTES
from wirelake.gateway.http.bodies import redact
from wirelake.message import Credentials, Op, control
from wirelake.pipeline.ingest.decode import decode_batch
from wirelake.protocols import registry
from wirelake.protocols.comet.frames import Auth
from wirelake.protocols.esnp import lines
from wirelake.protocols.esnp.frames import EsnpMessage
from wirelake.protocols.esnp.values import var_of
from wirelake.protocols.frame import Sender
from wirelake.protocols.magline import frames as magline
from wirelake.protocols.redis.frames import Command
from wirelake.protocols.sisnet.binary import BinaryRequest
from wirelake.protocols.sisnet.forms import Json, Redis
from wirelake.protocols.text import write_json

TOKEN = "s3cr3t-T0K3N"
SID = bytes(range(16))
LOGIN = control(Op.LOGIN, credentials=Credentials("ann", TOKEN))
WORDS = (b"AUTH", b"ann", TOKEN.encode())
KEPT_DATA = write_json({"user": "ann", "token": TOKEN})


def esnp_login(op: str) -> bytes:
    named = [lines.data_line(name, var_of(text)) for name, text in (("user", "ann"), ("token", TOKEN))]
    address = [lines.address_line(30, "wirelake"), lines.address_line(20, op)]
    return EsnpMessage((lines.flag_line(4), *address, *named)).encode()


def sisnet_asks(ask: Any, **rest: Any) -> bytes:
    return Json.of("1", {"command": "login", "ask": ask, **rest}).encode()


def resp(*words: bytes) -> bytes:
    return Command(words).encode()


LOGINS = [
    ("comet", Auth("ann", TOKEN).encode()),
    ("comet", registry.get("comet").from_message(LOGIN, Sender.CLIENT).encode()),
    ("magline", magline.Req(1, magline.OPENED, KEPT_DATA, seq=2).encode()),
    ("magline", magline.Req(1, magline.OPENED, KEPT_DATA, seq=2, little=True, header=b"x").encode()),
    ("magline", magline.Req(1, magline.OPENED, KEPT_DATA[:-1], seq=2).encode()),  # not JSON
    ("magline", magline.Req(1, magline.OPENED, write_json({"name": "ann", "token": TOKEN}), seq=2).encode()),
    ("magline", magline.Req(1, magline.OPENED, write_json({"user": 7, "token": TOKEN}), seq=2).encode()),
    ("magline", magline.Syn(bytes(32), bytes(32), SID, seq=1).encode()),
    ("esnp", esnp_login("login")),
    ("esnp", esnp_login("Login")),  # no operation of the gateway, but meant as one
    ("esnp", esnp_login("logon")),
    ("sisnet", sisnet_asks({"name": "ann", "password": TOKEN})),
    ("sisnet", sisnet_asks({"name": "ann", "password": [TOKEN]}, service="wirelake")),
    ("sisnet", sisnet_asks(TOKEN)),
    ("sisnet", sisnet_asks(["ann", TOKEN])),
    ("sisnet", sisnet_asks({"payload": b64encode(TOKEN.encode()).decode()})),
    ("sisnet", Json.of("1", {"cmd": "login", "argv": {"version": 1, "username": "ann", "password": TOKEN}}).encode()),
    ("sisnet", Json.of("1", {"cmd": "sisdb.login", "argv": {"username": "ann", "password": TOKEN}}).encode()),
    ("sisnet", BinaryRequest("1", command=b"login", ask=write_json({"name": "ann", "password": TOKEN})).encode()),
    ("sisnet", BinaryRequest("1", command=b"login", ask=TOKEN.encode()).encode()),
    ("sisnet", Redis("1", resp(*WORDS)).encode()),
    ("sisnet", Redis("1", resp(b"hello", b"3", *WORDS)).encode()),
    ("sisnet", Redis("1", b"auth ann " + TOKEN.encode() + b"\r\n").encode()),
    ("sisnet", Redis("1", resp(*WORDS)[:-1]).encode()),
    ("redis", resp(*WORDS)),
    ("redis", resp(b"auth", TOKEN.encode())),
    ("redis", resp(b"AUTH", b"a", b"b", TOKEN.encode())),
    ("redis", resp(b"HELLO", b"3", *WORDS)),
    ("redis", resp(b"HELLO", b"3", b"AUTH", TOKEN.encode())),
    ("redis", resp(b"HELLO", b"9", *WORDS)),
    ("redis", b"AUTH ann " + TOKEN.encode() + b"\r\n"),
]


def spellings(secret: bytes) -> list[bytes]:
    return [secret, secret.hex().encode(), b64encode(secret).rstrip(b"="), b64encode(b"  " + secret)[4:-4]]


def shown(batch: Any) -> bytes:
    """All that stands in the rows."""
    decoded = decode_batch(batch)
    assert decoded.messages.num_rows == batch.num_rows, decoded.quarantine.to_pylist()
    values = [value for row in decoded.messages.to_pylist() for value in row.values()]
    return b"\n".join(value if isinstance(value, bytes) else str(value).encode() for value in values)


@pytest.mark.parametrize(("name", "frame"), LOGINS)
def test_a_login_shows_no_secret(name: str, frame: bytes) -> None:
    seen = shown(log_batch(*frame_records(name, [(frame, Sender.CLIENT)])))
    for spelling in (*spellings(TOKEN.encode()), *spellings(SID)):
        assert spelling not in seen


def test_the_spellings_would_be_found() -> None:
    """A request to a service is shown as it is: the same values, where they are no login."""
    frame = Json.of("1", {"service": "shop", "command": "buy", "ask": {"voucher": TOKEN}}).encode()
    assert TOKEN.encode() in shown(log_batch(*frame_records("sisnet", [(frame, Sender.CLIENT)])))


def test_a_redis_command_inside_sisnet_is_shown_if_it_is_no_login() -> None:
    frame = Redis("1", resp(b"SET", b"greeting", b"hello")).encode()
    assert b"greeting" in shown(log_batch(*frame_records("sisnet", [(frame, Sender.CLIENT)])))


@pytest.mark.parametrize("route", [route for route in ROUTES if route.secrets], ids=lambda route: route.path)
def test_http_bodies_come_without_their_secrets(route: Any) -> None:
    records = []
    for direction, note in (("in", {}), ("out", {"status": 201})):
        body = redact(write_json({"name": "ann", **dict.fromkeys(route.secrets, TOKEN)}), route.secrets)
        text = write_json({"method": route.method, "path": route.path, **note}).decode()
        records.append({"protocol": "http", "direction": direction, "frame": body, "note": text})
    seen = shown(log_batch(*records))
    assert b"ann" in seen
    assert TOKEN.encode() not in seen
