"""Kill the driver with its JVM, or the JVM alone, at any moment: in no table is a row lost, or there twice."""

import fnmatch
import json
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

from cli.serving import serving

from pipeline.checking import check_tables, rows_of, same_tables
from pipeline.processes import children_of
from pipeline.traffic import fill
from wirelake.lake.object_store import ObjectStore
from wirelake.lake.progress import JobProgress
from wirelake.lake.store import Store
from wirelake.log.segments.log import SegmentLog
from wirelake.pipeline.job import Job, JobSettings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WAIT_S = 120.0
DRIVER = Path(__file__).parent / "crash_driver.py"
# What a driver does in each batch leaves traces; one is killed a little after the nth trace of a kind.
TRACES = (
    "lake/**/*.parquet*",
    "checkpoints/tables/intents/*",
    "lake/*/*/_delta_log/*.json",
    "checkpoints/**/commits/*",
)
ROUNDS = len(TRACES)
S3_TRACES = ("silver/*.parquet", "checkpoints/tables/intents/*", "*/_delta_log/*.json")


def rounds() -> int:
    return int(os.environ.get("CRASH_ROUNDS", ROUNDS))


class Driver:
    """Run the driver in a process group of its own, with the JVM that it starts."""

    def __init__(self, data: Path, lake: Store | None = None) -> None:
        words = [sys.executable, str(DRIVER), str(data)]
        if lake is not None:
            words.append(pickle.dumps(lake).hex())
        self.process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True, start_new_session=True)

    def hear(self, word: str) -> None:
        assert self.process.stdout is not None
        assert self.process.stdout.readline().strip() == word

    def kill_jvm(self) -> None:
        """Kill the JVM alone. The driver notices, and ends."""
        for pid in children_of(self.process.pid, "java"):
            os.kill(pid, signal.SIGKILL)
        self.process.wait(WAIT_S)

    def kill(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        with self.process:
            self.process.wait(WAIT_S)


def wait_for_traces(count: Callable[[], int], what: str, more: int, driver: Driver) -> None:
    before = count()
    deadline_s = time.monotonic() + WAIT_S
    while count() < before + more and driver.process.poll() is None:
        assert time.monotonic() < deadline_s, f"no {what}"
        time.sleep(0.01)


def test_the_driver_is_killed_at_any_moment(spark: "SparkSession", log: SegmentLog, data: Path, tmp_path: Path) -> None:
    random = Random(7)
    for number in range(rounds()):
        fill(log, 1200, seed=number)
        driver = Driver(data)
        driver.hear("ready")
        pattern = TRACES[number % len(TRACES)]
        wait_for_traces(partial(count_files, data, pattern), pattern, random.randrange(1, 6), driver)
        time.sleep(random.random() * 0.2)
        if number % 2:
            driver.kill_jvm()
        driver.kill()
    Job(spark, data, JobSettings(once=True)).run()
    check_tables(data)
    undisturbed = tmp_path / "undisturbed"
    undisturbed.mkdir()
    (undisturbed / "log").symlink_to(data / "log")
    Job(spark, undisturbed, JobSettings(once=True)).run()
    same_tables(data, undisturbed)


def count_files(data: Path, pattern: str) -> int:
    return len(list(data.glob(pattern)))


def count_objects(lake: Store, pattern: str) -> int:
    return len(fnmatch.filter(lake.list(), pattern))


def test_the_driver_is_killed_at_any_moment_with_tables_in_s3(
    spark: "SparkSession", log: SegmentLog, data: Path, tmp_path: Path, s3_lake: ObjectStore
) -> None:
    random = Random(11)
    for number, pattern in enumerate(S3_TRACES):
        fill(log, 1200, seed=number)
        driver = Driver(data, s3_lake)
        driver.hear("ready")
        wait_for_traces(partial(count_objects, s3_lake, pattern), pattern, random.randrange(1, 4), driver)
        time.sleep(random.random() * 0.2)
        if number % 2:
            driver.kill_jvm()
        driver.kill()
    Job(spark, data, JobSettings(once=True), lake=s3_lake).run()
    check_tables(data, s3_lake)
    undisturbed = tmp_path / "undisturbed"
    undisturbed.mkdir()
    (undisturbed / "log").symlink_to(data / "log")
    Job(spark, undisturbed, JobSettings(once=True)).run()
    same_tables(data, undisturbed, s3_lake)


def test_the_gateway_is_killed_under_a_running_pipeline(spark: "SparkSession", tmp_path: Path) -> None:
    data = tmp_path / "data"
    reached = threading.Event()
    wanted = [1]

    def on_progress(progress: JobProgress) -> None:
        if progress.next_seq >= wanted[0]:
            reached.set()

    job: Job | None = None
    running: threading.Thread | None = None
    published = 0
    for number in range(3):
        with serving(tmp_path, "http") as gateway:
            if job is None:
                job = Job(spark, data, JobSettings(trigger_s=0.1), on_progress=on_progress)
                running = threading.Thread(target=job.run)
                running.start()
            for _ in range(30):
                publish(gateway.address("http"), data, f"{number}-{published}")
                published += 1
            gateway.process.send_signal(signal.SIGKILL)
            gateway.process.wait(WAIT_S)
    with serving(tmp_path, "http") as gateway:  # its recovery brings the log in order
        publish(gateway.address("http"), data, "last")
        gateway.end()
    from wirelake.log.segments.reader import LogReader

    wanted[0] = LogReader(data / "log").next_seq
    reached.clear()
    assert job is not None
    assert running is not None
    assert job.progress.next_seq >= wanted[0] or reached.wait(WAIT_S)
    job.stop()
    running.join(WAIT_S)
    assert not running.is_alive()
    check_tables(data)
    assert rows_of(data, "silver.notifications").height == published + 1  # each was confirmed, so each is there


def publish(address: tuple[str, int], data: Path, content: str) -> None:
    token = (data / "keys" / "admin.token").read_text().strip()
    request = urllib.request.Request(
        f"http://{address[0]}:{address[1]}/api/topics/%40news/notifications",
        json.dumps({"content": content}).encode(),
        {"Authorization": f"Bearer {token}", "Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=30) as response:  # noqa: S310
        assert response.status == 201
