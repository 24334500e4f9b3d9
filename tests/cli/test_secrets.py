"""A byte search: no secret that a gateway is given, or makes, is in anything that its processes write or print."""

import asyncio
import re
import secrets
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import redis.asyncio
from gateway.test_secrets import PAGES, assert_absent, assert_no_file_has, new_secret

from cli.serving import HOST, WAIT_S, Serving, serving
from wirelake.clients.apostol import ApostolDevice
from wirelake.clients.client import ClientOptions
from wirelake.clients.comet import CometClient
from wirelake.clients.esnp import EsnpClient
from wirelake.clients.magline import MaglineClient
from wirelake.clients.sisnet import SisnetClient
from wirelake.errors import WirelakeError
from wirelake.log.segments.reader import LogReader
from wirelake.log.segments.redaction import preview_redaction
from wirelake.protocols.record_redaction import RecordRedactor

USER, SERIAL = "ann", "7001"
LISTENERS = ("comet", "magline", "apostol", "esnp", "sisnet", "sisnet_tcp", "redis", "http")
KEY_LINE = re.compile(r"^[A-Za-z0-9+/]{40,}={0,2}$", re.MULTILINE)  # of a PEM file
TRACES_PRINTED = 2  # by the command line, which takes a second to start


class Secrets:
    """What must not be found; `key` is a device's."""

    def __init__(self) -> None:
        self.right, self.wrong, self.upstream = (new_secret(kind) for kind in ("right", "wrong", "upstream"))
        self.key = secrets.token_bytes(16)
        self.drawn: list[bytes] = []  # by the comet client: the key of its content
        self.others: list[bytes] = []

    def random(self, size: int) -> bytes:
        self.drawn.append(secrets.token_bytes(size))
        return self.drawn[-1]

    @property
    def all(self) -> list[bytes]:
        texts = (self.right, self.wrong, self.upstream)
        return [*(text.encode() for text in texts), self.key, *self.drawn, *self.others]


async def log_in(running: Serving, hidden: Secrets, token: str) -> None:
    """Log in by every protocol."""

    def port(listener: str) -> int:
        return running.address(listener)[1]

    options = ClientOptions(random=hidden.random, connect_s=WAIT_S)
    clients: list[Any] = [
        CometClient(HOST, port("comet"), USER, token, secret_bytes=32, options=options),
        MaglineClient(HOST, port("magline"), USER, token),
        EsnpClient(HOST, port("esnp"), USER, token),
        SisnetClient(f"ws://{HOST}:{port('sisnet')}", USER, token),
        SisnetClient(f"tcp://{HOST}:{port('sisnet_tcp')}", USER, token),
    ]
    for client in clients:
        with suppress(WirelakeError):  # a wrong token is refused
            async with asyncio.timeout(WAIT_S), client:
                if hasattr(client, "subscribe") and token == hidden.right:
                    await client.subscribe("@search")
    cache = redis.asyncio.Redis(host=HOST, port=port("redis"), username=USER, password=token)
    with suppress(redis.asyncio.RedisError):
        await cache.set("name", "value")
    await cache.aclose()
    async with asyncio.timeout(WAIT_S), ApostolDevice(HOST, port("apostol"), SERIAL, 6, hidden.key) as device:
        await device.report(1, data=b"on")


async def use_http(http: httpx.AsyncClient, hidden: Secrets) -> list[tuple[str, bytes]]:
    """Use every secret over HTTP. Return what was shown: all pages, and what the API says."""
    (admin, *_) = hidden.others
    bearer = {"authorization": f"Bearer {admin.decode()}"}
    added = await http.post("/api/identities", json={"name": USER, "token": hidden.right}, headers=bearer)
    made = await http.post("/api/identities", json={"name": "bob"}, headers=bearer)  # the gateway makes the token
    device = {"serial": SERIAL, "type": 6, "key": hidden.key.hex()}
    keyed = await http.post("/api/devices", json=device, headers=bearer)
    assert [each.status_code for each in (added, made, keyed)] == [201] * 3, (added.text, made.text, keyed.text)
    rotated = await http.post("/api/identities/bob/tokens", json={}, headers=bearer)
    hidden.others += [each.json()["token"].encode() for each in (made, rotated)]
    for token in (f"{USER}:{hidden.right}", f"{USER}:{hidden.wrong}", hidden.wrong):
        await http.get("/api/topics", headers={"authorization": f"Bearer {token}"})
    for token in (hidden.wrong, admin.decode()):
        await http.post("/login", data={"token": token}, headers={"origin": str(http.base_url).rstrip("/")})
    assert http.cookies, "the console has a session"
    hidden.others += [cookie.encode() for cookie in http.cookies.values()]
    await http.post("/api/services/shop/login", json={"password": hidden.wrong}, headers=bearer)
    shown = []
    for page in (*PAGES, "/identities", "/metrics", "/api/log?limit=1000", "/api/sessions", "/api/identities"):
        response = await http.get(page, headers=bearer)
        assert response.status_code == 200, page
        shown.append((page, response.content))
    return shown


def test_nothing_that_a_gateway_writes_or_prints_has_a_secret(tmp_path: Path) -> None:
    hidden = Secrets()
    upstream = f'[[sisnet.upstreams]]\nname = "far"\nurl = "tcp://{HOST}:1"\nuser = "front"\n'
    text = f'[limits]\nfailed_logins = 1000\n{upstream}password = "{hidden.upstream}"\nservices = ["quotes"]\n'
    data = tmp_path / "data"
    with serving(tmp_path, *LISTENERS, options=("--log-level", "debug"), text=text) as running:
        keys = data / "keys"
        hidden.others.append((keys / "admin.token").read_bytes().strip())
        for path in keys.glob("*.pem"):
            hidden.others += [line.encode() for line in KEY_LINE.findall(path.read_text())]
        assert len(hidden.others) > 2, "the admin token, and the lines of private keys"

        async def use() -> list[tuple[str, bytes]]:
            address = "http://{}:{}".format(*running.address("http"))
            async with httpx.AsyncClient(base_url=address, timeout=WAIT_S) as http:
                shown = await use_http(http, hidden)
                for token in (hidden.right, hidden.wrong):
                    await log_in(running, hidden, token)
                admin = {"authorization": f"Bearer {hidden.others[0].decode()}"}
                again = [("/metrics", (await http.get("/metrics", headers=admin)).content)]
                return shown + again + await trace_some(running, http, data, admin)

        shown = asyncio.run(use())
        shown += [(" ".join(words), printed(running, *words)) for words in COMMANDS]
        assert running.end() == 0
        output = "\n".join([*running.greeting, running.output, running.errors]).encode()
    assert hidden.drawn
    for where, content in [*shown, ("process output", output)]:
        assert_absent(where, content, *hidden.all)
    records = [row for batch in LogReader(data / "log").read() for row in batch.to_pylist()]
    assert {row["protocol"] for row in records if row["event"] == "login"} >= {
        "comet",
        "magline",
        "esnp",
        "sisnet",
        "redis",
    }
    for row in records:
        values = [value if isinstance(value, bytes) else str(value).encode() for value in row.values()]
        assert_absent(f"record {row['seq']}", b"\n".join(values), *hidden.all)
    assert_no_file_has(data / "log", *hidden.all)
    for path in data.glob("state.db*"):
        assert_absent(str(path), path.read_bytes(), *hidden.all)
    redactor = RecordRedactor()
    assert preview_redaction(data / "log", redactor.redact).rewritten == [], "there is nothing left to redact"
    assert redactor.examined.total() > 50


COMMANDS = (
    ("log", "cat", "--json"),
    ("identity", "list"),
    ("device", "list"),
)


def printed(running: Serving, *words: str) -> bytes:
    ran = running.run(*words)
    assert ran.stdout, ran.stderr
    return (ran.stdout + ran.stderr).encode()


async def trace_some(
    running: Serving, http: httpx.AsyncClient, data: Path, admin: dict[str, str]
) -> list[tuple[str, bytes]]:
    """Return traces and messages of sessions, from the API, from the console and from the command line."""
    records = [row for batch in LogReader(data / "log").read() for row in batch.to_pylist()]
    sessions = {row["protocol"]: row["session"] for row in records if row["event"] == "login"}
    shown = []
    for number, session in enumerate(sessions.values()):
        for path in (f"/api/messages/{session}", f"/trace?id={session}"):
            response = await http.get(path, headers=admin)
            assert response.status_code == 200, path
            shown.append((path, response.content))
        if number >= TRACES_PRINTED:
            continue
        traced = await asyncio.to_thread(running.run, "trace", session)
        assert session in traced.stdout, traced.stderr
        shown.append((f"trace {session}", (traced.stdout + traced.stderr).encode()))
    return shown
