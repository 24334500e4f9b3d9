"""A bare magline connection, for what well-behaved clients never do, and a gateway that listens for it."""

import asyncio
import json
import os
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Self

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from msgspec.structs import replace

from gateway.running_gateway import HOST, WAIT_S, Running, running_gateway
from wirelake.message import Credentials, Kind, Message, Op, control
from wirelake.protocols.frame import Sender
from wirelake.protocols.magline import crypto, frames
from wirelake.protocols.magline.frames import make_splitter

BOX = ("box", "t0ken")
LOGIN = control(Op.LOGIN, credentials=Credentials(*BOX), correlation="in")


class Box:
    """Send and receive magline frames one by one, with keys of its own."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, little: bool = False) -> None:
        self._reader = reader
        self._writer = writer
        self._splitter = make_splitter()
        self._received: list[frames.MaglineFrame] = []
        self.little = little
        self.seq = 0
        self.sid = b""
        self.server_public = b""
        self.keys: crypto.Keys | None = None

    @classmethod
    async def connect(
        cls,
        running: Running,
        user: str = "",
        token: str = "",
        *,
        little: bool = False,
        tls: ssl.SSLContext | None = None,
    ) -> Self:
        """Connect; with a user, exchange keys and log in."""
        box = cls(*await asyncio.open_connection(HOST, running.port("magline"), ssl=tls), little=little)
        if user:
            await box.handshake()
            assert await box.ask(1, user=user, token=token) == {"ok": True}
        return box

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self._writer.close()

    def write(self, data: bytes) -> None:
        self._writer.write(data)

    def send(self, *sent: frames.MaglineFrame) -> None:
        self.write(b"".join(frame.encode() for frame in sent))

    def next_seq(self) -> int:
        self.seq += 1
        return self.seq

    def syn(self, sid: bytes = b"", secret: bytes = b"") -> frames.Syn:
        """Return a SYN with a new key; with a secret, it proves that the session of this sid was ours."""
        self._private = X25519PrivateKey.generate()
        public = crypto.public_bytes(self._private)
        syn = frames.Syn(os.urandom(32), public, sid, seq=self.next_seq(), little=self.little)
        if secret:
            syn = replace(syn, head_optional=1, header=crypto.resume_proof(secret, syn))
        return syn

    @property
    def secret(self) -> bytes:
        """Return the secret that proves ownership of this session."""
        assert self.keys is not None
        return self.keys.resume

    async def handshake(self, sid: bytes = b"", secret: bytes = b"") -> None:
        """Exchange SYN and ACK; both sides use new keys from here on."""
        syn = self.syn(sid, secret)
        private = self._private
        self.send(syn)
        ack = await self.receive()
        assert isinstance(ack, frames.Ack), ack
        assert (ack.seq, ack.little) == (syn.seq, self.little)
        shared = crypto.shared_secret(private, ack.server_public)
        self.keys = crypto.derive(shared, syn.client_random, ack.server_random)
        self.sid = crypto.open_sid(ack.sealed_sid, shared, syn.client_random, ack.server_random)
        self.server_public = ack.server_public

    def req(self, business: int, data: bytes = b"", seq: int | None = None) -> frames.Req:
        assert self.keys is not None
        seq = self.next_seq() if seq is None else seq
        return crypto.seal(frames.Req(business, frames.OPENED, data, seq=seq, little=self.little), self.keys.c2s)

    async def receive(self) -> frames.MaglineFrame | None:
        """Return the next frame, opened if it was sealed, or None if the gateway closed the connection."""
        async with asyncio.timeout(WAIT_S):
            while not self._received:
                data = await self._reader.read(65536)
                if not data:
                    assert not self._splitter.rest
                    return None
                self._received += [frames.decode(raw, Sender.SERVER) for raw in self._splitter.receive(data)]
                assert self._splitter.failure is None
        frame = self._received.pop(0)
        assert frame.little == self.little, "the gateway answers in the client's byte order"
        if isinstance(frame, frames.SealedFrame):
            assert self.keys is not None
            return replace(frame, hmac=frames.OPENED, data=crypto.open_data(frame, self.keys.s2c))
        return frame

    async def receive_rep(self) -> frames.Rep:
        frame = await self.receive()
        assert isinstance(frame, frames.Rep), frame
        return frame

    async def call_service(self, business: int, data: bytes = b"") -> bytes:
        req = self.req(business, data)
        self.send(req)
        rep = await self.receive_rep()
        assert (rep.business_cmd, rep.seq) == (business, req.seq)
        return rep.data

    async def ask(self, business: int, **data: Any) -> Any:
        """Call one of the gateway's own commands, and return its answer."""
        return json.loads(await self.call_service(business, json.dumps(data).encode()))

    async def receive_push(self) -> dict[str, Any]:
        frame = await self.receive()
        assert isinstance(frame, frames.Psh), frame
        assert frame.business_cmd == 5
        push: dict[str, Any] = json.loads(frame.data)
        return push

    async def receive_err(self) -> frames.Err:
        frame = await self.receive()
        assert isinstance(frame, frames.Err), frame
        return frame

    async def ask_for_error(self, business: int, data: bytes = b"") -> int:
        """Return the number of the ERR that answers this command; the connection stays open."""
        req = self.req(business, data)
        self.send(req)
        err = await self.receive_err()
        assert (err.business_cmd, err.seq) == (business, req.seq)
        return err.error_number

    async def receive_refusal(self) -> int:
        """Return the number of the next ERR, after which FIN 1 and the end follow."""
        err = await self.receive_err()
        assert await self.receive_fin() == 1
        return err.error_number

    async def receive_fin(self) -> int:
        """Return the reason of the next FIN, after which the gateway closes the connection."""
        fin = await self.receive()
        assert isinstance(fin, frames.Fin), fin
        assert await self.receive() is None
        return fin.reason


def resume(sid: bytes, secret: bytes) -> Message:
    """Return the message that makes a client session resume the session of this sid and resume secret."""
    return Message(kind=Kind.CONTROL, name="resume", fields={"sid": sid.hex(), "secret": secret.hex()})


@asynccontextmanager
async def magline_gateway(folder: Path, *listeners: str, **settings: Any) -> AsyncIterator[Running]:
    async with running_gateway(folder, "magline", *listeners, identities=[BOX], **settings) as running:
        yield running


@asynccontextmanager
async def logged_in_box(folder: Path, *, little: bool = False, **settings: Any) -> AsyncIterator[tuple[Running, Box]]:
    async with magline_gateway(folder, **settings) as running, await Box.connect(running, *BOX, little=little) as box:
        yield running, box
