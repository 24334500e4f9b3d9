"""A process of this program that runs beside a command."""

import signal
import subprocess
import sys
from pathlib import Path
from typing import IO, Final

_TAIL_LINES: Final = 20


class ChildProcess:
    """`wirelake WORDS`, in a session of its own: Ctrl-C is for the command, which ends it when it is done.

    Its standard input is a pipe of ours, so it can tell when we are gone. `output` is a file for what it says.
    """

    def __init__(self, *words: str, output: Path | None = None) -> None:
        self.words = f"wirelake {' '.join(words)}"
        self._command = [sys.executable, "-m", "wirelake.cli.main", *words]
        self._output = output
        self._file: IO[bytes] | None = None
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        if self._output is not None:
            self._file = self._output.open("wb")
        self._process = subprocess.Popen(
            self._command, stdin=subprocess.PIPE, stdout=self._file, stderr=self._file, start_new_session=True
        )

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def stop(self, timeout_s: float) -> int | None:
        """Tell it to end: its exit code, or None if it did not end in time and was killed. 0 if it never started."""
        if self._process is None:
            return 0
        if self.is_running:
            self._process.send_signal(signal.SIGTERM)
        try:
            return self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return None
        finally:
            self.kill()

    def kill(self) -> None:
        """Whatever happened: it does not outlive the command."""
        if self._process is not None and self._process.stdin is not None:
            self._process.kill()  # nothing, if it has ended
            self._process.wait()
            self._process.stdin.close()
        if self._file is not None:
            self._file.close()

    def tail(self) -> str:
        """The last lines of its output."""
        lines = self._output.read_text(errors="replace").splitlines() if self._output is not None else []
        return "\n".join(f"  {line}" for line in lines[-_TAIL_LINES:])
