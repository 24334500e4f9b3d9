"""`wirelake import pcap` on the command line."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from pcap_writer import TcpConversation, capture_file

from wirelake.cli.main import wirelake
from wirelake.cli.support import dependencies
from wirelake.errors import InputError, UnknownProtocolError
from wirelake.protocols.comet import frames as comet
from wirelake.protocols.frame import Sender


@pytest.fixture
def capture(tmp_path: Path) -> Path:
    known, unknown = TcpConversation(server=("10.0.0.1", 7334)), TcpConversation(server=("10.0.0.1", 4711))
    for talk, data in ((known, comet.Heartbeat().encode() * 3), (unknown, b"\xc0\xff\xee" * 10)):
        talk.open()
        talk.send(Sender.CLIENT, data)
        talk.close()
    file = tmp_path / "sample.pcap"
    file.write_bytes(capture_file(known.packets + unknown.packets))
    return file


def run(*words: str) -> str:
    result = CliRunner().invoke(wirelake, words, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def test_the_report_says_what_was_imported_and_what_was_not(capture: Path, tmp_path: Path) -> None:
    lines = run("import", "pcap", str(capture), "--data", str(tmp_path / "data")).splitlines()
    assert lines[0].startswith("16 packets, captured from 2023-11-14T22:13:20.000Z to ")
    assert lines[2].split() == ["comet", "1", "3", "0", "0", "0"]
    assert lines[3].startswith("session ids begin with import")
    assert lines[4] == "left out: 1 connection"
    assert lines[5] == (
        "  tcp 10.0.0.2:50000 to 10.0.0.1:4711: unknown protocol; 30 bytes, which begin "
        "c0ffeec0ffeec0ffeec0ffeec0ffeec0"
    )


def test_the_report_is_json_on_request(capture: Path, tmp_path: Path) -> None:
    report = json.loads(run("import", "pcap", str(capture), "--json", "--data", str(tmp_path / "data")))
    assert report["protocols"]["comet"]["frames_in"] == 3
    assert report["left_out"][0]["reason"] == "unknown protocol"
    assert report["file"] == "sample.pcap"


def test_the_log_is_searched_by_the_times_of_the_capture(capture: Path, tmp_path: Path) -> None:
    data = ("--data", str(tmp_path / "data"))
    run("import", "pcap", str(capture), *data)
    inside = run("log", "cat", "--since", "2023-11-14", "--until", "2023-11-15", "--json", *data)
    assert [json.loads(line)["event"] for line in inside.splitlines()] == ["open", "frame", "frame", "frame", "close"]
    assert [json.loads(line)["event"] for line in run("log", "cat", "--since", "1h", "--json", *data).splitlines()] == [
        "counters",
        "counters",
    ]
    assert json.loads(run("log", "stats", "--json", *data))["next_seq"] == 7


def test_an_imported_session_can_be_traced(capture: Path, tmp_path: Path) -> None:
    data = ("--data", str(tmp_path / "data"))
    prefix = json.loads(run("import", "pcap", str(capture), "--json", *data))["session_prefix"]
    found = json.loads(run("trace", f"{prefix}-1", "--json", *data))
    assert [event["what"] for event in found["timeline"]] == ["open", "frame", "frame", "frame", "close"]


def test_a_protocol_that_is_not_installed_is_refused_before_anything_is_written(capture: Path, tmp_path: Path) -> None:
    words = ["import", "pcap", str(capture), "--protocol", "comt", "--data", str(tmp_path / "data")]
    with pytest.raises(UnknownProtocolError, match="did you mean comet"):
        CliRunner().invoke(wirelake, words, catch_exceptions=False)
    assert not (tmp_path / "data").exists()


def test_without_the_package_it_says_what_to_install(
    capture: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dependencies, "find_spec", lambda _: None)
    error = CliRunner().invoke(wirelake, ["import", "pcap", str(capture), "--data", str(tmp_path)]).exception
    assert isinstance(error, InputError)
    assert str(error) == "importing a capture needs dpkt: run `pip install wirelake[pcap]`"
