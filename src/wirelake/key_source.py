"""Read a key of 32 bytes from where a setting says: a file, an environment variable, or what a command prints.

The key is 32 raw bytes, 64 hex digits, or base64. Errors name the setting and never contain the key.
"""

import base64
import binascii
import os
import secrets
import shlex
import signal
import string
import subprocess
import threading
from contextlib import suppress
from pathlib import Path
from typing import Final

from msgspec import Struct

from wirelake.errors import InputError
from wirelake.files import FileSystem, replace_file
from wirelake.limits import KEY_BYTES_MAX, KEY_COMMAND_S

KEY_BYTES: Final = 32
KEY_FORMATS: Final = f"{KEY_BYTES} raw bytes, {2 * KEY_BYTES} hex digits, or base64 of {KEY_BYTES} bytes"
KINDS: Final = ("file", "env", "command")
_PRINTABLE: Final = frozenset(string.printable.encode())
_URL_SAFE: Final = bytes.maketrans(b"-_", b"+/")


class KeySource(Struct, frozen=True):
    """Say where a key comes from: `file:PATH`, `env:NAME` or `command:WORDS`."""

    setting: str
    kind: str
    place: str
    is_default: bool = False  # not set: a file in the data folder, which is generated

    @staticmethod
    def parse(text: str, setting: str, default: Path | None = None) -> "KeySource":
        """Return the source that a setting names; "" stands for a generated file, if there is a default."""
        if not text and default is not None:
            return KeySource(setting, "file", str(default.absolute()), is_default=True)
        kind, colon, place = text.partition(":")
        if not colon or kind not in KINDS or not place.strip():  # the text may be the key itself: it is not shown
            raise InputError(f"{setting} must be file:PATH, env:NAME or command:WORDS, and not the key itself")
        place = place.strip() if kind != "file" else str(Path(place.strip()).absolute())
        source = KeySource(setting, kind, place)
        if kind == "command":
            source._words()
        return source

    def __str__(self) -> str:
        return f"{self.kind}:{self.place}"

    @property
    def path(self) -> Path | None:
        """Return the file, or None if it is none."""
        return Path(self.place) if self.kind == "file" else None

    @property
    def is_missing(self) -> bool:
        """Return whether it is a file that does not exist."""
        return self.path is not None and not self.path.exists()

    def create(self) -> None:
        """Generate a key, and write it to the file, which only its owner can read."""
        path = Path(self.place)
        if not path.parent.exists():
            path.parent.mkdir(mode=0o700, parents=True)
            FileSystem().fsync_dir(path.parent.parent)
        replace_file(path, secrets.token_bytes(KEY_BYTES).hex().encode() + b"\n", mode=0o600)

    def read(self) -> bytes:
        """Return the key. Raise InputError if there is none, or something else."""
        content = {"file": self._read_file, "env": self._read_variable, "command": self._run_command}[self.kind]()
        key = parse_key(content)
        if key is None:
            raise self._error(f"has {len(content)} bytes that are no key: it must be {KEY_FORMATS}")
        return key

    def _read_file(self) -> bytes:
        try:
            with Path(self.place).open("rb") as file:
                return file.read(KEY_BYTES_MAX)
        except OSError as error:
            raise self._error(f"cannot be read ({error.strerror})") from error

    def _read_variable(self) -> bytes:
        content = os.environb.get(os.fsencode(self.place))
        if content is None:
            raise self._error("is not in the environment of this process")
        return content

    def _words(self) -> list[str]:
        try:
            return shlex.split(self.place)
        except ValueError as error:
            raise self._error(f"cannot be split into words ({error})") from error

    def _run_command(self) -> bytes:
        """Run the command without a shell. What it prints to standard error appears where this process prints."""
        try:
            process = subprocess.Popen(
                self._words(), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, start_new_session=True
            )
        except OSError as error:
            raise self._error(f"cannot be run ({error.strerror})") from error
        is_late = threading.Event()

        def end() -> None:
            is_late.set()
            _kill(process)

        timer = threading.Timer(KEY_COMMAND_S, end)
        timer.start()
        try:
            with process:
                if process.stdout is None:
                    raise AssertionError("standard output is a pipe")
                content = process.stdout.read(KEY_BYTES_MAX + 1)
                if len(content) > KEY_BYTES_MAX:
                    _kill(process)
        finally:
            timer.cancel()
        if is_late.is_set():
            raise self._error(f"did not end within {KEY_COMMAND_S:g} s")
        if len(content) > KEY_BYTES_MAX:
            raise self._error(f"printed more than {KEY_BYTES_MAX} bytes")
        if process.returncode:
            raise self._error(f"failed with exit code {process.returncode}")
        return content

    def _error(self, problem: str) -> InputError:
        return InputError(f"{self.setting} = {self} {problem}")


def state_key(setting: str, data: Path) -> KeySource:
    """Return where the key for the secrets in the state is, from the setting `state.key` and the data folder."""
    return KeySource.parse(setting, "state.key", data / "keys" / "state.key")


def parse_key(content: bytes) -> bytes | None:
    """Return the key in one of its formats, or None. Text of 32 characters is no raw key: it would be a weak one."""
    if len(content) == KEY_BYTES and not _PRINTABLE.issuperset(content):
        return content
    text = content.strip()
    try:
        if len(text) == 2 * KEY_BYTES:
            return binascii.unhexlify(text)
        key = base64.b64decode(text.translate(_URL_SAFE).rstrip(b"=") + b"=", validate=True)
    except ValueError:
        return None
    return key if len(key) == KEY_BYTES else None


def _kill(process: subprocess.Popen[bytes]) -> None:
    """End the command and whatever it has started, which may hold the pipe open after the command itself has ended."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
