"""Find protocols by name. Built-in ones are packages beside this module; others are installed as entry points.

A package adds its own with

    [project.entry-points."wirelake.protocols"]
    morse = "morse_wirelake:PROTOCOL"

A protocol is imported on first use. An installed one that cannot be loaded is reported by `failures`, and does not
affect the others.
"""

import difflib
import logging
import pkgutil
import re
from collections.abc import Callable
from functools import cache
from importlib import import_module, metadata
from typing import Any, Final, ParamSpec, TypeVar, cast

from wirelake import protocols
from wirelake.errors import InputError, UnknownProtocolError
from wirelake.message import INTERNAL_HEADERS
from wirelake.protocols.device_session import DeviceSettings
from wirelake.protocols.guards import guard
from wirelake.protocols.protocol import Protocol
from wirelake.protocols.settings import SECTIONS, ProtocolSettings

ENTRY_POINT_GROUP: Final = "wirelake.protocols"
BUILT_IN: Final = tuple(found.name for found in pkgutil.iter_modules(protocols.__path__) if found.ispkg)

_log = logging.getLogger(__name__)
_NAME: Final = re.compile("[a-z][a-z0-9_]*")
_P = ParamSpec("_P")
_R = TypeVar("_R")
_caches: list[Callable[[], None]] = []


def get(name: str) -> Protocol:
    """Return the protocol of this name or alias. Raise UnknownProtocolError, or InputError if it is broken."""
    if name in BUILT_IN:
        return _built_in(name)
    if name in _entry_points():
        return _added(name)
    if name in (current := _earlier_names()):
        return _built_in(current[name])
    near = difflib.get_close_matches(name, names(), n=1)
    hint = f"; did you mean {near[0]}?" if near else ""
    raise UnknownProtocolError(f"no protocol is called '{name}': there are {', '.join(names())}{hint}")


def load_module(name: str) -> Any:
    """Return a module that a protocol names: see `Protocol.columns`."""
    return import_module(name)


def names() -> tuple[str, ...]:
    """Return the names of built-in protocols, then of installed ones, including those that cannot be loaded."""
    return (*BUILT_IN, *sorted(_entry_points().keys() - set(BUILT_IN)))


def origin(name: str) -> str:
    """Return the package that a protocol is from, with its version; "built in" if it is from this one."""
    point = _entry_points().get(name)
    if point is None or name in BUILT_IN:
        return "built in"
    return f"{point.dist.name} {point.dist.version}" if point.dist is not None else point.value


def all_protocols() -> tuple[Protocol, ...]:
    """Return every protocol that can be loaded."""
    broken = failures()
    return tuple(get(name) for name in names() if name not in broken)


def cached_until_refresh(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Cache the results of a function that depends on which protocols are installed."""
    cached = cache(function)
    _caches.append(cached.cache_clear)
    return cast(Callable[_P, _R], cached)


def refresh() -> None:
    """Discover the installed protocols again."""
    for clear in _caches:
        clear()


@cached_until_refresh
def failures() -> dict[str, str]:
    """Return why protocols cannot be loaded, by name; by entry point, if the name is that of a built-in one."""
    broken: dict[str, str] = {}
    keys: dict[str, str] = {}  # under [listen] → the added protocol that has it
    for name, point in sorted(_entry_points().items()):
        try:
            for key in _added(name).listeners:
                if key in keys:
                    raise InputError(f"entry point {point.value}: listen.{key} is {keys[key]}'s")
                keys[key] = name
        except InputError as error:
            broken[point.value if name in BUILT_IN else name] = str(error)
            _log.warning("protocol %s is left out: %s", name, error)
    return broken


@cached_until_refresh
def streams_answers(name: str) -> bool:
    """Return whether sessions of this protocol accept many answers to a request: see `Protocol.streams_answers`."""
    return name in names() and get(name).streams_answers


def is_private_header(name: str) -> bool:
    """Return whether a header is for peers of one protocol only, as `<protocol>.<name>` is, or for the gateway."""
    return name.startswith(_private_prefixes())


@cached_until_refresh
def _private_prefixes() -> tuple[str, ...]:
    return (*(f"{name}." for name in names()), *INTERNAL_HEADERS)


@cache
def _built_in(name: str) -> Protocol:
    found: Protocol = import_module(f"{protocols.__name__}.{name}.protocol").PROTOCOL
    return found


@cached_until_refresh
def _earlier_names() -> dict[str, str]:
    return {alias: name for name in BUILT_IN for alias in _built_in(name).aliases}


@cached_until_refresh
def _entry_points() -> dict[str, metadata.EntryPoint]:
    return {point.name: point for point in metadata.entry_points(group=ENTRY_POINT_GROUP)}


@cached_until_refresh
def _added(name: str) -> Protocol:
    point = _entry_points()[name]
    if name in BUILT_IN:
        raise InputError(f"entry point {point.value} takes the name of the built-in protocol '{name}'")
    try:
        found = point.load()
    except Exception as error:  # a package that fails on import must not affect the others
        raise InputError(f"entry point {point.value} cannot be loaded: {type(error).__name__}: {error}") from error
    if not isinstance(found, Protocol):
        raise InputError(f"entry point {point.value} is a {type(found).__name__}, not a Protocol")
    if found.name != name:
        raise InputError(f"entry point {point.value} is registered as '{name}' but is called '{found.name}'")
    _check(point.value, found)
    return guard(found)


def _check(place: str, protocol: Protocol) -> None:
    """Raise InputError if the name, the keys under [listen] or the settings of a protocol are invalid or taken."""
    taken = {key: name for name in BUILT_IN for key in _built_in(name).listeners} | {"http": "the HTTP API"}
    if protocol.name in SECTIONS or not _NAME.fullmatch(protocol.name):
        raise InputError(f"entry point {place}: '{protocol.name}' cannot be the name of a section of wirelake.toml")
    for transport in protocol.transports:
        if transport.setting in taken or not _NAME.fullmatch(transport.setting):
            owner = taken.get(transport.setting, "no name of a setting")
            raise InputError(f"entry point {place}: listen.{transport.setting} is {owner}")
    if not (isinstance(protocol.settings, type) and issubclass(protocol.settings, ProtocolSettings)):
        raise InputError(f"entry point {place}: its settings are no ProtocolSettings")
    if protocol.device_of is not None and not issubclass(protocol.settings, DeviceSettings):
        raise InputError(f"entry point {place}: its sessions are the devices', so its settings must be DeviceSettings")
    try:
        settings = protocol.settings()
        for call in (protocol.second_session, protocol.upstreams, protocol.upstream_keep_s, protocol.data_sets):
            call(settings)
    except Exception as error:
        raise InputError(f"entry point {place}: its settings raise {type(error).__name__}: {error}") from error
