"""Open a Spark session for the pipeline: with a Java that runs, and defaults that the user's settings override.

Executors of a remote master need Wirelake: in an archive with all it needs, or as a wheel for the same interpreter.
"""

import logging
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import wirelake
from wirelake.errors import InputError
from wirelake.limits import WHEEL_BUILD_S
from wirelake.pipeline.spark.archive import archive_settings
from wirelake.pipeline.spark.java import find_java
from wirelake.pipeline.spark.settings import DEFAULTS, configured_master, write_conf_dir
from wirelake.pipeline.spark.submitted import is_submitted, missing_settings, submitted_settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_RANGE_ROWS: Final = 100_000  # spread over as many partitions as there are cores


def open_session(
    master: str | None = None,
    name: str = "wirelake",
    settings: Mapping[str, str] | None = None,
    *,
    conf: Mapping[str, str] | None = None,
    remote: str | None = None,
) -> "SparkSession":
    """Return a session that knows the data sources of the pipeline: the active one, if there is one.

    `settings` are defaults like those of `settings.py` (for a cluster, pass `cluster_settings`). `conf` overrides what
    the user has configured elsewhere. `remote` is the address of a Spark Connect server.
    """
    try:
        from pyspark.sql import SparkSession  # noqa: PLC0415 (half a gigabyte: only if needed)
    except ImportError as error:
        raise InputError("the pipeline needs Spark: `pip install wirelake[pipeline]`") from error

    session = SparkSession.getActiveSession()
    if session is None:
        session = _start(SparkSession.builder, master, {"spark.app.name": name, **(settings or {})}, conf or {}, remote)
        logging.getLogger("py4j").setLevel(logging.CRITICAL)  # what it logs is raised as an exception too
    register_sources(session)
    return session


def register_sources(session: "SparkSession") -> None:
    """Make the data sources of the pipeline known to a session."""
    from wirelake.pipeline.ingest.source import WirelakeSource  # noqa: PLC0415 (needs pyspark)

    session.dataSource.register(WirelakeSource)


def _start(
    builder: Any,
    master: str | None,
    settings: Mapping[str, str],
    conf: Mapping[str, str],
    remote: str | None,
) -> "SparkSession":
    remote = remote or os.environ.get("SPARK_REMOTE")
    if remote is not None:
        builder = builder.remote(remote)
    elif master is not None:
        builder = builder.master(master)
    for key, value in conf.items():
        builder = builder.config(key, value)
    if remote is not None and is_connect(remote):
        return builder.getOrCreate()  # type: ignore[no-any-return] # its server has its own configuration
    if is_submitted():
        for key, value in missing_settings({**DEFAULTS, **settings}, {**submitted_settings(), **conf}).items():
            builder = builder.config(key, value)
    os.environ["JAVA_HOME"] = str(find_java().home)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    if is_local(remote or master or configured_master()):  # remote executors must be able to connect to the driver
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    folder = write_conf_dir({**DEFAULTS, **settings})
    before = os.environ.get("SPARK_CONF_DIR")
    os.environ["SPARK_CONF_DIR"] = str(folder)
    try:
        with _uninterrupted():
            return builder.getOrCreate()  # type: ignore[no-any-return]
    finally:
        if before is None:
            del os.environ["SPARK_CONF_DIR"]
        else:
            os.environ["SPARK_CONF_DIR"] = before


def is_connect(master: str) -> bool:
    """Return whether this is the address of a Spark Connect server."""
    return master.startswith("sc://")


def is_remote(spark: Any) -> bool:
    """Return whether the session is one of Spark Connect, which gives no access to the driver's JVM."""
    return type(spark).__module__.startswith("pyspark.sql.connect")


def default_parallelism(spark: Any) -> int:
    """Return how many tasks can run at the same time."""
    if not is_remote(spark):
        return int(spark.sparkContext.defaultParallelism)
    from pyspark.sql.functions import spark_partition_id  # noqa: PLC0415 (needs pyspark)

    return int(spark.range(_RANGE_ROWS).select(spark_partition_id()).distinct().count())


def ui_address(spark: Any) -> str:
    """Return the address of Spark's web UI, or "" if it is not known."""
    return "" if is_remote(spark) else spark.sparkContext.uiWebUrl or ""


def is_alive(spark: Any) -> bool:
    """Return whether the session's driver still responds."""
    try:
        if is_remote(spark):
            return bool(spark.range(1).count())
        return int(spark.sparkContext.defaultParallelism) > 0  # asks the JVM, which raises if the context has stopped
    except Exception:  # noqa: BLE001 (py4j and gRPC raise many kinds of errors)
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


def is_local(master: str) -> bool:
    return master.startswith("local")


def cluster_settings(master: str, wheel: Path | None = None, archive: Path | None = None) -> dict[str, str]:
    """Return settings for a remote master: executors have everything from an archive, or only Wirelake from a wheel."""
    if is_local(master) or is_submitted():
        return {}
    if archive is not None:
        return archive_settings(archive)
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
    raise InputError(
        "executors on a cluster need Wirelake: pass an archive with --archive (`wirelake pipeline archive` makes one)"
    )


def build_wheel(root: Path, folder: Path) -> Path:
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    built = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=WHEEL_BUILD_S, check=False)
    wheels = list(folder.glob("*.whl"))
    if built.returncode or not wheels:
        raise InputError(f"cannot build the wheel for the cluster: {built.stderr.strip()[-500:]}")
    return wheels[0]
