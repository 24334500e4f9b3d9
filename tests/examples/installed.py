"""Install the example packages as a user would, and run commands that find them."""

import os
import subprocess
import sys
from pathlib import Path

EXAMPLES = Path(__file__).parent.parent.parent / "examples"
WAIT_S = 300.0  # only a failing test waits so long


def install(folder: Path, *names: str) -> dict[str, str]:
    """Build and install these examples into the folder; return the environment in which they are found."""
    return install_packages(folder, *(EXAMPLES / name for name in names))


def install_packages(folder: Path, *packages: Path) -> dict[str, str]:
    """Build and install these into the folder; return the environment in which they are found.

    pip builds them with the packages of this environment.
    """
    pip = [sys.executable, "-m", "pip", "install", "-qq", "--no-deps", "--no-build-isolation"]
    subprocess.run([*pip, "--target", str(folder), *map(str, packages)], check=True)
    places = [str(folder), *filter(None, [os.environ.get("PYTHONPATH", "")])]
    clean = {name: value for name, value in os.environ.items() if not name.startswith("WIRELAKE_")}
    return {**clean, "PYTHONPATH": os.pathsep.join(places)}


def wirelake(environment: dict[str, str], *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "wirelake.cli.main", *words]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=WAIT_S)
