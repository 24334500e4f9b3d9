"""Run a child process of this program for a command."""

import signal
import subprocess
import sys
from pathlib import Path
from typing import IO, Final

_TAIL_LINES: Final = 20


class ChildProcess:
    """Run `wirelake WORDS` in its own session: Ctrl-C goes to the command only, which stops the child when it is done.

    The child's standard input is a pipe that closes when this process is gone. `output` is a file for its output.
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
        """Stop it and return its exit code: None if it was killed after the timeout, 0 if it never started."""
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
        """Kill it if it still runs, so that it does not outlive the command."""
        if self._process is not None and self._process.stdin is not None:
            self._process.kill()  # does nothing if it has exited
            self._process.wait()
            self._process.stdin.close()
        if self._file is not None:
            self._file.close()

    def tail(self) -> str:
        """Return the last lines of its output."""
        lines = self._output.read_text(errors="replace").splitlines() if self._output is not None else []
        return "\n".join(f"  {line}" for line in lines[-_TAIL_LINES:])
