import time
from pathlib import Path

from cli.serving import WAIT_S, write_settings
from wirelake.cli.support.processes import ChildProcess


def test_it_runs_says_its_words_into_a_file_and_ends_when_told(tmp_path: Path) -> None:
    process = ChildProcess("serve", "--config", str(write_settings(tmp_path, "comet")), output=tmp_path / "said.txt")
    assert (process.is_running, process.stop(WAIT_S)) == (False, 0), "it was not started"
    process.start()
    until_s = time.monotonic() + WAIT_S
    while "Press Ctrl-C to stop" not in process.tail():
        assert process.is_running, process.tail()
        assert time.monotonic() < until_s
        time.sleep(0.02)
    assert process.stop(WAIT_S) == 0
    assert not process.is_running
    process.kill()


def test_one_that_fails_or_does_not_end_in_time(tmp_path: Path) -> None:
    wrong = ChildProcess(
        "serve", "--config", str(write_settings(tmp_path, text="[nonsense]\n")), output=tmp_path / "wrong.txt"
    )
    wrong.start()
    until_s = time.monotonic() + WAIT_S
    while wrong.is_running and time.monotonic() < until_s:
        time.sleep(0.02)
    assert wrong.stop(WAIT_S) == 1
    assert "nonsense" in wrong.tail()
    slow = ChildProcess("serve", "--config", str(write_settings(tmp_path, "comet")))
    slow.start()
    assert slow.stop(0.0) is None, "killed"
    assert not slow.is_running
