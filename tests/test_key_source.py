import base64
import shlex
import stat
import sys
import time
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis.strategies import binary

from wirelake.errors import InputError
from wirelake.key_source import KEY_BYTES, KeySource, parse_key, state_key
from wirelake.limits import KEY_BYTES_MAX

KEY = bytes.fromhex("d1" * 8 + "0f" * 8 + "7e" * 8 + "c4" * 8)  # the same in all workers: tests are named by it


def python(code: str) -> KeySource:
    return KeySource.parse(f"command:{sys.executable} -c {shlex.quote(code)}", "state.key")


@given(binary(min_size=KEY_BYTES, max_size=KEY_BYTES))
@example(b"\xfb\xff" * 16)
def test_a_key_is_hex_or_base64(key: bytes) -> None:
    for text in (key.hex(), key.hex().upper(), base64.b64encode(key).decode(), base64.urlsafe_b64encode(key).decode()):
        for spelling in (text, text.rstrip("="), f"{text}\n", f" {text}\r\n"):
            assert parse_key(spelling.encode()) == key


def test_raw_bytes_are_a_key_unless_they_are_text() -> None:
    raw = b"\x80" + KEY[1:]
    assert parse_key(raw) == raw
    assert parse_key(b"a password of thirty-two letters") is None
    assert parse_key(KEY[:16].hex().encode()) is None, "a key of 128 bits in hex has 32 characters"


@pytest.mark.parametrize(
    "text", [b"", b"\n", b"short", KEY[:31].hex().encode(), b"x" * 64, b"\xff" * 33, b"+" * 43 + b"!"]
)
def test_anything_else_is_not(text: bytes) -> None:
    assert parse_key(text) is None


def test_a_file(tmp_path: Path) -> None:
    path = tmp_path / "a key"
    path.write_text(KEY.hex())
    assert KeySource.parse(f"file:{path}", "state.key").read() == KEY
    path.write_text("not this")
    with pytest.raises(
        InputError, match=r"state\.key = file:.*a key has 8 bytes that are no key.*64 hex digits"
    ) as error:
        KeySource.parse(f"file:{path}", "state.key").read()
    assert "not this" not in str(error.value)
    with pytest.raises(InputError, match=r"state\.key = file:.*cannot be read \(No such file or directory\)"):
        KeySource.parse("file:missing", "state.key").read()


def test_a_relative_file_stays_the_same_if_the_working_folder_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "key").write_text(KEY.hex())
    source = KeySource.parse("file:key", "state.key")
    monkeypatch.chdir("/")
    assert source.read() == KEY


def test_a_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    source = KeySource.parse("env:SOME_KEY", "state.key")
    monkeypatch.delenv("SOME_KEY", raising=False)
    with pytest.raises(InputError, match=r"state\.key = env:SOME_KEY is not in the environment"):
        source.read()
    monkeypatch.setenv("SOME_KEY", base64.b64encode(KEY).decode())
    assert source.read() == KEY


def test_a_command_runs_without_a_shell() -> None:
    assert python(f"print('{KEY.hex()}')").read() == KEY
    with pytest.raises(InputError, match="no key"):
        KeySource.parse(f"command:echo $(echo {KEY.hex()})", "state.key").read()


@pytest.mark.parametrize(
    ("command", "problem"),
    [
        (f"{sys.executable} -c 'import sys; sys.exit(3)'", "failed with exit code 3"),
        ("/does/not/exist", r"cannot be run \(No such file or directory\)"),
        ("yes", f"printed more than {KEY_BYTES_MAX} bytes"),
        ("true", "has 0 bytes that are no key"),
    ],
)
def test_a_command_that_fails_is_named(command: str, problem: str) -> None:
    with pytest.raises(InputError, match=rf"state\.key = command:.* {problem}"):
        KeySource.parse(f"command:{command}", "state.key").read()


@pytest.mark.parametrize("code", ["import time; time.sleep(600)", "import os, time; os.fork() or time.sleep(600)"])
def test_a_command_that_does_not_end_is_ended(code: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Even if only a process that it started holds its output open."""
    monkeypatch.setattr("wirelake.key_source.KEY_COMMAND_S", 1.0)
    started_s = time.monotonic()
    with pytest.raises(InputError, match=r"state\.key = command:.* did not end within 1 s"):
        python(code).read()
    assert time.monotonic() - started_s < 60


@pytest.mark.parametrize("text", [KEY.hex(), "file", "file:", "env: ", "vault:key", "command:'open"])
def test_a_setting_that_names_no_source_is_refused_and_not_shown(text: str) -> None:
    with pytest.raises(InputError, match=r"^state\.key ") as error:
        KeySource.parse(text, "state.key")
    assert KEY.hex() not in str(error.value)


def test_by_default_it_is_a_file_in_the_data_folder(tmp_path: Path) -> None:
    source = state_key("", tmp_path)
    assert source.is_missing
    source.create()
    path = tmp_path / "keys" / "state.key"
    assert (source.path, source.is_missing) == (path, False)
    assert parse_key(path.read_bytes()) == source.read()
    assert [stat.S_IMODE(each.stat().st_mode) for each in (path, path.parent)] == [0o600, 0o700]
