"""Test spark-submit, and executors that share no folder with the driver: an archive, a lake on S3, isolated workers."""

import json
import os
import shutil
import subprocess
import sys
from base64 import b64encode
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars
import pytest
from cli.serving import clean_environment

from pipeline.chance import KEY
from pipeline.checking import check_tables, rows_of, same_tables
from pipeline.conftest import PLUGIN
from pipeline.spark.cluster import HOST, ROOT, SPARK_HOME, WAIT_S, can_hide, cluster, killing
from pipeline.traffic import START_US, fill, filled
from wirelake.cli import submit as script
from wirelake.lake.object_store import ObjectStore
from wirelake.lake.store import LocalStore
from wirelake.log.segments.format import list_segments
from wirelake.log.segments.log import SegmentLog
from wirelake.pipeline.ingest.log_copies import write_store_file
from wirelake.pipeline.job import Job, JobSettings
from wirelake.pipeline.spark.java import find_java
from wirelake.protocols.apostol.commands import DeviceCommand, Reading
from wirelake.protocols.apostol.constants import SEALED
from wirelake.protocols.apostol.envelope import build_packets
from wirelake.state.store import StateStore

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS = 3000
PACK_S = 900.0  # it compiles every kernel
SERIAL = "sealed-1"


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of the driver, which workers do not see."""
    folder = tmp_path_factory.mktemp("driver")
    for name in ("home", "tmp"):
        (folder / name).mkdir()
    return folder


def environment(driver: Path) -> dict[str, str]:
    paths = os.pathsep.join([str(PLUGIN), os.environ.get("PYTHONPATH", "")])
    return clean_environment(
        HOME=str(driver / "home"),
        TMPDIR=str(driver / "tmp"),
        JAVA_HOME=str(find_java().home),
        PYSPARK_DRIVER_PYTHON=sys.executable,
        PYTHONPATH=paths,
        SPARK_LOCAL_IP=HOST,
    )


@pytest.fixture(scope="module")
def archive(driver: Path) -> Path:
    """Pack an archive with the protocols of the folder plugin/."""
    file = driver / "executors.tar.gz"
    command = [sys.executable, "-m", "wirelake.cli.main", "pipeline", "archive", str(file)]
    run = subprocess.run(command, env=environment(driver), capture_output=True, text=True, timeout=PACK_S, check=False)
    assert run.returncode == 0, run.stderr
    assert "brittle-wirelake" in run.stdout
    return file


def add_traffic(log: SegmentLog, data: Path) -> None:
    """Append mixed traffic, frames of an installed protocol, and a sealed command of a device with a key."""
    fill(log, ROWS)
    at_us = START_US + log.next_seq * 200
    for number in range(20):
        log.append(at_us, "brittle", "frame", "in", "b-1", "me", "10.0.0.1:5", b"plain %d" % number)
    body = DeviceCommand(1_700_000_000, 4, 0, (Reading(1, 7), Reading(2, 2.5))).encode()
    commit = None
    for packet in build_packets(body, SEALED, 6, SERIAL, 1, 8, (KEY, bytes(12))):
        commit = log.append(at_us, "apostol", "frame", "in", "d-1", SERIAL, "10.0.0.1:5", packet.encode())
    assert commit is not None
    commit.wait(30)
    state = StateStore(data / "state.db")
    state.devices.add(SERIAL, 6, KEY, at_us // 1000).wait(30)
    state.close()


def submit(driver: Path, *words: str) -> str:
    """Run an application with spark-submit, and return its output."""
    settings = ["--driver-memory", "512m", "--conf", "spark.ui.enabled=false"]
    command = [str(SPARK_HOME / "bin" / "spark-submit"), *settings, *words]
    run = subprocess.run(
        command, env=environment(driver), cwd=driver, capture_output=True, text=True, timeout=WAIT_S, check=False
    )
    assert run.returncode == 0, run.stderr[-5000:]
    return run.stdout


def test_executors_share_no_folder_with_the_driver(
    spark: "SparkSession",
    log: SegmentLog,
    data: Path,
    s3_lake: ObjectStore,
    driver: Path,
    archive: Path,
    tmp_path: Path,
) -> None:
    add_traffic(log, data)
    lake_file = driver / "lake.json"
    write_store_file(lake_file, s3_lake)
    events = driver / "events"
    events.mkdir()
    job = str(Path(__file__).parent / "remote_job.py")
    hidden = [driver, data, ROOT / "src", ROOT / "tests"]
    with cluster(tmp_path / "cluster", hidden) as running, killing(running, s3_lake) as killed:
        cluster_options = ["--master", running.url, "--executor-memory", "512m", "--archives", f"{archive}#wirelake"]
        cluster_options += ["--conf", "spark.eventLog.enabled=true", "--conf", "spark.eventLog.compress=false"]
        cluster_options += ["--conf", f"spark.eventLog.dir={events.as_uri()}"]
        said = submit(driver, *cluster_options, job, str(data), str(lake_file))
    assert killed == ["executor", "worker"]
    seen, rows = said.splitlines()[-2:]
    check_secrets(events, s3_lake, (data / "keys" / "state.key").read_bytes().strip())
    check_executors(json.loads(seen), tmp_path / "cluster")
    assert int(rows) == log.next_seq
    here = tmp_path / "here"
    here.mkdir()
    (here / "log").symlink_to(data / "log")
    shutil.copy(data / "state.db", here)
    shutil.copytree(data / "keys", here / "keys")
    Job(spark, here, JobSettings(once=True)).run()
    same_tables(here, here, s3_lake)
    commands = rows_of(data, "silver.device_commands", s3_lake).filter(polars.col("serial") == SERIAL)
    assert commands["state"].to_list() == ["complete"]
    plain = rows_of(data, "silver.messages", s3_lake).filter(polars.col("protocol") == "brittle")
    assert plain.height == 20
    copies = s3_lake.at("log").list()
    assert len([path for path in copies if path.endswith(".seg")]) == len(list_segments(data / "log")) - 1
    assert not [path for path in copies if "/tail/" in path]
    assert not LocalStore(here / "lake").at("log").list()


def check_secrets(events: Path, lake: ObjectStore, *others: bytes) -> None:
    """Check that Spark's event log, from which its UI is made, has neither the device's key nor the store's secret."""
    logged = b"".join(file.read_bytes() for file in events.rglob("*") if file.is_file())
    assert b"SparkListenerJobEnd" in logged
    store_secret = lake.delta_options["aws_secret_access_key"].encode()
    for secret in (KEY, KEY.hex().encode(), b64encode(KEY), store_secret, *others):
        assert secret not in logged


def check_executors(seen: list[dict[str, Any]], folder: Path) -> None:
    """Check that both executors run from the archive alone, each in its own folders."""
    assert len({each["home"] for each in seen}) == 2
    for each in seen:
        for place in (each["home"], each["folder"], each["wirelake"]):
            assert Path(place).is_relative_to(folder), each
        assert each["sees_log"] is not can_hide()
        assert {"brittle", "mended"} <= set(each["protocols"])


@pytest.mark.xdist_group("spark-processes")
def test_the_script_runs_on_this_machine_without_an_archive(driver: Path, tmp_path: Path) -> None:
    data = tmp_path / "data"
    filled(data, 500)
    said = submit(driver, "--master", "local[2]", str(script.__file__), "--once", "--data", str(data))
    assert "500 records" in said
    check_tables(data)
