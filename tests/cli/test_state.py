"""Test `state rekey`."""

from pathlib import Path

import pytest

from cli.serving import serving, wirelake, write_settings
from wirelake.key_source import state_key
from wirelake.state.store import StateStore

KEY = bytes(range(16))


@pytest.fixture
def settings(tmp_path: Path) -> Path:
    """Write settings for a data folder that has a device with a key."""
    settings = write_settings(tmp_path)
    added = wirelake("device", "add", "1234", "--key", KEY.hex(), "--config", str(settings))
    assert added.returncode == 0, added.stderr
    return settings


def stored_key(folder: Path, key: str) -> bytes | None:
    store = StateStore(folder / "data" / "state.db", key=state_key(key, folder / "data"))
    device = store.devices.find("1234")
    store.close()
    assert device is not None
    return device.key


def test_the_key_moves_out_of_the_data_folder(settings: Path, tmp_path: Path) -> None:
    new = f"file:{tmp_path / 'state.key'}"
    done = wirelake("state", "rekey", new, "--config", str(settings))
    assert done.returncode == 0, done.stderr
    assert done.stderr.splitlines() == [
        f"Encrypted 1 device key and 0 session secrets with the key from {new}.",
        f'Now set key = "{new}" in [state] of the settings, then start the gateway.',
    ]
    assert stored_key(tmp_path, new) == KEY
    refused = wirelake("device", "list", "--config", str(settings))
    assert refused.returncode == 1
    assert "is another key" in refused.stderr
    settings.write_text(f'{settings.read_text()}\n[state]\nkey = "{new}"\n')
    assert "1234" in wirelake("device", "list", "--config", str(settings)).stdout
    (tmp_path / "data" / "keys" / "state.key").unlink()
    assert "1234" in wirelake("device", "list", "--config", str(settings)).stdout


def test_devices_are_removed_if_their_key_is_lost(settings: Path, tmp_path: Path) -> None:
    file = tmp_path / "data" / "keys" / "state.key"
    file.unlink()
    done = wirelake("state", "rekey", f"file:{file}", "--config", str(settings))
    assert done.returncode == 1
    assert "state.key is missing" in done.stderr
    done = wirelake("state", "rekey", f"file:{file}", "--discard", "--config", str(settings))
    assert done.returncode == 0, done.stderr
    assert done.stderr.splitlines() == [
        "Removed device 1234: its key could not be decrypted. Add it again.",
        f"Encrypted 0 device keys and 0 session secrets with the key from file:{file}.",
    ]
    assert wirelake("device", "list", "--config", str(settings)).stdout == "No devices registered yet.\n"


@pytest.mark.parametrize(
    ("source", "named"), [("0123", "SOURCE must be file:PATH"), ("env:NO_KEY", "SOURCE = env:NO_KEY")]
)
def test_a_source_without_a_key_is_refused(settings: Path, tmp_path: Path, source: str, named: str) -> None:
    done = wirelake("state", "rekey", source, "--config", str(settings))
    assert done.returncode == 1
    assert done.stderr.startswith(f"wirelake: {named}")
    assert stored_key(tmp_path, "") == KEY


def test_the_gateway_must_be_stopped(tmp_path: Path) -> None:
    with serving(tmp_path) as running:
        done = running.run("state", "rekey", f"file:{tmp_path / 'state.key'}")
        assert done.returncode == 1
        assert "stop the gateway" in done.stderr
        assert not (tmp_path / "state.key").exists()
