"""Rounds of load, each ended by a SIGKILL or a power failure, with the model checked after every restart."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Final

from msgspec import Struct

from resilience.power import Disk
from resilience.process import GatewayProcess
from resilience.workload import Model, Workload

SETTINGS: Final = {"WIRELAKE_AUTH_OPEN": "true", "WIRELAKE_LOG_SEGMENT_MB": "1"}
LOAD_S: Final = (0.2, 1.2)


class Summary(Struct):
    kills: int = 0
    power_failures: int = 0
    unsynced: int = 0  # operations on files that were not synced when the power failed
    promised: int = 0
    acked: int = 0


class Chaos:
    """Run rounds on one data folder; `workshop` is a folder for journals and copies."""

    def __init__(self, folder: Path, workshop: Path, seed: int, report: Callable[[str], None]) -> None:
        self.model = Model()
        self.summary = Summary()
        self._chance = Random(seed)
        self._folder = folder
        self._workshop = workshop
        self._tell = report

    def run(self, kills: int, power_failures: int) -> None:
        """Run until the first problem, which is then in `model.problems`."""
        kinds = ["kill"] * kills + ["power"] * power_failures
        self._chance.shuffle(kinds)
        disk = Disk(self._folder, self._workshop) if power_failures else None
        gateway = GatewayProcess(self._folder, SETTINGS, disk.environment if disk else None)
        workload = Workload(gateway, self.model)
        gateway.start()
        workload.provide()
        asyncio.run(workload.prepare())
        gateway.stop()
        for round_, kind in enumerate(kinds):
            self._round(round_, kind, gateway, workload, disk)
            self._check(round_, kind, gateway, workload)
            if self.model.problems:
                return

    def _round(self, round_: int, kind: str, gateway: GatewayProcess, workload: Workload, disk: Disk | None) -> None:
        if disk is not None:
            disk.begin()
        gateway.start()
        asyncio.run(workload.run(round_, self._chance.uniform(*LOAD_S), gateway.kill))
        if kind == "power" and disk is not None:
            self.summary.unsynced += disk.fail(self._chance)
            self.summary.power_failures += 1
        else:
            self.summary.kills += 1

    def _check(self, round_: int, kind: str, gateway: GatewayProcess, workload: Workload) -> None:
        try:
            gateway.start()
        except AssertionError as error:
            self.model.problems.append(str(error))
            return
        try:
            asyncio.run(workload.check())
        finally:
            gateway.stop()
        self.model.problems += [f"a traceback was logged:\n{text}" for text in gateway.tracebacks()]
        self.summary.promised = sum(map(len, self.model.promised.values()))
        self.summary.acked = len(self.model.acked)
        self._tell(f"round {round_ + 1} ({kind}): {self.summary.promised} promised, {self.summary.acked} acked so far")
