"""The CPU time of a process and of all that it started, by kind."""

import os
from collections import Counter
from pathlib import Path

KINDS = ("driver", "JVM", "workers")
_TICK_S = 1 / os.sysconf("SC_CLK_TCK")


def cpu_seconds(root: int) -> Counter[str]:
    """CPU-seconds so far of the driver (the root), of the JVM, and of the Python processes that the JVM started.

    Of processes that have ended only those count that their parent has waited for.
    """
    parents, found = {}, {}
    for path in Path("/proc").iterdir():
        if path.name.isdecimal():
            try:
                stat = (path / "stat").read_text()
            except (FileNotFoundError, ProcessLookupError):  # it has just ended
                continue
            name, rest = stat[stat.index("(") + 1 : stat.rindex(")")], stat[stat.rindex(")") + 2 :].split()
            parents[int(path.name)] = int(rest[1])
            found[int(path.name)] = (name, sum(map(int, rest[11:15])) * _TICK_S)
    seconds: Counter[str] = Counter()
    for pid, (name, used_s) in found.items():
        above = pid
        while above not in (root, 0, 1):
            above = parents.get(above, 0)
        if above == root:
            kind = "driver" if pid == root else "JVM" if name == "java" else "workers"
            seconds[kind] += used_s  # type: ignore[assignment] # a counter may count fractions
    return seconds
