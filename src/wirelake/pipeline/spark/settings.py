"""Give Spark the pipeline's settings as defaults: whatever the user configures wins.

Spark reads its defaults from the folder SPARK_CONF_DIR. While it starts, this is a folder with the files of the user's
own one, whose spark-defaults.conf begins with the pipeline's settings: of two lines for the same key, Spark takes the
last. `--conf`, PYSPARK_SUBMIT_ARGS and SPARK_* override that file, as they always do.
"""

import atexit
import os
import re
import shlex
import shutil
import tempfile
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Final

from wirelake.errors import InputError
from wirelake.limits import PIPELINE_DRIVER_MEMORY_MB

LOCAL: Final = "local[*]"
# Documented in docs/operations.md, with the reasons.
DEFAULTS: Final = {
    "spark.driver.extraJavaOptions": "-XX:+UseParallelGC -XX:TieredStopAtLevel=1",
    "spark.driver.memory": f"{PIPELINE_DRIVER_MEMORY_MB}m",
    "spark.master": LOCAL,
    "spark.python.daemon.module": "wirelake.pipeline.spark.daemon",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "4",
    "spark.sql.streaming.minBatchesToRetain": "10",
    "spark.sql.streaming.stopTimeout": "30s",
    "spark.sql.streaming.ui.retainedProgressUpdates": "50",
    "spark.sql.ui.retainedExecutions": "50",
    "spark.ui.port": "0",
    "spark.ui.retainedJobs": "100",
    "spark.ui.retainedStages": "100",
    "spark.ui.retainedTasks": "1000",
    "spark.ui.showConsoleProgress": "false",
}
# Spark prefers a property to these variables, so a default would hide them.
_VARIABLES: Final = {"SPARK_DRIVER_MEMORY": "spark.driver.memory", "MASTER": "spark.master"}
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
_SPARK_DEFAULTS: Final = "spark-defaults.conf"
_LOG4J: Final = "log4j2.properties"
_PROPERTY: Final = re.compile(r"^\s*(?P<key>spark\.[^\s=:]+)\s*[\s=:]\s*(?P<value>.*?)\s*$")


def parse_conf(pairs: tuple[str, ...]) -> dict[str, str]:
    """Return the settings of `--conf KEY=VALUE` options."""
    settings = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key.startswith("spark."):
            raise InputError(f"--conf {pair}: write spark.KEY=VALUE")
        settings[key] = value
    return settings


def configured_master(environment: Mapping[str, str] = os.environ) -> str:
    """Return the master that Spark will use if no option names one."""
    arguments = shlex.split(environment.get("PYSPARK_SUBMIT_ARGS", ""))
    for name, value in pairwise(arguments):
        if name == "--master":
            return value
    return user_settings(environment).get("spark.master") or environment.get("MASTER") or LOCAL


def user_settings(environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the settings in the user's spark-defaults.conf."""
    folder = _user_folder(environment)
    if folder is None or not (folder / _SPARK_DEFAULTS).is_file():
        return {}
    found = map(_PROPERTY.match, (folder / _SPARK_DEFAULTS).read_text().splitlines())
    return {match["key"]: match["value"] for match in found if match is not None}


def write_conf_dir(defaults: Mapping[str, str], environment: Mapping[str, str] = os.environ) -> Path:
    """Write the folder from which Spark reads its defaults. It is removed when this process ends."""
    folder = Path(tempfile.mkdtemp(prefix="wirelake-spark-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    user_folder = _user_folder(environment)
    user_lines = ""
    if user_folder is not None and user_folder.is_dir():
        for path in user_folder.iterdir():
            if path.name == _SPARK_DEFAULTS:
                user_lines = path.read_text()
            else:
                (folder / path.name).symlink_to(path.absolute())
    hidden = {key for variable, key in _VARIABLES.items() if environment.get(variable)}
    lines = [f"{key} {value}" for key, value in defaults.items() if key not in hidden]
    (folder / _SPARK_DEFAULTS).write_text("\n".join([*lines, user_lines]) + "\n")
    (folder / _SPARK_DEFAULTS).chmod(0o600)
    if not (folder / _LOG4J).exists():
        (folder / _LOG4J).write_text(_logging_properties())
    return folder


def _user_folder(environment: Mapping[str, str]) -> Path | None:
    if environment.get("SPARK_CONF_DIR"):
        return Path(environment["SPARK_CONF_DIR"])
    return Path(environment["SPARK_HOME"]) / "conf" if environment.get("SPARK_HOME") else None


def _logging_properties() -> str:
    lines = [_LOGGING]
    for number, logger in enumerate(_SILENCED):
        lines.append(f"logger.quiet{number}.name = {logger}\nlogger.quiet{number}.level = off")
    return "\n".join(lines)
