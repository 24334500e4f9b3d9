import pickle
import sqlite3
from pathlib import Path

import pytest

from wirelake.errors import InputError
from wirelake.key_source import state_key
from wirelake.pipeline.stateful.device_keys import DeviceKeys, read_device_keys
from wirelake.state.store import StateStore

WAIT_S = 30
KEYS = {"1234": bytes(range(16)), "5678": bytes(range(16, 32))}


def read(folder: Path, key: str = "") -> DeviceKeys:
    return read_device_keys(folder / "state.db", state_key(key, folder))


def test_without_a_state_there_are_no_keys(tmp_path: Path) -> None:
    assert read(tmp_path)("1234") is None


def test_keys_in_clear_text_are_read_and_nothing_is_written(tmp_path: Path) -> None:
    state = tmp_path / "state.db"
    with sqlite3.connect(state) as database:
        database.execute("CREATE TABLE devices (serial TEXT PRIMARY KEY, key BLOB)")
        database.execute("INSERT INTO devices VALUES ('1234', x'0102'), ('keyless', NULL)")
    database.close()
    before = state.stat().st_mtime_ns
    keys = pickle.loads(pickle.dumps(read(tmp_path)))  # noqa: S301 (our own bytes)
    assert (keys("1234"), keys("keyless"), keys("other")) == (b"\1\2", None, None)
    assert state.stat().st_mtime_ns == before
    assert repr(keys) == "DeviceKeys(1 devices)"  # a traceback shows no key


def test_encrypted_keys_are_read_while_a_gateway_changes_them(tmp_path: Path) -> None:
    store = StateStore(tmp_path / "state.db")
    assert read(tmp_path).by_serial == {}
    for serial, key in KEYS.items():
        store.devices.add(serial, 6, key, 1)
    store.devices.add("keyless", 6, None, 1).wait(WAIT_S)
    assert read(tmp_path).by_serial == KEYS
    store.devices.remove("5678")
    store.devices.remove("1234")
    store.devices.add("1234", 6, KEYS["5678"], 2).wait(WAIT_S)
    assert read(tmp_path).by_serial == {"1234": KEYS["5678"]}
    store.close()


def test_a_command_for_the_key_runs_once(tmp_path: Path) -> None:
    calls, script = tmp_path / "calls", tmp_path / "print_key"
    script.write_text(f"#!/bin/sh\necho called >> {calls}\necho {bytes(32).hex()}\n")
    script.chmod(0o700)
    store = StateStore(tmp_path / "state.db", key=state_key(f"command:{script}", tmp_path))
    store.devices.add("1234", 6, KEYS["1234"], 1).wait(WAIT_S)
    store.close()
    calls.unlink()
    for _ in range(3):
        assert read(tmp_path, f"command:{script}").by_serial == {"1234": KEYS["1234"]}
    assert calls.read_text().splitlines() == ["called"]


def test_another_key_is_an_error_that_names_the_setting(tmp_path: Path) -> None:
    store = StateStore(tmp_path / "state.db")
    store.devices.add("1234", 6, KEYS["1234"], 1).wait(WAIT_S)
    store.close()
    (tmp_path / "other.key").write_text(bytes(32).hex())
    with pytest.raises(InputError, match=r"state\.key = file:.*other\.key is another key"):
        read(tmp_path, f"file:{tmp_path / 'other.key'}")
