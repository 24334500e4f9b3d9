"""Test the pipeline through Spark Connect, with the server that comes with pyspark."""

import subprocess
import sys
from pathlib import Path

import pytest
from cli.serving import clean_environment

from pipeline.checking import check_tables, rows_of
from pipeline.traffic import filled

WAIT_S = 300.0


@pytest.mark.xdist_group("spark-processes")
def test_tables_are_filled_and_redecoded_through_spark_connect(tmp_path: Path) -> None:
    data = tmp_path / "data"
    filled(data, 2500)
    command = [sys.executable, str(Path(__file__).parent / "connect_job.py"), str(data)]
    environment = clean_environment(PYTHONPATH=":".join(sys.path))
    ran = subprocess.run(command, capture_output=True, text=True, timeout=WAIT_S, check=False, env=environment)
    assert ran.returncode == 0, ran.stderr
    session, filled_line, redecoded = ran.stdout.splitlines()[-3:]
    assert session == "True True 2"
    assert filled_line.startswith("2500 0 ")
    assert "'add_batch'" in filled_line, "the listener was called"
    assert redecoded == "True {}"
    check_tables(data)
    assert rows_of(data, "gold.traffic_minute")["frames"].sum() > 0
