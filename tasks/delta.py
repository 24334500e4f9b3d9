"""Install Spark 4.2 with delta-spark, so that a test can read the tables with them. Run by `./dev delta`.

delta-spark supports no later Spark, so they are in an environment of their own, .delta-spark. `./dev test` installs
them as well. Where the jars (by Maven, from Maven Central or the mirror in its settings) or Spark (from pip's index)
cannot be fetched, it says that this was not tested, and why.
"""

import hashlib
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / ".delta-spark"
PYTHON = FOLDER / "bin" / "python"
STAMP = FOLDER / "installed"  # written last: what is installed
REASON = "DELTA_SPARK_MISSING"  # tells tests why it is not installed; names with WIRELAKE_ are settings
SPARK = "pyspark==4.2.1"
ARTIFACT = "delta-spark_2.13"
VERSION = "4.4.0"
POM = f"""<project>
  <modelVersion>4.0.0</modelVersion>
  <groupId>local</groupId>
  <artifactId>jars</artifactId>
  <version>1</version>
  <dependencies>
    <dependency>
      <groupId>io.delta</groupId>
      <artifactId>{ARTIFACT}</artifactId>
      <version>{VERSION}</version>
    </dependency>
  </dependencies>
</project>
"""
# artifact → SHA-256 of its jar. The other jars that they need are those of Spark.
JARS = {
    ARTIFACT: "27d4fd8b1f879535c573ed1c718177d6a27f24d3e626ba02e216369725721ead",
    "delta-storage": "c46735481fa8e326b0957be02b4420cbcab4b325bb08009b7f2045a95133f1cc",
    "delta-kernel-api": "ee9b5a14ac3b7efdff4d61a58478fe8eb0e5a3fbca43889dca7290795fe79a11",
    "delta-kernel-defaults": "225c975199e4718b38ee5b7e6da7f19e9585024262b2cec2656b32151a856b0b",
    "delta-kernel-unitycatalog": "cea22dfb4ac562b3cd27bf652697750e8336009d73fb06631363aaaad5345ffa",
}
INSTALLED = "\n".join([SPARK, VERSION, *JARS.values()])
INSTALL_TIMEOUT_S = 240.0  # for all of it; 100 s on two busy cores, without a cache of pip
_GRACE_S = 1.0  # for a step that begins at the end of this time
_PIP = ("-m", "pip", "install", "-qq", "--disable-pip-version-check")


class InstallError(Exception):
    """Raised with what could not be installed, and why."""


def main() -> int:
    reason = ensure()
    if reason:
        print(reason, file=sys.stderr)
        return 1
    print(f"{SPARK} and delta-spark {VERSION} are in {FOLDER.name}")
    return 0


def ensure(maven: str | None = None) -> str:
    """Install what is not there yet, with this Maven or the one on the path. Return why not, or nothing."""
    if STAMP.exists() and STAMP.read_text() == INSTALLED:
        return ""
    maven = maven or shutil.which("mvn")
    if maven is None:
        return "its jars come by Maven (mvn), which is not installed (Debian package maven)"
    shutil.rmtree(FOLDER, ignore_errors=True)
    try:
        _install(maven, time.monotonic() + INSTALL_TIMEOUT_S)
    except InstallError as error:
        shutil.rmtree(FOLDER, ignore_errors=True)
        return str(error)
    STAMP.write_text(INSTALLED)
    return ""


def _install(maven: str, until_s: float) -> None:
    with tempfile.TemporaryDirectory() as folder:
        fetched = Path(folder)
        _fetch(maven, fetched, until_s)  # first: without them, Spark (450 MB) is of no use
        _run([sys.executable, "-m", "venv", str(FOLDER)], until_s)
        _run([str(PYTHON), *_PIP, SPARK], until_s)
        (jars,) = FOLDER.glob("lib/python*/site-packages/pyspark/jars")
        for name in JARS:
            shutil.move(fetched / _file(name), jars)


def _fetch(maven: str, folder: Path, until_s: float) -> None:
    """Fetch the jars of Delta into a folder."""
    (folder / "pom.xml").write_text(POM)
    chosen = ["-DincludeGroupIds=io.delta", "-DincludeScope=runtime", f"-DoutputDirectory={folder}"]
    _run([maven, "-q", "-B", "-f", str(folder), "dependency:copy-dependencies", *chosen], until_s)
    for name, digest in JARS.items():
        jar = folder / _file(name)
        if not jar.exists():
            raise InstallError(f"Maven did not fetch {jar.name}")
        if hashlib.sha256(jar.read_bytes()).hexdigest() != digest:
            raise InstallError(f"{jar.name} has another SHA-256 than tasks/{Path(__file__).name} says")


def _file(artifact: str) -> str:
    return f"{artifact}-{VERSION}.jar"


def _run(command: list[str], until_s: float) -> None:
    shown = " ".join([Path(command[0]).name, *command[1:4]])
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=max(_GRACE_S, until_s - time.monotonic())
        )
    except subprocess.TimeoutExpired as error:
        raise InstallError(f"`{shown}` was not done within {INSTALL_TIMEOUT_S:g} s") from error
    if done.returncode:
        said = (done.stderr.strip() or done.stdout.strip()).splitlines()
        last = next((line for line in said if "[ERROR]" in line), said[-1] if said else f"exit code {done.returncode}")
        raise InstallError(f"`{shown}` failed: {last}")


if __name__ == "__main__":
    sys.exit(main())
