"""magline over real sockets: every ERR and FIN, and frames that were tampered with."""

import asyncio
import os
from pathlib import Path

import pytest
from msgspec.structs import replace

from gateway.esnp_client import Station
from gateway.http.calling import calling
from gateway.magline_client import BOX, Box, logged_in_box, magline_gateway
from gateway.running_gateway import until
from wirelake.protocols.esnp import lines
from wirelake.protocols.magline import frames
from wirelake.protocols.magline.constants import (
    MAGLINE_HEADER_BYTES_MAX,
    MAGLINE_MESSAGE_BYTES_MAX,
    MAGLINE_REQUESTS_OPEN_MAX,
    MAGLINE_SEQ_MAX,
)


async def test_err_1_version(tmp_path: Path) -> None:
    async with magline_gateway(tmp_path) as running, await Box.connect(running) as box:
        wire = bytearray(frames.Pin(1, seq=1).encode())
        wire[1] = 2
        box.write(bytes(wire))
        assert await box.receive_refusal() == 1
        (row,) = await running.recorded("quarantine", protocol="magline")
        assert row["note"]["code"] == "version"


@pytest.mark.parametrize(
    ("business", "data"), [(2, b"no json"), (2, b'{"topics":"@a"}'), (4, b"{}"), (6, b"[]"), (7, b"{}"), (1, b"{}")]
)
async def test_err_2_for_data_that_its_command_does_not_allow(tmp_path: Path, business: int, data: bytes) -> None:
    async with logged_in_box(tmp_path) as (_, box):
        assert await box.ask_for_error(business, data) == 2
        assert await box.ask(2, topics=[]) == {"ok": True}, "and goes on"


async def test_err_2_for_frames_that_have_no_place(tmp_path: Path) -> None:
    async with magline_gateway(tmp_path) as running:
        for wire in (
            frames.Ack(bytes(32), bytes(32), bytes(32), seq=1).encode(),
            frames.Pon(1, seq=1).encode(),
            frames.Syn(bytes(32), bytes(32), seq=1).encode(),  # a key of low order
            b"GET / HTTP/1.1\r\n\r\n",
        ):
            async with await Box.connect(running) as box:
                box.write(wire)
                assert await box.receive_refusal() == 2
        async with await Box.connect(running, *BOX) as box:
            assert await box.ask_for_error(1, b'{"user":"box","token":"t0ken"}') == 2, "a second login"


async def test_err_3_for_a_change_anywhere_under_the_hmac(tmp_path: Path) -> None:
    async with magline_gateway(tmp_path) as running:
        size = len(frames.Req(2, bytes(16), b'{"topics":["@a"]}', seq=1).encode())
        covered = [8, 11, 16, 19, 20, 35, 36, size - 1]  # seq, business_cmd, hmac, data
        for place in covered:
            async with await Box.connect(running, *BOX) as box:
                wire = bytearray(box.req(2, b'{"topics":["@a"]}').encode())
                wire[place] ^= 1
                box.write(bytes(wire))
                assert await box.receive_refusal() == 3, place
        assert running.gateway.state.topics.topics_of("box") == []
        reasons = [row["note"]["reason"] for row in await running.recorded("close", len(covered), protocol="magline")]
        assert set(reasons) == {"bad_hmac"}


async def test_err_4_for_a_replay_and_a_step_back(tmp_path: Path) -> None:
    async with magline_gateway(tmp_path) as running:
        async with await Box.connect(running, *BOX) as box:
            req = box.req(4, b'{"topic":"@a","content":"once"}')
            box.send(req, req)
            first = await box.receive()
            if isinstance(first, frames.Err):  # the refusal need not wait for the disk
                assert (first.error_number, await box.receive_fin()) == (4, 1)
            else:
                assert await box.receive_refusal() == 4
        async with await Box.connect(running, *BOX) as box:
            early = box.req(4, b'{"topic":"@a","content":"early"}')
            late = box.req(2, b'{"topics":[]}')
            box.send(late)
            assert isinstance(await box.receive(), frames.Rep)
            box.send(early)
            assert await box.receive_refusal() == 4, "frames in another order than they were sent"
        async with await Box.connect(running, *BOX) as box:
            box.send(frames.Syn(os.urandom(32), os.urandom(32), seq=1))
            assert await box.receive_refusal() == 4, "an old SYN"
        contents = [row["frame"] for row in running.records("publish")]
        assert contents == [b"once"]


async def test_a_connection_recorded_and_played_again_is_nobody(tmp_path: Path) -> None:
    """Replay a connection: the server's random and so the keys differ, and a live sid is useless without them."""
    async with magline_gateway(tmp_path) as running:
        async with await Box.connect(running, *BOX) as box:
            await box.ask(4, topic="@a", content="once")
        frames_in = await running.recorded("frame", 3, protocol="magline", direction="in")
        async with await Box.connect(running) as thief:
            thief.write(frames_in[0]["frame"])
            assert isinstance(await thief.receive(), frames.Ack)
            sealed = replace(frames.Req(1, bytes(range(16)), b"x" * 30, seq=2))
            thief.send(sealed)
            assert await thief.receive_refusal() == 3
        assert len(running.records("publish")) == 1


async def test_err_5_without_a_session(tmp_path: Path) -> None:
    async with magline_gateway(tmp_path) as running:
        async with await Box.connect(running) as box:
            box.send(frames.Req(2, bytes(16), b"{}", seq=1))
            assert await box.receive_refusal() == 5
        async with await Box.connect(running) as box:
            box.send(frames.Syn(os.urandom(32), os.urandom(32), os.urandom(16), seq=1))
            assert await box.receive_refusal() == 5
        async with await Box.connect(running, *BOX) as box:
            box.send(frames.Syn(os.urandom(32), os.urandom(32), os.urandom(16), seq=box.next_seq()))
            assert await box.receive_refusal() == 5, "not this connection's own"


async def test_err_6_not_logged_in(tmp_path: Path) -> None:
    async with magline_gateway(tmp_path) as running, await Box.connect(running) as box:
        await box.handshake()
        for business in (2, 3, 4, 6, 7, 17):
            assert await box.ask_for_error(business) == 6
        box.send(box.req(1, b'{"user":"box","token":"wrong"}'))
        assert await box.receive_refusal() == 6
        (row,) = await running.recorded("refuse", protocol="magline")
        assert row["note"]["reason"] == "wrong_token"


async def test_err_7_no_such_service(tmp_path: Path) -> None:
    async with logged_in_box(tmp_path) as (running, box):
        await running.assign(BOX[0], "admin")
        for business in (0, 5, 8, 15, 16, 17, 2**32 - 1):
            assert await box.ask_for_error(business, b"x") == 7
        assert await box.ask_for_error(7, b'{"serial":"m1","type":130}') == 7, "a device that never sent anything"


async def test_err_8_timeout(tmp_path: Path) -> None:
    async with (
        magline_gateway(tmp_path, "esnp", broker={"call_s": 0.05}) as running,
        await Station.connect(running.port("esnp"), *BOX) as provider,
        await Box.connect(running, *BOX) as box,
    ):
        await provider.ask_gateway("register", service="magline/17")
        assert await box.ask_for_error(17) == 8
    async with magline_gateway(tmp_path, magline={"login_s": 0.3}) as running, await Box.connect(running) as box:
        assert await box.receive_refusal() == 8, "no login in time"


async def test_err_9_too_large(tmp_path: Path) -> None:
    async with (
        magline_gateway(tmp_path, "esnp", magline={"message_bytes_max": 4096}) as running,
        await Station.connect(running.port("esnp"), *BOX) as provider,
        await Box.connect(running, *BOX) as box,
    ):
        await provider.ask_gateway("register", service="magline/17")
        box.send(box.req(17))
        request = await provider.receive_message()
        provider.answer(request, lines.payload_line(bytes(4096)))
        assert (await box.receive_err()).error_number == 9, "an answer; the connection goes on"
        box.write(box.req(17, bytes(4097)).encode()[:16])
        assert await box.receive_refusal() == 9, "refused when the head is read, before the body comes"
    async with magline_gateway(tmp_path) as running:
        for header, message in ((MAGLINE_HEADER_BYTES_MAX + 1, 0), (0, MAGLINE_MESSAGE_BYTES_MAX + 1)):
            async with await Box.connect(running, *BOX) as box:
                begin = frames.Pin(1, seq=9).encode()[:6]
                box.write(begin + header.to_bytes(2) + bytes(4) + message.to_bytes(4))
                assert await box.receive_refusal() == 9


async def test_err_10_busy(tmp_path: Path) -> None:
    async with (
        magline_gateway(tmp_path, "esnp") as running,
        await Station.connect(running.port("esnp"), *BOX) as provider,
        await Box.connect(running, *BOX) as box,
    ):
        await provider.ask_gateway("register", service="magline/17")
        box.send(*[box.req(17) for _ in range(MAGLINE_REQUESTS_OPEN_MAX)])
        last = box.req(17)
        box.send(last)
        err = await box.receive_err()
        assert (err.error_number, err.seq) == (10, last.seq)


async def test_a_services_own_failure_is_err_0(tmp_path: Path) -> None:
    async with magline_gateway(tmp_path, "esnp") as running:
        async with (
            await Station.connect(running.port("esnp"), *BOX) as provider,
            await Box.connect(running, *BOX) as box,
        ):
            await provider.ask_gateway("register", service="magline/17")
            box.send(box.req(17))
            request = await provider.receive_message()
            provider.answer(request, lines.error_line("no luck"))
            assert (await box.receive_err()).error_number == 0
            box.send(box.req(17))
            await provider.receive_message()
        # Provider and requester have disconnected: neither leaves anything behind.
        await until(lambda: not running.gateway.connections)
        assert running.gateway.broker.services.open == 0


async def test_fin_0_when_an_operator_ends_the_session(tmp_path: Path) -> None:
    async with calling(tmp_path, "magline", identities=[BOX]) as caller, await Box.connect(caller, *BOX) as box:
        (session,) = (await caller.call("GET", "/api/sessions")).json()["sessions"]
        assert (await caller.call("DELETE", f"/api/sessions/{session['id']}")).status_code == 204
        assert await box.receive_fin() == 0


async def test_fin_2_idle_unless_pinged(tmp_path: Path) -> None:
    async with logged_in_box(tmp_path, magline={"idle_s": 1.0}) as (_, box):
        for number in range(5):
            await asyncio.sleep(0.25)
            box.send(frames.Pin(number, seq=box.next_seq()))
            assert isinstance(await box.receive(), frames.Pon)
        assert await box.receive_fin() == 2


async def test_fin_3_when_the_seqs_are_used_up_and_the_session_goes_on_elsewhere(tmp_path: Path) -> None:
    async with logged_in_box(tmp_path) as (running, box):
        await box.ask(2, topics=["@a"])
        box.send(box.req(2, b"{}", seq=MAGLINE_SEQ_MAX))
        assert await box.receive_fin() == 3
        await running.recorded("close", protocol="magline")
        async with await Box.connect(running) as again:
            await again.handshake(box.sid, box.secret)
            await running.publish("@a", "on")
            assert (await again.receive_push())["content"] == "on"


async def test_fin_4_when_the_gateway_stops(tmp_path: Path) -> None:
    async with magline_gateway(tmp_path) as running:
        box = await Box.connect(running, *BOX)
    async with box:
        assert await box.receive_fin() == 4


async def test_a_frame_cut_short_is_never_served(tmp_path: Path) -> None:
    async with magline_gateway(tmp_path) as running:
        async with await Box.connect(running, *BOX) as box:
            wire = box.req(4, b'{"topic":"@a","content":"cut"}').encode()
            box.write(wire[:-1])
        (row,) = await running.recorded("quarantine", protocol="magline")
        assert (row["frame"], row["note"]["code"]) == (wire[:-1], "incomplete")
        async with await Box.connect(running, *BOX) as box:
            wire = box.req(4, b'{"topic":"@a","content":"cut"}').encode()
            box.write(wire[:-1] + box.req(2, b'{"topics":[]}').encode())
            assert await box.receive_refusal() == 3, "it took the next frame's first byte for its own last"
        assert running.records("publish") == []
