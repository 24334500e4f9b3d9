"""Resuming a magline session requires a proof of its old keys: an intercepted sid is useless."""

import logging
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from gateway.certificates import make_certificate
from gateway.magline_client import BOX, Box, logged_in_box, magline_gateway
from gateway.running_gateway import HOST, Running
from wirelake.protocols.frame import Sender
from wirelake.protocols.magline import frames
from wirelake.protocols.magline.protocol import PROTOCOL
from wirelake.state.sessions import ResumableSession


@asynccontextmanager
async def lost_session(folder: Path, **settings: Any) -> AsyncIterator[tuple[Running, Box]]:
    """Make a session whose connection broke, with a notification that waits for it."""
    async with magline_gateway(folder, **settings) as running:
        async with await Box.connect(running, *BOX) as box:
            await box.ask(2, topics=["@a"])
        await running.recorded("close", protocol="magline")
        await running.publish("@a", "waited")
        yield running, box


async def refused(running: Running, syn: frames.Syn) -> None:
    """Check for ERR 5 and FIN, without a reason."""
    async with await Box.connect(running) as thief:
        thief.send(syn)
        err = await thief.receive_err()
        assert (err.business_cmd, err.error_number) == (0, 5)
        assert await thief.receive_fin() == 1


async def test_an_overheard_sid_does_not_take_a_live_session(tmp_path: Path) -> None:
    async with logged_in_box(tmp_path) as (running, box):
        await box.ask(2, topics=["@a"])
        guesses = [
            box.syn(box.sid),
            box.syn(box.sid, bytes(range(32))),
            replace(box.syn(box.sid, box.secret), header=b""),
            replace(box.syn(box.sid, box.secret), head_optional=0),
            replace(box.syn(box.sid, box.secret), client_public=box.syn().client_public),
            replace(box.syn(box.sid, box.secret), client_random=bytes(32)),
            box.syn(bytes(16), box.secret),
        ]
        for guess in guesses:
            await refused(running, replace(guess, seq=1))
        await running.publish("@a", "still mine")
        assert (await box.receive_push())["content"] == "still mine"
        assert await box.ask(2, topics=["@b"]) == {"ok": True}, "the live session was not touched"
        reasons = [row["note"]["reason"] for row in await running.recorded("refuse", len(guesses))]
        assert reasons == ["wrong_proof"] * 6 + ["unknown_session"]
        counted = running.gateway.counters.logins
        assert (counted["magline", "wrong_proof"], counted["magline", "unknown_session"]) == (6, 1)


async def test_an_overheard_sid_does_not_take_a_lost_session(tmp_path: Path) -> None:
    async with lost_session(tmp_path) as (running, box):
        for secret in (b"", bytes(32)):
            await refused(running, box.syn(box.sid, secret))
        async with await Box.connect(running) as again:
            await again.handshake(box.sid, box.secret)
            assert (await again.receive_push())["content"] == "waited", "its owner still can"
            assert again.sid != box.sid


async def test_a_syn_is_good_for_one_resume(tmp_path: Path) -> None:
    """Replay a genuine SYN: it resumes nothing, neither while the session lives nor after it was lost."""
    async with lost_session(tmp_path) as (running, box):
        async with await Box.connect(running) as again:
            syn = again.syn(box.sid, box.secret)
            again.send(syn)
            assert isinstance(await again.receive(), frames.Ack)
            await refused(running, syn)
            await refused(running, box.syn(box.sid, box.secret))
        await running.recorded("close", 4, protocol="magline")
        await refused(running, syn)


async def test_a_session_is_resumed_again_and_again_each_time_by_its_last_sid(tmp_path: Path) -> None:
    async with lost_session(tmp_path) as (running, box):
        last = box
        for closed in (2, 3):
            async with await Box.connect(running) as again:
                await again.handshake(last.sid, last.secret)
                assert (await again.receive_push())["content"] == "waited"
                await again.handshake(again.sid, again.secret)  # new keys: the stored session has them
            await running.recorded("close", closed, protocol="magline")
            last = again
        assert len(running.records("login")) == 3


async def test_a_session_is_resumed_across_a_restart(tmp_path: Path) -> None:
    async with lost_session(tmp_path) as (_, box):
        pass
    async with magline_gateway(tmp_path) as running:
        await refused(running, box.syn(box.sid))
        async with await Box.connect(running) as again:
            syn = again.syn(box.sid, box.secret)
            again.send(syn)
            assert isinstance(await again.receive(), frames.Ack)
    async with magline_gateway(tmp_path) as running:
        await refused(running, syn)


async def test_a_session_kept_by_the_version_before_has_no_proof(tmp_path: Path) -> None:
    for setting in ("never", "always"):
        async with magline_gateway(tmp_path, magline={"resume_without_proof": setting}) as running:
            until_ms = running.gateway.now_ms() + 60_000
            await running.gateway.state.sessions.save(ResumableSession(bytes(16), "magline", "box", until_ms, ()))
            async with await Box.connect(running) as old:
                await refused(running, old.syn(bytes(16), b"\0" * 32))
                old.send(old.syn(bytes(16)))
                assert isinstance(await old.receive(), frames.Ack if setting == "always" else frames.Err)


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    cert, key = make_certificate(tmp_path_factory.mktemp("tls"), HOST)
    return str(cert), str(key)


@pytest.mark.parametrize(
    ("setting", "over_tls", "resumes"),
    [
        ("never", False, False),
        ("never", True, False),
        ("tls", False, False),
        ("tls", True, True),
        ("always", False, True),
        ("always", True, True),
    ],
)
async def test_a_setting_lets_a_sid_be_enough(
    tmp_path: Path, certificate: tuple[str, str], setting: str, over_tls: bool, resumes: bool
) -> None:
    cert, key = certificate
    sections = {"tls": {"cert": cert, "key": key}} if over_tls else {}
    tls = ssl.create_default_context(cafile=cert) if over_tls else None
    magline = {"resume_without_proof": setting}
    async with (
        magline_gateway(tmp_path, magline=magline, **sections) as running,
        await Box.connect(running, *BOX, tls=tls) as box,
    ):
        await box.ask(2, topics=["@a"])
        async with await Box.connect(running, tls=tls) as wrong:
            wrong.send(wrong.syn(box.sid, bytes(32)))
            assert await wrong.receive_refusal() == 5, "a proof that is there must hold"
        async with await Box.connect(running, tls=tls) as other:
            other.send(other.syn(box.sid))
            if resumes:
                assert isinstance(await other.receive(), frames.Ack)
                assert await box.receive_fin() == 5
            else:
                assert await other.receive_refusal() == 5
                assert await box.ask(3, topics=["@a"]) == {"ok": True}


async def test_sids_are_nowhere_in_the_log(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    async with lost_session(tmp_path) as (running, box):
        await refused(running, box.syn(box.sid))
        async with await Box.connect(running) as again:
            await again.handshake(box.sid, box.secret)
            await again.receive_push()
            first = again.sid, again.secret
            await again.handshake(*first)
            sids = [box.sid, first[0], again.sid]
            secrets = [box.secret, first[1], again.secret]
        for cut, little in (
            (5, False),
            (5, True),
            (-3, False),
        ):  # connections that break inside a frame, and a bad length
            async with await Box.connect(running, little=little) as broken:
                wire = replace(broken.syn(box.sid, box.secret), little=little).encode()
                broken.write(wire[:-cut] if cut > 0 else wire[:12] + b"\0\0\0\x53" + wire[16:] + bytes(3))
        await running.recorded("close", 6, protocol="magline")
        records = running.records()
        assert len([row for row in records if row["event"] in ("quarantine", "fault")]) == 3
        for hidden in [*sids, *secrets, box.sid[:11]]:
            assert not [row for row in records if hidden in row["frame"] or hidden.hex() in str(row)]
            assert hidden.hex() not in caplog.text
        syns = [row["frame"] for row in records if row["event"] == "frame" and row["frame"][:4] == b"\x7f\1\0\1"]
        decoded = [PROTOCOL.decode(raw, Sender.CLIENT) for raw in syns]
        assert [(frame.sid, frame.proof is not None) for frame in decoded if isinstance(frame, frames.Syn)] == [
            (b"", False),
            (bytes(16), False),
            (bytes(16), True),
            (bytes(16), True),
        ]
