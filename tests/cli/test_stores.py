"""Test the errors of commands on a data folder whose parts do not belong together."""

import asyncio
import shutil
import signal
import sqlite3
from contextlib import closing
from pathlib import Path

import httpx
import pytest
from gateway.gateway_process import ServeProcess, drain, subscribe

from cli.serving import HOST, WAIT_S, serving, wirelake, write_settings
from wirelake.log.segments.high_watermark import read_data_id, write_data_id
from wirelake.log.segments.reader import LogReader
from wirelake.pipeline.commit.checkpoint import open_stream
from wirelake.pipeline.commit.manifests import Manifest, ManifestStore
from wirelake.pipeline.paths import DataPaths

PUBLISHED = 90


def serve_once(folder: Path, *options: str) -> None:
    with serving(folder, "http", options=options) as running:
        assert running.run("publish", "@news", "hello").returncode == 0
        assert running.end() == 0, running.errors


def checkpointed(data: Path, seq: int) -> None:
    """Write a checkpoint as if the pipeline had filled the tables up to this record."""
    places = DataPaths.of(data)
    open_stream(places)
    offsets = places.spark_offsets
    offsets.mkdir(parents=True)
    (offsets / "0").write_text(f'v1\n{{"batchWatermarkMs":0}}\n{{"seq": {seq}}}')
    ManifestStore(places.checkpoint).create(Manifest(batch=0, from_seq=0, until_seq=seq, now_us=1, rows=seq))


def test_half_a_write_ahead_log_loses_nothing_that_was_acknowledged(tmp_path: Path) -> None:
    """Publish, kill, truncate and restart: the subscriber that was offline receives every notification."""
    served = ServeProcess(tmp_path / "data")
    with served.running() as process:
        asyncio.run(subscribe(served))
        url = f"http://{HOST}:{served.ports['http']}/api/topics/%40crash/notifications"
        with httpx.Client(headers=served.admin(), timeout=WAIT_S) as client:
            for number in range(PUBLISHED):
                assert client.post(url, json={"content": str(number)}).status_code == 201
        process.send_signal(signal.SIGKILL)
        process.wait(WAIT_S)
    wal = tmp_path / "data" / "state.db-wal"
    wal.write_bytes(wal.read_bytes()[: wal.stat().st_size // 2])
    with closing(sqlite3.connect(shutil.copytree(tmp_path / "data", tmp_path / "copy") / "state.db")) as copy:
        (there,) = copy.execute("SELECT count(*) FROM notifications").fetchone()
    assert there < PUBLISHED, "the cut took something"
    with served.running():
        assert asyncio.run(drain(served)) == list(range(PUBLISHED))


def test_serve_refuses_a_folder_without_its_log_until_the_loss_is_accepted(tmp_path: Path) -> None:
    serve_once(tmp_path)
    data = tmp_path / "data"
    end = LogReader(data / "log").next_seq
    shutil.rmtree(data / "log")
    settings = str(write_settings(tmp_path))
    for command in ("serve", "up"):
        refused = wirelake(command, "--config", settings)
        assert refused.returncode != 0
        assert "the log ends at record 0, and state.db has seen it up to" in refused.stderr
        assert "--accept-loss" in refused.stderr
        assert "Traceback" not in refused.stderr
    doctor = wirelake("doctor", "--config", settings)
    assert doctor.returncode == 1
    assert "the log ends at record 0" in doctor.stdout
    serve_once(tmp_path, "--accept-loss")
    assert LogReader(data / "log").oldest_seq == end
    serve_once(tmp_path)
    assert "are consistent" in wirelake("doctor", "--config", settings).stdout


def test_serve_refuses_a_folder_without_its_state_until_the_loss_is_accepted(tmp_path: Path) -> None:
    serve_once(tmp_path)
    (tmp_path / "data" / "state.db").unlink()
    settings = str(write_settings(tmp_path))
    refused = wirelake("serve", "--config", settings)
    assert refused.returncode != 0
    assert "state.db is missing or empty" in refused.stderr
    assert "state.db is missing" in wirelake("doctor", "--config", settings).stdout
    serve_once(tmp_path, "--accept-loss")
    serve_once(tmp_path)


def test_serve_says_what_is_wrong_with_a_damaged_state(tmp_path: Path) -> None:
    serve_once(tmp_path)
    file = tmp_path / "data" / "state.db"
    file.write_bytes(file.read_bytes()[:6000])
    refused = wirelake("serve", "--config", str(write_settings(tmp_path)))
    assert refused.returncode != 0
    assert "damaged" in refused.stderr
    assert "restore state.db from a backup" in refused.stderr
    assert "Traceback" not in refused.stderr
    assert "AttributeError" not in refused.stderr


@pytest.mark.parametrize("words", [("run", "--once"), ("status",), ("status", "--json")])
def test_the_pipeline_refuses_a_checkpoint_beyond_the_log(tmp_path: Path, words: tuple[str, ...]) -> None:
    serve_once(tmp_path)
    data = tmp_path / "data"
    checkpointed(data, 10_000)
    done = wirelake("pipeline", *words, "--data", str(data))
    assert done.returncode != 0
    assert "filled up to record 10000, but the log ends at" in done.stdout + done.stderr
    assert "Spark" not in done.stdout, "it was refused before Spark was started"
    assert "filled up to record 10000" in wirelake("doctor", "--data", str(data)).stdout


def test_the_pipeline_refuses_a_checkpoint_of_another_folder(tmp_path: Path) -> None:
    serve_once(tmp_path)
    data = tmp_path / "data"
    checkpointed(data, 1)
    assert wirelake("pipeline", "status", "--data", str(data)).returncode == 0
    write_data_id(data / "log", "another" + read_data_id(data / "log")[7:])
    for words in (("run", "--once"), ("status",)):
        done = wirelake("pipeline", *words, "--data", str(data))
        assert done.returncode != 0
        assert "the checkpoint and the tables belong to another data folder" in done.stderr


def test_serve_refuses_a_log_behind_the_checkpoint(tmp_path: Path) -> None:
    """Refuse also without the state: the tables have more records than the new log would have."""
    serve_once(tmp_path)
    data = tmp_path / "data"
    checkpointed(data, LogReader(data / "log").next_seq)
    shutil.rmtree(data / "log")
    (data / "state.db").unlink()
    refused = wirelake("serve", "--config", str(write_settings(tmp_path)))
    assert refused.returncode != 0
    assert "the pipeline has read it up to" in refused.stderr
    serve_once(tmp_path, "--accept-loss")
    assert wirelake("pipeline", "status", "--data", str(data)).returncode == 0
