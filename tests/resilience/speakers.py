"""Peers that send valid and invalid frames in random order, and disconnect at random points.

Each `Speaker` makes the bytes of one protocol: `login` opens a session correctly, `frame` is one valid frame
to send. What happens to those bytes (sent, mangled, cut short, repeated) is the same for all: see `sequences.py`.
"""

import asyncio
import base64
import json
import os
from collections.abc import Callable, Mapping
from random import Random
from typing import ClassVar, Final

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from gateway.apostol_client import report
from gateway.esnp_client import data_lines, to
from msgspec import Struct
from websockets.frames import Frame as WebSocketFrame
from websockets.frames import Opcode

from wirelake.protocols.comet import frames as comet
from wirelake.protocols.esnp import lines
from wirelake.protocols.esnp.frames import EsnpMessage
from wirelake.protocols.frame import Sender
from wirelake.protocols.magline import crypto
from wirelake.protocols.magline import frames as magline
from wirelake.protocols.magline.frames import make_splitter
from wirelake.protocols.redis.frames import Command
from wirelake.protocols.sisnet.envelope import sized

TOPICS: Final = ("@a", "@b/c", "@新闻", "live", "x.y")
SERVICES: Final = ("wirelake", "sisdb", "redis", "devices", "nobody", "fuzzed")
SERIALS: Final = ("meter-0", "meter-1", "stranger")
ACK_S: Final = 2.0  # for the gateway's half of a handshake


class Account(Struct, frozen=True):
    name: str
    token: str


class Speaker:
    listener: ClassVar[str]

    def __init__(self, chance: Random, account: Account) -> None:
        self.chance = chance
        self.account = account if chance.random() < 0.8 else Account(account.name, "wrong")

    async def login(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Open a session, without waiting for every answer: the caller reads what arrives afterwards."""

    def frame(self) -> bytes:
        raise NotImplementedError

    def topic(self) -> str:
        return self.chance.choice(TOPICS)

    def content(self) -> bytes:
        size = self.chance.choice((0, 1, 10, 100, 5000))
        return self.chance.randbytes(size) if self.chance.random() < 0.5 else b"n" * size


class CometSpeaker(Speaker):
    listener = "comet"

    async def login(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(comet.Auth(self.account.name, self.account.token).encode())

    def frame(self) -> bytes:
        topics = tuple(topic for topic in TOPICS if topic.startswith("@") and self.chance.random() < 0.6)
        choices = (
            comet.Heartbeat(),
            comet.GetTopicList(),
            comet.GetMessageList(),
            comet.Subscribe(topics),
            comet.Unsubscribe(topics),
            comet.Subscribe(("not a topic",)),
            comet.MessageAck(tuple(f"{self.chance.randrange(9)}-{n}" for n in range(3))),
            comet.ReportEnviron(1, 2, "phone", ("a", "b")),
            comet.ExchangeKey(self.chance.randbytes(256)),
            comet.Auth(self.account.name, self.account.token),
        )
        return self.chance.choice(choices).encode()


class RedisSpeaker(Speaker):
    listener = "redis"

    async def login(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(self._command("AUTH", self.account.name, self.account.token))

    def frame(self) -> bytes:
        key, topic = f"k{self.chance.randrange(20)}", self.topic()
        choices: tuple[tuple[str | bytes, ...], ...] = (
            ("PING",),
            ("HELLO", "3"),
            ("SUBSCRIBE", topic, "live"),
            ("UNSUBSCRIBE",),
            ("PSUBSCRIBE", "l*", "[a-z]?"),
            ("PUBLISH", topic, self.content()),
            ("SET", key, self.content(), "PX", "500"),
            ("GET", key),
            ("MGET", key, "k1", "k2"),
            ("DEL", key),
            ("KEYS", "*"),
            ("SCAN", self.chance.choice(("0", "7", "9" * 5000, "x")), "COUNT", "100000"),
            ("TTL", key),
            ("CLIENT", "SETNAME", "fuzz"),
            ("NOSUCH", "thing"),
            ("QUIT",),
        )
        return self._command(*self.chance.choice(choices))

    def _command(self, *words: str | bytes) -> bytes:
        return Command(tuple(word.encode() if isinstance(word, str) else word for word in words)).encode()


class EsnpSpeaker(Speaker):
    listener = "esnp"

    async def login(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(self._ask("wirelake", "login", user=self.account.name, token=self.account.token))

    def frame(self) -> bytes:
        choices: tuple[Callable[[], bytes], ...] = (
            lambda: self._ask("wirelake", "ping"),
            lambda: self._ask("wirelake", "subscribe", topic=self.topic()),
            lambda: self._ask("wirelake", "unsubscribe", topic=self.topic()),
            lambda: self._ask("wirelake", "publish", topic=self.topic(), content=self.content().decode("latin-1")),
            lambda: self._ask("wirelake", "register", service="fuzzed"),
            lambda: self._ask("wirelake", "unregister", service="fuzzed"),
            lambda: self._ask(self.chance.choice(SERVICES), "get", key="k", sdb="s", to=50),
            lambda: EsnpMessage((lines.payload_line(self.content()), lines.flag_line(4))).encode(),
            lambda: EsnpMessage((lines.flag_line(3), lines.source_message_id_line(self.chance.randrange(9)))).encode(),
        )
        return self.chance.choice(choices)()

    def _ask(self, to_service: str, op: str, /, **data: object) -> bytes:
        number = self.chance.choice((None, self.chance.randrange(100)))
        flag = self.chance.choice((4, 4, 4, 1, 5, 6, 7))
        return EsnpMessage((*to(to_service, op, flag=flag, number=number), *data_lines(**data))).encode()


class SisnetSpeaker(Speaker):
    listener = "sisnet_tcp"

    async def login(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        ask = {"name": self.account.name, "password": self.account.token}
        writer.write(self.wrap(b"in:" + json.dumps({"command": "login", "ask": ask}).encode()))

    def frame(self) -> bytes:
        return self.wrap(self._message())

    def wrap(self, message: bytes) -> bytes:
        return sized(message)

    def _message(self) -> bytes:
        name = f"{self.chance.randrange(5)}:".encode()
        topic, service = self.topic(), self.chance.choice(SERVICES)
        key = {"key": f"k{self.chance.randrange(5)}", "sdb": "day"}
        request = (
            {"service": "wirelake", "command": "ping"},
            {"service": "wirelake", "command": "publish", "ask": {"topic": topic, "content": "x"}},
            {"service": "wirelake", "command": "subscribe", "ask": {"topic": topic}},
            {"service": "wirelake", "command": "unsubscribe", "ask": {"topic": topic}},
            {"service": "wirelake", "command": "register", "ask": {"service": "fuzzed"}},
            {
                "service": "sisdb",
                "command": "create",
                "ask": {**key, "fields": [["time", "U", 8, 1], ["x", "F", 4, 1]]},
            },
            {"service": "sisdb", "command": "set", "ask": {**key, "data": [[1, 2.5], [3, 4.5]]}},
            {"service": "sisdb", "command": "get", "ask": {"key": "*", "sdb": "*"}},
            {"service": "sisdb", "command": "sub", "ask": key},
            {"service": service, "command": "get", "ask": key, "fmt": "byte"},
            {"cmd": f"{service}.get", "argv": key},
            {"ans": 0},
        )
        forms = (
            json.dumps(self.chance.choice(request)).encode(),
            b"B\x4f" + self.chance.randbytes(20),
            b"R" + Command((b"GET", b"k1")).encode(),
            b"set:k:day:" + self.chance.randbytes(24),
            b"{" * self.chance.randrange(2000),
        )
        return name + self.chance.choices(forms, (10, 1, 2, 1, 1))[0]


class WebSocketSpeaker(SisnetSpeaker):
    listener = "sisnet"

    async def login(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        key = base64.b64encode(self.chance.randbytes(16)).decode()
        upgrade = self.chance.choice(("websocket", "websocket", "websocket", "nothing"))
        head = ["GET / HTTP/1.1", "Host: localhost", f"Upgrade: {upgrade}", "Connection: Upgrade"]
        head += [f"Sec-WebSocket-Key: {key}", "Sec-WebSocket-Version: 13", "", ""]
        writer.write("\r\n".join(head).encode())
        await super().login(reader, writer)

    def wrap(self, message: bytes) -> bytes:
        opcode = self.chance.choices((Opcode.TEXT, Opcode.BINARY, Opcode.PING, Opcode.CONT), (6, 6, 1, 1))[0]
        data = message[:125] if opcode is Opcode.PING else message
        return WebSocketFrame(opcode, data, fin=opcode is Opcode.PING or self.chance.random() < 0.9).serialize(
            mask=True
        )


class MaglineSpeaker(Speaker):
    listener = "magline"

    def __init__(self, chance: Random, account: Account) -> None:
        super().__init__(chance, account)
        self._seq = 0
        self._keys: crypto.Keys | None = None

    async def login(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        private = X25519PrivateKey.generate()
        old_sid = self.chance.choice((b"", b"", self.chance.randbytes(16)))
        syn = magline.Syn(self.chance.randbytes(32), crypto.public_bytes(private), old_sid, seq=self._next_seq())
        writer.write(syn.encode())
        splitter, answers = make_splitter(), list[bytes]()
        async with asyncio.timeout(ACK_S):
            while not answers and (data := await reader.read(4096)):
                answers = splitter.receive(data)
        ack = magline.decode(answers[0], Sender.SERVER) if answers else None
        if not isinstance(ack, magline.Ack):
            return
        shared = crypto.shared_secret(private, ack.server_public)
        self._keys = crypto.derive(shared, syn.client_random, ack.server_random)
        writer.write(self._req(1, {"user": self.account.name, "token": self.account.token}))

    def frame(self) -> bytes:
        if self._keys is None or self.chance.random() < 0.2:
            return self._control().encode()
        topic = self.topic()
        return self.chance.choice(
            (
                lambda: self._req(2, {"topics": [topic]}),
                lambda: self._req(3, {"topics": [topic]}),
                lambda: self._req(4, {"topic": topic, "content": "x"}),
                lambda: self._req(6, {"ids": ["1", "2"]}),
                lambda: self._req(self.chance.randrange(40), {"any": 1}),
                lambda: self._req(2, {"topics": 7}),
            )
        )()

    def _control(self) -> magline.MaglineFrame:
        return self.chance.choice(
            (
                magline.Pin(self.chance.randrange(99), seq=self._next_seq()),
                magline.Fin(0, seq=self._next_seq()),
                magline.Req(2, bytes(16), b"unsealed", seq=self._next_seq()),
                magline.Syn(bytes(32), bytes(32), b"", seq=self._next_seq()),
            )
        )

    def _next_seq(self) -> int:
        if self.chance.random() < 0.97:
            self._seq += 1
        return self._seq

    def _req(self, business: int, body: Mapping[str, object]) -> bytes:
        assert self._keys is not None
        req = magline.Req(business, magline.OPENED, json.dumps(body).encode(), seq=self._next_seq())
        return crypto.seal(req, self._keys.c2s).encode()


class ApostolSpeaker(Speaker):
    """Speak apostol over TCP; the same bytes go over UDP, one packet per datagram."""

    listener = "apostol"

    def frame(self) -> bytes:
        serial = self.chance.choice(SERIALS)
        packets = report(serial, self.chance.randrange(256), self.content(), data_bytes=self.chance.choice((50, 1024)))
        if self.chance.random() < 0.2:
            packets = self.chance.sample(packets, self.chance.randrange(len(packets)) + 1)
        return b"".join(packets[:20])


class HttpSpeaker(Speaker):
    listener = "http"

    def frame(self) -> bytes:
        token = f"{self.account.name}:{self.account.token}"
        body = json.dumps({"content": "x"})
        path, method = self.chance.choice(
            (
                ("/healthz", "GET"),
                ("/metrics", "GET"),
                ("/api/topics", "GET"),
                ("/api/sessions", "GET"),
                ("/api/topics/%40a/notifications", "POST"),
                ("/api/subscribe?topic=%40a", "GET"),
                ("/login", "POST"),
                ("/api/nothing", "GET"),
                ("/api/decode", "POST"),
            )
        )
        promised = len(body) if self.chance.random() < 0.9 else 1_000_000
        head = [f"{method} {path} HTTP/1.1", "Host: localhost", f"Authorization: Bearer {token}"]
        head += ["Content-Type: application/json", f"Content-Length: {promised}", "", ""]
        return ("\r\n".join(head) + body).encode()


SPEAKERS: Final[tuple[type[Speaker], ...]] = (
    CometSpeaker,
    RedisSpeaker,
    EsnpSpeaker,
    SisnetSpeaker,
    WebSocketSpeaker,
    MaglineSpeaker,
    ApostolSpeaker,
    HttpSpeaker,
)


def mangled(data: bytes, chance: Random) -> bytes:
    """Return the bytes with a few changes, as a broken or hostile peer would send them."""
    changed = bytearray(data)
    for _ in range(chance.randint(1, 4)):
        place = chance.randrange(len(changed) + 1)
        match chance.randrange(4):
            case 0 if place < len(changed):
                changed[place] ^= 1 << chance.randrange(8)
            case 1:
                changed[place:place] = chance.randbytes(chance.randint(1, 8))
            case 2:
                del changed[place : place + chance.randint(1, 8)]
            case _:
                changed[place:place] = changed[: chance.randint(0, len(changed))]
    return bytes(changed)


def garbage(chance: Random) -> bytes:
    return os.urandom(chance.choice((1, 3, 17, 200, 5000)))
