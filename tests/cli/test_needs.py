from importlib import metadata
from pathlib import Path

import pytest
from click.testing import CliRunner

from wirelake.cli import dependencies as needs
from wirelake.cli.main import wirelake
from wirelake.errors import InputError


def test_here_nothing_is_missing() -> None:
    assert needs.missing() == []
    assert needs.missing_for_pipeline() == []


def test_what_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def without_jinja(package: str) -> str:
        if package.lower() == "jinja2":
            raise metadata.PackageNotFoundError(package)
        return "1"

    monkeypatch.setattr(needs, "version", without_jinja)
    assert needs.missing() == ["jinja2"], "and none of the extras"
    monkeypatch.setattr(needs, "find_spec", lambda name: None if name == "pyspark" else object())
    assert needs.missing_for_pipeline() == ["pyspark"]


@pytest.mark.parametrize(
    "words", [["demo"], ["pipeline", "run"], ["pipeline", "compact"], ["pipeline", "redecode", "--protocol", "comet"]]
)
def test_commands_that_need_more_than_is_there_say_so(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, words: list[str]
) -> None:
    monkeypatch.setattr(needs, "find_spec", lambda _: None)
    (tmp_path / "log").mkdir()
    told = CliRunner().invoke(wirelake, [*words, "--data", str(tmp_path)]).exception
    assert isinstance(told, InputError)
    assert str(told).endswith(" needs deltalake, duckdb, numba, pyspark: run `pip install wirelake[pipeline]`")
