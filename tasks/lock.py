"""Resolve requirements.lock again: versions and hashes, no addresses. Run by `./dev lock`.

uv resolves for every platform and Python version at once; it is used here only, so it is not in the lock.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

GROUPS = ("test", "bench", "fuzz", "build")
EXTRAS = ("pipeline", "lake", "pcap")


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        tools = Path(folder) / "tools"
        subprocess.run([sys.executable, "-m", "pip", "install", "-q", "--target", tools, "uv"], check=True)
        command = [str(tools / "bin" / "uv"), "pip", "compile", "pyproject.toml", "-o", "requirements.lock"]
        command += ["--universal", "--python-version", "3.11", "--generate-hashes", "--upgrade"]
        command += ["--no-annotate", "--no-header", "--no-emit-index-url", "--no-emit-find-links", "--quiet"]
        for group in GROUPS:
            command += ["--group", group]
        for extra in EXTRAS:
            command += ["--extra", extra]
        subprocess.run(command, check=True)


if __name__ == "__main__":
    main()
