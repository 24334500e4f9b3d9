"""Run Spark's standalone cluster on loopback: a master and two workers, from the package pyspark.

Workers can be isolated: each has its own home, temporary folder and working directory, and sees empty folders where the
driver's are. That takes a mount namespace (`unshare`), which most Linux systems let any user create.

An executor and a worker can be killed while the tasks of a batch write their files.
"""

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import cache
from pathlib import Path

import pyspark
from cli.serving import clean_environment, free_ports
from msgspec import Struct

from pipeline.processes import children_of
from wirelake.lake.store import Store
from wirelake.lake.tables import FRAMES
from wirelake.pipeline.spark.java import find_java

ROOT = Path(__file__).parent.parent.parent.parent
HOST = "127.0.0.1"
WAIT_S = 240.0
SPARK_HOME = Path(pyspark.__file__).parent
_KILL_POLL_S = 0.02
BASE_PYTHON = Path(sys.base_prefix) / "bin"
_HIDE = 'while [ "$1" != -- ]; do mount -t tmpfs none "$1" || exit 1; shift; done; shift; exec "$@"'


class Cluster(Struct, frozen=True):
    url: str  # of the master
    workers: list[int]  # process ids


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
def daemon(name: str, *words: str, folder: Path, hidden: Sequence[Path] = ()) -> Iterator[tuple[Path, int]]:
    """Run one of Spark's own daemons, with its output in a file. Yield the file and the process id."""
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
        yield output_file, process.pid
    finally:
        process.terminate()
        process.wait(30)


def wait_for(output_file: Path, text: str, count: int = 1) -> None:
    deadline_s = time.monotonic() + WAIT_S
    while output_file.read_text().count(text) < count:
        assert time.monotonic() < deadline_s, output_file.read_text()
        time.sleep(0.1)


@contextmanager
def cluster(folder: Path, hidden: Sequence[Path] = ()) -> Iterator[Cluster]:
    """Run a cluster whose workers do not see the hidden folders."""
    (port,) = free_ports(1)
    with ExitStack() as stack:
        web = ["--webui-port", "0"]
        master, _ = stack.enter_context(daemon("master.Master", "--port", str(port), *web, folder=folder / "master"))
        wait_for(master, "I have been elected leader")
        url, workers = f"spark://{HOST}:{port}", []
        for number in range(2):
            words = ["--cores", "1", "--memory", "600m", *web, url]
            own = folder / f"worker{number}"
            workers.append(stack.enter_context(daemon("worker.Worker", *words, folder=own, hidden=hidden))[1])
        wait_for(master, "Registering worker", 2)
        yield Cluster(url, workers)


@contextmanager
def killing(running: Cluster, lake: Store) -> Iterator[list[str]]:
    """Kill the executor of one worker, and then the other worker, each when tasks have just written files.

    Yield what was killed so far.
    """
    killed: list[str] = []
    stopped = threading.Event()

    def kill() -> None:
        first, second = running.workers
        files = 0
        for name in ("executor", "worker"):
            while not stopped.wait(_KILL_POLL_S):
                written = len(lake.list(FRAMES.folder))
                pids = [second] if name == "worker" else children_of(first, "CoarseGrainedExecutorBackend")
                if written > files and pids:
                    files = written
                    for pid in pids:
                        os.kill(pid, signal.SIGKILL)
                    killed.append(name)
                    break

    thread = threading.Thread(target=kill)
    thread.start()
    try:
        yield killed
    finally:
        stopped.set()
        thread.join()
