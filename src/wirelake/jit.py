"""Compile numeric kernels to machine code with Numba, and cache the result next to the module or for this user.

Numba is optional: only the pipeline imports this.
"""

import os
import stat
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeVar, cast

from numba import config, njit

_Function = TypeVar("_Function", bound=Callable[..., object])
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


def cache_folder() -> Path:
    """Return a folder that only this user can write: what is in it gets executed."""
    folder = Path(tempfile.gettempdir()) / f"{_FOLDER}-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    found = folder.lstat()
    if stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o077:
        return folder
    return Path(tempfile.mkdtemp(prefix=_FOLDER))


def _compile(function: _Function, *, cache: bool) -> _Function:
    return cast(_Function, njit(cache=cache, nogil=True)(function))
