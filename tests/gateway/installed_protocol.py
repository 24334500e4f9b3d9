"""Install protocols as entry points do, for gateways in the test's own process."""

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest

from wirelake.protocols import registry

EXAMPLES = Path(__file__).parent.parent.parent / "examples"


def example(name: str) -> Any:
    """Return the module of an example package."""
    folder = str(EXAMPLES / name)
    if folder not in sys.path:
        sys.path.append(folder)
    return import_module(name)


@contextmanager
def installed_protocols(points: Mapping[str, str]) -> Iterator[None]:
    """Install these entry points: name → module:object."""
    found = [EntryPoint(name, value, registry.ENTRY_POINT_GROUP) for name, value in points.items()]
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("importlib.metadata.entry_points", lambda **_group: found)
        registry.refresh()
        yield
    registry.refresh()
