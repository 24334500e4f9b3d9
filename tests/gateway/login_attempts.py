"""Log in by every form of login that each protocol has: rightly, wrongly, malformed, in pieces, and once more.

`ATTEMPTS` has the logins of each protocol as bytes on the wire, so a protocol without an entry is noticed.
"""

import asyncio
from base64 import b64encode
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import httpx
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed

from gateway.magline_client import Box
from gateway.running_gateway import HOST, WAIT_S, Running
from wirelake.protocols import registry
from wirelake.protocols.comet import frames as comet
from wirelake.protocols.esnp import lines
from wirelake.protocols.esnp.frames import EsnpMessage
from wirelake.protocols.esnp.values import var_of
from wirelake.protocols.magline import frames as magline
from wirelake.protocols.protocol import Carrier
from wirelake.protocols.redis.frames import Command
from wirelake.protocols.sisnet.binary import BinaryRequest
from wirelake.protocols.sisnet.envelope import sized
from wirelake.protocols.sisnet.forms import Json, Redis
from wirelake.protocols.text import write_json

USER = "ann"
NO_LOGINS = {"apostol"}  # a device proves itself by what it encrypts: no secret crosses the network
QUIET_S = 0.1  # without an answer for this long, there is none

Logins = Callable[[str], Iterator[bytes]]  # by the token


def comet_logins(token: str) -> Iterator[bytes]:
    yield comet.Auth(USER, token).encode()
    yield comet.Auth(USER, token).encode() + comet.ExchangeKey(token.encode() * 12).encode()


def magline_logins(token: str) -> Iterator[bytes]:
    """Yield the data of LOGINs, which `attempt_magline` seals."""
    yield write_json({"user": USER, "token": token})
    yield write_json({"token": token, "user": USER, "other": [token]})
    yield write_json({"user": USER, "token": [token]})
    yield write_json({"user": USER, "token": token})[:-1]


def esnp_logins(token: str) -> Iterator[bytes]:
    def request(service: str, op: str, *body: lines.Line) -> bytes:
        head = (lines.flag_line(4), lines.message_id_line(7))
        address = (lines.address_line(30, service), lines.address_line(20, op))
        return EsnpMessage((*head, *address, *body)).encode()

    user = lines.data_line("user", var_of(USER))
    for value in (token, [token], token.encode()):
        yield request("wirelake", "login", user, lines.data_line("token", var_of(value)))
    yield request("wirelake", "Login", user, lines.data_line("Token", var_of(token)))
    secret = lines.data_line("token", var_of(token))
    yield EsnpMessage((user, secret, lines.address_line(30, "wirelake"), lines.address_line(20, "login"))).encode()
    yield request("redis", "auth", lines.payload_line(_resp(b"AUTH", USER.encode(), token.encode())))


def sisnet_logins(token: str) -> Iterator[bytes]:
    """Yield messages, without their size."""

    def ask(**values: Any) -> bytes:
        return Json.of("7", values).encode()

    words = (b"AUTH", USER.encode(), token.encode())
    yield ask(command="login", ask={"name": USER, "password": token})
    yield ask(cmd="login", argv={"version": 1, "format": "json", "username": USER, "password": token})
    yield ask(command="login", service="wirelake", ask={"name": USER, "password": token, "compress": "snappy"})
    yield ask(command="login", ask=[USER, token])
    yield ask(command="login", ask={"payload": b64encode(token.encode()).decode()})
    yield ask(service="redis", command="", ask={"payload": b64encode(_resp(*words)).decode()})
    login = write_json({"name": USER, "password": token})
    yield BinaryRequest("7", command=b"login", ask=login).encode()
    yield BinaryRequest("7", command=b"login", service=b"wirelake", ask=token.encode()).encode()
    yield Redis("7", _resp(*words)).encode()
    yield Redis("7", b"AUTH " + token.encode()).encode()
    yield Redis("7", _resp(b"HELLO", b"3", *words)).encode()


def redis_logins(token: str) -> Iterator[bytes]:
    user, secret = USER.encode(), token.encode()
    yield _resp(b"AUTH", user, secret)
    yield _resp(b"auth", secret)
    yield _resp(b"AUTH", user, b"x", secret)
    yield _resp(b"HELLO", b"2", b"AUTH", user, secret)
    yield _resp(b"HELLO", b"3", b"AUTH", user, secret, b"SETNAME", b"cli")
    yield _resp(b"HELLO", b"3", b"AUTH", secret)
    yield _resp(b"HELLO", b"3", secret)
    yield b"AUTH %b %b\r\n" % (user, secret)
    yield b"auth %b '%b'\r\n" % (user, secret)
    yield b'hello 3 auth %b "%b"\r\n' % (user, secret)
    yield _resp(b"AUTH", user, secret) + _resp(b"MULTI") + _resp(b"AUTH", user, secret) + _resp(b"EXEC")


ATTEMPTS: dict[str, Logins] = {
    "comet": comet_logins,
    "magline": magline_logins,
    "esnp": esnp_logins,
    "sisnet": sisnet_logins,
    "redis": redis_logins,
}


def _resp(*words: bytes) -> bytes:
    return Command(words).encode()


def variants(login: bytes, *, is_resp: bool) -> Iterator[list[bytes]]:
    """Yield what is sent on one connection, in pieces: whole, twice, in pieces, cut off, damaged.

    Without its first byte, a RESP command is not a malformed login, but another command, or a line for each word.
    """
    yield [login]
    yield [login, login]
    yield [login[:3], login[3 : len(login) // 2], login[len(login) // 2 : -1], login[-1:]]
    yield [login[:-1]]
    yield [login[: len(login) // 2] + b"\xff" + login[len(login) // 2 :]]
    if login[:1] != b"*":
        yield [b"\xff\xff" + login]
    if not is_resp:
        yield [login[1:]]


async def attempt_all(running: Running, *tokens: str, damaged: bool = True) -> None:
    """Make every attempt with every token, over every transport; `damaged`: also in pieces, doubled and spoilt."""
    for name, logins in ATTEMPTS.items():
        for token in tokens:
            await attempt_answered(running, name, next(logins(token)))
            work = [each for login in logins(token) for each in _attempts(running, name, login, damaged)]
            for start in range(0, len(work), 20):  # some at a time: a gateway admits few strangers
                await asyncio.gather(*work[start : start + 20])


async def attempt_answered(running: Running, name: str, login: bytes) -> None:
    """Send a whole login, and wait for its answer, which takes as long as a slow check."""
    if name == "magline":
        await attempt_magline(running, login)
        return
    (port,) = (
        running.port(setting) for setting, carriers in registry.get(name).listeners.items() if Carrier.TCP in carriers
    )
    await attempt_tcp(port, [sized(login) if name == "sisnet" else login], answer_s=WAIT_S)


def _attempts(running: Running, name: str, login: bytes, damaged: bool) -> Iterator[Any]:
    if name == "magline":
        yield attempt_magline(running, login)
        return
    for setting, carriers in registry.get(name).listeners.items():
        port = running.port(setting)
        if Carrier.WEBSOCKET in carriers:
            yield attempt_websocket(port, login)
            yield attempt_websocket(port, login[:-1])
            continue
        wire = sized(login) if name == "sisnet" else login
        for pieces in variants(wire, is_resp=name == "redis") if damaged else [[wire], [wire[:-1]]]:
            yield attempt_tcp(port, pieces)


async def attempt_tcp(port: int, pieces: list[bytes], answer_s: float = QUIET_S) -> None:
    reader, writer = await asyncio.open_connection(HOST, port)
    async with asyncio.timeout(WAIT_S):
        for piece in pieces:
            writer.write(piece)
            with suppress(ConnectionError):
                await writer.drain()
            with suppress(TimeoutError, ConnectionError):
                await asyncio.wait_for(reader.read(65536), answer_s)
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()


async def attempt_websocket(port: int, login: bytes) -> None:
    is_text = login.partition(b":")[2][:1] == b"{"
    message = login.decode() if is_text else login
    async with asyncio.timeout(WAIT_S), connect(f"ws://{HOST}:{port}/") as socket:
        with suppress(ConnectionClosed, TimeoutError):
            for _ in range(2):
                await socket.send(message)
                await asyncio.wait_for(socket.recv(), QUIET_S)


async def attempt_magline(running: Running, data: bytes) -> None:
    """Send a LOGIN sealed, twice; then in clear text, with a wrong hmac, cut off, and before garbage."""

    def clear(hmac: bytes = magline.OPENED) -> bytes:
        return magline.Req(1, hmac, data, seq=2).encode()

    async with asyncio.timeout(WAIT_S), await Box.connect(running) as box:
        await box.handshake()
        box.send(box.req(1, data), box.req(1, data))
        await box.receive()
    for number, sent in enumerate(
        (clear(), clear(b"x" * 16), clear()[:-1], clear() + b"\xff" * 16, b"\x7e" + clear(), clear())
    ):
        async with asyncio.timeout(WAIT_S), await Box.connect(running) as box:
            if number:
                await box.handshake()
            await _exchange(box, sent)


async def _exchange(box: Box, data: bytes) -> None:
    box.write(data)
    with suppress(TimeoutError, ConnectionError):
        await asyncio.wait_for(box.receive(), QUIET_S)


async def resume_magline(running: Running, token: str) -> tuple[bytes, bytes]:
    """Resume a session on another connection, and try to with a cut-off SYN. Return its sid and its secret."""
    async with await Box.connect(running, USER, token) as first:
        sid, secret = first.sid, first.secret
    async with await Box.connect(running) as second:
        await second.handshake(sid, secret)
    async with await Box.connect(running) as third:
        await _exchange(third, third.syn(sid).encode()[:-2])
    return sid, secret


async def attempt_http(running: Running, token: str, wrong: str) -> None:
    """Use tokens over HTTP: as a bearer, in bodies, and in payloads of requests to services."""
    admin = {"authorization": f"Bearer {running.gateway.keys.admin_token()}"}
    async with httpx.AsyncClient(base_url=f"http://{HOST}:{running.port('http')}", timeout=WAIT_S) as client:
        for bearer in (token, wrong, f"{USER}:{token}", f"{USER}:{wrong}"):
            await client.get("/api/topics", headers={"authorization": f"Bearer {bearer}"})
        await client.post("/api/identities", json={"name": "bob", "token": token}, headers=admin)
        await client.post("/api/identities", json={"name": "bob", "token": [wrong]}, headers=admin)
        tokens = f"/api/identities/{USER}/tokens"
        for body in ({"token": wrong, "expires_s": 1e-3}, {"token": token}, {"token": [wrong]}, {"tokens": wrong}):
            await client.post(tokens, json=body, headers=admin)
        rows = (await client.get(tokens, headers=admin)).json()["tokens"]
        await client.delete(f"{tokens}/{rows[-1]['id']}", headers=admin)
        await client.post("/login", data={"token": wrong})
        payload = b64encode(_resp(b"AUTH", USER.encode(), wrong.encode())).decode()
        bodies = {
            "redis/auth": {"payload": payload},
            "redis/x": {"payload": payload},
            "shop/login": {"password": wrong},
        }
        for path, body in bodies.items():
            await client.post(f"/api/services/{path}", json=body, headers=admin)
