"""Test `wirelake pipeline` and `wirelake up` as processes."""

import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from datetime import date
from pathlib import Path

import pytest
from deltalake import DeltaTable
from lake.writing import write
from pipeline.checking import check_tables, rows_of
from pipeline.conftest import PLUGIN
from pipeline.traffic import START_US, fill, filled

from cli.serving import HOST, clean_environment, wirelake, write_settings
from wirelake.lake.progress import read_progress
from wirelake.lake.tables import FRAMES
from wirelake.log.segments.log import SegmentLog
from wirelake.log.segments.settings import LogSettings

pytestmark = pytest.mark.xdist_group("spark-processes")
WAIT_S = 180.0


def test_once_status_and_compact(tmp_path: Path) -> None:
    """Run with a PATH that has no Java."""
    data = tmp_path / "data"
    filled(data, 1000)
    words = [sys.executable, "-m", "wirelake.cli.main", "pipeline", "run", "--once", "--data", str(data)]
    without_java = clean_environment(PATH=str(path_without_java(tmp_path / "bin")))
    without_java.pop("JAVA_HOME", None)
    ran = subprocess.run(words, capture_output=True, text=True, timeout=WAIT_S, env=without_java, check=False)
    assert ran.returncode == 0, ran.stderr
    assert ran.stderr == ""
    assert "its UI is at http://" in ran.stdout
    assert "1000 records in" in ran.stdout
    check_tables(data)
    status = wirelake("pipeline", "status", "--json", "--data", str(data))
    found = json.loads(status.stdout)
    assert found["running"] is False
    assert [stage["behind_rows"] for stage in found["stages"]] == [0, 0]
    assert "not running" in wirelake("pipeline", "status", "--data", str(data)).stdout
    compacted = wirelake("pipeline", "compact", "--data", str(data))
    assert "bronze.frames" in compacted.stdout, compacted.stderr
    check_tables(data)
    assert "the ledger balances" in wirelake("pipeline", "check", "--data", str(data)).stdout
    lost = DeltaTable(data / "lake" / FRAMES.folder).delete("seq = 7")["num_deleted_rows"]
    assert lost == 1
    checked = wirelake("pipeline", "check", "--data", str(data))
    assert checked.returncode == 1
    assert "records_committed" in checked.stdout, checked.stderr


def test_a_damaged_table_ends_with_one_sentence(tmp_path: Path) -> None:
    data = tmp_path / "data"
    filled(data, 10)
    write(data / "lake", FRAMES, {"seq": 0, "event": "frame", "day": date(2030, 1, 1)})
    damaged = data / "lake" / FRAMES.folder / "_delta_log" / f"{0:020d}.json"
    damaged.write_bytes(b"{noise")
    ran = wirelake("pipeline", "run", "--once", "--data", str(data), timeout_s=WAIT_S)
    assert ran.returncode == 1
    assert "Traceback" not in ran.stderr
    assert f"wirelake: bronze.frames cannot be read: {damaged.relative_to(data)} is damaged" in ran.stderr
    assert wirelake("pipeline", "status", "--data", str(data)).returncode == 0


def test_redecode_says_what_changes_and_does_it(tmp_path: Path) -> None:
    data, codec = tmp_path / "data", tmp_path / "codec"
    log = SegmentLog(data / "log", LogSettings(fsync=False, keep_days=None))
    for frame in (b"news=one", b"news:two", b"news!three"):
        log.append(START_US, "mended", "frame", "in", "s", "me", "10.0.0.1:5", frame).wait(WAIT_S)
    log.close()

    def pipeline(*words: str) -> str:
        environment = clean_environment(PYTHONPATH=str(PLUGIN), MENDED_CODEC=str(codec))
        words = (sys.executable, "-m", "wirelake.cli.main", "pipeline", *words, "--data", str(data))
        ran = subprocess.run(words, capture_output=True, text=True, timeout=WAIT_S, env=environment, check=False)
        assert (ran.returncode, ran.stderr) == (0, "")
        return ran.stdout

    pipeline("run", "--once")
    codec.write_text("2")
    found = pipeline("redecode", "--protocol", "mended", "--dry-run")
    assert "1 quarantined frame can be decoded now, 1 decoded frame no longer can." in found
    assert found.endswith("Nothing was changed.\n")
    done = json.loads(pipeline("redecode", "--protocol", "mended", "--since", "2030-01-01", "--json"))
    assert done["tables"]["silver.messages"]["fields"] == {"topic": 1}
    assert rows_of(data, "silver.messages").sort("seq")["decoder"].to_list() == ["mended/2"] * 2
    check_tables(data)


def test_redecode_without_tables_says_so(tmp_path: Path) -> None:
    ran = wirelake("pipeline", "redecode", "--protocol", "comet", "--data", str(tmp_path / "nowhere"))
    assert ran.returncode == 1
    assert "there are no tables in" in ran.stderr
    ran = wirelake("pipeline", "redecode", "--protocol", "comett", "--data", str(tmp_path / "nowhere"))
    assert "did you mean comet?" in ran.stderr


def path_without_java(folder: Path) -> Path:
    """Return a folder with all programs of the system's PATH except Java."""
    folder.mkdir()
    for program in [*Path("/usr/bin").iterdir(), *Path("/bin").iterdir()]:
        if program.name != "java" and not (folder / program.name).is_symlink():
            (folder / program.name).symlink_to(program)
    return folder


def test_without_a_log_it_says_so(tmp_path: Path) -> None:
    ran = wirelake("pipeline", "run", "--once", "--data", str(tmp_path / "nowhere"))
    assert ran.returncode == 1
    assert "no log in" in ran.stderr


def test_up_runs_the_gateway_and_the_pipeline_and_ends_both(tmp_path: Path) -> None:
    settings = write_settings(tmp_path, "http")
    data = tmp_path / "data"
    words = [sys.executable, "-m", "wirelake.cli.main", "up", "--config", str(settings)]
    process = subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=clean_environment()
    )
    with process:
        try:
            assert process.stdout is not None
            address = ""
            for line in process.stdout:
                if line.split()[:1] == ["http"]:
                    address = line.split()[1]
                if line.startswith("Spark started"):
                    break
            assert address.startswith(f"http://{HOST}:")
            deadline_s = time.monotonic() + WAIT_S
            while "wirelake_pipeline_batches_total" not in (text := metrics(address, data)):
                assert time.monotonic() < deadline_s, text
                time.sleep(0.2)
            assert 'wirelake_pipeline_behind_rows{stage="silver"}' in text
            pid = json.loads((data / "checkpoints" / "tables" / "metrics.json").read_text())["pid"]
            process.send_signal(signal.SIGINT)
            _, errors = process.communicate(timeout=WAIT_S)
        finally:
            process.kill()
    assert process.returncode == 0, errors
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    assert json.loads((data / "checkpoints" / "tables" / "metrics.json").read_text())["running"] is False


def test_a_job_whose_spark_is_killed_starts_anew_and_ends_on_ctrl_c(tmp_path: Path) -> None:
    data = tmp_path / "data"
    log = SegmentLog(data / "log", LogSettings(fsync=False, keep_days=None))
    fill(log, 200)
    words = [sys.executable, "-m", "wirelake.cli.main", "pipeline", "run", "--trigger", "0.2", "--data", str(data)]
    pipe = subprocess.PIPE
    process = subprocess.Popen(words, stdout=pipe, stderr=pipe, text=True, env=clean_environment())
    with process:
        try:
            wait_until(data, 200, process)
            os.kill(java_of(process.pid), signal.SIGKILL)
            fill(log, 200)
            wait_until(data, 400, process)
            process.send_signal(signal.SIGINT)
            output, errors = process.communicate(timeout=WAIT_S)
        finally:
            process.kill()
    log.close()
    assert process.returncode == 0, errors
    assert "Spark's own process has ended; restarting" in output
    assert "the tables contain all records before 400" in output
    check_tables(data)


def test_ctrl_c_while_spark_starts_leaves_no_java_behind(tmp_path: Path) -> None:
    data = tmp_path / "data"
    filled(data, 1)
    words = [sys.executable, "-m", "wirelake.cli.main", "pipeline", "run", "--data", str(data)]
    pipe = subprocess.PIPE
    process = subprocess.Popen(words, stdout=pipe, stderr=pipe, text=True, env=clean_environment())
    with process:
        try:
            deadline_s = time.monotonic() + WAIT_S
            while not is_starting(process.pid):
                assert process.poll() is None
                assert time.monotonic() < deadline_s
                time.sleep(0.01)
            process.send_signal(signal.SIGINT)
            output, errors = process.communicate(timeout=WAIT_S)  # ends when whoever has our pipes does: Java too
        finally:
            process.kill()
    assert (process.returncode, output, errors) == (130, "Starting Spark…\n", "")


def is_starting(pid: int) -> bool:
    """Return whether the process has begun to start Spark's JVM."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return any(b"SparkSubmit" in Path(f"/proc/{child}/cmdline").read_bytes() for child in children)


def java_of(pid: int) -> int:
    """Return the process id of the JVM that the process started."""
    for line in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        if Path(f"/proc/{line}/comm").read_text().strip() == "java":
            return int(line)
    raise AssertionError("no Java below the process")


def wait_until(data: Path, seq: int, process: "subprocess.Popen[str]") -> None:
    deadline_s = time.monotonic() + WAIT_S
    while (found := read_progress(data)) is None or found.next_seq < seq:
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline_s
        time.sleep(0.1)


def metrics(address: str, data: Path) -> str:
    token = (data / "keys" / "admin.token").read_text().strip()
    request = urllib.request.Request(f"{address}/metrics", headers={"Authorization": f"Bearer {token}"})  # noqa: S310
    with urllib.request.urlopen(request, timeout=30) as response:  # noqa: S310
        return str(response.read().decode())
