"""The example of a device protocol, installed as a user would, and decoded on the command line."""

import json

import pytest

from examples.installed import install, wirelake

READING = "be044f736c6fffb5"


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return install(tmp_path_factory.mktemp("site"), "beacon")


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
