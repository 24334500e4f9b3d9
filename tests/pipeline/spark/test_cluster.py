"""Test a real standalone cluster on loopback: a master and two workers, from the package pyspark."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pyspark
import pytest
from cli.serving import clean_environment, free_ports

from pipeline.checking import check_tables
from pipeline.test_crash import same_tables
from pipeline.traffic import filled
from wirelake.errors import InputError
from wirelake.pipeline.job import Job, JobSettings
from wirelake.pipeline.spark.java import find_java
from wirelake.pipeline.spark.session import build_wheel, cluster_settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).parent.parent.parent.parent
HOST = "127.0.0.1"
WAIT_S = 240.0


@contextmanager
def daemon(name: str, *words: str, folder: Path) -> Iterator[Path]:
    """Run one of Spark's own daemons, with its output in a file."""
    home = Path(pyspark.__file__).parent
    folder.mkdir()
    environment = clean_environment(
        JAVA_HOME=str(find_java().home),
        SPARK_LOCAL_IP=HOST,
        SPARK_DAEMON_MEMORY="256m",
        SPARK_WORKER_DIR=str(folder / "work"),
        SPARK_HOME=str(home),
    )
    output_file = folder / "said"
    with output_file.open("w") as output:
        command = [str(home / "bin" / "spark-class"), f"org.apache.spark.deploy.{name}", "--host", HOST, *words]
        process = subprocess.Popen(command, stdout=output, stderr=output, env=environment)
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
def cluster(folder: Path) -> Iterator[str]:
    (port,) = free_ports(1)
    with ExitStack() as stack:
        web = ["--webui-port", "0"]
        master = stack.enter_context(daemon("master.Master", "--port", str(port), *web, folder=folder / "master"))
        wait_for(master, "I have been elected leader")
        url = f"spark://{HOST}:{port}"
        for number in range(2):
            words = ["--cores", "1", "--memory", "600m", *web, url]
            stack.enter_context(daemon("worker.Worker", *words, folder=folder / f"worker{number}"))
        wait_for(master, "Registering worker", 2)
        yield url


def test_the_job_runs_on_a_cluster_from_the_wheel(spark: "SparkSession", tmp_path: Path) -> None:
    wheel = build_wheel(ROOT, tmp_path / "wheel")
    data, here = tmp_path / "data", tmp_path / "here"
    filled(data, 3000)
    with cluster(tmp_path) as master:
        ran = subprocess.run(
            [sys.executable, str(Path(__file__).parent / "cluster_job.py"), master, str(wheel), str(data)],
            capture_output=True,
            text=True,
            timeout=WAIT_S,
            check=False,
            env=clean_environment(SPARK_LOCAL_IP=HOST),
        )
    assert ran.returncode == 0, ran.stderr
    place, tasks, cores = ran.stdout.splitlines()[0].split()
    assert ".whl" + os.sep in place
    assert (tasks, cores) == ("2", "2")
    assert ran.stdout.splitlines()[1] == "3000"
    check_tables(data)
    here.mkdir()
    (here / "log").symlink_to(data / "log")
    Job(spark, here, JobSettings(once=True)).run()
    same_tables(data, here)


def test_a_local_master_needs_nothing_of_it() -> None:
    assert cluster_settings("local[2]") == {}


def test_a_wheel_that_cannot_be_built_says_why(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot build the wheel"):
        build_wheel(tmp_path, tmp_path / "wheel")
