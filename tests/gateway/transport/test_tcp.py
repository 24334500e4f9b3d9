"""The settings of a listener: time to log in, idle time, the longest frame."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosedError

from gateway.running_gateway import HOST, WAIT_S, running_gateway
from gateway.sisnet_client import WebTerminal
from wirelake.errors import InputError
from wirelake.protocols.redis.frames import Command
from wirelake.protocols.sisnet.envelope import sized

SECTIONS = {"esnp": "esnp", "sisnet_tcp": "sisnet", "redis": "redis"}
PROTOCOLS = {"esnp": "esnp", "sisnet_tcp": "sisnet", "redis": "redis"}
OPEN: dict[str, Any] = {"auth": {"open": True}}


async def close_reason(folder: Path, listener: str, sent: bytes, **settings: Any) -> tuple[str, list[str]]:
    """Send only this; return why the connection was closed, and the codes of its quarantined frames."""
    async with running_gateway(folder, listener, **settings) as running:
        reader, writer = await asyncio.open_connection(HOST, running.port(listener))
        writer.write(sent)
        async with asyncio.timeout(WAIT_S):
            await reader.read()
        writer.close()
        (row,) = await running.recorded("close", protocol=PROTOCOLS[listener])
        return row["note"]["reason"], [each["note"]["code"] for each in running.records("quarantine")]


@pytest.mark.parametrize("listener", SECTIONS)
async def test_no_login_in_time(tmp_path: Path, listener: str) -> None:
    why, _ = await close_reason(tmp_path, listener, b"", **{SECTIONS[listener]: {"login_s": 0.05}})
    assert why == "login_timeout"


@pytest.mark.parametrize("listener", SECTIONS)
async def test_silence(tmp_path: Path, listener: str) -> None:
    why, _ = await close_reason(tmp_path, listener, b"", **OPEN, **{SECTIONS[listener]: {"idle_s": 0.05}})
    assert why == "idle"


async def test_the_longest_redis_command(tmp_path: Path) -> None:
    sent = Command((b"SET", b"k", bytes(2000))).encode()
    why, codes = await close_reason(tmp_path, "redis", sent, **OPEN, redis={"frame_bytes_max": 1000})
    assert (why, codes) == ("resp_frame_bytes_max", ["resp_frame_bytes_max"])


async def test_the_longest_sisnet_message(tmp_path: Path) -> None:
    settings: dict[str, Any] = {**OPEN, "sisnet": {"message_bytes_max": 1000}}
    why, codes = await close_reason(tmp_path, "sisnet_tcp", sized(bytes(2000)), **settings)
    assert (why, codes) == ("sisnet_message_bytes_max", ["sisnet_message_bytes_max"])

    async def over_websocket() -> None:
        async with running_gateway(tmp_path, "sisnet", **settings) as running:
            terminal = await WebTerminal.connect(running.port("sisnet"))
            assert await terminal.ask("a", command="ping", ask={"x": "x" * 900}) == {"ans": 0}
            await terminal.send("a:" + "x" * 2000)
            with pytest.raises(ConnectionClosedError) as raised:
                await terminal.receive()
            assert raised.value.rcvd is not None
            assert raised.value.rcvd.code == 1009

    await over_websocket()


@pytest.mark.parametrize("protocol", ["comet", "magline"])
async def test_a_key_is_made_at_the_start_and_a_bad_one_refuses_it(tmp_path: Path, protocol: str) -> None:
    key = tmp_path / "data" / "keys" / f"{protocol}.pem"
    async with running_gateway(tmp_path, protocol):
        assert key.stat().st_size
    key.write_text("no key")
    with pytest.raises(InputError, match=f"{protocol}.pem"):
        async with running_gateway(tmp_path, protocol):
            raise AssertionError("it started")
