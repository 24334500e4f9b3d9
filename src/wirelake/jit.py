"""Compile numeric kernels to machine code with Numba, and cache the result next to the module or for this user.

Numba is optional: only the pipeline imports this.
"""

import hashlib
import importlib.util
import os
import pkgutil
import stat
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Final, TypeVar, cast

from numba import config, njit

_Function = TypeVar("_Function", bound=Callable[..., object])
PACKED_KERNELS: Final = "WIRELAKE_KERNELS"  # in the environment: the folder of an archive, as trusted as its code
_FOLDER: Final = "wirelake-kernels"


def kernel(function: _Function) -> _Function:
    """Compile a function. Cache it in the package's folder or the user's cache, or else in a temporary folder.

    In a wheel on a cluster the module has no file, and is compiled once for each process.
    """
    try:
        return _compile(function, cache=True)
    except RuntimeError:  # "no locator available"
        config.CACHE_DIR = str(cache_folder())  # type: ignore[attr-defined]  # created when Numba starts
    try:
        return _compile(function, cache=True)
    except RuntimeError:
        return _compile(function, cache=False)


def inlined(function: _Function) -> _Function:
    """Compile a function into each kernel that calls it: to pass it arrays would take longer than a short frame."""
    return cast(_Function, njit(inline="always")(function))


def load_module(name: str, text: str, *used: str) -> ModuleType:
    """Import a generated module from a file that only this user can write, so that its kernels are cached like others.

    The file is written once for each text, and anew if the source of a module that it uses changes: Numba caches by the
    file alone.
    """
    sources = [text.encode(), *(_source_of(each) for each in used)]
    digest = hashlib.sha256(b"\0".join(sources)).hexdigest()[:16]
    full_name = f"wirelake_kernels_{name}_{digest}"
    if full_name in sys.modules:
        return sys.modules[full_name]
    path = _module_path(f"{full_name}.py")
    if not path.exists() or path.read_text() != text:
        with tempfile.NamedTemporaryFile("w", dir=path.parent, suffix=".new", delete=False) as file:
            file.write(text)
        os.utime(file.name, (0, 0))  # Numba compares the time: another process may write the same file
        Path(file.name).replace(path)
    spec = importlib.util.spec_from_file_location(full_name, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} cannot be imported")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    sys.modules[full_name] = module
    return module


def _module_path(name: str) -> Path:
    """Return where a generated module is or will be: beside our own code, in an archive for executors, or a cache."""
    packed = os.environ.get(PACKED_KERNELS)
    if packed and ((Path(packed) / name).exists() or os.access(packed, os.W_OK)):
        return Path(packed) / name
    return module_folder() / name


def module_folder() -> Path:
    """Return the folder for generated modules: in the user's cache, or else a temporary one."""
    cache = os.environ.get("NUMBA_CACHE_DIR") or os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    folder = Path(cache) / "wirelake" / "kernels"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError:
        return cache_folder()
    return folder if os.access(folder, os.W_OK) and _is_private(folder) else cache_folder()


def _source_of(module: str) -> bytes:
    package, _, name = module.rpartition(".")
    return pkgutil.get_data(package, f"{name}.py") or b""


def cache_folder() -> Path:
    """Return a folder that only this user can write: what is in it gets executed."""
    folder = Path(tempfile.gettempdir()) / f"{_FOLDER}-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    return folder if _is_private(folder) else Path(tempfile.mkdtemp(prefix=_FOLDER))


def _is_private(folder: Path) -> bool:
    found = folder.lstat()
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o077


def _compile(function: _Function, *, cache: bool) -> _Function:
    return cast(_Function, njit(cache=cache, nogil=True)(function))
