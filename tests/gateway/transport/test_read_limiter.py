"""The read limiter answers every frame of a flood, and serves the other connections meanwhile."""

import asyncio
from pathlib import Path

import pytest

from gateway.certificates import make_certificate, unverified_context
from gateway.comet_client import Phone
from gateway.running_gateway import HOST, WAIT_S, running_gateway
from wirelake.protocols.comet import frames

BEATS = 300_000
PATIENT = {"login_s": 10 * WAIT_S}  # nobody logs in, and the machine may be slow
OPEN = {"open": True}  # before the login, a flood is read more slowly still: see test_log_quota.py


@pytest.mark.parametrize("secure", [False, True])
async def test_every_frame_of_a_flood_is_answered(tmp_path: Path, secure: bool) -> None:
    """Read more slowly, and drop nothing, if frames arrive faster than the log can append them."""
    tls = {}
    if secure:
        cert, key = make_certificate(tmp_path / "tls", "gateway")
        tls = {"cert": str(cert), "key": str(key)}
    async with running_gateway(tmp_path, "comet", tls=tls, comet=PATIENT, auth=OPEN) as running:
        context = unverified_context() if secure else None
        reader, writer = await asyncio.open_connection(HOST, running.port("comet"), ssl=context)
        writer.write(frames.Heartbeat().encode() * BEATS)
        async with asyncio.timeout(4 * WAIT_S):
            assert await reader.readexactly(3 * BEATS) == frames.Ok().encode() * BEATS
        writer.close()


async def test_others_have_their_turn_during_a_flood(tmp_path: Path) -> None:
    async with (
        running_gateway(tmp_path, "comet", comet=PATIENT, auth=OPEN) as running,
        await Phone.connect(running.port("comet")) as other,
    ):
        reader, writer = await asyncio.open_connection(HOST, running.port("comet"))
        writer.write(frames.Heartbeat().encode() * BEATS)
        await reader.readexactly(3)
        assert await other.ask(frames.Heartbeat()) == frames.Ok()
        received = running.gateway.counters.frames_in["comet"]
        assert received < BEATS, "it did not have to wait until the flood was over"
        writer.close()
