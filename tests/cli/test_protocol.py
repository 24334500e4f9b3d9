"""Test `wirelake protocol`."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from gateway.installed_protocol import example, installed_protocols
from msgspec.structs import replace

from wirelake.cli.main import wirelake
from wirelake.protocols import registry
from wirelake.protocols.frame import Sender

example("beacon")  # makes the module importable


def run(*words: str) -> Result:
    return CliRunner().invoke(wirelake, ["protocol", *words])


def test_every_protocol_is_listed_with_its_decoder_and_ports() -> None:
    result = run("list")
    assert result.exit_code == 0, result.output
    rows = [line.split() for line in result.output.splitlines()[1:]]
    assert {row[0] for row in rows} == set(registry.BUILT_IN)
    apostol = registry.get("apostol")
    (row,) = [row for row in rows if row[0] == "apostol"]
    described = "yes" if apostol.layout is not None else "no"
    decoder = f"apostol/{apostol.decoder_version}"
    assert row == ["apostol", decoder, "udp", "7332,", "tcp", "7332", described, "built", "in"]
    assert {row[0]: row[-3] for row in rows}["esnp"] == "parts", "its lines are described, not its messages"


def test_an_installed_protocol_and_a_broken_one() -> None:
    points = {"beacon": "beacon:PROTOCOL", "gone": "there_is_no_such_module:PROTOCOL"}
    with installed_protocols(points):
        shown = run("list")
        found = json.loads(run("list", "--json").stdout)
    assert "1 protocol cannot be loaded:" in shown.stdout
    assert "  gone: entry point there_is_no_such_module:PROTOCOL cannot be loaded: ModuleNotFoundError" in shown.stdout
    (row,) = [row for row in found["protocols"] if row["name"] == "beacon"]
    assert row["decoder"] == "beacon/1"
    assert row["transports"] == [{"transport": "udp", "port": 7999, "setting": "listen.beacon"}]
    assert (row["is_served"], row["is_described"]) == (True, True)
    assert list(found["broken"]) == ["gone"]


def test_the_laws_of_a_sound_protocol_hold(tmp_path: Path) -> None:
    result = run("check", "comet", "--examples", "5", "--data", str(tmp_path))
    assert result.exit_code == 0, result.output
    assert "✓ any bytes: " in result.output
    assert "✗" not in result.output
    assert "no stored history was checked" in result.output


def test_a_law_that_does_not_hold_is_shown_with_the_smallest_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = example("beacon")

    def decode(frame: bytes, sender: Sender) -> Any:
        found = module.FRAMES.decode(frame, sender)
        return replace(found, tenths=abs(found.tenths))

    monkeypatch.setattr(module, "PROTOCOL", replace(module.PROTOCOL, decode=decode))
    with installed_protocols({"beacon": "beacon:PROTOCOL"}):
        result = run("check", "beacon", "--data", str(tmp_path))
        found = json.loads(run("check", "beacon", "--json", "--data", str(tmp_path)).stdout)
    assert result.exit_code == 1
    assert "✗ round trip: what is encoded decodes to the same" in result.output
    assert "    the smallest: 4 bytes from the client: be00ffff" in result.output
    assert found["history"] is None
    (failed,) = [law for law in found["laws"] if not law["is_ok"]]
    assert (failed["law"], failed["hex"], failed["sender"]) == ("round trip", "be00ffff", "client")


def test_a_protocol_that_is_not_installed(tmp_path: Path) -> None:
    result = run("check", "comett", "--data", str(tmp_path))
    assert "did you mean comet?" in str(result.exception)
