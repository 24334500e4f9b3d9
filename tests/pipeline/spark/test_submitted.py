from wirelake.pipeline.spark.settings import DEFAULTS
from wirelake.pipeline.spark.submitted import is_submitted, missing_settings


def test_only_spark_submit_makes_a_submitted_process() -> None:
    assert not is_submitted({})
    assert is_submitted({"PYSPARK_GATEWAY_PORT": "1"})


def test_the_settings_of_spark_submit_win() -> None:
    submitted = {"spark.master": "spark://10.0.0.5:7077", "spark.sql.session.timeZone": "Europe/Berlin"}
    added = missing_settings(DEFAULTS, submitted)
    assert not added.keys() & submitted.keys()
    assert added["spark.python.daemon.module"] == DEFAULTS["spark.python.daemon.module"]
    assert not [key for key in added if key.startswith("spark.driver.")]  # it is too late for them


def test_executors_with_the_archive_run_from_it() -> None:
    python = "spark.sql.execution.pyspark.python"
    assert missing_settings({}, {"spark.archives": "a.zip#other, file:/b.tar.gz#wirelake"})[python].startswith(
        "./wirelake/"
    )
    assert python not in missing_settings({}, {"spark.archives": "b.tar.gz#wirelake2"})
    assert python not in missing_settings({}, {"spark.archives": "b.tar.gz#wirelake", python: "/usr/bin/python3"})
