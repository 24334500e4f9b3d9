"""Open a Spark session for the pipeline: quiet, bounded, in UTC, with a Java that runs.

Executors of a remote master need Wirelake itself, as a wheel, and the same interpreter.
"""

import logging
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import wirelake
from wirelake.errors import InputError
from wirelake.limits import PIPELINE_DRIVER_MEMORY_MB, WHEEL_BUILD_S
from wirelake.pipeline.spark.java import find_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOCAL: Final = "local[*]"
_SETTINGS: Final = {
    "spark.driver.memory": f"{PIPELINE_DRIVER_MEMORY_MB}m",
    "spark.python.daemon.module": "wirelake.pipeline.spark.daemon",
    "spark.sql.adaptive.enabled": "false",  # the job's stages are small, and their sizes are known
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "4",  # gold is small; larger jobs set their own number
    "spark.sql.streaming.minBatchesToRetain": "10",
    "spark.sql.streaming.stopTimeout": "30s",
    "spark.ui.port": "0",
    "spark.ui.showConsoleProgress": "false",
    "spark.ui.retainedJobs": "100",
    "spark.ui.retainedStages": "100",
    "spark.ui.retainedTasks": "1000",
    "spark.sql.ui.retainedExecutions": "50",
    "spark.sql.streaming.ui.retainedProgressUpdates": "50",
}
# To standard error, and errors only: what a job fails with is raised as an exception anyway.
_LOGGING: Final = """
rootLogger.level = error
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = spark: %d{HH:mm:ss} %p %c{1}: %m%n%xEx{0}
# With a level of its own, it does not announce that it has chosen one.
logger.gateway.name = org.apache.spark.api.python.PythonGatewayServer
logger.gateway.level = error
"""
_SILENCED: Final = (
    "org.apache.spark.executor.Executor",
    "org.apache.spark.scheduler.TaskSetManager",
    "org.apache.spark.sql.execution.streaming",
    "org.apache.spark.sql.execution.datasources.v2",
    "org.apache.spark.api.python.PythonRunner",
    "org.apache.spark.api.python.PythonWorkerFactory",
)


def open_session(master: str = LOCAL, name: str = "wirelake", settings: dict[str, str] | None = None) -> "SparkSession":
    """Return a session with the data source `wirelake`. For a remote master, pass `cluster_settings`."""
    try:
        from pyspark.sql import SparkSession  # noqa: PLC0415 (half a gigabyte: only if needed)
    except ImportError as error:
        raise InputError("the pipeline needs Spark: `pip install wirelake[pipeline]`") from error
    from wirelake.pipeline.ingest.source import WirelakeSource  # noqa: PLC0415 (needs pyspark)

    os.environ["JAVA_HOME"] = str(find_java().home)
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    if is_local(master):  # remote executors must be able to connect to the driver
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    with tempfile.TemporaryDirectory(prefix="wirelake-spark-") as folder:
        log_settings = _logging_file(Path(folder))
        java_options = f"-Dlog4j2.configurationFile={log_settings} -XX:+UseParallelGC"
        builder = SparkSession.builder.master(master).appName(name)
        for key, value in {**_SETTINGS, "spark.driver.extraJavaOptions": java_options, **(settings or {})}.items():
            builder = builder.config(key, value)
        with _uninterrupted():
            session = builder.getOrCreate()
    session.dataSource.register(WirelakeSource)
    logging.getLogger("py4j").setLevel(logging.CRITICAL)  # what it logs is raised as an exception too
    return session


def is_alive(spark: Any) -> bool:
    """Return whether the session's JVM still responds."""
    try:
        return int(spark.sparkContext.defaultParallelism) > 0  # asks the JVM, which raises if the context has stopped
    except Exception:  # noqa: BLE001 (py4j raises many kinds of errors)
        return False


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """Delay Ctrl-C until Spark has started: in between, it would leave a JVM behind that waits forever."""
    if threading.current_thread() is not threading.main_thread():  # only the main thread is interrupted
        yield
        return
    interrupted = threading.Event()
    before = signal.signal(signal.SIGINT, lambda *_: interrupted.set())
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if interrupted.is_set():
        raise KeyboardInterrupt


def _logging_file(folder: Path) -> Path:
    lines = [_LOGGING]
    for number, logger in enumerate(_SILENCED):
        lines.append(f"logger.quiet{number}.name = {logger}\nlogger.quiet{number}.level = off")
    path = folder / "log4j2.properties"
    path.write_text("\n".join(lines))
    return path


def is_local(master: str) -> bool:
    return master.startswith("local")


def cluster_settings(master: str, wheel: Path | None = None) -> dict[str, str]:
    """Return settings for a remote master. Executors must see the same data folder and have Wirelake's dependencies."""
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
