"""What `wirelake pipeline redecode` asks for and prints; tests/pipeline/redecode has what is done."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from wirelake.cli.commands.pipeline import pipeline
from wirelake.pipeline.redecode import redaction
from wirelake.pipeline.redecode import redecode as redecoding
from wirelake.pipeline.redecode.difference import Difference
from wirelake.pipeline.redecode.redaction import RedactionResult
from wirelake.pipeline.redecode.redecode import RedecodeResult
from wirelake.pipeline.spark import session

CHANGED = RedecodeResult(frames=7, tables={"silver.quarantine": Difference(changed=2, fields={"frame": 2})})
REDACTED = RedactionResult(
    examined={"comet": 9, "redis": 4},
    redacted={"comet": 3},
    not_installed={"gone": 5},
    replaced=2,
    redecoded={"comet": CHANGED, "redis": RedecodeResult(frames=4, tables={"silver.messages": Difference(same=4)})},
    removed=6,
)


class Spark:
    stopped = 0

    def stop(self) -> None:
        Spark.stopped += 1


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Replace Spark and the work; return the requests."""
    requests: list[Any] = []

    def work(result: Any) -> Any:
        def run(_spark: Any, _data: Path, request: Any, **_: Any) -> Any:
            requests.append(request)
            return result

        return run

    Spark.stopped = 0
    monkeypatch.setattr(session, "open_session", Spark)
    monkeypatch.setattr(redecoding, "redecode", work(CHANGED))
    monkeypatch.setattr(redaction, "redact_tables", work(REDACTED))
    for module in (redecoding, redaction):
        monkeypatch.setattr(module, "check", lambda *_: None)
    return requests


def run(folder: Path, *words: str) -> Result:
    return CliRunner().invoke(pipeline, ["redecode", "--data", str(folder), *words])


def test_one_protocol_is_redecoded(tmp_path: Path, asked: list[Any]) -> None:
    result = run(tmp_path, "--protocol", "comet", "--dry-run")
    assert result.exit_code == 0, result.output
    assert "frame 2" in result.stdout
    assert result.stdout.endswith("Nothing was changed.\n")
    assert [(each.protocol, each.dry, each.redact) for each in asked] == [("comet", True, False)]
    assert Spark.stopped == 1


def test_redact_takes_all_protocols_and_prints_those_that_change(tmp_path: Path, asked: list[Any]) -> None:
    result = run(tmp_path, "--redact")
    assert result.exit_code == 0, result.output
    lines = [line.split() for line in result.stdout.splitlines()]
    assert lines[:3] == [["protocol", "records", "with", "bytes", "redacted"], ["comet", "9", "3"], ["redis", "4", "0"]]
    assert lines[3][:2] == ["gone", "5"]
    assert ["comet:"] in lines
    assert ["redis:"] not in lines
    assert result.stdout.endswith("bronze.frames: 2 files replaced.\n6 old files removed from disk.\n")
    assert [(each.protocol, each.dry, each.history_days) for each in asked] == [("", False, 7.0)]
    found = json.loads(run(tmp_path, "--redact", "--protocol", "comet", "--json").stdout)
    assert (found["redacted"], found["removed"]) == ({"comet": 3}, 6)
    assert asked[-1].protocol == "comet"


def test_without_redact_a_protocol_is_required(tmp_path: Path, asked: list[Any]) -> None:
    result = run(tmp_path)
    assert (result.exit_code, asked) == (2, [])
    assert "Missing option '--protocol'" in result.stderr
