import re
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from wirelake.cli.main import COMMANDS, wirelake
from wirelake.config import load
from wirelake.protocols import registry
from wirelake.protocols.settings import UpstreamSettings


def test_what_is_printed_can_be_read_back(tmp_path: Path) -> None:
    result = CliRunner(env={"WIRELAKE_LISTEN_COMET": "0.0.0.0:1"}).invoke(wirelake, ["config", "--data", "elsewhere"])
    assert result.exit_code == 0
    file = tmp_path / "wirelake.toml"
    file.write_text(result.output)
    settings = load(file, environment={})
    assert str(settings.address("comet")) == "0.0.0.0:1"
    assert settings.data == "elsewhere"


def test_lists_and_tables_can_be_read_back_too(tmp_path: Path) -> None:
    text = '[{"name": "back", "url": "tls://h:1", "services": ["a", "b"], "password": "\\"x"}]'
    result = CliRunner(env={"WIRELAKE_SISNET_UPSTREAMS": text}).invoke(wirelake, ["config"])
    assert result.exit_code == 0, result.output
    file = tmp_path / "wirelake.toml"
    file.write_text(result.output)
    (upstream,) = load(file, environment={}).section(registry.get("sisnet")).upstreams
    assert upstream == UpstreamSettings(name="back", url="tls://h:1", services=("a", "b"), password='"x')


def test_credentials_are_not_printed() -> None:
    options = "aws_endpoint=http://h:1,aws_access_key_id=AKIA,aws_secret_access_key=hidden,azure_storage_sas_key=hidden"
    result = CliRunner(env={"WIRELAKE_LAKE_OPTIONS": options}).invoke(wirelake, ["config"])
    assert result.exit_code == 0, result.output
    assert "hidden" not in result.output
    assert "AKIA" not in result.output
    assert 'aws_endpoint = "http://h:1"' in result.output
    assert 'aws_secret_access_key = "***"' in result.output


def every_command() -> list[list[str]]:
    """Return every command, also those inside groups. `log` has tests of its own."""
    words: list[list[str]] = []
    for name in COMMANDS:
        command = wirelake.get_command(click.Context(wirelake), name)
        assert command is not None
        words.append([name])
        if isinstance(command, click.Group):
            words += [[name, inner] for inner in command.commands]
    return [each for each in words if each[0] != "log"]


@pytest.mark.parametrize("words", every_command(), ids=" ".join)
def test_every_command_has_help_with_an_example(words: list[str]) -> None:
    result = CliRunner().invoke(wirelake, [*words, "--help"])
    assert result.exit_code == 0
    assert f"wirelake {' '.join(words)}" in result.output.split("Example")[1]
    assert "--config" in result.output
    assert "--data" in result.output


def test_the_overview_lists_every_command() -> None:
    result = CliRunner().invoke(wirelake, ["--help"])
    assert all(
        re.search(rf"^  {name} +{re.escape(text)}$", result.output, re.MULTILINE) for name, text in COMMANDS.items()
    )
    assert CliRunner().invoke(wirelake, ["nonsense"]).exit_code == 2
