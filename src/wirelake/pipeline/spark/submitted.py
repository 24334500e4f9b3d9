"""Complete the settings of an application that spark-submit started: what the user left open gets the defaults."""

import os
from collections.abc import Mapping

from wirelake.pipeline.spark.archive import FRAGMENT, PYTHON

_ARCHIVES = "spark.archives"
_EXECUTOR_PYTHON = "spark.sql.execution.pyspark.python"
_DRIVER = "spark.driver."  # the driver has started already


def is_submitted(environment: Mapping[str, str] = os.environ) -> bool:
    """Return whether spark-submit started this process. Spark then runs already, with the settings of the user."""
    return "PYSPARK_GATEWAY_PORT" in environment


def submitted_settings() -> dict[str, str]:
    """Return the settings that spark-submit got from the user."""
    from pyspark.java_gateway import launch_gateway  # noqa: PLC0415 (needs pyspark)

    conf = launch_gateway().jvm.org.apache.spark.SparkConf()  # type: ignore[no-untyped-call]
    return {pair._1(): pair._2() for pair in conf.getAll()}


def missing_settings(defaults: Mapping[str, str], submitted: Mapping[str, str]) -> dict[str, str]:
    """Return what to add to the settings of the user. Executors with our archive run from it."""
    added = {key: value for key, value in defaults.items() if not key.startswith(_DRIVER)}
    if any(each.strip().endswith(f"#{FRAGMENT}") for each in submitted.get(_ARCHIVES, "").split(",")):
        added[_EXECUTOR_PYTHON] = PYTHON
    return {key: value for key, value in added.items() if key not in submitted}
