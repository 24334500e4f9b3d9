"""A mixed log through the whole pipeline: records a second, and CPU-seconds of driver, JVM and Python workers.

    ./dev bench pipeline whole [--before FOLDER]

`--before` names the source tree of another version: both run in turns, each in a process of its own, over the same
records. `silver` is bronze and silver alone, `gold` is everything that `wirelake pipeline run --once` does.
"""

import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from shutil import copytree, rmtree

from msgspec import Struct
from rich.table import Table

import wirelake
from lakeside.bench import Bench
from lakeside.mixed_log import write_mixed_log
from lakeside.process_tree import KINDS, cpu_seconds

GOALS = {"silver": 150_000, "gold": 100_000}
WARM_RECORDS = 100_000
HERE = Path(wirelake.__file__).parent.parent.parent
_BENCHMARKS = Path(__file__).parent.parent


class Run(Struct):
    records: int
    seconds: float
    cpu: Counter[str]
    notes: list[float] = []  # what else the run says

    @property
    def rate(self) -> float:
        return self.records / self.seconds


def run(bench: Bench) -> None:
    _show(bench, measure_versions(bench, "whole_run.py", lambda found: found.seconds))


def measure_versions(bench: Bench, script: str, cost: Callable[[Run], float]) -> dict[tuple[str, str], Run]:
    """The run that costs least, of each of GOALS and each version ("before", "now")."""
    write_mixed_log(bench.folder / "mixed", bench.rows)
    write_mixed_log(bench.folder / "warm", WARM_RECORDS)
    versions = {"now": HERE} if bench.before is None else {"before": bench.before, "now": HERE}
    best: dict[tuple[str, str], Run] = {}
    for _ in range(bench.rounds):
        for what in GOALS:
            for name, root in versions.items():
                found = measure(bench.folder, root, script, what)
                known = best.get((what, name))
                if known is None or cost(found) < cost(known):
                    best[what, name] = found
    return best


def measure(folder: Path, root: Path, script: str, what: str) -> Run:
    """Run one version once, with copies of the logs `warm` and `mixed` in a folder."""
    places = []
    for name in ("warm", "mixed"):
        places.append(folder / "run" / name)
        copytree(folder / name, places[-1])
    paths = os.pathsep.join([str(root / "src"), str(_BENCHMARKS)])
    command = [sys.executable, str(Path(__file__).parent / script), *map(str, places), what]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, env={**os.environ, "PYTHONPATH": paths}, **pipes) as process:  # type: ignore[call-overload]
        _expect(process, "warm")
        before, started_s = cpu_seconds(process.pid), time.perf_counter()
        _go_on(process)
        records = int(_expect(process, "done")[0])
        seconds, after = time.perf_counter() - started_s, cpu_seconds(process.pid)
        _go_on(process)
        notes = [float(word) for word in process.stdout.read().split()]
    rmtree(folder / "run")
    return Run(records, seconds, after - before, notes)


def _expect(process: "subprocess.Popen[str]", word: str) -> list[str]:
    words = process.stdout.readline().split() if process.stdout else []
    if words[:1] != [word]:
        process.kill()
        raise RuntimeError(f"the run said {words} instead of {word}")
    return words[1:]


def _go_on(process: "subprocess.Popen[str]") -> None:
    if process.stdin:
        process.stdin.write("\n")
        process.stdin.flush()


def _show(bench: Bench, best: dict[tuple[str, str], Run]) -> None:
    table = Table(title=f"a mixed log of {bench.rows:,} records, two cores", title_justify="left")
    for heading in ("", "", "records/s", *(f"{kind}, CPU-s" for kind in KINDS), "µs a record", "times before", "goal"):
        table.add_column(heading, justify="right" if heading else "left")
    for (what, name), found in best.items():
        before = best.get((what, "before"))
        times = "" if before is None else f"{found.rate / before.rate:.2f}"
        used_us = found.cpu.total() / found.records * 1e6
        goal = f"≥ {GOALS[what]:,} {'✓' if found.rate >= GOALS[what] else '✗'}"
        cpu = [f"{found.cpu[kind]:.1f}" for kind in KINDS]
        table.add_row(what, name, f"{found.rate:,.0f}", *cpu, f"{used_us:.1f}", times, goal)
    bench.console.print(table)
