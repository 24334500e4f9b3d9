"""Test a real standalone cluster on loopback: a master and two workers, from the package pyspark."""

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from cli.serving import clean_environment

from pipeline.checking import check_tables, same_tables
from pipeline.spark.cluster import HOST, ROOT, WAIT_S, cluster, killing
from pipeline.traffic import filled
from wirelake.errors import InputError
from wirelake.lake.store import LocalStore
from wirelake.pipeline.job import Job, JobSettings
from wirelake.pipeline.spark.session import build_wheel, cluster_settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_the_job_runs_on_a_cluster_and_survives_lost_processes(spark: "SparkSession", tmp_path: Path) -> None:
    wheel = build_wheel(ROOT, tmp_path / "wheel")
    data, here = tmp_path / "data", tmp_path / "here"
    filled(data, 3000)
    with cluster(tmp_path) as running, killing(running, LocalStore(data / "lake")) as killed:
        ran = subprocess.run(
            [sys.executable, str(Path(__file__).parent / "cluster_job.py"), running.url, str(wheel), str(data)],
            capture_output=True,
            text=True,
            timeout=WAIT_S,
            check=False,
            env=clean_environment(SPARK_LOCAL_IP=HOST),
        )
    assert ran.returncode == 0, ran.stderr
    assert killed == ["executor", "worker"]
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
