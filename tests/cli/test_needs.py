from importlib import metadata

import pytest

from wirelake.cli import needs


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
