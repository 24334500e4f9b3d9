"""What the parts share: the session, a folder, a way to measure, a way to show it."""

import os
import time
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from wirelake.pipeline.spark.session import open_session

CORES = 2
DRIVER_MEMORY = "2g"

Ways = dict[str, tuple[Callable[[], object], int]]  # by name: what to do, and with how many rows


class Bench:
    """`rows` is about how many a part works on; `folder` is removed in the end; `before` is an older source tree."""

    def __init__(self, console: Console, folder: Path, rows: int, rounds: int, before: Path | None = None) -> None:
        self.console = console
        self.folder = folder
        self.rows = rows
        self.rounds = rounds
        self.before = before
        self._opened = False

    @cached_property
    def spark(self) -> Any:
        """Started when the first part asks for it, the same for all."""
        self._opened = True
        os.environ["PYTHONPATH"] = str(Path(__file__).parent.parent)  # for the workers: the parts' functions are there
        settings = {"spark.ui.enabled": "false", "spark.driver.memory": DRIVER_MEMORY}
        return open_session(f"local[{CORES}]", "benchmark", settings)

    def close(self) -> None:
        if self._opened:
            self.spark.stop()

    def rates(self, ways: Ways) -> dict[str, float]:
        """Rows a second of each way: the best of several rounds, taken in turn.

        A round before them is not counted: it starts workers and compiles.
        """
        best = dict.fromkeys(ways, float("inf"))
        for counted in range(self.rounds + 1):
            for name, (work, _) in ways.items():
                start = time.perf_counter()
                work()
                if counted:
                    best[name] = min(best[name], time.perf_counter() - start)
        return {name: rows / best[name] for name, (_, rows) in ways.items()}

    def show(self, title: str, rates: dict[str, float], base: str, goals: dict[str, float] | None = None) -> None:
        """`goals`: how many times a way the base should be, at least."""
        table = Table(title=title, title_justify="left")
        for column in ("", "rows/s", f"{base}, times this", "goal"):
            table.add_column(column, justify="left" if not column else "right")
        for name, rate in rates.items():
            goal = (goals or {}).get(name)
            ratio = rates[base] / rate
            judged = "" if goal is None else f"≥ {goal:g} {'✓' if ratio >= goal else '✗'}"
            table.add_row(name, f"{rate:,.0f}", f"{ratio:.2f}", judged)
        self.console.print(table)
