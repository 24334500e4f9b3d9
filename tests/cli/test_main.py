import signal
import subprocess
import sys
from pathlib import Path

from cli.serving import WAIT_S, clean_environment, wirelake
from wirelake.log.segments.log import SegmentLog


def a_log(data: Path) -> Path:
    log = SegmentLog(data / "log")
    log.append(1, "comet", "frame", "in", "s", "anna", "10.0.0.1:9", b"\x00", "").wait(WAIT_S)
    log.close()
    return data


def test_a_full_disk_behind_the_output_is_told_in_one_sentence(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "wirelake.cli.main", "log", "cat", "--data", str(a_log(tmp_path))]
    with open("/dev/full", "wb") as full:  # noqa: PTH123 (a device)
        done = subprocess.run(words, stdout=full, stderr=subprocess.PIPE, text=True, check=False, timeout=WAIT_S)
    assert (done.returncode, done.stderr) == (1, "wirelake: No space left on device\n")


def test_ctrl_c_ends_a_command_without_a_word(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "wirelake.cli.main", "log", "tail", "--follow", "--data", str(a_log(tmp_path))]
    pipe = subprocess.PIPE
    with subprocess.Popen(words, stdout=pipe, stderr=pipe, text=True, env=clean_environment()) as process:
        assert process.stdout is not None
        assert "comet" in process.stdout.readline()
        process.send_signal(signal.SIGINT)
        assert process.communicate(timeout=WAIT_S) == ("", "")
    assert process.returncode == 130


def test_a_folder_that_is_not_there_is_not_made_by_a_question(tmp_path: Path) -> None:
    missing = tmp_path / "typo"
    for words in (["identity", "list"], ["device", "list"], ["identity", "remove", "x"], ["log", "tail"]):
        done = wirelake(*words, "--data", str(missing))
        assert (done.returncode, done.stdout) == (1, "")
        assert str(missing) in done.stderr
        assert done.stderr.count("\n") == 1
    assert not missing.exists()
    assert wirelake("device", "add", "m1", "--data", str(missing)).returncode == 0
    assert missing.stat().st_mode & 0o777 == 0o700, "tokens of logins will be in there"
