"""What a master that is not on this machine needs: the project itself, as a wheel, and the same interpreter."""

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
    """Executors see the data folder under the same path, and have the packages that the project needs."""
    if is_local(master):
        return {}
    wheel = (find_wheel() if wheel is None else wheel).absolute()
    return {
        "spark.submit.pyFiles": str(wheel),
        # The daemon that forks the workers starts before a task's own files are on its path.
        "spark.executorEnv.PYTHONPATH": f"{wheel}:./{wheel.name}",
        "spark.pyspark.python": sys.executable,
    }


def find_wheel() -> Path:
    """Made from the sources that this runs from."""
    root = Path(wirelake.__file__).parent.parent.parent
    if (root / "pyproject.toml").is_file():
        return build_wheel(root, Path(tempfile.mkdtemp(prefix="wirelake-wheel-")))
    raise InputError("a cluster needs Wirelake's own wheel: name it with --wheel")


def build_wheel(root: Path, folder: Path) -> Path:
    words = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    built = subprocess.run(words, cwd=root, capture_output=True, text=True, timeout=WHEEL_BUILD_S, check=False)
    wheels = list(folder.glob("*.whl"))
    if built.returncode or not wheels:
        raise InputError(f"the wheel for the cluster could not be built: {built.stderr.strip()[-500:]}")
    return wheels[0]
