import json
import signal
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from cli.serving import HOST, WAIT_S, serving, wirelake, write_settings
from wirelake.limits import GATEWAY_STOP_S
from wirelake.protocols.comet import frames
from wirelake.protocols.frame import Sender


def test_it_says_where_it_is_and_where_the_token_is(tmp_path: Path) -> None:
    with serving(tmp_path, "comet", "http") as running:
        folder = tmp_path / "data"
        assert running.greeting[0].endswith(f"data in {folder}")
        assert running.greeting[-1].startswith(f"The admin token is in {folder / 'keys' / 'admin.token'}.")
        token = (folder / "keys" / "admin.token").read_text().strip()
        for listener in ("comet", "http"):
            socket.create_connection(running.address(listener), WAIT_S).close()
        assert running.end() == 0
        assert token not in "".join(running.greeting) + running.output + running.errors


@pytest.mark.parametrize("name", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_in_time_and_says_goodbye(tmp_path: Path, name: signal.Signals) -> None:
    with serving(tmp_path, "comet") as running, socket.create_connection(running.address("comet"), WAIT_S) as phone:
        phone.sendall(frames.Heartbeat().encode())
        assert phone.recv(100) == frames.Ok().encode()
        start_s = time.monotonic()
        assert running.end(name) == 0
        assert time.monotonic() - start_s < GATEWAY_STOP_S
        goodbye = frames.decode(phone.recv(1000), Sender.SERVER)
        assert isinstance(goodbye, frames.Error)
        assert "shutting down" in goodbye.reason
        assert phone.recv(10) == b""


def test_it_ends_in_time_though_a_peer_does_not_read(tmp_path: Path) -> None:
    with serving(tmp_path, "comet") as running, socket.create_connection(running.address("comet")) as phone:
        phone.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        phone.setblocking(False)
        beats = frames.Heartbeat().encode() * 100_000
        until_s = time.monotonic() + WAIT_S
        while time.monotonic() < until_s:
            try:
                phone.send(beats)
            except BlockingIOError:
                break  # it is no longer read, as its answers are not
            time.sleep(0.01)
        start_s = time.monotonic()
        assert running.end() == 0
        assert time.monotonic() - start_s < GATEWAY_STOP_S


def test_it_ends_in_time_though_a_query_runs(tmp_path: Path) -> None:
    sql = "SELECT levenshtein(repeat('x', 400000), repeat('y', 400000))"  # which DuckDB itself cannot interrupt
    with serving(tmp_path, "http") as running, ThreadPoolExecutor() as pool:
        host, port = running.address("http")
        token = (tmp_path / "data" / "keys" / "admin.token").read_text().strip()
        pending = pool.submit(
            httpx.post,
            f"http://{host}:{port}/api/lake/query",
            json={"sql": sql},
            headers={"authorization": f"Bearer {token}"},
            timeout=WAIT_S,
            trust_env=False,
        )
        pid = running.process.pid
        until_s = time.monotonic() + WAIT_S
        while not any(task.read_text() for task in Path(f"/proc/{pid}/task").glob("*/children")):
            assert time.monotonic() < until_s
            time.sleep(0.02)
        start_s = time.monotonic()
        assert running.end() == 0
        assert time.monotonic() - start_s < GATEWAY_STOP_S
        assert pending.result().status_code == 503
        assert "Traceback" not in running.errors


def test_a_port_that_is_taken_is_told_in_one_sentence(tmp_path: Path) -> None:
    with socket.create_server((HOST, 0)) as taken:
        port = taken.getsockname()[1]
        for listener in ("comet", "apostol", "http"):
            settings = write_settings(tmp_path, ports={listener: port})
            result = wirelake("serve", "--config", str(settings))
            assert result.returncode == 1
            expected = f"wirelake: listen.{listener}: cannot listen on {HOST}:{port}: "
            (line,) = [line for line in result.stderr.splitlines() if line.startswith("wirelake:")]
            assert (
                line
                == f"{expected}another program listens there. Stop it, or set listen.{listener} (HOST:PORT, or off)"
            )
            assert "Traceback" not in result.stderr
            assert result.stdout == ""


def test_a_data_folder_in_use_is_told_in_one_sentence(tmp_path: Path) -> None:
    with serving(tmp_path) as running:
        result = running.run("serve")
        assert result.returncode == 1
        pid = running.process.pid
        assert (
            result.stderr
            == f"wirelake: the data folder {tmp_path / 'data'} is in use by the gateway in process {pid}\n"
        )


def test_a_data_folder_that_cannot_be_made_is_told_in_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("a file")
    result = wirelake("serve", "--config", str(write_settings(tmp_path)))
    assert result.returncode == 1
    assert result.stderr.startswith(f"wirelake: the data folder {tmp_path / 'data'} cannot be used: ")
    assert result.stderr.count("\n") == 1


def test_log_lines_are_json_with_fields_and_without_secrets(tmp_path: Path) -> None:
    options = ("--log-format", "json", "--log-level", "debug")
    with serving(tmp_path, "comet", options=options) as running:
        with socket.create_connection(running.address("comet"), WAIT_S) as phone:
            phone.sendall(frames.Auth("phone", "secret-token").encode())
            assert phone.recv(1000)
            assert phone.recv(1000) == b""
        assert running.end() == 0
        lines = [json.loads(line) for line in running.errors.splitlines()]
        (refused,) = [line for line in lines if line["text"] == "login refused"]
        assert refused["reason"] == "unknown"
        assert refused["level"] == "info"
        assert refused["session"]
        assert any(line["text"] == "session closed" and line["session"] == refused["session"] for line in lines)
        assert "secret-token" not in running.errors


def test_console_lines_have_the_same_fields(tmp_path: Path) -> None:
    with serving(tmp_path, "comet") as running:
        with socket.create_connection(running.address("comet"), WAIT_S) as phone:
            phone.sendall(frames.Auth("phone", "t").encode())
            while phone.recv(1000):
                pass
        assert running.end() == 0
        assert "login refused session=" in running.errors
        assert "reason=unknown" in running.errors
