"""The worked example of a sixth protocol, installed as a user would, and decoded through the command line."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parent.parent.parent / "examples" / "beacon"
READING = "be044f736c6fffb5"


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The example as an installed package; pip finds what it needs to build in this very environment."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "pip", "install", "-qq", "--no-deps", "--no-build-isolation"]
    subprocess.run([*command, "--target", folder, EXAMPLE], check=True)
    return {**os.environ, "PYTHONPATH": str(folder)}


def wirelake(environment: dict[str, str], *words: str) -> subprocess.CompletedProcess[str]:
    program = Path(sys.executable).parent / "wirelake"
    return subprocess.run([program, *words], env=environment, capture_output=True, text=True, check=False)


def test_it_decodes(environment: dict[str, str]) -> None:
    done = wirelake(environment, "decode", "beacon", READING)
    assert done.returncode == 0, done.stderr
    assert "Oslo" in done.stdout
    assert "-7.5 °C" in done.stdout


def test_bad_bytes_name_the_place(environment: dict[str, str]) -> None:
    done = wirelake(environment, "decode", "beacon", "--json", READING + "00ff")
    assert done.returncode == 1
    assert json.loads(done.stdout)["error"] == {"code": "magic", "message": "a reading starts with be", "offset": 8}


def test_it_is_identified(environment: dict[str, str]) -> None:
    done = wirelake(environment, "identify", "--json", READING * 3)
    assert json.loads(done.stdout)[0]["protocol"] == "beacon"


def test_it_is_listed_after_the_built_in_ones(environment: dict[str, str]) -> None:
    done = wirelake(environment, "decode", "becon", READING)
    assert done.returncode == 1
    assert "did you mean beacon?" in done.stderr
