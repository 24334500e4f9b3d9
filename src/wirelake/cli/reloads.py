"""data/gateway.reloaded: what the gateway made of the last reload, for the command that asked for it."""

from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct, field

from wirelake.files import replace_file

NAME: Final = "gateway.reloaded"


class ReloadOutcome(Struct):
    """`count` grows with every reload of one run of the gateway."""

    pid: int
    count: int
    applied: list[str] = field(default_factory=list)
    kept: list[str] = field(default_factory=list)
    tls: bool = False
    error: str = ""  # then nothing was changed

    def sentences(self) -> list[str]:
        if self.error:
            return [f"Nothing was changed: {self.error}"]
        told = [f"applied: {change}" for change in self.applied]
        told += ["applied: certificate and key were read again"] if self.tls else []
        told += [f"takes a restart: {change}" for change in self.kept]
        return told or ["No setting has changed."]


def write(folder: Path, outcome: ReloadOutcome) -> None:
    replace_file(folder / NAME, msgspec.json.encode(outcome), sync=False)


def read(folder: Path, pid: int) -> ReloadOutcome:
    """The last one of this process; one without a count before the first."""
    try:
        outcome = msgspec.json.decode((folder / NAME).read_bytes(), type=ReloadOutcome)
    except (FileNotFoundError, msgspec.MsgspecError):  # never written, or by another version
        return ReloadOutcome(pid, 0)
    return outcome if outcome.pid == pid else ReloadOutcome(pid, 0)
