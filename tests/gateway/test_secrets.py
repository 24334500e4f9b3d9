"""No login of any protocol leaves a secret in the log, the state, a trace, a page, the output or the process log."""

import asyncio
import logging
import secrets
import subprocess
import sys
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from gateway.fetch.test_fetcher import fetch
from gateway.login_attempts import ATTEMPTS, NO_LOGINS, USER, attempt_all, attempt_http, resume_magline
from gateway.running_gateway import HOST, WAIT_S, Running, running_gateway
from gateway.sisnet_client import IDENTITY, WebTerminal
from gateway.upstream.gateway_pair import LISTENERS as UPSTREAM_LISTENERS
from gateway.upstream.gateway_pair import upstream, wait_until_connected
from wirelake.log.segments.reader import LogReader
from wirelake.protocols import registry

LISTENERS = ("comet", "magline", "esnp", "sisnet", "sisnet_tcp", "redis", "http")
PAGES = ("/", "/sessions", "/topics", "/devices", "/tables", "/quarantine", "/inspector", "/trace", "/metrics")
# A gateway that neither slows down who fails to log in, nor omits what strangers send.
PATIENT = {"failed_logins": 100_000, "unauthenticated_records": 100_000, "unauthenticated_log_bytes": 1 << 30}
RECORDS_SHOWN = 40  # of those with bytes, one by one and with their sessions


def new_secret(kind: str) -> str:
    """Return a token that occurs nowhere by chance, and has no character that any encoding escapes."""
    return f"{kind}{secrets.token_hex(12)}"


def spellings(secret: bytes) -> Iterator[bytes]:
    """Yield what the secret looks like in plain text, hex, base64 (at any place in it) and UTF-16."""
    yield secret
    yield secret.hex().encode()
    yield secret.hex().upper().encode()
    yield secret.hex(" ").encode()
    for before in range(3):
        encoded = b64encode(b"\0" * before + secret).rstrip(b"=")
        yield encoded[(0, 2, 3)[before] : -1]
    if secret.isascii():
        yield secret.decode().encode("utf-16-le")
        yield secret.decode().encode("utf-16-be")


def assert_absent(where: str, text: bytes, *hidden: bytes) -> None:
    for secret in hidden:
        for spelling in spellings(secret):
            place = text.find(spelling)
            assert place < 0, f"{where}: {text[max(0, place - 80) : place + 80]!r}"


def assert_no_file_has(folder: Path, *hidden: bytes) -> None:
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert files
    for path in files:
        assert_absent(str(path), path.read_bytes(), *hidden)


def assert_no_record_has(data: Path, *hidden: bytes) -> list[dict[str, Any]]:
    """Check the records as they are read, whatever the form of a block is. Return them."""
    rows = [row for batch in LogReader(data / "log").read() for row in batch.to_pylist()]
    for row in rows:
        text = b"\n".join(value if isinstance(value, bytes) else str(value).encode() for value in row.values())
        assert_absent(f"record {row['seq']}: {row['protocol']} {row['event']} {row['direction']}", text, *hidden)
    return rows


def test_every_protocol_has_its_attempts() -> None:
    """A new protocol needs an entry in `login_attempts.ATTEMPTS`, or among those that have no logins."""
    assert {*ATTEMPTS, *NO_LOGINS} == set(registry.BUILT_IN)


def test_the_search_would_find_a_secret(tmp_path: Path) -> None:
    secret = new_secret("x").encode()
    for spelling in (*spellings(secret), *(b64encode(before + secret + b"xyz") for before in (b"", b"a", b"ab"))):
        (tmp_path / "file").write_bytes(b"before " + spelling + b" after")
        with pytest.raises(AssertionError, match="file"):
            assert_no_file_has(tmp_path, secret)


def test_no_login_leaves_a_secret(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, logger="wirelake")
    right, wrong = new_secret("right"), new_secret("wrong")
    hidden = [right.encode(), wrong.encode()]

    async def run() -> tuple[bytes, bytes]:
        async with running_gateway(tmp_path, *LISTENERS, identities=[(USER, right)], limits=PATIENT) as running:
            await attempt_all(running, right, wrong)
            await attempt_http(running, right, wrong)
            resumed = await resume_magline(running, right)
            await _check_pages(running, [*hidden, *resumed])
            return resumed

    resumed = asyncio.run(run())
    data = tmp_path / "data"
    rows = assert_no_record_has(data, *hidden, *resumed)
    _check_that_all_was_recorded(rows)
    assert_no_file_has(data / "log", *hidden, *resumed)
    assert_no_file_has(data, *hidden, resumed[1])
    assert_absent("process log", caplog.text.encode(), *hidden, *resumed)
    program = Path(sys.executable).parent / "wirelake"
    for form in ("--full", "--json"):
        shown = subprocess.run([program, "log", "cat", form, "--data", data], capture_output=True, check=True)
        assert shown.stdout.count(b"\n") >= len(rows)
        assert_absent(f"log cat {form}", shown.stdout + shown.stderr, *hidden, *resumed)


def _check_that_all_was_recorded(rows: list[dict[str, Any]]) -> None:
    """Check that there were logins, refusals and malformed ones of every protocol in the log."""
    for name in ATTEMPTS:
        events = {row["event"] for row in rows if row["protocol"] == name}
        assert {"frame", "login", "refuse"} <= events, name
        assert events & {"quarantine", "fault"}, name
        frames = [row["frame"] for row in rows if row["protocol"] == name and row["event"] == "frame"]
        assert any(USER.encode() in frame and b"*****" in frame for frame in frames), "the user stays in the log"


async def _check_pages(running: Running, hidden: list[bytes]) -> None:
    """Look at every page, and at what the API tells about every session and record."""
    admin = running.gateway.keys.admin_token()
    async with httpx.AsyncClient(base_url=f"http://{HOST}:{running.port('http')}", timeout=WAIT_S) as client:

        async def look(path: str, **rest: Any) -> httpx.Response:
            response = await client.get(path, headers={"authorization": f"Bearer {admin}"}, **rest)
            assert_absent(path, response.content, *hidden)
            return response

        for page in PAGES:
            assert (await look(page)).status_code == 200, page
        records = running.records()
        for start in range(0, len(records), 1000):
            assert (await look("/api/log", params={"before": records[start]["seq"] + 1000, "limit": 1000})).json()
        with_bytes = [row for row in records if row["frame"] and row["protocol"] in ATTEMPTS]
        for row in with_bytes[:: max(1, len(with_bytes) // RECORDS_SHOWN)]:
            assert (await look(f"/api/messages/{row['session']}")).status_code == 200
            seq = row["seq"]
            for path in (f"/api/log/{seq}", f"/api/messages/{seq}", f"/inspector?seq={seq}", f"/trace?id={seq}"):
                assert (await look(path)).status_code == 200, path


@pytest.mark.parametrize("scheme", ["ws", "tcp"])
def test_the_login_of_an_upstream_connection_is_not_in_either_log(
    tmp_path: Path, scheme: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, logger="wirelake")
    secret = new_secret("upstream")

    async def run() -> None:
        listener = UPSTREAM_LISTENERS[scheme]
        async with running_gateway(tmp_path / "back", listener, identities=[("front", secret)]) as back:
            upstreams = [upstream(back.port(listener), scheme, user="front", password=secret)]
            async with running_gateway(tmp_path / "front", "sisnet", sisnet={"upstreams": upstreams}) as front:
                await wait_until_connected(front)

    asyncio.run(run())
    for name in ("front", "back"):
        rows = assert_no_record_has(tmp_path / name / "data", secret.encode())
        assert any(b"login" in row["frame"] for row in rows), name
        assert_no_file_has(tmp_path / name / "data", secret.encode())
    assert_absent("process log", caplog.text.encode(), secret.encode())


def test_a_url_with_credentials_is_refused_and_only_the_request_has_them(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, logger="wirelake")
    secret = new_secret("fetched")

    async def run() -> str:
        async with (
            running_gateway(tmp_path, "sisnet", "http", identities=[IDENTITY]) as running,
            await WebTerminal.connect(running.port("sisnet")) as terminal,
        ):
            refused = await fetch(terminal, f"http://ann:{secret}@{HOST}/")
            return str(refused)

    refused = asyncio.run(run())
    assert "'ans': -1" in refused
    assert_absent("answer and process log", refused.encode() + caplog.text.encode(), secret.encode())
    rows = [row for batch in LogReader(tmp_path / "data" / "log").read() for row in batch.to_pylist()]
    requests = [row for row in rows if secret.encode() in row["frame"]]
    assert [(row["event"], row["direction"]) for row in requests] == [("frame", "in")]
    assert not any(secret in row["note"] for row in rows)
    for path in (tmp_path / "data").glob("state.db*"):
        assert_absent(str(path), path.read_bytes(), secret.encode())
