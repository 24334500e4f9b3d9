import os
import signal
import time
from pathlib import Path

import pytest

from cli.serving import WAIT_S, serving, wirelake, write_settings
from wirelake.cli.support.processes import PidFile, ReloadOutcome, gateway_pid, read_reload_outcome
from wirelake.errors import InUseError


def test_what_changed_and_what_takes_a_restart_is_said(tmp_path: Path) -> None:
    with serving(tmp_path, "comet", text="[limits]\nconnections = 100\n") as running:
        assert running.run("reload").stdout == "No setting has changed.\n"
        settings = running.settings.read_text()
        changed = settings.replace("connections = 100", "connections = 5").replace(
            'http = "off"', 'http = "127.0.0.1:1"'
        )
        running.settings.write_text(changed)
        result = running.run("reload", "--data", str(tmp_path / "data"))
        assert result.returncode == 0
        assert result.stdout.splitlines() == [
            "applied: limits.connections: 100 → 5",
            "needs a restart: listen.http: off → 127.0.0.1:1",
        ]
        running.settings.write_text(changed.replace("connections = 5", "conections = 5"))
        # The command reads the settings too, to find the data folder: it is given that instead.
        result = wirelake("reload", "--data", str(tmp_path / "data"))
        assert result.returncode == 1
        assert "Nothing was changed: settings: " in result.stdout
        assert "conections" in result.stdout
        assert running.end() == 0
        assert "reload: applied: limits.connections: 100 → 5" in running.errors
        assert "reload: needs a restart: listen.http" in running.errors
        assert "reload: Nothing was changed" in running.errors


def test_the_signal_alone_does_the_same(tmp_path: Path) -> None:
    with serving(tmp_path, "comet") as running:
        running.settings.write_text(running.settings.read_text() + "[comet]\nidle_s = 7\n")
        running.process.send_signal(signal.SIGHUP)
        until_s = time.monotonic() + WAIT_S
        while not read_reload_outcome(tmp_path / "data", running.process.pid).count:
            assert time.monotonic() < until_s
            time.sleep(0.02)
        assert running.run("reload").stdout == "No setting has changed.\n", "it was applied by the signal before"
        assert running.end() == 0
        assert "reload: applied: comet.idle_s: 120.0 → 7.0" in running.errors


def test_without_a_gateway_it_says_so_and_touches_no_process(tmp_path: Path) -> None:
    settings = write_settings(tmp_path)
    for content in (None, str(os.getpid())):
        if content is not None:
            (tmp_path / "data").mkdir()
            (tmp_path / "data" / "gateway.pid").write_text(content)  # of a gateway that was killed; a number used again
        result = wirelake("reload", "--config", str(settings))
        assert result.returncode == 1
        assert result.stderr == f"wirelake: no gateway is running on the data folder {tmp_path / 'data'}\n"


def test_the_pid_file_is_held_by_one(tmp_path: Path) -> None:
    assert gateway_pid(tmp_path / "nowhere") is None
    held = PidFile(tmp_path)
    assert gateway_pid(tmp_path) == os.getpid()
    with pytest.raises(InUseError, match=f"process {os.getpid()}"):
        PidFile(tmp_path)
    held.release()
    assert gateway_pid(tmp_path) is None
    PidFile(tmp_path).release()


def test_an_outcome_in_sentences() -> None:
    assert ReloadOutcome(1, 1, tls=True).sentences() == ["applied: certificate and key reloaded"]
    assert ReloadOutcome(1, 1, applied=["a"], error="no").sentences() == ["Nothing was changed: no"]
