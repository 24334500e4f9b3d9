"""A process of this program that runs beside a command, with its output in a file."""

import signal
import subprocess
import sys
from pathlib import Path
from typing import IO, Final

from wirelake.errors import InputError

_TAIL_LINES: Final = 20


class Beside:
    """`wirelake WORDS`, in a session of its own: Ctrl-C is for the command, which ends it when it is done."""

    def __init__(self, output: Path, *words: str) -> None:
        self._words = [sys.executable, "-m", "wirelake.cli.main", *words]
        self._output = output
        self._file: IO[bytes] | None = None
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> "Beside":
        self._file = self._output.open("wb")
        self._process = subprocess.Popen(
            self._words, stdin=subprocess.PIPE, stdout=self._file, stderr=self._file, start_new_session=True
        )
        return self

    def __exit__(self, *_: object) -> None:
        """Whatever happened: it does not outlive the command."""
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        if self._file is not None:
            self._file.close()

    def check(self) -> None:
        """It should be running."""
        if self._process is None or self._process.poll() is not None:
            raise InputError(f"`{' '.join(self._words[3:])}` has ended:\n{self.tail()}")

    def end(self, timeout_s: float) -> None:
        """By its own way of ending, in time and without a fault."""
        assert self._process is not None  # noqa: S101 (inside the with)
        self._process.send_signal(signal.SIGTERM)
        try:
            code = self._process.wait(timeout_s)
        except subprocess.TimeoutExpired as error:
            words = " ".join(self._words[3:])
            raise InputError(f"`{words}` did not end within {timeout_s:g} s:\n{self.tail()}") from error
        if code:
            raise InputError(f"`{' '.join(self._words[3:])}` ended with exit code {code}:\n{self.tail()}")

    def tail(self) -> str:
        lines = self._output.read_text(errors="replace").splitlines() if self._output.exists() else []
        return "\n".join(f"  {line}" for line in lines[-_TAIL_LINES:])
