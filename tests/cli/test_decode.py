import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from wirelake.cli.main import wirelake

LENGTH_NOTE = "type and body, without these two bytes"
SUBSCRIBE = "000c030200024061000440622f63"


def run(*words: str, stdin: str | bytes | None = None) -> Result:
    return CliRunner().invoke(wirelake, ["decode", *words], input=stdin)


def test_a_tree_with_offsets_names_and_values() -> None:
    result = run("comet", SUBSCRIBE)
    assert result.exit_code == 0
    lines = result.output.splitlines()
    assert lines[0] == "comet subscribe  14 bytes from the client"
    assert lines[1].split() == ["000000", "00", "0c", "length", "12", *LENGTH_NOTE.split()]
    assert lines[2].split() == ["000002", "03", "type", "3", "subscribe"]
    assert lines[5].split() == ["000006", "40", "61", "topic", "0", "@a"]


def test_offsets_count_through_several_frames() -> None:
    result = run("comet", "000106", "000106")
    assert [line.split()[0] for line in result.output.splitlines()] == [
        "comet", "000000", "000002", "comet", "000003", "000005",
    ]  # fmt: skip


def test_json() -> None:
    result = run("comet", "--json", SUBSCRIBE)
    found = json.loads(result.output)
    assert found["error"] is None
    assert found["from"] == "client"
    (frame,) = found["frames"]
    assert (frame["name"], frame["offset"], frame["size"]) == ("comet subscribe", 0, 14)
    assert frame["children"][4] == {"name": "topic 0", "offset": 6, "size": 2, "value": "@a"}


def test_the_other_side_reads_the_same_type_otherwise() -> None:
    assert "comet topic_list" in run("comet", "--from", "server", SUBSCRIBE).output


def test_a_bad_frame_shows_what_was_read_then_the_place() -> None:
    result = run("comet", "000106", "00060301000240ff", "000106")
    assert result.exit_code == 1
    assert "comet: byte 10: text is not UTF-8" in result.stderr
    assert "comet heartbeat" in result.stdout.splitlines()[-3], "frames after the bad one are shown too"
    assert any("✗ text is not UTF-8" in line and line.startswith("00000a") for line in result.stdout.splitlines())


def test_bytes_that_end_inside_a_frame() -> None:
    result = run("comet", "--json", "000106 0005")
    assert result.exit_code == 1
    found = json.loads(result.output)
    assert found["rest"] == "0005"
    assert found["error"]["code"] == "incomplete"
    assert found["error"]["offset"] == 5
    assert "2 bytes of an incomplete frame" in run("comet", "000106 0005").output


@pytest.mark.parametrize("text", ["00:01:06", "0x00 0x01 0x06", r"\x00\x01\x06", "00,01,06", " 00 01\n06 ", "00-01-06"])
def test_hex_as_people_paste_it(text: str) -> None:
    assert "heartbeat" in run("comet", "-", stdin=text).output
    assert "heartbeat" in run("comet", "--", text).output


def test_raw_bytes_on_standard_input() -> None:
    assert "heartbeat" in run("comet", "--raw", "-", stdin=b"\x00\x01\x06").output


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("comet", "00zz"), "'z' (character 3) is not a hex digit"),
        (("comet", "000"), "3 hex digits are not a whole number of bytes"),
        (("cornet", "00"), "did you mean comet?"),
        (("comet", "--raw", "00"), "--raw reads bytes from standard input"),
    ],
)
def test_a_users_mistake_is_told_in_a_sentence(words: tuple[str, ...], message: str) -> None:
    program = Path(sys.executable).parent / "wirelake"
    done = subprocess.run([program, "decode", *words], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith("wirelake: ")
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_output_into_a_closed_pipe_is_quiet() -> None:
    program = Path(sys.executable).parent / "wirelake"
    with subprocess.Popen(
        [program, "decode", "comet", "000106" * 20_000], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        assert "Traceback" not in process.stderr.read()


def test_nothing_and_what_is_no_hex() -> None:
    assert str(run("comet", "").exception) == "no bytes given"
    assert str(run("comet", "-", stdin=b"").exception) == "no bytes given"
    error = str(run("comet", "-", stdin=b"00\x07").exception)
    assert error == r"'\x07' (character 3) is not a hex digit; if standard input has raw bytes, use --raw"


def test_a_malformed_part_of_a_good_frame_exits_1_and_names_the_byte() -> None:
    result = run("esnp", "1500000302ff0500000000")
    assert result.exit_code == 1
    assert "wirelake: esnp: byte 5: text is not UTF-8" in result.stderr
