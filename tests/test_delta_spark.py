"""Test the task that installs delta-spark where it cannot: it says why, soon, and leaves nothing half done."""

import hashlib
from pathlib import Path

import delta
import pytest


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "delta-spark"
    monkeypatch.setattr(delta, "FOLDER", folder)
    monkeypatch.setattr(delta, "PYTHON", folder / "bin" / "python")
    monkeypatch.setattr(delta, "STAMP", folder / "installed")
    monkeypatch.setattr(delta, "JARS", {"delta-storage": hashlib.sha256(b"jar").hexdigest()})
    return folder


@pytest.fixture
def maven(tmp_path: Path) -> str:
    """Return a program that fetches one jar, into the folder that its last argument names."""
    return program(tmp_path, f'printf jar > "${{@: -1}}/delta-storage-{delta.VERSION}.jar"')


def program(folder: Path, script: str) -> str:
    path = folder / "mvn"
    path.write_text(f'#!/usr/bin/env bash\nset -- "${{@/-DoutputDirectory=/}}"\n{script}\n')
    path.chmod(0o755)
    return str(path)


def test_without_maven_the_reason_is_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(folder))
    assert "Maven (mvn), which is not installed" in delta.ensure()
    assert not folder.exists()


def test_what_maven_says_first_is_the_reason(folder: Path, tmp_path: Path) -> None:
    script = "echo; echo '[ERROR] Could not transfer artifact'; echo '[ERROR] To see the full stack trace'; exit 1"
    reason = delta.ensure(program(tmp_path, script))
    assert reason.startswith("`mvn ")
    assert reason.endswith("failed: [ERROR] Could not transfer artifact")
    assert not folder.exists()


def test_a_jar_that_is_missing_is_named(folder: Path, tmp_path: Path) -> None:
    assert delta.ensure(program(tmp_path, "true")) == f"Maven did not fetch delta-storage-{delta.VERSION}.jar"
    assert not folder.exists()


def test_another_jar_is_refused(folder: Path, maven: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delta, "JARS", {"delta-storage": "0" * 64})
    assert "has another SHA-256 than tasks/delta.py says" in delta.ensure(maven)
    assert not folder.exists()


def test_what_pip_says_last_is_the_reason(folder: Path, maven: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delta, "SPARK", "--no-index no-such-package")
    reason = delta.ensure(maven)
    assert "-m pip install" in reason
    assert "failed: no such option: --no-index no-such-package" in reason
    assert not folder.exists()


def test_an_installation_that_takes_too_long_is_ended(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delta, "INSTALL_TIMEOUT_S", 0.0)
    monkeypatch.setattr(delta, "_GRACE_S", 0.01)
    reason = delta.ensure(program(tmp_path, "sleep 5"))
    assert reason.startswith("`mvn ")
    assert "was not done within" in reason
    assert not folder.exists()


def test_what_is_installed_is_not_installed_again(folder: Path, tmp_path: Path) -> None:
    folder.mkdir()
    delta.STAMP.write_text(delta.INSTALLED)
    failing = program(tmp_path, "exit 1")
    assert delta.ensure(failing) == ""
    delta.STAMP.write_text("an earlier version")
    assert delta.ensure(failing)
