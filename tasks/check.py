"""Check lint rules, format and types. Run by `./dev check`, and first by `./dev test`."""

import os
import subprocess
import sys
from pathlib import Path

BIN = Path(sys.executable).parent
SOURCES = ["src", "tests", "examples", "benchmarks", "fuzz", "tasks", "dev"]

RUFF, MYPY = str(BIN / "ruff"), str(BIN / "mypy")
STEPS = (
    ("lint", [RUFF, "check", *SOURCES]),
    ("format", [RUFF, "format", "--check", "--quiet", *SOURCES]),
    ("types", [MYPY]),
    ("types of the benchmarks, which have modules named like those of the tests", [MYPY, "benchmarks"]),
)
BENCHMARKS_PATH = {**os.environ, "MYPYPATH": "benchmarks"}


def check() -> bool:
    """Run every step, also after one that failed, so that one run shows every problem."""
    fine = True
    for name, command in STEPS:
        print(f"── {name}", flush=True)
        environment = BENCHMARKS_PATH if "benchmarks" in command[1:2] else None
        fine = subprocess.run(command, check=False, env=environment).returncode == 0 and fine
    return fine


if __name__ == "__main__":
    sys.exit(0 if check() else 1)
