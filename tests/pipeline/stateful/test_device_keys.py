import pickle
import sqlite3
from pathlib import Path

from wirelake.pipeline.stateful.device_keys import read_device_keys


def test_without_a_state_there_are_no_keys(tmp_path: Path) -> None:
    assert read_device_keys(tmp_path / "state.db")("1234") is None


def test_keys_are_read_and_nothing_is_written(tmp_path: Path) -> None:
    state = tmp_path / "state.db"
    with sqlite3.connect(state) as database:
        database.execute("CREATE TABLE devices (serial TEXT PRIMARY KEY, key BLOB)")
        database.execute("INSERT INTO devices VALUES ('1234', x'0102'), ('keyless', NULL)")
    database.close()
    before = state.stat().st_mtime_ns
    keys = pickle.loads(pickle.dumps(read_device_keys(state)))  # noqa: S301 (our own bytes)
    assert (keys("1234"), keys("keyless"), keys("other")) == (b"\1\2", None, None)
    assert state.stat().st_mtime_ns == before
    assert repr(keys) == "DeviceKeys(1 devices)"  # a traceback shows no key
