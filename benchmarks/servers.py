"""Servers for the benchmarks, each as a process of its own on one core; the load has the other."""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO

Process = subprocess.Popen[bytes]
SERVER_CORE = 0
LOAD_CORE = 1
START_S = 15.0
BIN = Path(sys.executable).parent


def pin_load() -> None:
    if len(os.sched_getaffinity(0)) > 1:
        os.sched_setaffinity(0, {LOAD_CORE})


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


@contextlib.contextmanager
def running(
    command: list[str], port: int, environment: dict[str, str] | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """The process, once it listens; ended by its own id."""
    pinned = ["taskset", "-c", str(SERVER_CORE), *command]
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(pinned, stdout=output, stderr=output, env={**os.environ, **(environment or {})})
        try:
            _wait(process, port, output)
            yield process
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(15)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _wait(process: Process, port: int, output: IO[bytes]) -> None:
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline:
        if process.poll() is not None:
            break
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 0.2):
            return
        time.sleep(0.05)
    output.seek(0)
    told = output.read()[-2000:].decode(errors="replace")
    raise RuntimeError(f"{process.args!r} did not start: {told}")


@contextlib.contextmanager
def wirelake(folder: Path, **settings: str) -> Iterator[dict[str, int]]:
    """A gateway with every door on a free port; answers the ports by door. `settings` as WIRELAKE_… variables."""
    doors = ("comet", "magline", "apostol", "esnp", "sisnet", "sisnet_tcp", "redis", "http")
    ports = {door: free_port() for door in doors}
    environment = {f"WIRELAKE_LISTEN_{door.upper()}": f"127.0.0.1:{port}" for door, port in ports.items()}
    environment |= {"WIRELAKE_DATA": str(folder), **settings}
    with running([str(BIN / "wirelake"), "serve"], ports["http"], environment) as process:  # the last door to open
        ports["pid"] = process.pid
        yield ports


@contextlib.contextmanager
def nats() -> Iterator[int]:
    port = free_port()
    with running([str(BIN / "nats-server"), "-a", "127.0.0.1", "-p", str(port)], port):
        yield port


@contextlib.contextmanager
def redis(synced: Path | None = None) -> Iterator[int]:
    """Without a limit for slow subscribers. With a folder, what is written is synced before it is answered; else there
    is no persistence.
    """
    port = free_port()
    command = ["redis-server", "--port", str(port), "--save", "", "--appendonly", "no" if synced is None else "yes"]
    if synced is not None:
        command += ["--dir", str(synced), "--appendfsync", "always"]
    with running([*command, "--client-output-buffer-limit", "pubsub 0 0 0"], port):
        yield port


@contextlib.contextmanager
def mosquitto(folder: Path, *, save_changes: bool) -> Iterator[int]:
    """QoS 1 with persistence and unlimited queues; with `save_changes` its database is written after every change."""
    port = free_port()
    config = folder / "mosquitto.conf"
    config.write_text(
        f"listener {port} 127.0.0.1\nallow_anonymous true\npersistence true\npersistence_location {folder}/\n"
        "max_queued_messages 0\nmax_inflight_messages 0\nset_tcp_nodelay true\nuser root\n"
        + ("autosave_interval 1\nautosave_on_changes true\n" if save_changes else "")
    )
    with running([_system("mosquitto"), "-c", str(config)], port):
        yield port


def _system(name: str) -> str:
    return shutil.which(name) or f"/usr/sbin/{name}"


def missing() -> list[str]:
    """What has to be installed from the system's packages first."""
    wanted = {"redis-server": "redis-server", "mosquitto": "mosquitto", "taskset": "util-linux"}
    return [package for name, package in wanted.items() if not Path(_system(name)).exists() and not shutil.which(name)]
