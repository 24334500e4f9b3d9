"""`wirelake serve` as a process that can be watched, run out of disk, be killed and restarted on the same ports."""

import os
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import httpx
from cli.serving import free_ports
from gateway.running_gateway import HOST, WAIT_S

LISTENERS: Final = ("comet", "magline", "apostol", "esnp", "sisnet", "sisnet_tcp", "redis", "http")
_TRACES: Final = ("Traceback", "exception was never retrieved", "Exception in callback", "Fatal Python error")


class GatewayProcess:
    """Run all listeners on free ports; `settings` and `environment` are variables of the process."""

    def __init__(self, folder: Path, settings: Mapping[str, str], environment: Mapping[str, str] | None = None) -> None:
        self.folder = folder
        self.ports = dict(zip(LISTENERS, free_ports(len(LISTENERS)), strict=True))
        self.output: list[str] = []  # what it wrote to stderr, over all restarts
        self._environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("WIRELAKE_")},
            **{f"WIRELAKE_LISTEN_{name.upper()}": f"{HOST}:{port}" for name, port in self.ports.items()},
            "WIRELAKE_DATA": str(folder),
            **settings,
            **(environment or {}),
        }
        self._process: subprocess.Popen[str] | None = None
        self._drain: threading.Thread | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None, "it runs"
        return self._process.pid

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.ports['http']}"

    @property
    def headers(self) -> dict[str, str]:
        """Return the headers that authenticate the administrator."""
        token = (self.folder / "keys" / "admin.token").read_text().strip()
        return {"Authorization": f"Bearer {token}"}

    def start(self) -> None:
        """Start it, and return once it is ready. Its stderr is a pipe, because pipes work while the disk is full."""
        command = [sys.executable, "-m", "wirelake.cli.main", "serve"]
        process = self._process = subprocess.Popen(
            command, env=self._environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        )
        self._drain = threading.Thread(target=self._read_output, args=(process,), daemon=True)
        self._drain.start()
        deadline = time.monotonic() + WAIT_S
        while time.monotonic() < deadline and process.poll() is None:
            with suppress(httpx.HTTPError):
                if httpx.get(f"{self.url}/readyz", timeout=2).status_code == 200:
                    return
            time.sleep(0.02)
        self.kill()
        raise AssertionError(f"the gateway did not become ready:\n{''.join(self.output[-40:])}")

    def kill(self) -> None:
        self._end(signal.SIGKILL)

    def stop(self) -> int:
        """Stop it with SIGTERM, and return the exit code."""
        return self._end(signal.SIGTERM)

    def resident_bytes(self) -> int:
        pages = int(Path(f"/proc/{self.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")

    def refuse_writes(self, *, refuse: bool) -> None:
        """Let every write to a file fail as if the disk were full, in the log and in the state."""
        limit = 0 if refuse else resource.RLIM_INFINITY
        resource.prlimit(self.pid, resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))

    def get(self, path: str) -> Any:
        answer = httpx.get(f"{self.url}{path}", headers=self.headers, timeout=WAIT_S)
        assert answer.status_code == 200, f"{path}: {answer.status_code} {answer.text[:500]}"
        return answer.json()

    def post(self, path: str, body: Mapping[str, Any]) -> Any:
        answer = httpx.post(f"{self.url}{path}", headers=self.headers, json=body, timeout=WAIT_S)
        assert answer.status_code == 201, f"{path}: {answer.status_code} {answer.text[:500]}"
        return answer.json()

    def tracebacks(self) -> list[str]:
        """Return the tracebacks that it printed, with some context; neither peers nor a full disk may cause any."""
        lines = list(self.output)
        places = [number for number, line in enumerate(lines) if any(word in line for word in _TRACES)]
        return ["".join(lines[max(0, number - 3) : number + 40]) for number in places]

    def _end(self, how: int) -> int:
        process = self._process
        assert process is not None, "it was started"
        assert self._drain is not None, "it was started"
        process.send_signal(how)
        try:
            code = process.wait(WAIT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise
        self._drain.join(WAIT_S)
        return code

    def _read_output(self, process: "subprocess.Popen[str]") -> None:
        assert process.stderr is not None
        with process.stderr as lines:
            self.output.extend(lines)
