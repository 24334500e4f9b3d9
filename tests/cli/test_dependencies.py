from importlib import metadata
from pathlib import Path

import pytest
from click.testing import CliRunner

from wirelake.cli.main import wirelake
from wirelake.cli.support import dependencies
from wirelake.errors import InputError


def test_here_nothing_is_missing() -> None:
    assert dependencies.missing() == []
    assert dependencies.missing_for_pipeline() == []


def test_what_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def without_jinja(package: str) -> str:
        if package.lower() == "jinja2":
            raise metadata.PackageNotFoundError(package)
        return "1"

    monkeypatch.setattr(dependencies, "version", without_jinja)
    assert dependencies.missing() == ["jinja2"], "and none of the extras"
    monkeypatch.setattr(dependencies, "find_spec", lambda name: None if name == "pyspark" else object())
    assert dependencies.missing_for_pipeline() == ["pyspark"]


@pytest.mark.parametrize(
    "words", [["demo"], ["pipeline", "run"], ["pipeline", "compact"], ["pipeline", "redecode", "--protocol", "comet"]]
)
def test_commands_that_need_more_than_is_there_say_so(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, words: list[str]
) -> None:
    monkeypatch.setattr(dependencies, "find_spec", lambda _: None)
    (tmp_path / "log").mkdir()
    error = CliRunner().invoke(wirelake, [*words, "--data", str(tmp_path)]).exception
    assert isinstance(error, InputError)
    assert str(error).endswith(" needs deltalake, duckdb, numba, pyspark: run `pip install wirelake[pipeline]`")
