"""A folder in which the commands of one page run unchanged, with ports of its own."""

import os
import re
import signal
import subprocess
import sys
import sysconfig
import time
from collections.abc import Mapping
from itertools import count
from pathlib import Path
from typing import Final

from cli.serving import AT_START, clean_environment, free_ports

from manual.blocks import ROOT, Block, Command, fits
from wirelake.cli.support.protocol_package import PORT
from wirelake.config import default_settings

COMMAND_S: Final = 180.0  # only a failing test waits so long; Spark starts in some of them
_AGAIN_S: Final = 1.0
_numbers = count()
LISTEN = default_settings().listen


class Machine:
    """Run commands in a folder that has ./dev, examples/ and .venv as a clone has, and `data` beside them."""

    def __init__(self, folder: Path, *, installs: bool = False) -> None:
        """With `installs`, the page installs packages: into an environment of its own."""
        self.folder = folder
        for name in ("dev", "examples"):
            (folder / name).symlink_to(ROOT / name)
        if installs:
            _create_environment(folder / ".venv")
        else:
            (folder / ".venv").symlink_to(sys.prefix)
        self.python = folder / ".venv" / "bin" / "python"
        defaults = [str(address).rpartition(":")[2] for address in map(_default, LISTEN.__struct_fields__)]
        defaults.append(str(PORT))
        self._ports = dict(zip(defaults, map(str, free_ports(len(defaults))), strict=True))
        listen = {f"WIRELAKE_LISTEN_{name.upper()}": self.here(_default(name)) for name in LISTEN.__struct_fields__}
        path = f"{self.python.parent}{os.pathsep}{os.environ['PATH']}"
        packages = AT_START.get("PYTHONPATH", "")  # without those that other tests have added
        self._environment = clean_environment(**listen, **_OFFLINE, PATH=path, COLUMNS="200", PYTHONPATH=packages)
        self._gateway: Started | None = None
        self._staying: list[Started] = []

    def here(self, text: str) -> str:
        """Replace the ports of the manual with those of this machine."""
        return _exchanged(text, self._ports)

    def there(self, text: str) -> str:
        return _exchanged(text, {port: default for default, port in self._ports.items()})

    def run(self, block: Block) -> None:
        assert not (self._staying and "stopped" in block.manner), f"{block.place}: the page's own gateway stays"
        if self._staying or "stopped" in block.manner or "stays" in block.manner:
            self.stop_gateway()
        elif self._gateway is None:
            self._gateway = self.start("wirelake serve")
            self._gateway.await_lines(["…", "The admin token is in …"])
        commands = block.commands()
        assert commands, f"{block.place}: no command"
        for command in commands:
            last = command is commands[-1]
            if last and "stays" in block.manner:
                self._staying.append(self.start(command.text))
                self._staying[-1].await_lines(command.shown)
            else:
                self._run(block, command, fails=last and "fails" in block.manner)

    def _run(self, block: Block, command: Command, *, fails: bool) -> None:
        until_s = time.monotonic() + COMMAND_S
        while True:
            done = self.start(command.text)
            status = done.wait()
            text = f"{block.place}: $ {command.text}\n{done.text}\nexit code {status}"
            right = not command.shown or fits(command.shown, done.text.splitlines())
            if "eventually" not in block.manner or right or time.monotonic() > until_s:
                break
            time.sleep(_AGAIN_S)
        assert (status != 0) == fails, text
        assert right, f"{text}\nbut the page shows:\n" + "\n".join(command.shown)

    def start(self, command: str) -> "Started":
        return Started(self, self.here(command), self._environment)

    def write(self, path: str, text: str) -> None:
        (self.folder / path).write_text(self.here(text))

    def change(self, path: str, diff: str) -> None:
        """Change a file as the lines that begin with - and + say; the others are around the place.

        A line `@@` comes between two places.
        """
        text = (self.folder / path).read_text()
        for place in diff.split("@@\n"):
            lines = [(line[:1], line[1:]) for line in place.splitlines()]
            before = "".join(f"{line}\n" for mark, line in lines if mark != "+")
            after = "".join(f"{line}\n" for mark, line in lines if mark != "-")
            assert text.count(before) == 1, f"{path} has these lines {text.count(before)} times:\n{before}"
            text = text.replace(before, after)
        (self.folder / path).write_text(text)

    def stop_gateway(self) -> None:
        if self._gateway is not None:
            assert self._gateway.interrupt() == 0, self._gateway.text
            self._gateway = None

    def close(self) -> None:
        self.stop_gateway()
        for started in self._staying:
            assert started.interrupt() == 0, started.text

    def kill(self) -> None:
        """End all processes that still run."""
        for started in (*self._staying, *filter(None, [self._gateway])):
            started.kill()


class Started:
    """Run a command in a process group of its own, with its output in a file, so that it never blocks."""

    def __init__(self, machine: Machine, command: str, environment: Mapping[str, str]) -> None:
        self._machine = machine
        self._output = machine.folder / f"output-{next(_numbers)}"
        with self._output.open("wb") as output:
            self._process = subprocess.Popen(
                ["bash", "-c", f"set -o pipefail; {command}"],
                cwd=machine.folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def text(self) -> str:
        return self._machine.there(self._output.read_text(errors="replace"))

    def await_lines(self, shown: list[str]) -> None:
        until_s = time.monotonic() + COMMAND_S
        while not fits([*shown, "…"], self.text.splitlines()):
            assert self._process.poll() is None, f"it ended: {self.text}"
            assert time.monotonic() < until_s, f"it printed\n{self.text}\nand not\n" + "\n".join(shown)
            time.sleep(0.05)

    def wait(self) -> int:
        try:
            return self._process.wait(COMMAND_S)
        finally:
            self.kill()

    def interrupt(self) -> int:
        """Interrupt the process group, as Ctrl-C does on a terminal."""
        os.killpg(self._process.pid, signal.SIGINT)
        return self.wait()

    def kill(self) -> None:
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()


_OFFLINE: Final = {"PIP_NO_INDEX": "1", "PIP_NO_BUILD_ISOLATION": "0", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}


def _create_environment(folder: Path) -> None:
    """Make a virtual environment that also finds the packages of this one."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    (site_packages,) = folder.glob("lib/python*/site-packages")
    own = sysconfig.get_path("purelib")
    (site_packages / "parent.pth").write_text(f"import site; site.addsitedir({own!r})\n")
    for name, module in (("wirelake", "wirelake.cli.main"), ("pip", "pip"), ("pytest", "pytest")):
        program = folder / "bin" / name
        program.write_text(f"#!{folder}/bin/python\nimport runpy\nrunpy.run_module({module!r}, run_name='__main__')\n")
        program.chmod(0o755)


def _default(name: str) -> str:
    return str(getattr(LISTEN, name))


def _exchanged(text: str, ports: Mapping[str, str]) -> str:
    return re.sub(r"\b\d+\b", lambda found: ports.get(found[0], found[0]), text)
