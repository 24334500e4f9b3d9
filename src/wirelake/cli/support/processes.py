"""Manage the processes of Wirelake on this machine: child processes, the gateway's pid file, the outcome of reloads.

data/gateway.pid says which process is the gateway of a data folder. The gateway holds a lock on the file for as long as
it lives, and the operating system drops the lock with the process. So a process id in a file that is not locked is
stale, even if another process has that id now.

data/gateway.reloaded has the outcome of the last reload, for the command that requested it.
"""

import signal
import subprocess
import sys
from pathlib import Path
from typing import IO, Final

import msgspec
from msgspec import Struct, field

from wirelake.errors import StorageError
from wirelake.files import FileLock, lock_holder, replace_file

FOLDER_MODE: Final = 0o700  # of a new data folder: it contains the bytes of the wire, including tokens of logins
_PID_FILE: Final = "gateway.pid"
_PID_FILE_MODE: Final = 0o644
_RELOAD_FILE: Final = "gateway.reloaded"
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


class PidFile:
    """Hold the lock that makes this process the gateway of a data folder."""

    def __init__(self, folder: Path) -> None:
        try:
            folder.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
            conflict = f"the data folder {folder} is in use by the gateway"
            self._lock = FileLock(folder / _PID_FILE, conflict, _PID_FILE_MODE)
        except OSError as error:
            raise StorageError(f"the data folder {folder} cannot be used: {error}") from error

    def release(self) -> None:
        self._lock.release()


def gateway_pid(folder: Path) -> int | None:
    """Return the process id of the gateway that runs on this data folder, or None."""
    return lock_holder(folder / _PID_FILE)


class ReloadOutcome(Struct):
    """Describe a reload. `count` is its number since the gateway started."""

    pid: int
    count: int
    applied: list[str] = field(default_factory=list)
    needs_restart: list[str] = field(default_factory=list)
    tls: bool = False
    error: str = ""  # if not empty, nothing was changed

    def sentences(self) -> list[str]:
        if self.error:
            return [f"Nothing was changed: {self.error}"]
        lines = [f"applied: {change}" for change in self.applied]
        lines += ["applied: certificate and key reloaded"] if self.tls else []
        lines += [f"needs a restart: {change}" for change in self.needs_restart]
        return lines or ["No setting has changed."]


def write_reload_outcome(folder: Path, outcome: ReloadOutcome) -> None:
    replace_file(folder / _RELOAD_FILE, msgspec.json.encode(outcome), sync=False)


def read_reload_outcome(folder: Path, pid: int) -> ReloadOutcome:
    """Return the last outcome of this process, or one with count 0 before the first."""
    try:
        outcome = msgspec.json.decode((folder / _RELOAD_FILE).read_bytes(), type=ReloadOutcome)
    except (FileNotFoundError, msgspec.MsgspecError):  # never written, or by another version
        return ReloadOutcome(pid, 0)
    return outcome if outcome.pid == pid else ReloadOutcome(pid, 0)
