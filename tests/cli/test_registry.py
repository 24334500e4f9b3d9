"""Test `identity` and `device`, with and without a running gateway."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from cli.serving import serving, wirelake, write_settings
from wirelake.gateway.auth.keys import KeyFiles
from wirelake.state.store import StateStore


@pytest.fixture(params=["alone", "beside a gateway"])
def settings(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    if request.param == "alone":
        yield write_settings(tmp_path)
        return
    with serving(tmp_path, "http") as running:
        yield running.settings


def run(settings: Path, *words: str) -> tuple[int, str, str]:
    result = wirelake(*words, "--config", str(settings))
    return result.returncode, result.stdout, result.stderr


def test_identities(settings: Path) -> None:
    code, token, _ = run(settings, "identity", "add", "phone-1")
    assert code == 0
    assert len(token.splitlines()) == 1
    assert run(settings, "identity", "add", "a/b", "--token", "chosen")[1] == "chosen\n"
    code, _, error = run(settings, "identity", "add", "phone-1")
    assert code == 1
    assert error.startswith("wirelake: identity 'phone-1' exists already")
    assert error.count("\n") == 1
    assert run(settings, "identity", "add", "admin")[0] == 1
    listed = json.loads(run(settings, "identity", "list", "--json")[1])
    assert [(row["name"], row["topics"]) for row in listed] == [("a/b", 0), ("phone-1", 0)]
    table = run(settings, "identity", "list")[1]
    assert "phone-1" in table
    assert token.strip() not in table
    assert run(settings, "identity", "remove", "a/b")[0] == 0
    code, _, error = run(settings, "identity", "remove", "a/b")
    assert code == 1
    assert error.startswith("wirelake: no identity 'a/b'")
    assert [row["name"] for row in json.loads(run(settings, "identity", "list", "--json")[1])] == ["phone-1"]


def test_devices(settings: Path) -> None:
    key = "000102030405060708090a0b0c0d0e0f"
    assert run(settings, "device", "add", "1234", "--type", "6", "--key", key)[0] == 0
    assert run(settings, "device", "add", "x y")[0] == 0
    code, _, error = run(settings, "device", "add", "99", "--key", "0102")
    assert code == 1
    assert "16 bytes" in error
    assert run(settings, "device", "add", "1234")[0] == 1
    listed = json.loads(run(settings, "device", "list", "--json")[1])
    assert [(row["serial"], row["type"], row["has_key"]) for row in listed] == [("1234", 6, True), ("x y", 0, False)]
    table = run(settings, "device", "list")[1]
    assert "1234" in table
    assert key not in table
    assert run(settings, "device", "remove", "x y")[0] == 0
    assert run(settings, "device", "remove", "x y")[0] == 1


def test_what_was_made_without_a_gateway_is_there_for_one(tmp_path: Path) -> None:
    settings = write_settings(tmp_path, "http")
    _, token, _ = run(settings, "identity", "add", "ann")
    assert run(settings, "identity", "list", "--json")[0] == 0
    store = StateStore(tmp_path / "data" / "state.db")
    try:
        identity = store.identities.find("ann")
        assert identity is not None
        assert (
            KeyFiles(tmp_path / "data" / "keys").token_key(store.identities).verify(identity.token_hash, token.strip())
        )
    finally:
        store.close()


def test_a_folder_given_to_the_group_holds_for_its_commands(tmp_path: Path) -> None:
    result = wirelake("identity", "--data", str(tmp_path / "one"), "add", "ann")
    assert result.returncode == 0, result.stderr
    assert (tmp_path / "one" / "state.db").exists()
    (tmp_path / "two").mkdir()
    result = wirelake("identity", "--data", str(tmp_path / "one"), "list", "--json", "--data", str(tmp_path / "two"))
    assert result.stdout == "[]\n"


def test_a_list_without_anything_says_so(tmp_path: Path) -> None:
    settings = write_settings(tmp_path)
    (tmp_path / "data").mkdir()
    assert run(settings, "identity", "list")[1] == "No identities yet.\n"
    assert run(settings, "device", "list")[1] == "No devices registered yet.\n"


def test_a_gateway_that_cannot_be_asked_is_told(tmp_path: Path) -> None:
    with serving(tmp_path) as running:
        result = running.run("identity", "add", "ann")
        assert result.returncode == 1
        assert result.stderr == 'wirelake: listen.http is "off": commands need the HTTP API of the gateway\n'
