"""Run the demo as users do, with real processes and Spark. Its exit code says whether the ledger balances."""

import subprocess
import sys
from pathlib import Path

import pytest

from cli.serving import clean_environment
from wirelake.lake.query import query
from wirelake.lake.store import LocalStore

WAIT_S = 300


@pytest.mark.xdist_group("spark-processes")
def test_the_tour_ends_with_a_ledger_that_balances(tmp_path: Path) -> None:
    words = ["demo", "--devices", "24", "--seconds", "3", "--keep", str(tmp_path / "tour")]
    done = subprocess.run(
        [sys.executable, "-m", "wirelake.cli.main", *words],
        capture_output=True,
        text=True,
        check=False,
        timeout=WAIT_S,
        env=clean_environment(),
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "the ledger balances" in done.stdout
    for table in ("gold.ledger", "gold.traffic_minute", "gold.device_latest", "gold.call_minute", "gold.bars_minute"):
        assert table in done.stdout
    lake = LocalStore(tmp_path / "tour" / "data" / "lake")
    spoken = {row[0] for row in query(lake, "SELECT DISTINCT protocol FROM gold.ledger WHERE decoded > 0").rows}
    assert {"comet", "magline", "apostol", "esnp", "sisnet", "redis", "http"} <= spoken
    again = subprocess.run(
        [sys.executable, "-m", "wirelake.cli.main", *words], capture_output=True, text=True, check=False, timeout=WAIT_S
    )
    assert again.returncode == 1
    assert "contains an earlier demo" in again.stderr
