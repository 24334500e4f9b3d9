"""How the kernels are compiled: to machine code, once, kept beside the module or wherever there is room for it."""

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
    """Numba takes the package's folder, or the user's cache. Where neither can be written: a folder for this user.

    Inside a wheel on a cluster no file stands for the module at all, and it is compiled once for each process.
    """
    try:
        return _compiled(function, cache=True)
    except RuntimeError:  # "no locator available"
        config.CACHE_DIR = str(cache_folder())  # type: ignore[attr-defined]  # made when Numba starts
    try:
        return _compiled(function, cache=True)
    except RuntimeError:
        return _compiled(function, cache=False)


def cache_folder() -> Path:
    """Nobody else's: what lies in it is run."""
    folder = Path(tempfile.gettempdir()) / f"{_FOLDER}-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    found = folder.lstat()
    if stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o077:
        return folder
    return Path(tempfile.mkdtemp(prefix=_FOLDER))


def _compiled(function: _Function, *, cache: bool) -> _Function:
    return cast(_Function, njit(cache=cache, nogil=True)(function))
