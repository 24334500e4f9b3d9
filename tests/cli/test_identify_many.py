"""`wirelake identify --many` and `--quarantine` on the command line."""

import json
import random
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from pcap_writer import START_US, CapturedPacket, TcpConversation, capture_file, udp_packet
from workbench.traffic import beacon_samples

from wirelake.cli.main import wirelake
from wirelake.cli.support import dependencies
from wirelake.errors import InputError
from wirelake.log.segments.log import SegmentLog
from wirelake.protocols.frame import Sender
from wirelake.workbench.draft import decodes

FRAMES = [sample.frame for sample in beacon_samples(80)]


def run(*words: str, stdin: str = "") -> Result:
    return CliRunner().invoke(wirelake, ["identify", *words], input=stdin, catch_exceptions=False)


@pytest.fixture
def lines(tmp_path: Path) -> Path:
    file = tmp_path / "frames.hex"
    file.write_text("# beacons\n" + "\n".join(frame.hex(" ") for frame in FRAMES))
    return file


def test_proposals_come_with_their_evidence(lines: Path) -> None:
    result = run("--many", str(lines))
    assert result.exit_code == 0
    assert result.output.startswith("80 frames, 80 of them different\n")
    rows = [line.split() for line in result.output.splitlines()]
    assert next(row for row in rows if row[:1] == ["length"])[:3] == ["length", "1", "1"]
    assert "it decodes 80 of 80 frames" in result.output
    assert "class DraftEnvelope(Envelope" in result.output


def test_the_draft_alone_is_a_module(lines: Path) -> None:
    assert decodes(run("--many", str(lines), "--draft").output, FRAMES) == 80
    assert decodes(run("--many", "-", "--draft", stdin=lines.read_text()).output, FRAMES) == 80


def test_the_findings_are_json_on_request(lines: Path) -> None:
    found = json.loads(run("--many", str(lines), "--json").output)
    assert found["findings"][0]["kind"] == "length"
    assert found["draft_decodes"] == found["distinct"] == 80


def test_a_capture_of_datagrams_and_streams(tmp_path: Path) -> None:
    client, server = ("10.0.0.2", 50_000), ("10.0.0.1", 4711)
    datagrams = [CapturedPacket(START_US, udp_packet(client, server, frame)) for frame in FRAMES]
    talk = TcpConversation(client, server)
    talk.open()
    dice, rest = random.Random(1), list(FRAMES)
    while rest:
        count = dice.choice((1, 1, 2))
        talk.send(Sender.CLIENT, b"".join(rest[:count]))
        del rest[:count]
    noise = CapturedPacket(START_US, udp_packet(client, ("10.0.0.1", 53), random.Random(1).randbytes(40)))
    for packets in (datagrams, talk.packets):
        file = tmp_path / "sample.pcap"
        file.write_bytes(capture_file([noise, *packets]))
        found = json.loads(run("--many", str(file), "--port", "4711", "--json").output)
        assert (found["distinct"], found["draft_decodes"]) == (80, 80)
        several = run("--many", str(file))
        assert "several connections; choose one with --port: " in several.output
    with pytest.raises(InputError, match="no data of TCP or UDP with port 1"):
        run("--many", str(file), "--port", "1")


def test_the_quarantine_of_the_log(tmp_path: Path) -> None:
    log = SegmentLog(tmp_path / "log")
    for frame in FRAMES:
        log.append(START_US, "pager", "quarantine", "in", "s1", "", "", frame, '{"code":"magic"}')
    log.append(START_US, "comet", "quarantine", "in", "s2", "", "", b"\x00", "")
    log.close()
    found = json.loads(run("--quarantine", "--protocol", "pager", "--json", "--data", str(tmp_path)).output)
    assert (found["was_cut"], found["distinct"]) == (True, 80)
    assert found["findings"][0]["kind"] == "length"
    with pytest.raises(InputError, match="no such bytes"):
        run("--quarantine", "--protocol", "esnp", "--data", str(tmp_path))


def test_chance_is_not_shown(tmp_path: Path) -> None:
    file = tmp_path / "random.hex"
    file.write_text("\n".join(random.Random(1).randbytes(20).hex() for _ in range(50)))
    result = run("--many", str(file))
    assert result.exit_code == 1
    assert "nothing is more than chance" in result.output
    assert json.loads(run("--many", str(file), "--json").output)["findings"] == []


def test_bad_input_names_the_place(tmp_path: Path, lines: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "bad.hex"
    file.write_text("00\nzz\n")
    with pytest.raises(InputError, match=r"bad\.hex: line 2: "):
        run("--many", str(file))
    with pytest.raises(InputError, match="--port needs a capture"):
        run("--many", str(lines), "--port", "5")
    assert run().exit_code == 2
    assert run("00", "--quarantine").exit_code == 2
    file.write_bytes(capture_file([]))
    monkeypatch.setattr(dependencies, "find_spec", lambda _: None)
    with pytest.raises(InputError, match=r"reading a capture needs dpkt: run `pip install wirelake\[pcap\]`"):
        run("--many", str(file))
