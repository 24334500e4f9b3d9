"""Find missing packages: those of the gateway, and those that the pipeline needs in addition."""

import re
from importlib.metadata import PackageNotFoundError, requires, version
from importlib.util import find_spec
from typing import Final

from wirelake.errors import InputError

_NAME: Final = re.compile(r"[A-Za-z0-9._-]+")
_REDECODE: Final = ("deltalake", "numba", "numpy")  # in this process, without Spark
_PIPELINE: Final = ("deltalake", "duckdb", "numba", "pyspark")
_PCAP: Final = "dpkt"


def missing() -> list[str]:
    """Return the missing ones of the package's own requirements."""
    names = [_NAME.match(each) for each in requires("wirelake") or () if "extra ==" not in each]
    return [name.group() for name in names if name is not None and not _is_installed(name.group())]


def missing_for_pipeline() -> list[str]:
    """Return the missing packages of `wirelake[pipeline]`, without importing any, which would take seconds."""
    return [name for name in _PIPELINE if find_spec(name) is None]


def require_pipeline(what: str) -> None:
    """Raise InputError if a package of the pipeline is missing, instead of failing on import."""
    _require(what, missing_for_pipeline())


def require_redecode(what: str) -> None:
    """Raise InputError if a package is missing that decodes stored frames in this process."""
    _require(what, [name for name in _REDECODE if find_spec(name) is None])


def require_hypothesis(what: str) -> None:
    """Raise InputError if Hypothesis is missing, which only tests need."""
    if find_spec("hypothesis") is None:
        raise InputError(f"{what} needs hypothesis: run `pip install hypothesis`")


def _require(what: str, absent: list[str]) -> None:
    if absent:
        raise InputError(f"{what} needs {', '.join(absent)}: run `pip install wirelake[pipeline]`")


def require_pcap(what: str) -> None:
    """Raise InputError if the package that reads captures is missing."""
    if find_spec(_PCAP) is None:
        raise InputError(f"{what} needs {_PCAP}: run `pip install wirelake[pcap]`")


def _is_installed(package: str) -> bool:
    try:
        version(package)
    except PackageNotFoundError:
        return False
    return True
