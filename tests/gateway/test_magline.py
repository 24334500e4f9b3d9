"""magline over real sockets: every command, every ERR and FIN, keys, resuming, and frames that were meddled with."""

import asyncio
import os
from base64 import b64decode, b64encode
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from gateway.box import Box
from gateway.http.calling import calling
from gateway.running import HOST, WAIT_S, Running, running_gateway, until
from gateway.wire import Station, data_lines, values
from wirelake.limits import (
    MAGLINE_HEADER_BYTES_MAX,
    MAGLINE_MESSAGE_BYTES_MAX,
    MAGLINE_REQUESTS_OPEN_MAX,
    MAGLINE_SEQ_MAX,
)
from wirelake.message import Credentials, Kind, Message, Op, control
from wirelake.protocols.esnp import lines
from wirelake.protocols.frame import Sender
from wirelake.protocols.magline import frames
from wirelake.protocols.magline.client import ClientSession
from wirelake.protocols.magline.protocol import PROTOCOL
from wirelake.protocols.protocol import Carrier
from wirelake.protocols.session import Step

BOX = ("box", "t0ken")
LOGIN = control(Op.LOGIN, credentials=Credentials(*BOX), correlation="in")


class Line:
    """A pure client session on a real socket."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, pinned: bytes | None = None) -> None:
        self._reader, self._writer = reader, writer
        self._splitter = PROTOCOL.splitter(Sender.SERVER, Carrier.TCP)
        self._heard: list[Message] = []
        self.session = ClientSession(self._now_s(), os.urandom, pinned)

    @classmethod
    async def call(cls, running: Running, pinned: bytes | None = None) -> "Line":
        return cls(*await asyncio.open_connection(HOST, running.port("magline")), pinned)

    def say(self, message: Message) -> None:
        self._take(self.session.send(message, self._now_s()))

    async def hear(self) -> Message:
        """The next message that the session hands up."""
        async with asyncio.timeout(WAIT_S):
            while not self._heard:
                data = await self._reader.read(65536)
                assert data, "the gateway closed the line"
                for raw in self._splitter.receive(data):
                    self._take(self.session.receive(PROTOCOL.decode(raw, Sender.SERVER), self._now_s()))
        return self._heard.pop(0)

    async def ask(self, message: Message) -> Message:
        self.say(message)
        return await self.hear()

    def hang_up(self) -> None:
        self._writer.close()

    def _take(self, step: Step) -> None:
        self._heard += step.messages
        self._writer.write(b"".join([frame.encode() for frame in step.frames]))

    @staticmethod
    def _now_s() -> float:
        return asyncio.get_running_loop().time()


def test_a_box_logs_in_and_is_pushed_to_and_acks(tmp_path: Path) -> None:
    async def story() -> None:
        async with running_gateway(tmp_path, "magline", identities=[BOX]) as running:
            line = await Line.call(running)
            assert (await line.ask(LOGIN)).failure is None
            answer = await line.ask(control(Op.SUBSCRIBE, fields={"topics": ["@boxes"]}, correlation="s"))
            assert answer.failure is None
            published = await running.publish("@boxes", "open up")
            pushed = await line.hear()
            assert (pushed.kind, pushed.id, pushed.payload) == (Kind.NOTIFICATION, published, b"open up")
            assert [each.id for each in running.waiting("box")] == [published]
            await line.ask(control(Op.ACK, fields={"ids": [published]}, correlation="a"))
            assert running.waiting("box") == []
            line.hang_up()
            frames = await running.recorded("frame", 3, protocol="magline", direction="in")
            assert any(b'"topics":["@boxes"]' in row["frame"] for row in frames), "the log has the data opened"

    asyncio.run(story())


def test_a_lost_line_is_resumed_with_what_waited(tmp_path: Path) -> None:
    async def story() -> None:
        async with running_gateway(tmp_path, "magline", identities=[BOX]) as running:
            line = await Line.call(running)
            await line.ask(LOGIN)
            await line.ask(control(Op.SUBSCRIBE, fields={"topics": ["@boxes"]}, correlation="s"))
            sid = line.session.sid
            line.hang_up()
            await running.recorded("close", 1, protocol="magline")
            await running.publish("@boxes", "while away")
            again = await Line.call(running)
            resumed = await again.ask(Message(kind=Kind.CONTROL, name="resume", fields={"sid": sid.hex()}))
            assert resumed.failure is None
            assert (await again.hear()).payload == b"while away"
            again.hang_up()
            stranger = await Line.call(running)
            unknown = Message(kind=Kind.CONTROL, name="resume", fields={"sid": os.urandom(16).hex()})
            refused = await stranger.ask(unknown)
            assert refused.failure is not None
            assert refused.failure.code == 5
            stranger.hang_up()

    asyncio.run(story())


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(work)


@asynccontextmanager
async def gateway(folder: Path, *doors: str, **settings: Any) -> AsyncIterator[Running]:
    async with running_gateway(folder, "magline", *doors, identities=[BOX], **settings) as running:
        yield running


@asynccontextmanager
async def logged_in(folder: Path, *, little: bool = False, **settings: Any) -> AsyncIterator[tuple[Running, Box]]:
    async with gateway(folder, **settings) as running, await Box.call(running, *BOX, little=little) as box:
        yield running, box


# Commands


@pytest.mark.parametrize("little", [False, True])
def test_every_command_in_both_byte_orders(tmp_path: Path, little: bool) -> None:
    async def work() -> None:
        async with gateway(tmp_path) as running, await Box.call(running, little=little) as box:
            box.say(frames.Pin(7, seq=box.next_seq(), little=little))
            assert await box.hear() == frames.Pon(7, seq=1, little=little), "also before the SYN"
            await box.connect()
            assert await box.ask(1, user=BOX[0], token=BOX[1]) == {"ok": True}
            assert await box.ask(2, topics=["@a", "live"]) == {"ok": True}
            for topic, content in (("@a", "grüße"), ("live", "")):
                box.say(box.req(4, b'{"topic":"%b","content":"%b"}' % (topic.encode(), content.encode())))
                heard = [await box.hear(), await box.hear()]
                (push,) = [frame for frame in heard if isinstance(frame, frames.Psh)]
                (answer,) = [frame for frame in heard if isinstance(frame, frames.Rep)]
                said = PROTOCOL.to_message(push, Sender.SERVER)
                assert (said.payload.decode(), getattr(said.target, "name", None)) == (content, topic)
                assert answer.data.startswith(b'{"ok":true')
            (waiting,) = running.waiting("box")
            assert await box.ask(6, ids=[waiting.id]) == {"ok": True}
            assert running.waiting("box") == []
            assert await box.ask(3, topics=["@a", "live"]) == {"ok": True}
            box.say(frames.Pin(2**32 - 1, seq=box.next_seq(), little=little))
            assert isinstance(await box.hear(), frames.Pon)
            box.say(frames.Fin(0, seq=box.next_seq(), little=little))
            assert await box.hear() is None
            (row,) = await running.recorded("close", protocol="magline")
            assert row["note"]["reason"] == "fin_normal"

    run(work())


def test_content_that_is_not_text_is_base64(tmp_path: Path) -> None:
    async def work() -> None:
        async with logged_in(tmp_path) as (running, box):
            await box.ask(2, topics=["@a"])
            await running.publish("@a", b"\xff\x00")
            push = await box.push()
            assert (b64decode(push["content"]), push["encoding"]) == (b"\xff\x00", "base64")
            box.say(box.req(4, b'{"topic":"@a","content":"%b","encoding":"base64"}' % b64encode(b"\xfe")))
            heard = [await box.hear(), await box.hear()]
            assert sorted(type(each).__name__ for each in heard) == ["Psh", "Rep"]
            assert running.waiting("box")[-1].content == b"\xfe"

    run(work())


def test_users_commands_are_services_of_any_protocol(tmp_path: Path) -> None:
    async def work() -> None:
        async with (
            gateway(tmp_path, "esnp") as running,
            await Box.call(running, *BOX) as box,
            await Station.call(running.port("esnp"), *BOX) as provider,
        ):
            for service in ("magline/16", "magline/4294967295"):
                assert (await provider.ask_gateway("register", service=service)).error is None
            for business, data in ((16, b"\x00raw"), (2**32 - 1, b"")):
                box.say(box.req(business, data))
                asked = await provider.message()
                assert asked.addresses == ((20, "call"), (30, f"magline/{business}"))
                assert (asked.payload, values(asked)) == (data, {})
                provider.answer(asked, lines.payload_line(b"\xff" + data))
                assert (await box.rep()).data == b"\xff" + data
            box.say(box.req(16))
            asked = await provider.message()
            provider.answer(asked, *data_lines(sum=3))
            assert (await box.rep()).data == b'{"sum":3}', "fields only become their JSON"
            box.say(box.req(16))
            asked = await provider.message()
            provider.answer(asked, *data_lines(sum=3), lines.payload_line(b"x"))
            assert (await box.err()).error_number == 0, "there is room for one of both"

    run(work())


# Keys


def test_the_servers_key_is_kept_and_can_be_pinned(tmp_path: Path) -> None:
    async def work() -> None:
        async with logged_in(tmp_path) as (_, box):
            pinned = box.server_public
        async with gateway(tmp_path) as running:
            line = await Line.call(running, pinned)
            assert (await line.ask(LOGIN)).failure is None
            assert line.session.server_public == pinned, "it outlives the process"
            line.hang_up()
            stranger = await Line.call(running, os.urandom(32))
            stranger.say(LOGIN)
            with pytest.raises(AssertionError, match="closed the line"):
                await stranger.hear()
            reasons = {row["note"]["reason"] for row in await running.recorded("close", 3, protocol="magline")}
            assert "fin_error" in reasons
            stranger.hang_up()
            assert (tmp_path / "data" / "keys" / "magline.pem").stat().st_mode & 0o777 == 0o600

    run(work())


def test_new_keys_on_a_live_connection(tmp_path: Path) -> None:
    async def work() -> None:
        async with logged_in(tmp_path) as (running, box):
            await box.ask(2, topics=["@a"])
            sid, old = box.sid, box.keys
            await box.connect(sid)
            assert (box.sid, box.keys != old) == (sid, True)
            await running.publish("@a", "sealed with the new keys")
            assert (await box.push())["content"] == "sealed with the new keys"
            assert await box.ask(2, topics=["@b"]) == {"ok": True}, "and still logged in"
            box.keys = old
            box.say(box.req(2, b'{"topics":["@c"]}'))
            assert await box.refused() == 3

    run(work())


def test_a_syn_without_a_sid_on_a_live_connection_is_somebody_else(tmp_path: Path) -> None:
    async def work() -> None:
        async with logged_in(tmp_path) as (running, box):
            await box.ask(2, topics=["@a"])
            sid = box.sid
            await box.connect()
            assert box.sid != sid
            await running.publish("@a", "for whoever logs in")
            assert await box.error(2, b'{"topics":["@b"]}') == 6
            assert await box.ask(1, user=BOX[0], token=BOX[1]) == {"ok": True}
            box.say(box.req(2, b'{"topics":["@a"]}'))
            heard = [await box.hear(), await box.hear()]
            assert sorted(type(each).__name__ for each in heard) == ["Psh", "Rep"], "what waited comes to the identity"
            async with await Box.call(running) as other:
                other.say(frames.Syn(os.urandom(32), os.urandom(32), sid, seq=1))
                assert await other.refused() == 5, "the session before it is over"

    run(work())


# Resuming


def test_a_session_moves_to_the_newer_connection(tmp_path: Path) -> None:
    """As when the old line is dead and nobody noticed yet: FIN 5."""

    async def work() -> None:
        async with logged_in(tmp_path) as (running, old):
            await old.ask(2, topics=["@a", "live"])
            await running.publish("@a", "not acked")
            await old.push()
            async with await Box.call(running) as new:
                await new.connect(old.sid)
                assert new.sid == old.sid
                assert await old.ended() == 5
                assert (await new.push())["content"] == "not acked", "it comes again"
                for topic in ("@a", "live"):
                    await running.publish(topic, topic)
                    assert (await new.push())["content"] == topic
                assert await new.ask(2, topics=["@b"]) == {"ok": True}

    run(work())


def test_a_session_that_ended_in_peace_or_long_ago_is_not_resumed(tmp_path: Path) -> None:
    async def work() -> None:
        async with logged_in(tmp_path, magline={"resume_s": 0.001}) as (running, box):
            sid = box.sid
            box.say(frames.Fin(0, seq=box.next_seq()))
            assert await box.hear() is None
            await running.recorded("close", protocol="magline")
            assert running.gateway.state.sessions.find(sid, running.gateway.now_ms() - 10_000) is None
            async with await Box.call(running, *BOX) as again:
                late = again.sid
            await running.recorded("close", 2, protocol="magline")
            now_ms = running.gateway.now_ms()
            await until(lambda: running.gateway.now_ms() > now_ms + 1)
            for gone in (sid, late):
                async with await Box.call(running) as stranger:
                    stranger.say(frames.Syn(os.urandom(32), os.urandom(32), gone, seq=1))
                    assert await stranger.refused() == 5

    run(work())


# Errors, by their numbers


def test_err_1_version(tmp_path: Path) -> None:
    async def work() -> None:
        async with gateway(tmp_path) as running, await Box.call(running) as box:
            wire = bytearray(frames.Pin(1, seq=1).encode())
            wire[1] = 2
            box.write(bytes(wire))
            assert await box.refused() == 1
            (row,) = await running.recorded("quarantine", protocol="magline")
            assert row["note"]["code"] == "version"

    run(work())


@pytest.mark.parametrize(
    ("business", "data"), [(2, b"no json"), (2, b'{"topics":"@a"}'), (4, b"{}"), (6, b"[]"), (7, b"{}"), (1, b"{}")]
)
def test_err_2_for_data_that_its_command_does_not_allow(tmp_path: Path, business: int, data: bytes) -> None:
    async def work() -> None:
        async with logged_in(tmp_path) as (_, box):
            assert await box.error(business, data) == 2
            assert await box.ask(2, topics=[]) == {"ok": True}, "and goes on"

    run(work())


def test_err_2_for_frames_that_have_no_place(tmp_path: Path) -> None:
    async def work() -> None:
        async with gateway(tmp_path) as running:
            for wire in (
                frames.Ack(bytes(32), bytes(32), bytes(32), seq=1).encode(),
                frames.Pon(1, seq=1).encode(),
                frames.Syn(bytes(32), bytes(32), seq=1).encode(),  # a key of low order
                b"GET / HTTP/1.1\r\n\r\n",
            ):
                async with await Box.call(running) as box:
                    box.write(wire)
                    assert await box.refused() == 2
            async with await Box.call(running, *BOX) as box:
                assert await box.error(1, b'{"user":"box","token":"t0ken"}') == 2, "a second login"

    run(work())


def test_err_3_for_a_change_anywhere_under_the_hmac(tmp_path: Path) -> None:
    async def work() -> None:
        async with gateway(tmp_path) as running:
            size = len(frames.Req(2, bytes(16), b'{"topics":["@a"]}', seq=1).encode())
            covered = [8, 11, 16, 19, 20, 35, 36, size - 1]  # seq, business_cmd, hmac, data
            for place in covered:
                async with await Box.call(running, *BOX) as box:
                    wire = bytearray(box.req(2, b'{"topics":["@a"]}').encode())
                    wire[place] ^= 1
                    box.write(bytes(wire))
                    assert await box.refused() == 3, place
            assert running.gateway.state.topics.subscribed("box") == []
            reasons = [
                row["note"]["reason"] for row in await running.recorded("close", len(covered), protocol="magline")
            ]
            assert set(reasons) == {"bad_hmac"}

    run(work())


def test_err_4_for_a_replay_and_a_step_back(tmp_path: Path) -> None:
    async def work() -> None:
        async with gateway(tmp_path) as running:
            async with await Box.call(running, *BOX) as box:
                req = box.req(4, b'{"topic":"@a","content":"once"}')
                box.say(req, req)
                first = await box.hear()
                if isinstance(first, frames.Err):  # the refusal need not wait for the disk
                    assert (first.error_number, await box.ended()) == (4, 1)
                else:
                    assert await box.refused() == 4
            async with await Box.call(running, *BOX) as box:
                early = box.req(4, b'{"topic":"@a","content":"early"}')
                late = box.req(2, b'{"topics":[]}')
                box.say(late)
                assert isinstance(await box.hear(), frames.Rep)
                box.say(early)
                assert await box.refused() == 4, "frames in another order than they were sent"
            async with await Box.call(running, *BOX) as box:
                box.say(frames.Syn(os.urandom(32), os.urandom(32), seq=1))
                assert await box.refused() == 4, "an old SYN"
            contents = [row["frame"] for row in running.records("publish")]
            assert contents == [b"once"]

    run(work())


def test_a_connection_recorded_and_played_again_is_nobody(tmp_path: Path) -> None:
    """The server's random differs, so the keys do; and the sid of a live session does not help without them."""

    async def work() -> None:
        async with gateway(tmp_path) as running:
            async with await Box.call(running, *BOX) as box:
                await box.ask(4, topic="@a", content="once")
            frames_in = await running.recorded("frame", 3, protocol="magline", direction="in")
            async with await Box.call(running) as thief:
                thief.write(frames_in[0]["frame"])
                assert isinstance(await thief.hear(), frames.Ack)
                sealed = replace(frames.Req(1, bytes(range(16)), b"x" * 30, seq=2))
                thief.say(sealed)
                assert await thief.refused() == 3
            assert len(running.records("publish")) == 1

    run(work())


def test_err_5_without_a_session(tmp_path: Path) -> None:
    async def work() -> None:
        async with gateway(tmp_path) as running:
            async with await Box.call(running) as box:
                box.say(frames.Req(2, bytes(16), b"{}", seq=1))
                assert await box.refused() == 5
            async with await Box.call(running) as box:
                box.say(frames.Syn(os.urandom(32), os.urandom(32), os.urandom(16), seq=1))
                assert await box.refused() == 5
            async with await Box.call(running, *BOX) as box:
                box.say(frames.Syn(os.urandom(32), os.urandom(32), os.urandom(16), seq=box.next_seq()))
                assert await box.refused() == 5, "not this connection's own"

    run(work())


def test_err_6_not_logged_in(tmp_path: Path) -> None:
    async def work() -> None:
        async with gateway(tmp_path) as running, await Box.call(running) as box:
            await box.connect()
            for business in (2, 3, 4, 6, 7, 17):
                assert await box.error(business) == 6
            box.say(box.req(1, b'{"user":"box","token":"wrong"}'))
            assert await box.refused() == 6
            (row,) = await running.recorded("refuse", protocol="magline")
            assert row["note"]["reason"] == "wrong_token"

    run(work())


def test_err_7_no_such_service(tmp_path: Path) -> None:
    async def work() -> None:
        async with logged_in(tmp_path) as (_, box):
            for business in (0, 5, 8, 15, 16, 17, 2**32 - 1):
                assert await box.error(business, b"x") == 7
            assert await box.error(7, b'{"serial":"m1","type":130}') == 7, "a device that was not heard"

    run(work())


def test_err_8_timeout(tmp_path: Path) -> None:
    async def work() -> None:
        async with (
            gateway(tmp_path, "esnp", broker={"call_s": 0.05}) as running,
            await Station.call(running.port("esnp"), *BOX) as provider,
            await Box.call(running, *BOX) as box,
        ):
            await provider.ask_gateway("register", service="magline/17")
            assert await box.error(17) == 8
        async with gateway(tmp_path, magline={"login_s": 0.3}) as running, await Box.call(running) as box:
            assert await box.refused() == 8, "no login in time"

    run(work())


def test_err_9_too_large(tmp_path: Path) -> None:
    async def work() -> None:
        async with (
            gateway(tmp_path, "esnp", magline={"message_bytes_max": 4096}) as running,
            await Station.call(running.port("esnp"), *BOX) as provider,
            await Box.call(running, *BOX) as box,
        ):
            await provider.ask_gateway("register", service="magline/17")
            box.say(box.req(17))
            asked = await provider.message()
            provider.answer(asked, lines.payload_line(bytes(4096)))
            assert (await box.err()).error_number == 9, "an answer; the connection goes on"
            box.write(box.req(17, bytes(4097)).encode()[:16])
            assert await box.refused() == 9, "refused when the head is read, before the body comes"
        async with gateway(tmp_path) as running:
            for header, message in ((MAGLINE_HEADER_BYTES_MAX + 1, 0), (0, MAGLINE_MESSAGE_BYTES_MAX + 1)):
                async with await Box.call(running, *BOX) as box:
                    begin = frames.Pin(1, seq=9).encode()[:6]
                    box.write(begin + header.to_bytes(2) + bytes(4) + message.to_bytes(4))
                    assert await box.refused() == 9

    run(work())


def test_err_10_busy(tmp_path: Path) -> None:
    async def work() -> None:
        async with (
            gateway(tmp_path, "esnp") as running,
            await Station.call(running.port("esnp"), *BOX) as provider,
            await Box.call(running, *BOX) as box,
        ):
            await provider.ask_gateway("register", service="magline/17")
            box.say(*[box.req(17) for _ in range(MAGLINE_REQUESTS_OPEN_MAX)])
            last = box.req(17)
            box.say(last)
            err = await box.err()
            assert (err.error_number, err.seq) == (10, last.seq)

    run(work())


def test_a_services_own_failure_is_err_0(tmp_path: Path) -> None:
    async def work() -> None:
        async with gateway(tmp_path, "esnp") as running:
            async with (
                await Station.call(running.port("esnp"), *BOX) as provider,
                await Box.call(running, *BOX) as box,
            ):
                await provider.ask_gateway("register", service="magline/17")
                box.say(box.req(17))
                asked = await provider.message()
                provider.answer(asked, lines.error_line("no luck"))
                assert (await box.err()).error_number == 0
                box.say(box.req(17))
                await provider.message()
            # The provider is gone, and so is whoever asked: neither leaves anything behind.
            await until(lambda: not running.gateway.connections)
            assert running.gateway.broker.services.open == 0

    run(work())


# Ends, by their reasons


def test_fin_0_when_an_operator_ends_the_session(tmp_path: Path) -> None:
    async def work() -> None:
        async with calling(tmp_path, "magline", identities=[BOX]) as caller, await Box.call(caller, *BOX) as box:
            (session,) = (await caller.call("GET", "/api/sessions")).json()["sessions"]
            assert (await caller.call("DELETE", f"/api/sessions/{session['id']}")).status_code == 204
            assert await box.ended() == 0

    run(work())


def test_fin_2_idle_unless_pinged(tmp_path: Path) -> None:
    async def work() -> None:
        async with logged_in(tmp_path, magline={"idle_s": 1.0}) as (_, box):
            for number in range(5):
                await asyncio.sleep(0.25)
                box.say(frames.Pin(number, seq=box.next_seq()))
                assert isinstance(await box.hear(), frames.Pon)
            assert await box.ended() == 2

    run(work())


def test_fin_3_when_the_seqs_are_used_up_and_the_session_goes_on_elsewhere(tmp_path: Path) -> None:
    async def work() -> None:
        async with logged_in(tmp_path) as (running, box):
            await box.ask(2, topics=["@a"])
            box.say(box.req(2, b"{}", seq=MAGLINE_SEQ_MAX))
            assert await box.ended() == 3
            await running.recorded("close", protocol="magline")
            async with await Box.call(running) as again:
                await again.connect(box.sid)
                await running.publish("@a", "on")
                assert (await again.push())["content"] == "on"

    run(work())


def test_fin_4_when_the_gateway_stops(tmp_path: Path) -> None:
    async def work() -> None:
        async with gateway(tmp_path) as running:
            box = await Box.call(running, *BOX)
        async with box:
            assert await box.ended() == 4

    run(work())


# Frames cut short


def test_a_frame_cut_short_is_never_served(tmp_path: Path) -> None:
    async def work() -> None:
        async with gateway(tmp_path) as running:
            async with await Box.call(running, *BOX) as box:
                wire = box.req(4, b'{"topic":"@a","content":"cut"}').encode()
                box.write(wire[:-1])
            (row,) = await running.recorded("quarantine", protocol="magline")
            assert (row["frame"], row["note"]["code"]) == (wire[:-1], "incomplete")
            async with await Box.call(running, *BOX) as box:
                wire = box.req(4, b'{"topic":"@a","content":"cut"}').encode()
                box.write(wire[:-1] + box.req(2, b'{"topics":[]}').encode())
                assert await box.refused() == 3, "it took the next frame's first byte for its own last"
            assert running.records("publish") == []

    run(work())
