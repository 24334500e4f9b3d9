"""magline over real sockets: every command, keys, and resuming sessions."""

import asyncio
import os
from base64 import b64decode, b64encode
from pathlib import Path

import pytest

from gateway.esnp_client import Station, data_lines, values
from gateway.magline_client import BOX, LOGIN, Box, logged_in_box, magline_gateway, resume
from gateway.running_gateway import HOST, WAIT_S, Running, running_gateway, until
from wirelake.message import Kind, Message, Op, control
from wirelake.protocols.esnp import lines
from wirelake.protocols.frame import Sender
from wirelake.protocols.magline import frames
from wirelake.protocols.magline.client import ClientSession
from wirelake.protocols.magline.protocol import PROTOCOL
from wirelake.protocols.protocol import Carrier
from wirelake.protocols.session import Step


class SessionConnection:
    """Run a sans-I/O client session on a real socket."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, pinned: bytes | None = None) -> None:
        self._reader, self._writer = reader, writer
        self._splitter = PROTOCOL.splitter(Sender.SERVER, Carrier.TCP)
        self._received: list[Message] = []
        self.session = ClientSession(self._now_s(), os.urandom, pinned)

    @classmethod
    async def connect(cls, running: Running, pinned: bytes | None = None) -> "SessionConnection":
        return cls(*await asyncio.open_connection(HOST, running.port("magline")), pinned)

    def send(self, message: Message) -> None:
        self._take(self.session.send(message, self._now_s()))

    async def receive(self) -> Message:
        """Return the next message of the session."""
        async with asyncio.timeout(WAIT_S):
            while not self._received:
                data = await self._reader.read(65536)
                assert data, "the gateway closed the line"
                for raw in self._splitter.receive(data):
                    self._take(self.session.receive(PROTOCOL.decode(raw, Sender.SERVER), self._now_s()))
        return self._received.pop(0)

    async def ask(self, message: Message) -> Message:
        self.send(message)
        return await self.receive()

    def close(self) -> None:
        self._writer.close()

    def _take(self, step: Step) -> None:
        self._received += step.messages
        self._writer.write(b"".join([frame.encode() for frame in step.frames]))

    @staticmethod
    def _now_s() -> float:
        return asyncio.get_running_loop().time()


async def test_a_box_logs_in_and_is_pushed_to_and_acks(tmp_path: Path) -> None:
    async with running_gateway(tmp_path, "magline", identities=[BOX]) as running:
        connection = await SessionConnection.connect(running)
        assert (await connection.ask(LOGIN)).failure is None
        answer = await connection.ask(control(Op.SUBSCRIBE, fields={"topics": ["@boxes"]}, correlation="s"))
        assert answer.failure is None
        published = await running.publish("@boxes", "open up")
        pushed = await connection.receive()
        assert (pushed.kind, pushed.id, pushed.payload) == (Kind.NOTIFICATION, published, b"open up")
        assert [each.id for each in running.waiting("box")] == [published]
        await connection.ask(control(Op.ACK, fields={"ids": [published]}, correlation="a"))
        assert running.waiting("box") == []
        connection.close()
        frames = await running.recorded("frame", 3, protocol="magline", direction="in")
        assert any(b'"topics":["@boxes"]' in row["frame"] for row in frames), "the log has the data opened"


async def test_a_lost_line_is_resumed_with_what_waited(tmp_path: Path) -> None:
    async with running_gateway(tmp_path, "magline", identities=[BOX]) as running:
        connection = await SessionConnection.connect(running)
        await connection.ask(LOGIN)
        await connection.ask(control(Op.SUBSCRIBE, fields={"topics": ["@boxes"]}, correlation="s"))
        old = connection.session
        connection.close()
        await running.recorded("close", 1, protocol="magline")
        await running.publish("@boxes", "while away")
        again = await SessionConnection.connect(running)
        resumed = await again.ask(resume(old.sid, old.resume_secret))
        assert resumed.failure is None
        assert again.session.sid != old.sid, "each sid serves once"
        assert (await again.receive()).payload == b"while away"
        again.close()
        stranger = await SessionConnection.connect(running)
        refused = await stranger.ask(resume(os.urandom(16), os.urandom(32)))
        assert refused.failure is not None
        assert refused.failure.code == 5
        stranger.close()


@pytest.mark.parametrize("little", [False, True])
async def test_every_command_in_both_byte_orders(tmp_path: Path, little: bool) -> None:
    async with magline_gateway(tmp_path) as running, await Box.connect(running, little=little) as box:
        box.send(frames.Pin(7, seq=box.next_seq(), little=little))
        assert await box.receive() == frames.Pon(7, seq=1, little=little), "also before the SYN"
        await box.handshake()
        assert await box.ask(1, user=BOX[0], token=BOX[1]) == {"ok": True}
        assert await box.ask(2, topics=["@a", "live"]) == {"ok": True}
        for topic, content in (("@a", "grüße"), ("live", "")):
            box.send(box.req(4, b'{"topic":"%b","content":"%b"}' % (topic.encode(), content.encode())))
            received = [await box.receive(), await box.receive()]
            (push,) = [frame for frame in received if isinstance(frame, frames.Psh)]
            (answer,) = [frame for frame in received if isinstance(frame, frames.Rep)]
            decoded = PROTOCOL.to_message(push, Sender.SERVER)
            assert (decoded.payload.decode(), getattr(decoded.target, "name", None)) == (content, topic)
            assert answer.data.startswith(b'{"ok":true')
        (waiting,) = running.waiting("box")
        assert await box.ask(6, ids=[waiting.id]) == {"ok": True}
        assert running.waiting("box") == []
        assert await box.ask(3, topics=["@a", "live"]) == {"ok": True}
        box.send(frames.Pin(2**32 - 1, seq=box.next_seq(), little=little))
        assert isinstance(await box.receive(), frames.Pon)
        box.send(frames.Fin(0, seq=box.next_seq(), little=little))
        assert await box.receive() is None
        (row,) = await running.recorded("close", protocol="magline")
        assert row["note"]["reason"] == "fin_normal"


async def test_content_that_is_not_text_is_base64(tmp_path: Path) -> None:
    async with logged_in_box(tmp_path) as (running, box):
        await box.ask(2, topics=["@a"])
        await running.publish("@a", b"\xff\x00")
        push = await box.receive_push()
        assert (b64decode(push["content"]), push["encoding"]) == (b"\xff\x00", "base64")
        box.send(box.req(4, b'{"topic":"@a","content":"%b","encoding":"base64"}' % b64encode(b"\xfe")))
        received = [await box.receive(), await box.receive()]
        assert sorted(type(each).__name__ for each in received) == ["Psh", "Rep"]
        assert running.waiting("box")[-1].content == b"\xfe"


async def test_users_commands_are_services_of_any_protocol(tmp_path: Path) -> None:
    async with (
        magline_gateway(tmp_path, "esnp") as running,
        await Box.connect(running, *BOX) as box,
        await Station.connect(running.port("esnp"), *BOX) as provider,
    ):
        for service in ("magline/16", "magline/4294967295"):
            assert (await provider.ask_gateway("register", service=service)).error is None
        for business, data in ((16, b"\x00raw"), (2**32 - 1, b"")):
            box.send(box.req(business, data))
            request = await provider.receive_message()
            assert request.addresses == ((20, "call"), (30, f"magline/{business}"))
            assert (request.payload, values(request)) == (data, {})
            provider.answer(request, lines.payload_line(b"\xff" + data))
            assert (await box.receive_rep()).data == b"\xff" + data
        box.send(box.req(16))
        request = await provider.receive_message()
        provider.answer(request, *data_lines(sum=3))
        assert (await box.receive_rep()).data == b'{"sum":3}', "fields only become their JSON"
        box.send(box.req(16))
        request = await provider.receive_message()
        provider.answer(request, *data_lines(sum=3), lines.payload_line(b"x"))
        assert (await box.receive_err()).error_number == 0, "there is room for one of both"


async def test_the_servers_key_is_kept_and_can_be_pinned(tmp_path: Path) -> None:
    async with logged_in_box(tmp_path) as (_, box):
        pinned = box.server_public
    async with magline_gateway(tmp_path) as running:
        connection = await SessionConnection.connect(running, pinned)
        assert (await connection.ask(LOGIN)).failure is None
        assert connection.session.server_public == pinned, "it outlives the process"
        connection.close()
        stranger = await SessionConnection.connect(running, os.urandom(32))
        stranger.send(LOGIN)
        with pytest.raises(AssertionError, match="closed the line"):
            await stranger.receive()
        reasons = {row["note"]["reason"] for row in await running.recorded("close", 3, protocol="magline")}
        assert "fin_error" in reasons
        stranger.close()
        assert (tmp_path / "data" / "keys" / "magline.pem").stat().st_mode & 0o777 == 0o600


async def test_new_keys_on_a_live_connection(tmp_path: Path) -> None:
    async with logged_in_box(tmp_path) as (running, box):
        await box.ask(2, topics=["@a"])
        sid, old = box.sid, box.keys
        await box.handshake(sid, box.secret)
        assert (box.sid != sid, box.keys != old) == (True, True)
        await running.publish("@a", "sealed with the new keys")
        assert (await box.receive_push())["content"] == "sealed with the new keys"
        assert await box.ask(2, topics=["@b"]) == {"ok": True}, "and still logged in"
        box.keys = old
        box.send(box.req(2, b'{"topics":["@c"]}'))
        assert await box.receive_refusal() == 3


async def test_a_syn_without_a_sid_on_a_live_connection_is_somebody_else(tmp_path: Path) -> None:
    async with logged_in_box(tmp_path) as (running, box):
        await box.ask(2, topics=["@a"])
        sid, secret = box.sid, box.secret
        await box.handshake()
        assert box.sid != sid
        await running.publish("@a", "for whoever logs in")
        assert await box.ask_for_error(2, b'{"topics":["@b"]}') == 6
        assert await box.ask(1, user=BOX[0], token=BOX[1]) == {"ok": True}
        box.send(box.req(2, b'{"topics":["@a"]}'))
        received = [await box.receive(), await box.receive()]
        assert sorted(type(each).__name__ for each in received) == ["Psh", "Rep"], "what waited comes to the identity"
        async with await Box.connect(running) as other:
            other.send(other.syn(sid, secret))
            assert await other.receive_refusal() == 5, "the session before it is over"


async def test_a_session_moves_to_the_newer_connection(tmp_path: Path) -> None:
    """Resume while the old connection still seems alive: it gets FIN 5."""
    async with logged_in_box(tmp_path) as (running, old):
        await old.ask(2, topics=["@a", "live"])
        await running.publish("@a", "not acked")
        await old.receive_push()
        async with await Box.connect(running) as new:
            await new.handshake(old.sid, old.secret)
            assert new.sid != old.sid
            assert await old.receive_fin() == 5
            assert (await new.receive_push())["content"] == "not acked", "it comes again"
            for topic in ("@a", "live"):
                await running.publish(topic, topic)
                assert (await new.receive_push())["content"] == topic
            assert await new.ask(2, topics=["@b"]) == {"ok": True}


async def test_a_session_that_ended_in_peace_or_long_ago_is_not_resumed(tmp_path: Path) -> None:
    async with logged_in_box(tmp_path, magline={"resume_s": 0.001}) as (running, box):
        sid = box.sid
        in_peace = sid, box.secret
        box.send(frames.Fin(0, seq=box.next_seq()))
        assert await box.receive() is None
        await running.recorded("close", protocol="magline")
        assert running.gateway.state.sessions.find(sid, running.gateway.now_ms() - 10_000) is None
        async with await Box.connect(running, *BOX) as again:
            late = again.sid, again.secret
        await running.recorded("close", 2, protocol="magline")
        now_ms = running.gateway.now_ms()
        await until(lambda: running.gateway.now_ms() > now_ms + 1)
        for gone in (in_peace, late):
            async with await Box.connect(running) as stranger:
                stranger.send(stranger.syn(*gone))
                assert await stranger.receive_refusal() == 5
