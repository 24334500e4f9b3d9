"""A bare socket that speaks magline frame by frame, with keys of its own, for what well-behaved clients never do."""

import asyncio
import json
import os
import ssl
from typing import Any, Self

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from msgspec.structs import replace

from gateway.running import HOST, WAIT_S, Running
from wirelake.protocols.frame import Sender
from wirelake.protocols.magline import crypto, frames
from wirelake.protocols.magline.splitter import MaglineSplitter


class Box:
    """`hear` answers the next frame, opened if it was sealed, or None where the gateway closed."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, little: bool = False) -> None:
        self._reader = reader
        self._writer = writer
        self._splitter = MaglineSplitter()
        self._heard: list[frames.MaglineFrame] = []
        self.little = little
        self.seq = 0
        self.sid = b""
        self.server_public = b""
        self.keys: crypto.Keys | None = None

    @classmethod
    async def call(
        cls,
        running: Running,
        user: str = "",
        token: str = "",
        *,
        little: bool = False,
        tls: ssl.SSLContext | None = None,
    ) -> Self:
        """With a user: connected and logged in. Without: a socket and no more."""
        box = cls(*await asyncio.open_connection(HOST, running.port("magline"), ssl=tls), little=little)
        if user:
            await box.connect()
            assert await box.ask(1, user=user, token=token) == {"ok": True}
        return box

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self._writer.close()

    def write(self, data: bytes) -> None:
        self._writer.write(data)

    def say(self, *said: frames.MaglineFrame) -> None:
        self.write(b"".join(frame.encode() for frame in said))

    def next_seq(self) -> int:
        self.seq += 1
        return self.seq

    def syn(self, sid: bytes = b"", secret: bytes = b"") -> frames.Syn:
        """A SYN with a key of its own; with a secret, it proves that the session of this sid was ours."""
        self._private = X25519PrivateKey.generate()
        public = crypto.public_bytes(self._private)
        syn = frames.Syn(os.urandom(32), public, sid, seq=self.next_seq(), little=self.little)
        if secret:
            syn = replace(syn, head_optional=1, header=crypto.resume_proof(secret, syn))
        return syn

    @property
    def secret(self) -> bytes:
        """What a proof of this session is made of."""
        assert self.keys is not None
        return self.keys.resume

    async def connect(self, sid: bytes = b"", secret: bytes = b"") -> None:
        """SYN and ACK: new keys from here on."""
        syn = self.syn(sid, secret)
        private = self._private
        self.say(syn)
        ack = await self.hear()
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

    async def hear(self) -> frames.MaglineFrame | None:
        async with asyncio.timeout(WAIT_S):
            while not self._heard:
                data = await self._reader.read(65536)
                if not data:
                    assert not self._splitter.rest
                    return None
                self._heard += [frames.decode(raw, Sender.SERVER) for raw in self._splitter.receive(data)]
                assert self._splitter.failure is None
        frame = self._heard.pop(0)
        assert frame.little == self.little, "the gateway answers in the client's byte order"
        if isinstance(frame, frames.SealedFrame):
            assert self.keys is not None
            return replace(frame, hmac=frames.OPENED, data=crypto.open_data(frame, self.keys.s2c))
        return frame

    async def rep(self) -> frames.Rep:
        heard = await self.hear()
        assert isinstance(heard, frames.Rep), heard
        return heard

    async def call_service(self, business: int, data: bytes = b"") -> bytes:
        req = self.req(business, data)
        self.say(req)
        rep = await self.rep()
        assert (rep.business_cmd, rep.seq) == (business, req.seq)
        return rep.data

    async def ask(self, business: int, **said: Any) -> Any:
        """One of the gateway's own commands."""
        return json.loads(await self.call_service(business, json.dumps(said).encode()))

    async def push(self) -> dict[str, Any]:
        heard = await self.hear()
        assert isinstance(heard, frames.Psh), heard
        assert heard.business_cmd == 5
        said: dict[str, Any] = json.loads(heard.data)
        return said

    async def err(self) -> frames.Err:
        heard = await self.hear()
        assert isinstance(heard, frames.Err), heard
        return heard

    async def error(self, business: int, data: bytes = b"") -> int:
        """The number of the ERR that answers this; the connection goes on."""
        req = self.req(business, data)
        self.say(req)
        err = await self.err()
        assert (err.business_cmd, err.seq) == (business, req.seq)
        return err.error_number

    async def refused(self) -> int:
        """The number of an ERR behind which come FIN 1 and the end."""
        err = await self.err()
        assert await self.ended() == 1
        return err.error_number

    async def ended(self) -> int:
        """The reason of a FIN behind which comes the end."""
        fin = await self.hear()
        assert isinstance(fin, frames.Fin), fin
        assert await self.hear() is None
        return fin.reason
