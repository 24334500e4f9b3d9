import json
import signal
import subprocess
import sys
import time
from io import StringIO
from pathlib import Path
from subprocess import PIPE

import pytest
from rich.console import Console

from cli.serving import WAIT_S, Serving, clean_environment, serving, wirelake
from wirelake.cli.commands.simulate import at_url, print_report
from wirelake.config import Settings, TlsSection
from wirelake.errors import InputError
from wirelake.simulator.report import Report

LISTENERS = ("apostol", "comet", "esnp", "magline", "sisnet", "sisnet_tcp", "redis", "http")
QUICK = ("--devices", "8", "--rate", "40", "--seconds", "1")


def test_a_fleet_from_the_shell(tmp_path: Path) -> None:
    with serving(tmp_path, *LISTENERS) as served:
        done = served.run("simulate", *QUICK, "--seed", "3")
        assert (done.returncode, done.stderr) == (0, "")
        assert "8 members in" in done.stdout
        assert " 0 failed." in done.stdout
        rows = {words[0] for words in map(str.split, done.stdout.splitlines()) if words}
        assert {"apostol", "comet", "magline", "sisnet", "esnp", "redis"} <= rows
        assert served.run("device", "list").stdout.strip() == "No devices registered yet."

        host, port = served.address("http")
        token = (tmp_path / "data" / "keys" / "admin.token").read_text().strip()
        words = ("--url", f"http://{host}:{port}", "--token", token, "--protocol", "apostol", "--protocol", "redis")
        away = wirelake("simulate", *QUICK, *words, "--json", "--keep", "--loss", "0.1", "--data", str(tmp_path / "x"))
        assert (away.returncode, away.stderr) == (0, "")
        report = json.loads(away.stdout)
        assert report["members"] == {"apostol": 7, "redis": 1}
        assert report["counts"]["apostol"]["readings"]["failed"] == 0
        assert report["faults"]["lost"] > 0
        assert len(served.run("device", "list").stdout.splitlines()) == 8


def test_nobody_there_and_a_wrong_protocol(tmp_path: Path) -> None:
    alone = wirelake("simulate", "--url", "http://127.0.0.1:9", "--token", "x", "--data", str(tmp_path))
    assert alone.returncode == 1
    assert "no gateway at 127.0.0.1:9" in alone.stderr
    assert wirelake("simulate", "--protocol", "smoke").returncode == 2


def test_the_summary_says_what_went_wrong() -> None:
    report = Report(skipped=3, behind_s=2.5)
    report.counts_of("apostol", "status").failed += 1
    report.add_reason("apostol status: no receipt [after all]")
    report.faults["lost"] = 7
    text = StringIO()
    print_report(Console(file=text, width=100, soft_wrap=True), report)
    for sentence in (
        "1 failed.",
        "3 actions were skipped",
        "up to 2.5 s late",
        "7 lost.",
        "1 × apostol status: no receipt [after",
    ):
        assert sentence in text.getvalue()


def test_urls() -> None:
    assert at_url(Settings(), "http://[::1]").listen.http == "[::1]:80"
    assert at_url(Settings(tls=TlsSection(cert="c", key="k")), "https://h").listen.http == "h:443"
    for url in ("ws://h", "http://", "https://h"):
        with pytest.raises(InputError):
            at_url(Settings(), url)


def test_ctrl_c_leaves_nothing_behind(tmp_path: Path) -> None:
    with serving(tmp_path, "apostol", "comet", "http") as served:
        words = ("--protocol", "apostol", "--protocol", "comet", "--devices", "4", "--rate", "20", "--seconds", "600")
        command = [sys.executable, "-m", "wirelake.cli.main", "simulate", *words, "--config", str(served.settings)]
        with subprocess.Popen(command, env=clean_environment(), stdout=PIPE, stderr=PIPE, text=True) as simulating:
            deadline_s = time.monotonic() + WAIT_S
            while not have_all_reported(served):
                assert time.monotonic() < deadline_s
                time.sleep(0.1)
            simulating.send_signal(signal.SIGINT)
            simulating.communicate(timeout=WAIT_S)
            assert simulating.returncode != 0
        assert served.run("device", "list").stdout.strip() == "No devices registered yet."
        assert served.run("identity", "list").stdout.strip() == "No identities yet."


def have_all_reported(served: Serving) -> bool:
    """Return whether every meter has sent something."""
    rows = json.loads(served.run("device", "list", "--json").stdout)
    return len(rows) == 3 and all(row["heard"] for row in rows)
