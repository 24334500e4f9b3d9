"""The wheel that `pip wheel .` gives is installable, typed, and asks for no Spark."""

import re
import subprocess
import sys
import zipfile
from email.parser import Parser
from pathlib import Path

ROOT = Path(__file__).parent.parent


def test_the_wheel(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "-qq",
        "--no-deps",
        "--no-build-isolation",
        "-w",
        str(tmp_path),
        str(ROOT),
    ]
    subprocess.run(command, check=True)
    (path,) = tmp_path.glob("wirelake-*.whl")
    with zipfile.ZipFile(path) as wheel:
        names = wheel.namelist()
        info = next(name.split("/")[0] for name in names if ".dist-info/" in name)
        metadata = Parser().parsestr(wheel.read(f"{info}/METADATA").decode())
        points = wheel.read(f"{info}/entry_points.txt").decode()
    assert "wirelake/py.typed" in names
    assert "wirelake/gateway/http/static/client.js" in names
    assert "wirelake/protocols/testing.py" in names
    assert "wirelake/cli/templates/protocol/package/frames.py.template" in names
    assert "wirelake/layout/export/runtime.lua" in names
    assert not [name for name in names if name.startswith("tests/")]
    assert "wirelake = wirelake.cli.main:main" in points
    required = [need for need in metadata.get_all("Requires-Dist", []) if "extra ==" not in need]
    assert required
    assert not [need for need in required if "spark" in need.lower()]


def test_the_lock_holds_versions_and_hashes_and_no_addresses() -> None:
    lock = (ROOT / "requirements.lock").read_text()
    packages = ("httptools", "httpx", "httpcore", "httpfs")
    assert "http" not in re.sub("|".join(packages), "", lock)
    assert "--index-url" not in lock
    pinned = [line for line in lock.splitlines() if line and not line.startswith((" ", "#"))]
    assert all("==" in line for line in pinned)
    assert lock.count("--hash=sha256:") >= len(pinned)
