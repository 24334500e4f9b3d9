import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from wirelake.cli.commands.log import log as log_command
from wirelake.errors import InputError
from wirelake.log.segments.format import segment_path
from wirelake.log.segments.log import SegmentLog
from wirelake.log.segments.settings import LogSettings

AT_US = 1_900_000_000_000_000  # 2030-03-17 17:46:40 UTC


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Write a hundred records, one per second, of two protocols and five sessions."""
    log = SegmentLog(tmp_path / "log", LogSettings(segment_bytes=16 * 1024))
    for seq in range(100):
        protocol = "comet" if seq % 4 else "esnp"
        at_us = AT_US + seq * 1_000_000
        frame = bytes(range(seq))
        log.append(at_us, protocol, "frame", "in", f"s{seq % 5}", "anna", "10.0.0.1:9", frame, f"n{seq}").wait(10)
    log.commit_offset("pipeline", 60)
    log.close()
    return tmp_path


def run(data: Path, *words: str) -> Result:
    return CliRunner().invoke(log_command, [words[0], "--data", str(data), *words[1:]])


def seqs(result: Result) -> list[int]:
    assert result.exit_code == 0, result.output
    return [json.loads(line)["seq"] for line in result.stdout.splitlines()]


def test_cat_prints_a_line_for_each_record(data: Path) -> None:
    lines = run(data, "cat").stdout.splitlines()
    assert len(lines) == 100
    assert lines[3].split() == [
        "3", "2030-03-17", "17:46:43.000000", "comet", "in", "frame", "s3", "anna", "10.0.0.1:9",
        "3", "B", "00", "01", "02", "n3",
    ]  # fmt: skip
    assert "0f…" in lines[50]
    assert "…" not in run(data, "cat", "--full").stdout


def test_cat_json_has_every_field_and_the_whole_frame(data: Path) -> None:
    last = json.loads(run(data, "cat", "--json").stdout.splitlines()[-1])
    assert last == {
        "seq": 99, "at": "2030-03-17T17:48:19Z", "node": "local", "protocol": "comet", "event": "frame",
        "direction": "in", "session": "s4", "identity": "anna", "peer": "10.0.0.1:9",
        "frame": bytes(range(99)).hex(), "note": "n99",
    }  # fmt: skip


def test_cat_filters(data: Path) -> None:
    assert seqs(run(data, "cat", "--json", "--protocol", "esnp")) == list(range(0, 100, 4))
    assert seqs(run(data, "cat", "--json", "--session", "s1", "--limit", "3")) == [1, 6, 11]
    since = ("--since", "2030-03-17T17:47:00", "--until", "2030-03-17T18:47:05+01:00")
    assert seqs(run(data, "cat", "--json", *since)) == list(range(20, 25))
    assert seqs(run(data, "cat", "--json", "--until", "2h")) == []
    assert seqs(run(data, "cat", "--json", "--protocol", "comet", "--session", "s0", "--limit", "2")) == [5, 10]
    assert seqs(run(data, "cat", "--json", "--identity", "anna", "--session", "s1", *since)) == [21]
    assert seqs(run(data, "cat", "--json", "--identity", "nobody")) == []
    assert seqs(run(data, "cat", "--json", "--session", "s1", "--identity", "nobody")) == []


def test_missing_indexes_are_built_and_change_nothing(data: Path) -> None:
    for path in (data / "log").glob("*.idx"):
        path.unlink()
    without = seqs(run(data, "cat", "--json", "--session", "s3"))
    assert run(data, "index").stdout.startswith("9 indexes, 0.0 MB")
    assert len(list((data / "log").glob("*.idx"))) == 9
    assert seqs(run(data, "cat", "--json", "--session", "s3")) == without == list(range(3, 100, 5))
    assert seqs(run(data, "tail", "--json", "--session", "s3", "-n", "3")) == [88, 93, 98]
    assert seqs(run(data, "tail", "--json", "--identity", "anna", "-n", "2")) == [98, 99]
    assert seqs(run(data, "tail", "--json", "--session", "s3", "-n", "0")) == []


def test_a_time_that_is_none_is_an_error_in_words(data: Path) -> None:
    result = run(data, "cat", "--since", "yesterday")
    assert result.exit_code == 2
    assert "is not a time" in result.stderr


def test_tail_prints_the_last_ones(data: Path) -> None:
    assert seqs(run(data, "tail", "--json")) == list(range(90, 100))
    assert seqs(run(data, "tail", "--json", "-n", "3", "--protocol", "esnp")) == [88, 92, 96]
    assert seqs(run(data, "tail", "--json", "-n", "0")) == []
    assert len(seqs(run(data, "tail", "--json", "-n", "1000"))) == 100


def test_tail_follows_a_living_log(data: Path) -> None:
    code = "import sys; from wirelake.cli.commands.log import log; log(sys.argv[1:])"
    words = ["tail", "--data", str(data), "--json", "-f", "-n", "1"]
    process = subprocess.Popen(
        [sys.executable, "-c", code, *words], stdout=subprocess.PIPE, env=os.environ | {"PYTHONUNBUFFERED": "1"}
    )
    assert process.stdout is not None
    assert json.loads(process.stdout.readline())["seq"] == 99
    log = SegmentLog(data / "log")
    for note in ("a", "b", "c"):
        log.append(AT_US, "redis", "frame", "in", "s", "i", "p", b"", note).wait(10)
        assert json.loads(process.stdout.readline())["note"] == note
    log.close()
    process.send_signal(signal.SIGINT)
    process.stdout.close()
    assert process.wait(10) == 1  # click's word for Ctrl-C


def test_verify_is_content_with_a_whole_log(data: Path) -> None:
    result = run(data, "verify")
    assert result.exit_code == 0
    assert "100 blocks, 100 records" in result.stdout
    assert "no damage" in result.stdout


def test_verify_names_the_damaged_place(data: Path) -> None:
    path = segment_path(data / "log", 0)
    content = bytearray(path.read_bytes())
    content[2000] ^= 4
    path.write_bytes(content)
    result = run(data, "verify")
    assert result.exit_code == 1
    assert f"damaged: {path.name} at byte 1" in result.stderr
    assert "records 1 to 1 are lost" in result.stderr
    skipped = run(data, "cat", "--json")
    assert seqs(skipped) == [0, *range(2, 100)]
    assert "skipped: damaged" in skipped.stderr


def test_verify_misses_a_segment_that_is_not_there(data: Path) -> None:
    middle = sorted((data / "log").glob("*.seg"))[2]
    middle.unlink()
    result = run(data, "verify")
    assert result.exit_code == 1
    assert f"records {int(middle.stem)} to" in result.stderr


def test_stats_in_words_and_as_json(data: Path) -> None:
    text = run(data, "stats").stdout
    assert "records     100, from 0 to before 100" in text
    assert "2030-03-17 17:46:40 to 2030-03-17 17:48:19 UTC" in text
    assert "pipeline" in text
    found = json.loads(run(data, "stats", "--json").stdout)
    assert found["consumers"]["pipeline"]["behind_rows"] == 40
    assert found["next_seq"] == 100
    assert found["rates"]["minute"]["rows_s"] == pytest.approx(61 / 60)
    assert found["rates"]["hour"]["rows_s"] == pytest.approx(100 / 3600)
    assert found["bytes"] == sum(path.stat().st_size for path in (data / "log").glob("*.seg"))


def test_an_empty_log_and_no_log(tmp_path: Path) -> None:
    SegmentLog(tmp_path / "log").close()
    assert run(tmp_path, "cat").stdout == ""
    assert run(tmp_path, "verify").exit_code == 0
    assert json.loads(run(tmp_path, "stats", "--json").stdout)["newest_at_us"] is None
    nothing = run(tmp_path / "elsewhere", "stats")
    assert isinstance(nothing.exception, InputError)


def test_records_under_an_earlier_name_of_the_protocol_are_included(tmp_path: Path) -> None:
    log = SegmentLog(tmp_path / "log")
    for protocol in ("resp", "comet", "redis", "uninstalled"):
        log.append(AT_US, protocol, "frame", "in", "s", "i", "p", b"", "").wait(10)
    log.close()
    for name in ("redis", "resp"):
        assert seqs(run(tmp_path, "cat", "--json", "--protocol", name)) == [0, 2]
        assert seqs(run(tmp_path, "tail", "--json", "--protocol", name)) == [0, 2]
    assert seqs(run(tmp_path, "cat", "--json", "--protocol", "comet")) == [1]
    assert seqs(run(tmp_path, "cat", "--json", "--protocol", "uninstalled")) == [3]


@pytest.mark.parametrize("words", [("tail",), ("tail", "--follow"), ("cat",)])
def test_a_protocol_that_nobody_knows_is_an_error_and_no_empty_answer(data: Path, words: tuple[str, ...]) -> None:
    result = run(data, *words, "--protocol", "reddis")
    assert isinstance(result.exception, InputError)
    assert "no protocol is called 'reddis'" in str(result.exception)
    assert "did you mean redis?" in str(result.exception)
    assert run(data, "cat", "--protocol", "magline").exit_code == 0, "known, and there is nothing of it"
    assert run(data, "cat", "--protocol", "http").exit_code == 0
