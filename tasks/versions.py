"""Run tests of the pipeline with the lowest and the newest Spark that Wirelake supports.

    ./dev versions [VERSION…] [-- pytest options]

Each version gets a virtual environment in .versions/, with the packages of requirements.lock except pyspark itself.
"""

import re
import subprocess
import sys
import venv
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
FOLDER: Final = ROOT / ".versions"
TESTS: Final = (
    "tests/pipeline/test_end_to_end.py",
    "tests/pipeline/test_job.py",
    "tests/pipeline/test_recovery.py",
    "tests/pipeline/spark/test_connect.py",
)
INSTALL_S: Final = 1800
TESTS_S: Final = 3600


def supported() -> list[str]:
    """Return the lowest version that pyproject.toml allows, and the one of requirements.lock."""
    lowest = re.search(r"pyspark>=(\d+\.\d+)", (ROOT / "pyproject.toml").read_text())
    newest = re.search(r"^pyspark==(\S+)", (ROOT / "requirements.lock").read_text(), re.MULTILINE)
    if lowest is None or newest is None:
        sys.exit("cannot find the versions of pyspark in pyproject.toml and requirements.lock")
    return [f"{lowest[1]}.0", newest[1]]


def environment(version: str) -> Path:
    """Return the Python of the environment for a version, which is made once."""
    folder = FOLDER / version
    python, stamp = folder / "bin" / "python", folder / "installed"
    if stamp.exists():
        return python
    venv.create(folder, with_pip=True)
    packages = folder / "packages.txt"
    packages.write_text(without_pyspark((ROOT / "requirements.lock").read_text()))
    pip = [str(python), "-m", "pip", "install", "-q", "--disable-pip-version-check"]
    for options in (
        ["--require-hashes", "--no-deps", "-r", str(packages)],
        ["--no-deps", f"pyspark=={version}"],
        ["--no-deps", "--no-build-isolation", "--editable", str(ROOT)],
    ):
        subprocess.run([*pip, *options], check=True, timeout=INSTALL_S)
    stamp.touch()
    return python


def without_pyspark(lock: str) -> str:
    """Return the lock without the entry of pyspark, whose lines end with a backslash up to the last one."""
    return re.sub(r"^pyspark==(?:.*\\\n)*.*\n", "", lock, flags=re.MULTILINE)


def main() -> None:
    words = sys.argv[1:]
    options = words[words.index("--") + 1 :] if "--" in words else []
    versions = words[: words.index("--")] if "--" in words else words
    failed = []
    for version in versions or supported():
        print(f"pyspark {version}", flush=True)
        command = [str(environment(version)), "-m", "pytest", "-q", "-n0", *(options or TESTS)]
        if subprocess.run(command, cwd=ROOT, timeout=TESTS_S, check=False).returncode:
            failed.append(version)
    if failed:
        sys.exit(f"the tests fail with pyspark {', '.join(failed)}")


if __name__ == "__main__":
    main()
