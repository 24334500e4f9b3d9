"""Run an S3 server on loopback: moto's, which keeps everything in memory, or Versity's, which stores files."""

import re
import shutil
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import boto3
import pytest

from wirelake.lake.object_store import ObjectStore
from wirelake.lake.store import open_store

KEY, SECRET = "tester", "tester-secret"
START_S = 60.0
BUILD_S = 300.0
VERSITY = "github.com/versity/versitygw/cmd/versitygw@v1.8.0"
_ADDRESS = re.compile(r"Running on (http://127\.0\.0\.1:\d+)")


class S3Server:
    """Make buckets on a running server."""

    def __init__(self, endpoint: str, key: str = KEY, secret: str = SECRET) -> None:
        self.endpoint = endpoint
        self.options = {
            "aws_endpoint": endpoint,
            "aws_allow_http": "true",
            "aws_access_key_id": key,
            "aws_secret_access_key": secret,
            "aws_region": "us-east-1",
        }

    def new_lake(self, lease_s: float = 3.0) -> ObjectStore:
        """Return an empty lake in a bucket of its own. A lock of a process that was killed is free after `lease_s`."""
        bucket = f"lake-{uuid.uuid4()}"
        self.client().create_bucket(Bucket=bucket)
        store = open_store(f"s3://{bucket}/some/prefix", self.options)
        assert isinstance(store, ObjectStore)
        return ObjectStore(store.location, store.options, lease_s=lease_s)

    def client(self) -> Any:
        return boto3.client(
            "s3",
            endpoint_url=self.endpoint,
            aws_access_key_id=self.options["aws_access_key_id"],
            aws_secret_access_key=self.options["aws_secret_access_key"],
            region_name=self.options["aws_region"],
        )


@contextmanager
def run_s3_server(folder: Path) -> Iterator[S3Server]:
    """Run the server. `folder` gets its log, which has a line for each request."""
    log = folder / "s3.log"
    command = [sys.executable, "-u", "-m", "moto.server", "-H", "127.0.0.1", "-p", "0"]
    with log.open("wb") as output, subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT) as process:
        try:
            until_s = time.monotonic() + START_S
            while (found := _ADDRESS.search(log.read_text())) is None:
                assert process.poll() is None, log.read_text()
                assert time.monotonic() < until_s, "moto's server did not start"
                time.sleep(0.05)
            yield S3Server(found[1])
        finally:
            process.kill()


@contextmanager
def run_versity_server(program: Path, folder: Path) -> Iterator[S3Server]:
    """Run Versity's S3 gateway, which checks signatures and conditions as S3 does."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    buckets = folder / "buckets"
    buckets.mkdir()
    command = [str(program), "--access", KEY, "--secret", SECRET, "--port", address, "--quiet", "posix", str(buckets)]
    with (folder / "s3.log").open("wb") as output, subprocess.Popen(command, stdout=output, stderr=output) as process:
        try:
            until_s = time.monotonic() + START_S
            while not _accepts(address):
                assert process.poll() is None, (folder / "s3.log").read_text()
                assert time.monotonic() < until_s, "versitygw did not start"
                time.sleep(0.05)
            yield S3Server(f"http://{address}")
        finally:
            process.kill()


def find_versity_server() -> Path:
    """Return the program, which `go` builds the first time. Skip the test where that is not possible."""
    program = shutil.which("versitygw")
    if program is not None:
        return Path(program)
    go = shutil.which("go")
    if go is None:
        pytest.skip("NOT TESTED: a real S3 server, because neither versitygw nor go is installed")
    home = subprocess.run([go, "env", "GOPATH"], capture_output=True, text=True, check=True).stdout.strip()
    built = Path(home) / "bin" / "versitygw"
    if not built.exists():
        try:
            done = subprocess.run(
                [go, "install", VERSITY], capture_output=True, text=True, timeout=BUILD_S, check=False
            )
        except subprocess.TimeoutExpired:
            pytest.skip(f"NOT TESTED: a real S3 server, because go did not build {VERSITY} within {BUILD_S:g} s")
        if done.returncode:
            reason = (done.stderr.strip().splitlines() or ["no reason"])[0]
            pytest.skip(f"NOT TESTED: a real S3 server, because go cannot build {VERSITY}: {reason}")
    return built


def _accepts(address: str) -> bool:
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host, int(port)), timeout=1).close()
    except OSError:
        return False
    return True
