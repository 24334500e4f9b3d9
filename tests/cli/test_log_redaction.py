"""`wirelake log redact` on a folder as an earlier version would have written it, with the secrets of every protocol."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from gateway.test_secrets import assert_no_file_has

from protocols.test_record_redaction import HTTP
from protocols.test_redaction import MORE_LOGINS, OTHERS, UNREADABLE
from protocols.test_secrets import LOGINS, SID, TOKEN
from wirelake.cli.commands.log import log as log_command
from wirelake.errors import InUseError, UnknownProtocolError
from wirelake.log.segments.log import SegmentLog
from wirelake.log.segments.reader import LogReader
from wirelake.log.segments.settings import LogSettings
from wirelake.pipeline.ingest.decode import decode_batch

AT_US = 1_900_000_000_000_000
HIDDEN = (TOKEN.encode(), SID[:14])
FRAMES = [*((name, "frame", frame) for name, frame in [*LOGINS, *MORE_LOGINS, *OTHERS])]
UNSPLIT = [(name, "quarantine", data) for name, data in UNREADABLE]
LOGIN_COUNT = len(LOGINS) + len(MORE_LOGINS) + len(UNREADABLE) + len(HTTP)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Write raw records through the log's own writer: nothing redacts them on this way."""
    log = SegmentLog(tmp_path / "log", LogSettings(segment_bytes=8 * 1024, fsync=False))
    for place, (protocol, event, frame) in enumerate([*FRAMES, *UNSPLIT]):
        note = '{"code":"bad","offset":0,"text":"bad"}' if event == "quarantine" else ""
        at_us = AT_US + place * 1_000_000
        log.append(at_us, protocol, event, "in", f"s{place}", "ann", "10.0.0.1:9", frame, note).wait(10)
    for stored in HTTP:
        direction = stored.get("direction", "in")
        log.append(AT_US, "http", "frame", direction, "h", "", "", stored["frame"], stored["note"]).wait(10)
    log.commit_offset("pipeline", 5)
    log.close()
    return tmp_path


def run(data: Path, *words: str) -> Result:
    return CliRunner().invoke(log_command, ["redact", "--data", str(data), *words])


def records(data: Path) -> list[dict[str, Any]]:
    return [row for batch in LogReader(data / "log").read() for row in batch.to_pylist()]


def decoded(data: Path) -> list[dict[str, Any]]:
    """Return the rows of the tables that the records decode to."""
    found = [decode_batch(batch) for batch in LogReader(data / "log").read()]
    return [row for each in found for part in (each.messages, each.quarantine) for row in part.to_pylist()]


def test_no_secret_is_left_and_all_else_is_as_before(data: Path) -> None:
    before, rows = records(data), decoded(data)
    result = run(data)
    assert result.exit_code == 0, result.output
    assert_no_file_has(data, *HIDDEN)
    after = records(data)
    for old, new in zip(before, after, strict=True):
        assert new | {"frame": b""} == old | {"frame": b""}
        assert len(new["frame"]) == len(old["frame"])
    changed = [old["seq"] for old, new in zip(before, after, strict=True) if old != new]
    others = set(range(len(LOGINS) + len(MORE_LOGINS), len(FRAMES)))
    assert set(changed) == set(range(len(before))) - others
    for old, new in zip(rows, decoded(data), strict=True):
        hidden = {"frame", "payload", "fields"}
        assert {name: new[name] for name in new.keys() - hidden} == {name: old[name] for name in old.keys() - hidden}
    assert CliRunner().invoke(log_command, ["verify", "--data", str(data)]).exit_code == 0


def test_it_counts_by_protocol_and_a_second_run_changes_nothing(data: Path) -> None:
    dry = json.loads(run(data, "--dry-run", "--json").stdout)
    first = json.loads(run(data, "--json").stdout)
    assert first == dry
    assert sum(first["redacted"].values()) == LOGIN_COUNT
    assert first["examined"]["http"] == first["redacted"]["http"] == len(HTTP)
    assert first["segments"] > len(first["rewritten"]) > 1
    assert sum(json.loads(run(data, "--json").stdout)["redacted"].values()) == 0
    assert f"segments written anew: 0 of {first['segments']}\n" in run(data).stdout


def test_a_dry_run_touches_nothing(data: Path) -> None:
    files = {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in data.rglob("*") if path.is_file()}
    lines = run(data, "--dry-run").stdout.splitlines()
    assert lines[0].split() == ["protocol", "records", "with", "bytes", "would", "be", "redacted"]
    assert files == {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in data.rglob("*") if path.is_file()}


def test_one_protocol_or_time_alone(data: Path) -> None:
    found = json.loads(run(data, "--protocol", "redis", "--json").stdout)
    assert list(found["redacted"]) == ["redis"]
    before = records(data)
    assert any(TOKEN.encode() in row["frame"] for row in before)
    assert not any(TOKEN.encode() in row["frame"] for row in before if row["protocol"] == "redis")
    assert json.loads(run(data, "--until", "2030-03-17", "--json").stdout)["rewritten"] == []
    assert json.loads(run(data, "--since", "2030-03-17", "--json").stdout)["rewritten"]
    assert isinstance(run(data, "--protocol", "nonesuch").exception, UnknownProtocolError)


def test_a_running_gateway_is_named(data: Path) -> None:
    log = SegmentLog(data / "log")
    try:
        result = run(data)
        assert isinstance(result.exception, InUseError)
        assert "stop the gateway first" in str(result.exception)
        assert run(data, "--dry-run").exit_code == 0
    finally:
        log.close()


def test_damaged_bytes_are_pointed_out(data: Path) -> None:
    path = sorted((data / "log").glob("*.seg"))[1]
    content = bytearray(path.read_bytes())
    place = content.find(TOKEN.encode())
    content[place + 1] ^= 1
    path.write_bytes(content)
    result = run(data)
    assert result.exit_code == 1
    assert f"not redacted: damaged: {path.name}" in result.stderr
