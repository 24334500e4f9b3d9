"""The package that `wirelake protocol new` creates: it installs, passes its tests, decodes and is served as it is."""

import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from importlib import import_module
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pytest
from click.testing import CliRunner, Result
from examples.installed import install_packages

from cli.serving import HOST, WAIT_S, Serving, free_ports, serving
from cli.serving import wirelake as run_wirelake
from wirelake.cli.main import wirelake
from wirelake.protocols.frame import Sender

NAME = "tracker_2"


def new(*words: str) -> Result:
    return CliRunner().invoke(wirelake, ["protocol", "new", *words])


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Create the package and install it, for this process and those that it starts."""
    parent = tmp_path_factory.mktemp("protocols")
    result = new(NAME, "--dir", str(parent))
    assert result.exit_code == 0, result.output
    installed = parent / "installed"
    environment = install_packages(installed, parent / NAME)
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("PYTHONPATH", environment["PYTHONPATH"])
        patched.syspath_prepend(str(installed))
        yield parent / NAME


def test_it_passes_its_own_tests(package: Path) -> None:
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider"]
    done = subprocess.run([*command, "-v"], cwd=package, capture_output=True, text=True, timeout=WAIT_S, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    for law in ("round trip", "any split", "any bytes", "one verdict", "translation", "secrets"):
        assert f"test_laws[{law}]" in done.stdout


def test_it_is_listed_and_decodes(package: Path) -> None:
    listed = json.loads(run_wirelake("protocol", "list", "--json").stdout)
    assert listed["broken"] == {}
    (row,) = [row for row in listed["protocols"] if row["name"] == NAME]
    assert (row["decoder"], row["from"]) == (f"{NAME}/1", "wirelake-tracker-2 0.1.0")
    assert row["is_described"]
    (line,) = [line for line in (package / f"tests/{NAME}.hex").read_text().splitlines() if "215" in line]
    done = run_wirelake("decode", NAME, line.split()[2])
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"{NAME} reading  13 bytes from the client")
    assert "21.5 °C" in done.stdout


class TrackerClient:
    """Send and receive frames with the simulated device of the package."""

    def __init__(self, port: int) -> None:
        self.frames: Any = import_module(f"wirelake_{NAME}.frames")
        self.device: Any = import_module(f"wirelake_{NAME}.device").DeviceClient(HOST, port)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.device.close()

    def request(self, name: str, *values: Any) -> Any:
        return self.device.request(getattr(self.frames, name)(*values))

    def receive(self) -> Any:
        return self.device.receive()


class Served:
    def __init__(self, running: Serving, port: int) -> None:
        self.running = running
        self.port = port
        self.token = running.run("identity", "add", "m1").stdout.strip()

    def login(self) -> TrackerClient:
        client = TrackerClient(self.port)
        assert client.request("Login", 1, "m1", self.token) == client.frames.Ok(1)
        return client


@pytest.fixture(scope="module")
def served(package: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    (port,) = free_ports(1)
    folder = tmp_path_factory.mktemp("served")
    with serving(folder, "http", text=f'{NAME} = "{HOST}:{port}"\n[{NAME}]\nidle_s = 77.0') as running:
        yield Served(running, port)


def test_a_reading_is_acknowledged_and_in_the_log(served: Served) -> None:
    with served.login() as device:
        assert device.request("Reading", 2, 215, 48, 3600) == device.frames.Ok(2)
        reading = device.frames.Reading(2, 215, 48, 3600).encode().hex()
    logged = served.running.run("log", "cat", "--protocol", NAME, "--json", "--full").stdout
    assert reading in logged
    assert served.token.encode().hex() not in logged, "the token is a secret field"


def test_notifications_cross_to_other_protocols_and_back(served: Served) -> None:
    with served.login() as device:
        assert device.request("Subscribe", 5, "@news") == device.frames.Ok(5)
        assert served.running.run("publish", "@news", "hello").returncode == 0
        found = device.receive()
        assert (found.topic, found.content) == ("@news", b"hello")
        assert json.loads(device.request("Publish", 6, "@news", b"door open").content)["receivers"] == 1
        assert device.receive().content == b"door open"


def test_it_answers_commands_and_is_a_device(served: Served) -> None:
    with served.login() as device:
        assert device.request("Reading", 2, 215, 48, 3600) == device.frames.Ok(2)
        run = partial(served.running.run, "send", "m1", "reboot", "0102")
        with ThreadPoolExecutor(1) as threads:
            sent = threads.submit(run)
            command = device.receive()
            assert (command.command, command.data) == ("reboot", b"\1\2")
            device.device.send(device.frames.Answer(command.number, b"done"))
            assert json.loads(sent.result().stdout) == {"serial": "m1", "error": 0, "data": b"done".hex()}
            sent = threads.submit(run)
            device.device.send(device.frames.Failed(device.receive().number, 7, "no power"))
            failed = json.loads(sent.result().stdout)
            assert (failed["error"], failed["error_text"]) == (7, "no power")
    listed = json.loads(served.running.run("device", "list", "--json").stdout)
    assert [row["serial"] for row in listed] == ["m1"]


def test_strangers_and_bad_bytes_are_refused(served: Served) -> None:
    with TrackerClient(served.port) as stranger:
        assert stranger.request("Subscribe", 5, "@news").code == 401
        assert stranger.receive() is None
    with TrackerClient(served.port) as stranger:
        assert stranger.request("Login", 1, "m1", "wrong").reason == "invalid token"
        assert stranger.receive() is None
    with socket.create_connection((HOST, served.port), WAIT_S) as stranger:
        stranger.sendall(b"GET / HTTP/1.1\r\n\r\n")
        answer = b"".join(iter(lambda: stranger.recv(4096), b""))
        assert import_module(f"wirelake_{NAME}.frames").FRAMES.decode(answer, Sender.SERVER).code == 400


def test_the_simulated_device(served: Served) -> None:
    command = [sys.executable, "-m", f"wirelake_{NAME}.device", f"{HOST}:{served.port}", "m1", served.token]
    command += ["--readings", "2", "--publish", "@news", "hi"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=WAIT_S, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith('login: ok\nreading: ok\nreading: ok\npublish: ok {"id":')
    command[5] = "wrong"
    done = subprocess.run(command, capture_output=True, text=True, timeout=WAIT_S, check=False)
    assert (done.returncode, done.stdout) == (1, "login: refused 401: invalid token\n")


def test_its_settings_are_a_section(served: Served) -> None:
    shown = served.running.run("config").stdout
    assert "idle_s = 77.0" in shown.partition(f"[{NAME}]")[2].partition("\n[")[0]


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("Tracker", "small letters, digits and underscores"),
        ("2tracker", "starts with a letter"),
        ("my-tracker", "small letters, digits and underscores"),
        ("../tracker", "small letters, digits and underscores"),
        ("class", "cannot be the name of a protocol"),
        ("", "small letters, digits and underscores"),
        ("t" * 33, "33 characters"),
        ("listen", "wirelake.toml has a section [listen]"),
        ("comet", "taken by the protocol comet"),
        ("sisnet_tcp", "taken by the protocol sisnet"),
        ("resp", "taken by the protocol redis"),
    ],
)
def test_a_name_that_no_protocol_can_have(name: str, reason: str, tmp_path: Path) -> None:
    result = new(name, "--dir", str(tmp_path))
    assert reason in str(result.exception)
    assert list(tmp_path.iterdir()) == []


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    (tmp_path / "tracker").mkdir()
    assert "exists already" in str(new("tracker", "--dir", str(tmp_path)).exception)
    assert list((tmp_path / "tracker").iterdir()) == []
    (tmp_path / "file").write_text("")
    result = run_wirelake("protocol", "new", "tracker", "--dir", str(tmp_path / "file" / "x"))
    assert result.returncode != 0
