"""Name → protocol. Built-in ones are imported when first asked for; others come through entry points.

A package adds its own with

    [project.entry-points."wirelake.protocols"]
    morse = "morse_wirelake:PROTOCOL"
"""

import difflib
from functools import cache
from importlib import import_module, metadata
from typing import Any, Final

from wirelake.errors import InputError, UnknownProtocolError
from wirelake.protocols.protocol import Protocol

ENTRY_POINT_GROUP: Final = "wirelake.protocols"
BUILT_IN: Final = ("comet", "magline", "apostol", "esnp", "sisnet", "resp")


@cache
def get(name: str) -> Protocol:
    if name in BUILT_IN:
        module = import_module(f"wirelake.protocols.{name}.protocol")
        found: Protocol = module.PROTOCOL
    elif name in (added := _added()):
        found = _load(added[name])
    else:
        near = ["resp"] if name == "redis" else difflib.get_close_matches(name, names(), n=1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise UnknownProtocolError(f"no protocol is called '{name}': there are {', '.join(names())}{hint}")
    return found


def load_module(name: str) -> Any:
    """Return a module that a protocol names: see `Protocol.columns`."""
    return import_module(name)


def names() -> tuple[str, ...]:
    """The built-in ones first, then the added ones by name."""
    return (*BUILT_IN, *sorted(_added()))


def all_protocols() -> tuple[Protocol, ...]:
    return tuple(get(name) for name in names())


@cache
def _added() -> dict[str, metadata.EntryPoint]:
    found = {point.name: point for point in metadata.entry_points(group=ENTRY_POINT_GROUP)}
    taken = set(found) & set(BUILT_IN)
    if taken:
        point = found[taken.pop()]
        raise InputError(f"entry point {point.value} takes the name of the built-in protocol '{point.name}'")
    return found


def _load(point: metadata.EntryPoint) -> Protocol:
    found = point.load()
    if not isinstance(found, Protocol):
        raise InputError(f"entry point {point.value} is a {type(found).__name__}, not a Protocol")
    if found.name != point.name:
        raise InputError(f"entry point {point.value} is registered as '{point.name}' but is called '{found.name}'")
    return found
