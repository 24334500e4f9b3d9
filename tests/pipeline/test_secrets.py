"""The tables have no secret of any login: neither bronze, with its bytes, nor what is decoded from it."""

import asyncio
import logging
from pathlib import Path

import pytest
from gateway.login_attempts import ATTEMPTS, USER, attempt_all, attempt_http, resume_magline
from gateway.running_gateway import running_gateway
from gateway.test_secrets import LISTENERS, PATIENT, assert_absent, assert_no_file_has, new_secret
from pyspark.sql import SparkSession

from pipeline.checking import rows_of
from wirelake.lake.tables import TABLES
from wirelake.pipeline.job import Job, JobSettings


async def log_in(folder: Path, right: str, wrong: str) -> tuple[bytes, bytes]:
    async with running_gateway(folder, *LISTENERS, identities=[(USER, right)], limits=PATIENT) as running:
        await attempt_all(running, right, wrong, damaged=False)
        await attempt_http(running, right, wrong)
        return await resume_magline(running, right)


def test_no_table_has_the_secret_of_a_login(
    spark: SparkSession, tmp_path: Path, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    right, wrong = new_secret("right"), new_secret("wrong")
    resumed = asyncio.run(log_in(tmp_path, right, wrong))
    data, hidden = tmp_path / "data", (right.encode(), wrong.encode(), *resumed)
    capfd.readouterr()
    with caplog.at_level(logging.DEBUG, logger="wirelake"):
        Job(spark, data, JobSettings(once=True), gold=True).run()
    output = "".join(capfd.readouterr()) + caplog.text
    assert_absent("output and process log", output.encode(), *hidden)
    found: set[str] = set()
    for name in TABLES:
        if not (data / "lake" / TABLES[name].folder).exists():
            continue
        for row in rows_of(data, name).iter_rows(named=True):
            values = [value if isinstance(value, bytes) else str(value).encode() for value in row.values()]
            assert_absent(f"{name} {row}", b"\n".join(values), *hidden)
            found |= {name, f"{name} {row.get('protocol')} {row.get('op') or row.get('event')}"}
    assert_no_file_has(data / "lake", *hidden)
    assert_no_file_has(data / "checkpoints", *hidden)
    for protocol in ATTEMPTS:
        assert f"bronze.frames {protocol} frame" in found
        assert f"silver.messages {protocol} login" in found
        assert f"bronze.frames {protocol} quarantine" in found
