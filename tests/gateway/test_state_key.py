"""The gateway encrypts secrets in its state, and does not start without their key."""

import os
import secrets
from pathlib import Path

import pytest

from gateway.magline_client import BOX, Box, magline_gateway
from gateway.running_gateway import running_gateway
from gateway.test_secrets import assert_no_file_has
from wirelake.errors import InputError

KEY = secrets.token_bytes(16)
STATE_KEY = secrets.token_bytes(32)


async def test_no_file_has_a_device_key_or_a_resume_secret(tmp_path: Path) -> None:
    async with magline_gateway(tmp_path) as running:
        await running.add_device("meter", 6, KEY)
        async with await Box.connect(running, *BOX) as box:
            sid, secret = box.sid, box.secret
        await running.recorded("close", protocol="magline")
        await running.gateway.state.barrier()
        assert (stored := running.gateway.state.sessions.find(sid, 0)) is not None
        assert stored.resume_secret == secret
        assert (tmp_path / "data" / "state.db-wal").stat().st_size
        assert_no_file_has(tmp_path / "data", KEY, secret)
    assert_no_file_has(tmp_path / "data", KEY, secret)
    async with magline_gateway(tmp_path) as running:
        device = running.gateway.state.devices.find("meter")
        assert device is not None
        assert device.key == KEY
        async with await Box.connect(running) as box:
            await box.handshake(sid, secret)
        assert_no_file_has(tmp_path / "data", KEY, secret)


@pytest.mark.parametrize("kind", ["file", "env", "command"])
async def test_the_key_is_where_the_setting_says(tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "outside.key").write_text(STATE_KEY.hex())
    monkeypatch.setenv("OUTSIDE_KEY", STATE_KEY.hex())
    file = tmp_path / "outside.key"
    key = {"file": f"file:{file}", "env": "env:OUTSIDE_KEY", "command": f"command:cat {file}"}[kind]
    for _ in range(2):
        async with running_gateway(tmp_path, devices=[("meter", 6, KEY)], state={"key": key}) as running:
            device = running.gateway.state.devices.find("meter")
            assert device is not None
            assert device.key == KEY
    assert not (tmp_path / "data" / "keys" / "state.key").exists()
    assert_no_file_has(tmp_path / "data", KEY, STATE_KEY)


async def test_the_gateway_does_not_start_without_the_key(tmp_path: Path) -> None:
    async with running_gateway(tmp_path, devices=[("meter", 6, KEY)]):
        pass
    key = tmp_path / "data" / "keys" / "state.key"
    content = key.read_bytes()
    key.unlink()
    with pytest.raises(InputError, match=r"state\.key is missing, and the device keys .* Restore it"):
        async with running_gateway(tmp_path):
            pass
    assert not key.exists()
    key.write_text(os.urandom(32).hex())
    with pytest.raises(InputError, match=r"state\.key = file:.* is another key"):
        async with running_gateway(tmp_path, accept_loss=True):
            pass
    key.write_bytes(content)
    async with running_gateway(tmp_path) as running:
        assert running.gateway.state.devices.find("meter") is not None
