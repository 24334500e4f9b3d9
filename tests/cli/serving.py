"""Run `wirelake serve` as a process, and commands against it."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from wirelake.config import default_settings

WAIT_S = 60.0  # only a failing test waits so long
HOST = "127.0.0.1"
AT_START = dict(os.environ)  # before any test
_SET_BY_SPARK = ("JAVA_HOME", "PYSPARK_PYTHON")  # when a session is opened in the process of the tests


def free_ports(count: int) -> list[int]:
    """Return ports that are free now. All are open at once while they are chosen, so that they differ."""
    opened = [socket.create_server((HOST, 0)) for _ in range(count)]
    try:
        return [each.getsockname()[1] for each in opened]
    finally:
        for each in opened:
            each.close()


def clean_environment(**variables: str) -> dict[str, str]:
    """Return the environment without settings of Wirelake and what Spark has set, and with these variables."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("WIRELAKE_")}
    for name in _SET_BY_SPARK:
        kept.pop(name, None)
    return kept | {name: AT_START[name] for name in _SET_BY_SPARK if name in AT_START} | variables


def write_settings(folder: Path, *listeners: str, text: str = "", ports: dict[str, int] | None = None) -> Path:
    """Write a settings file with these listeners, each on a free port, and the data folder next to it."""
    ports = ports or dict(zip(listeners, free_ports(len(listeners)), strict=True))
    lines = [f'data = "{folder / "data"}"', "[listen]"]
    lines += [
        f'{listener} = "{HOST}:{ports[listener]}"' if listener in ports else f'{listener} = "off"' for listener in _ALL
    ]
    file = folder / "wirelake.toml"
    file.write_text("\n".join([*lines, text]))
    return file


def wirelake(*words: str, stdin: bytes = b"", timeout_s: float = WAIT_S) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "wirelake.cli.main", *words],
        input=stdin.decode("latin-1"),
        encoding="latin-1" if stdin else "utf-8",
        capture_output=True,
        timeout=timeout_s,
        env=clean_environment(),
        check=False,
    )


class Serving:
    def __init__(self, process: "subprocess.Popen[str]", settings: Path) -> None:
        self.process = process
        self.settings = settings
        self.greeting: list[str] = []
        self.output = self.errors = ""

    def read_greeting(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.greeting.append(line.rstrip())
            if "admin token" in line:
                return
        raise AssertionError(f"it ended: {self.process.communicate()[1]}")

    def address(self, listener: str) -> tuple[str, int]:
        (line,) = [line for line in self.greeting if line.split()[0] == listener]
        host, _, port = line.split()[-1].rpartition(":")
        return host.removeprefix("http://"), int(port)

    def end(self, name: int = signal.SIGTERM) -> int:
        """Send the signal, and return the exit code."""
        self.process.send_signal(name)
        self.output, self.errors = self.process.communicate(timeout=WAIT_S)
        return self.process.returncode

    def run(self, *words: str, **rest: Any) -> "subprocess.CompletedProcess[str]":
        return wirelake(*words, "--config", str(self.settings), **rest)


@contextmanager
def serving(
    folder: Path,
    *listeners: str,
    options: tuple[str, ...] = (),
    text: str = "",
    ports: dict[str, int] | None = None,
) -> Iterator[Serving]:
    settings = write_settings(folder, *listeners, text=text, ports=ports)
    process = subprocess.Popen(
        [sys.executable, "-m", "wirelake.cli.main", "serve", "--config", str(settings), *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=clean_environment(),
    )
    with process:
        try:
            running = Serving(process, settings)
            running.read_greeting()
            yield running
        finally:
            process.kill()


_ALL = default_settings().listen.__struct_fields__
