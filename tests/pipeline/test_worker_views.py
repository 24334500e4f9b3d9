"""Test workers that see other files than the driver: the batch fails with the reason, and nothing is left out."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from cli.serving import clean_environment

from pipeline.checking import check_tables, seqs_of
from pipeline.conftest import PLUGIN
from pipeline.traffic import fill
from wirelake.lake.query import query
from wirelake.lake.store import LocalStore
from wirelake.log.segments.consumer_offsets import ConsumerOffsets
from wirelake.log.segments.log import SegmentLog
from wirelake.log.segments.settings import LogSettings
from wirelake.pipeline.commit.checkpoint import CONSUMER

WAIT_S = 480.0
SCRIPT = Path(__file__).parent / "views_job.py"


class Machines:
    """Provide a folder for the driver and one for the worker. What the worker's lacks is shared."""

    def __init__(self, folder: Path) -> None:
        self.data, self.worker = folder / "driver" / "data", folder / "worker" / "data"
        self.worker.mkdir(parents=True)
        for name in ("log", "lake", "checkpoints"):
            (self.data / name).mkdir(parents=True)
            self.share(name)

    def share(self, name: str) -> None:
        """Let the worker see the driver's files from now on."""
        place = self.worker / name
        if place.is_dir() and not place.is_symlink():
            shutil.rmtree(place)
        place.unlink(missing_ok=True)
        place.symlink_to(self.data / name)

    def part(self, name: str, *, copy: bool = False) -> None:
        """Give the worker a folder of its own from now on: a copy, or an empty one."""
        (self.worker / name).unlink()
        if copy:
            shutil.copytree(self.data / name, self.worker / name)
        else:
            (self.worker / name).mkdir()

    def run(self, batch_rows: int = 1000) -> str:
        """Run the job, and return its last output."""
        path = os.pathsep.join([str(PLUGIN), *sys.path])
        ran = subprocess.run(
            [sys.executable, str(SCRIPT), str(batch_rows)],
            cwd=self.data.parent,
            capture_output=True,
            text=True,
            timeout=WAIT_S,
            check=False,
            env=clean_environment(PYTHONPATH=path, WORKER_FOLDER=str(self.worker.parent)),
        )
        assert ran.returncode == 0, ran.stderr
        return ran.stdout.splitlines()[-1]


@pytest.fixture
def machines(tmp_path: Path) -> Machines:
    return Machines(tmp_path)


def open_log(data: Path) -> SegmentLog:
    return SegmentLog(data / "log", LogSettings(segment_bytes=64 * 1024, fsync=False, keep_days=None))


def test_a_worker_with_a_stale_view_of_the_log_fails_and_skips_nothing(machines: Machines) -> None:
    log = open_log(machines.data)
    fill(log, 1500)
    machines.part("log", copy=True)  # with the mark and the segments of this moment
    fill(log, 1500)
    log.close()
    output = machines.run()
    assert output.startswith("failed: ")
    assert "of records 1" in output
    assert "cannot read record 1500" in output
    done = seqs_of(machines.data, "bronze.frames")
    assert done == list(range(len(done)))
    assert len(done) <= 1500
    position = ConsumerOffsets(machines.data / "log").get(CONSUMER)
    assert position == len(done)  # so retention keeps the rest
    machines.share("log")
    assert machines.run() == "done"
    check_tables(machines.data)


def test_a_worker_with_another_lake_folder_is_refused_and_the_tables_stay_readable(machines: Machines) -> None:
    log = open_log(machines.data)
    fill(log, 500)
    assert machines.run() == "done"
    fill(log, 500, seed=1)
    log.close()
    machines.part("lake")
    output = machines.run()
    assert "is missing (expected: " in output
    assert "reported by the worker on " in output
    assert str(Path("data") / "lake") in output
    assert query(LocalStore(machines.data / "lake"), "SELECT count(*) FROM bronze.frames").rows == [[500]]
    assert ConsumerOffsets(machines.data / "log").get(CONSUMER) == 500
    machines.share("lake")
    assert machines.run() == "done"
    check_tables(machines.data)
    assert query(LocalStore(machines.data / "lake"), "SELECT count(*) FROM gold.ledger WHERE NOT balanced").rows == [
        [0]
    ]
