"""Store the outcome of the last reload in data/gateway.reloaded, for the command that requested it."""

from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct, field

from wirelake.files import replace_file

NAME: Final = "gateway.reloaded"


class ReloadOutcome(Struct):
    """Describe a reload. `count` is its number since the gateway started."""

    pid: int
    count: int
    applied: list[str] = field(default_factory=list)
    kept: list[str] = field(default_factory=list)
    tls: bool = False
    error: str = ""  # if not empty, nothing was changed

    def sentences(self) -> list[str]:
        if self.error:
            return [f"Nothing was changed: {self.error}"]
        lines = [f"applied: {change}" for change in self.applied]
        lines += ["applied: certificate and key reloaded"] if self.tls else []
        lines += [f"needs a restart: {change}" for change in self.kept]
        return lines or ["No setting has changed."]


def write(folder: Path, outcome: ReloadOutcome) -> None:
    replace_file(folder / NAME, msgspec.json.encode(outcome), sync=False)


def read(folder: Path, pid: int) -> ReloadOutcome:
    """Return the last outcome of this process, or one with count 0 before the first."""
    try:
        outcome = msgspec.json.decode((folder / NAME).read_bytes(), type=ReloadOutcome)
    except (FileNotFoundError, msgspec.MsgspecError):  # never written, or by another version
        return ReloadOutcome(pid, 0)
    return outcome if outcome.pid == pid else ReloadOutcome(pid, 0)
