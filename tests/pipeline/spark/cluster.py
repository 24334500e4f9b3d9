"""Run Spark's standalone cluster on loopback: a master and two workers, from the package pyspark.

Workers can be isolated: each has its own home, temporary folder and working directory, and sees empty folders where the
driver's are. That takes a mount namespace (`unshare`), which most Linux systems let any user create.
"""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import cache
from pathlib import Path

import pyspark
from cli.serving import clean_environment, free_ports

from wirelake.pipeline.spark.java import find_java

ROOT = Path(__file__).parent.parent.parent.parent
HOST = "127.0.0.1"
WAIT_S = 240.0
SPARK_HOME = Path(pyspark.__file__).parent
BASE_PYTHON = Path(sys.base_prefix) / "bin"
_HIDE = 'while [ "$1" != -- ]; do mount -t tmpfs none "$1" || exit 1; shift; done; shift; exec "$@"'


@cache
def can_hide() -> bool:
    """Return whether a process can be run that does not see some folders."""
    if shutil.which("unshare") is None:
        return False
    command = [*_unshare(), "sh", "-c", _HIDE, "sh", str(ROOT / "src"), "--", "true"]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def _unshare() -> list[str]:
    return ["unshare", "--mount"] if os.getuid() == 0 else ["unshare", "--mount", "--user", "--map-root-user"]


def hiding(folders: Sequence[Path]) -> list[str]:
    """Return how to start a command that sees these folders empty."""
    if not folders or not can_hide():
        return []
    return [*_unshare(), "sh", "-c", _HIDE, "sh", *map(str, folders), "--"]


@contextmanager
def daemon(name: str, *words: str, folder: Path, hidden: Sequence[Path] = ()) -> Iterator[Path]:
    """Run one of Spark's own daemons, with its output in a file."""
    for each in ("home", "tmp"):
        (folder / each).mkdir(parents=True)
    environment = clean_environment(
        JAVA_HOME=str(find_java().home),
        SPARK_LOCAL_IP=HOST,
        SPARK_DAEMON_MEMORY="256m",
        SPARK_WORKER_DIR=str(folder / "work"),
        SPARK_HOME=str(SPARK_HOME),
    )
    if hidden:
        environment |= {name: str(folder / each) for name, each in (("HOME", "home"), ("TMPDIR", "tmp"))}
        environment |= {"SPARK_LOCAL_DIRS": str(folder / "tmp"), "PATH": f"{BASE_PYTHON}:/usr/bin:/bin"}
        environment.pop("PYTHONPATH", None)
    output_file = folder / "said"
    with output_file.open("w") as output:
        command = [str(SPARK_HOME / "bin" / "spark-class"), f"org.apache.spark.deploy.{name}", "--host", HOST, *words]
        command = [*hiding(hidden), *command]
        process = subprocess.Popen(command, stdout=output, stderr=output, env=environment, cwd=folder)
    try:
        yield output_file
    finally:
        process.terminate()
        process.wait(30)


def wait_for(output_file: Path, text: str, count: int = 1) -> None:
    deadline_s = time.monotonic() + WAIT_S
    while output_file.read_text().count(text) < count:
        assert time.monotonic() < deadline_s, output_file.read_text()
        time.sleep(0.1)


@contextmanager
def cluster(folder: Path, hidden: Sequence[Path] = ()) -> Iterator[str]:
    """Run a cluster whose workers do not see the hidden folders. Yield the URL of its master."""
    (port,) = free_ports(1)
    with ExitStack() as stack:
        web = ["--webui-port", "0"]
        master = stack.enter_context(daemon("master.Master", "--port", str(port), *web, folder=folder / "master"))
        wait_for(master, "I have been elected leader")
        url = f"spark://{HOST}:{port}"
        for number in range(2):
            words = ["--cores", "1", "--memory", "600m", *web, url]
            stack.enter_context(daemon("worker.Worker", *words, folder=folder / f"worker{number}", hidden=hidden))
        wait_for(master, "Registering worker", 2)
        yield url
