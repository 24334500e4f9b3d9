import json
import subprocess
import sys
from pathlib import Path

import pytest
from cli.serving import clean_environment

from wirelake.errors import InputError
from wirelake.pipeline.spark.java import find_java
from wirelake.pipeline.spark.settings import (
    DEFAULTS,
    LOCAL,
    configured_master,
    parse_conf,
    user_settings,
    write_conf_dir,
)

WAIT_S = 120.0


def settings_of(conf: str, **variables: str) -> dict[str, str]:
    """Return the settings of a session that another process opens."""
    command = [sys.executable, str(Path(__file__).parent / "settings_job.py"), conf]
    environment = clean_environment(JAVA_HOME=str(find_java().home), **variables)
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=WAIT_S, check=False)
    assert done.returncode == 0, done.stderr
    found: dict[str, str] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.mark.xdist_group("spark-processes")
def test_the_settings_of_the_user_win_over_the_defaults(tmp_path: Path) -> None:
    (tmp_path / "spark-defaults.conf").write_text(
        "spark.ui.enabled false\nspark.master = local[1]\nspark.ui.retainedJobs 7\nspark.ui.retainedStages 8\n"
        "spark.ui.retainedTasks 9\n"
    )
    found = settings_of(
        "spark.ui.retainedStages=80 spark.ui.retainedTasks=90",
        SPARK_CONF_DIR=str(tmp_path),
        SPARK_DRIVER_MEMORY="600m",
        PYSPARK_SUBMIT_ARGS="--conf spark.ui.retainedTasks=900 --conf spark.sql.shuffle.partitions=6 pyspark-shell",
    )
    assert found["spark.master"] == "local[1]"
    assert found["spark.ui.retainedJobs"] == "7"
    assert found["spark.ui.retainedStages"] == "80"
    assert found["spark.ui.retainedTasks"] == "90"
    assert found["spark.sql.shuffle.partitions"] == "6"
    assert found["spark.driver.memory"] == "600m"
    assert found["spark.python.daemon.module"] == DEFAULTS["spark.python.daemon.module"]
    assert not list(tmp_path.glob("log4j2*")), "nothing is written to the user's folder"


@pytest.mark.xdist_group("spark-processes")
def test_a_session_that_exists_is_left_as_it_is() -> None:
    found = settings_of("existing", PYSPARK_SUBMIT_ARGS="--conf spark.ui.enabled=false pyspark-shell")
    assert found["spark.sql.shuffle.partitions"] == "9"
    assert "spark.python.daemon.module" not in found


def test_the_files_of_the_user_stay_visible(tmp_path: Path) -> None:
    (tmp_path / "core-site.xml").write_text("<configuration/>")
    (tmp_path / "log4j2.properties").write_text("rootLogger.level = info")
    folder = write_conf_dir({"spark.ui.port": "0"}, {"SPARK_CONF_DIR": str(tmp_path)})
    assert (folder / "core-site.xml").read_text() == "<configuration/>"
    assert (folder / "log4j2.properties").read_text() == "rootLogger.level = info"
    assert (folder / "spark-defaults.conf").read_text().split() == ["spark.ui.port", "0"]
    assert folder.stat().st_mode & 0o077 == 0


def test_the_master_is_found_where_spark_finds_it(tmp_path: Path) -> None:
    assert configured_master({}) == LOCAL
    assert configured_master({"MASTER": "local[3]"}) == "local[3]"
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "spark-defaults.conf").write_text("# spark.master a\nspark.master: spark://b:7077\n")
    home = {"SPARK_HOME": str(tmp_path)}
    assert user_settings(home) == {"spark.master": "spark://b:7077"}
    assert configured_master(home) == "spark://b:7077"
    assert configured_master({**home, "PYSPARK_SUBMIT_ARGS": "--master yarn pyspark-shell"}) == "yarn"


def test_a_setting_needs_a_key_of_spark() -> None:
    assert parse_conf(("spark.a=1=2", "spark.b=")) == {"spark.a": "1=2", "spark.b": ""}
    for wrong in ("spark.a", "a=1"):
        with pytest.raises(InputError, match=f"--conf {wrong}: write spark.KEY=VALUE"):
            parse_conf((wrong,))
