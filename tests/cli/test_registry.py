"""Test `identity` and `device`, with and without a running gateway."""

import json
import time
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


def test_tokens(settings: Path) -> None:
    assert run(settings, "identity", "add", "ann", "--token", "before", "--expires", "7d")[1] == "before\n"

    def ends() -> list[tuple[str, float | None]]:
        """Return the kind of each token, and in how many hours it expires."""
        rows = json.loads(run(settings, "identity", "tokens", "ann", "--json")[1])
        now_ms = time.time_ns() // 1_000_000
        hours = [None if row["expires_at_ms"] is None else row["expires_at_ms"] - now_ms for row in rows]
        kinds = [row["kind"] for row in rows]
        return [(kind, left and round(left / 3_600_000)) for kind, left in zip(kinds, hours, strict=True)]

    assert ends() == [("chosen", 168)]
    code, token, error = run(settings, "identity", "rotate", "ann")
    assert code == 0
    assert len(token.splitlines()) == 1
    assert "Its other tokens expire at 20" in error
    assert ends() == [("chosen", 1), ("generated", None)]
    assert run(settings, "identity", "rotate", "ann", "--token", "after", "--keep", "2h", "--expires", "90d")[0] == 0
    assert ends() == [("chosen", 1), ("generated", 2), ("chosen", 2160)]
    code, _, error = run(settings, "identity", "rotate", "ann", "--token", "after")
    assert code == 1
    assert "has this token already" in error
    (row,) = json.loads(run(settings, "identity", "list", "--json")[1])
    assert row["tokens"] == 3
    first, second, third = (row["id"] for row in json.loads(run(settings, "identity", "tokens", "ann", "--json")[1]))
    assert run(settings, "identity", "revoke", "ann", second)[0] == 0
    code, _, error = run(settings, "identity", "revoke", "ann", second)
    assert code == 1
    assert error.startswith(f"wirelake: identity 'ann' has no token '{second}'")
    assert "Its other tokens have expired." in run(settings, "identity", "rotate", "ann", "--keep", "0")[2]
    table = run(settings, "identity", "tokens", "ann")[1]
    assert [line.split()[0] for line in table.splitlines()[1:3]] == [first, third]
    assert table.count("(expired)") == 2
    assert table.count("never") == 1
    for command in (("rotate", "bob"), ("tokens", "bob"), ("revoke", "bob", "x")):
        code, _, error = run(settings, "identity", *command)
        assert code == 1
        assert error.startswith("wirelake: no identity 'bob'")


@pytest.mark.parametrize("duration", ["1", "-1h", "1w", "h", "1.5h"])
def test_what_is_no_duration_is_told(tmp_path: Path, duration: str) -> None:
    code, _, error = run(write_settings(tmp_path), "identity", "add", "ann", "--expires", duration)
    assert code == 2
    assert f"'{duration}' is not a duration: use 90s" in error


@pytest.mark.parametrize("duration", ["0", "4000d"])
def test_the_life_of_a_token_has_bounds(tmp_path: Path, duration: str) -> None:
    code, _, error = run(write_settings(tmp_path), "identity", "add", "ann", "--expires", duration)
    assert (code, error) == (1, "wirelake: a token expires after 1s to 3650d\n")


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
        token_key = KeyFiles(tmp_path / "data" / "keys").token_key(store.identities)
        assert token_key.find(identity.tokens, token.strip()) is not None
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
