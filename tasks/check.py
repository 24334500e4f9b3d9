"""Lint, format and types. Run by `./dev check`, and first by `./dev test`."""

import subprocess
import sys
from pathlib import Path

BIN = Path(sys.executable).parent
SOURCES = ["src", "tests", "examples", "benchmarks", "fuzz", "tasks", "dev"]

STEPS = (
    ("lint", [BIN / "ruff", "check", *SOURCES]),
    ("format", [BIN / "ruff", "format", "--check", "--quiet", *SOURCES]),
    ("types", [BIN / "mypy"]),
)


def check() -> bool:
    """Runs every step, also after one that failed, so that one run shows all there is."""
    fine = True
    for name, command in STEPS:
        print(f"── {name}", flush=True)
        fine = subprocess.run(command, check=False).returncode == 0 and fine
    return fine


if __name__ == "__main__":
    sys.exit(0 if check() else 1)
