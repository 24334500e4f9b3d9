"""Settings for a remote Spark master: executors need Wirelake itself, as a wheel, and the same interpreter."""

import subprocess
import sys
import tempfile
from pathlib import Path

import wirelake
from wirelake.errors import InputError
from wirelake.limits import WHEEL_BUILD_S


def is_local(master: str) -> bool:
    return master.startswith("local")


def cluster_settings(master: str, wheel: Path | None = None) -> dict[str, str]:
    """Return Spark settings. Executors must see the data folder at the same path and have Wirelake's dependencies."""
    if is_local(master):
        return {}
    wheel = (find_wheel() if wheel is None else wheel).absolute()
    return {
        "spark.submit.pyFiles": str(wheel),
        # The daemon that forks the workers starts before a task's files are on its path.
        "spark.executorEnv.PYTHONPATH": f"{wheel}:./{wheel.name}",
        "spark.pyspark.python": sys.executable,
    }


def find_wheel() -> Path:
    """Build a wheel from the source tree that this runs from."""
    root = Path(wirelake.__file__).parent.parent.parent
    if (root / "pyproject.toml").is_file():
        return build_wheel(root, Path(tempfile.mkdtemp(prefix="wirelake-wheel-")))
    raise InputError("executors on a cluster need Wirelake's wheel: pass it with --wheel")


def build_wheel(root: Path, folder: Path) -> Path:
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    built = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=WHEEL_BUILD_S, check=False)
    wheels = list(folder.glob("*.whl"))
    if built.returncode or not wheels:
        raise InputError(f"cannot build the wheel for the cluster: {built.stderr.strip()[-500:]}")
    return wheels[0]
