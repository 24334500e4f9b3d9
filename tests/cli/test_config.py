from pathlib import Path

import pytest
from click.testing import CliRunner

from wirelake.cli.main import wirelake
from wirelake.config import load


def test_what_is_printed_can_be_read_back(tmp_path: Path) -> None:
    result = CliRunner(env={"WIRELAKE_LISTEN_COMET": "0.0.0.0:1"}).invoke(wirelake, ["config", "--data", "elsewhere"])
    assert result.exit_code == 0
    file = tmp_path / "wirelake.toml"
    file.write_text(result.output)
    settings = load(file, environment={})
    assert settings.listen.comet == "0.0.0.0:1"
    assert settings.data == "elsewhere"


@pytest.mark.parametrize("command", ["decode", "identify", "config", "doctor"])
def test_every_command_has_help_with_an_example(command: str) -> None:
    result = CliRunner().invoke(wirelake, [command, "--help"])
    assert result.exit_code == 0
    assert f"wirelake {command}" in result.output.split("Example")[1]
    assert "--config" in result.output
    assert "--data" in result.output


def test_the_overview_lists_every_command() -> None:
    result = CliRunner().invoke(wirelake, ["--help"])
    assert "decode    Take frames apart" in result.output
    assert CliRunner().invoke(wirelake, ["nonsense"]).exit_code == 2
