"""Install the programs from outside Python that the tests and benchmarks use.

They are peers and foreign clients (a browser, redis's own tools); the product itself needs none of them.
"""

import os
import shutil
import subprocess
import sys

# program → the Debian package that brings it
FOR_TESTS = {
    "cc": "gcc",
    "chromium": "chromium",
    "curl": "curl",
    "openssl": "openssl",
    "redis-cli": "redis-tools",
    "redis-benchmark": "redis-tools",
    "redis-server": "redis-server",
    "tshark": "tshark",
}
FOR_CHAOS = {"cc": "gcc"}
FOR_BENCHMARKS = {"redis-server": "redis-server", "mosquitto": "mosquitto"}
INSTALL_TIMEOUT_S = 600


def ensure(programs: dict[str, str]) -> None:
    """Install what is missing; without the permission to do so, print what to do and continue."""
    missing = sorted(
        {package for program, package in programs.items() if shutil.which(program, path=search_path()) is None}
    )
    if not missing:
        return
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        print(f"missing on this machine: {' '.join(missing)}; what needs them fails or is left out", file=sys.stderr)
        return
    print(f"── installing {' '.join(missing)}", flush=True)
    quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    install = ["apt-get", "install", "-y", "-qq", "--no-install-recommends", *missing]
    for command in (["apt-get", "update", "-qq"], install):
        done = subprocess.run(
            command, env=quiet, capture_output=True, text=True, check=False, timeout=INSTALL_TIMEOUT_S
        )
        if done.returncode:
            print(f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}", file=sys.stderr)


def search_path() -> str:
    """Return PATH with sbin, which has Debian's servers and is not on every PATH."""
    return os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/sbin"])
