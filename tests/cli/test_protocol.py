"""Test `wirelake protocol`."""

import json

from click.testing import CliRunner, Result
from gateway.installed_protocol import example, installed_protocols

from wirelake.cli.main import wirelake
from wirelake.protocols import registry

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
