"""Test `wirelake protocol export` and `protocol source`."""

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from wirelake.cli.main import wirelake
from wirelake.errors import InputError
from wirelake.protocols import registry
from wirelake.protocols.comet.frames import FRAMES
from wirelake.protocols.esnp.lines import LINES
from wirelake.protocols.protocol import Protocol


def run(*words: str) -> Result:
    return CliRunner().invoke(wirelake, ["protocol", *words])


def undescribed() -> Protocol:
    return next(each for each in registry.all_protocols() if each.layout is each.part_layout is None)


def test_a_wireshark_dissector() -> None:
    result = run("export", "comet", "--format", "wireshark")
    assert result.exit_code == 0, result.output
    assert result.stdout.startswith("-- Dissector of comet")
    assert "-- Generated from the description in wirelake.protocols.comet.frames" in result.stdout
    assert 'local TITLE = "comet: notifications for phones"\n' in result.stdout
    assert 'local PREFIX = "comet" ' in result.stdout
    assert 'DissectorTable.get("tcp.port"):add(7334, proto)' in result.stdout


def test_a_kaitai_struct_in_a_file(tmp_path: Path) -> None:
    path = tmp_path / "comet.ksy"
    result = run("export", "comet", "--format", "kaitai", "--output", str(path))
    assert result.exit_code == 0, result.output
    assert result.stdout == ""
    assert path.read_text() == run("export", "comet", "--format", "kaitai").stdout
    assert "  id: comet\n" in path.read_text()


def test_the_generated_source(tmp_path: Path) -> None:
    result = run("source", "comet")
    assert result.exit_code == 0, result.output
    assert result.stdout == FRAMES.source()
    compile(result.stdout, "comet", "exec")
    assert "def decode(" in result.stdout
    path = tmp_path / "comet.py"
    assert run("source", "comet", "--output", str(path)).exit_code == 0
    assert path.read_text() == result.stdout


def test_the_source_of_described_parts() -> None:
    assert run("source", "esnp").stdout == LINES.source()


@pytest.mark.parametrize("words", [["export", "--format", "kaitai"], ["source"]])
def test_a_protocol_without_a_description(words: list[str]) -> None:
    name = undescribed().name
    error = run(*words, name).exception
    assert isinstance(error, InputError)
    assert f"{name} has no description of its frames" in str(error)
    assert "`layout` of its Protocol" in str(error)
    assert "comet" in str(error)


def test_an_unknown_protocol_and_an_unknown_format() -> None:
    error = run("export", "commet", "--format", "kaitai").exception
    assert isinstance(error, InputError)
    assert "did you mean comet?" in str(error)
    result = run("export", "comet", "--format", "asn1")
    assert result.exit_code == 2
    assert "'asn1' is not one of 'wireshark', 'kaitai'" in result.stderr


def test_a_file_that_cannot_be_written(tmp_path: Path) -> None:
    path = tmp_path / "missing" / "comet.lua"
    error = run("export", "comet", "--format", "wireshark", "--output", str(path)).exception
    assert isinstance(error, InputError)
    assert str(error) == f"{path} cannot be written: No such file or directory"
