"""Name → protocol. Built-in ones are the packages beside this module; others come through entry points.

A package adds its own with

    [project.entry-points."wirelake.protocols"]
    morse = "morse_wirelake:PROTOCOL"

A protocol is imported when it is first asked for. An added one that cannot be loaded is reported by `failures`, and
everything else goes on without it.
"""

import difflib
import logging
import pkgutil
from collections.abc import Callable, Iterable
from functools import cache, wraps
from importlib import import_module, metadata
from typing import Any, Final, ParamSpec, TypeVar

from msgspec.structs import replace

from wirelake import protocols
from wirelake.errors import InputError, ProtocolError, UnknownProtocolError, WirelakeError
from wirelake.message import INTERNAL_HEADERS
from wirelake.protocols.frame import Sender
from wirelake.protocols.protocol import Clue, Protocol
from wirelake.protocols.splitter import CODEC_FAULT

ENTRY_POINT_GROUP: Final = "wirelake.protocols"
BUILT_IN: Final = tuple(found.name for found in pkgutil.iter_modules(protocols.__path__) if found.ispkg)

_log = logging.getLogger(__name__)
_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")


def get(name: str) -> Protocol:
    """Return the protocol of this name, or that had it earlier. UnknownProtocolError, or InputError if it is broken."""
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
    """Return the built-in ones first, then the added ones; those that cannot be loaded too."""
    return (*BUILT_IN, *sorted(_entry_points().keys() - set(BUILT_IN)))


def all_protocols() -> tuple[Protocol, ...]:
    """Return every protocol that can be loaded."""
    broken = failures()
    return tuple(get(name) for name in names() if name not in broken)


def refresh() -> None:
    """Look again at what is installed."""
    for cached in (failures, streams_answers, _private_prefixes, _earlier_names, _entry_points, _added):
        cached.cache_clear()


@cache
def failures() -> dict[str, str]:
    """Return why added protocols cannot be loaded, by name; where that is a built-in one's, by the entry point."""
    broken: dict[str, str] = {}
    for name, point in _entry_points().items():
        try:
            _added(name)
        except InputError as error:
            broken[point.value if name in BUILT_IN else name] = str(error)
            _log.warning("protocol %s is left out: %s", name, error)
    return broken


@cache
def streams_answers(name: str) -> bool:
    """Return whether sessions of this protocol take many answers to one request: see `Protocol.streams_answers`."""
    return name in names() and get(name).streams_answers


def is_private_header(name: str) -> bool:
    """Return whether a header is named `<protocol>.<name>`, for peers of that protocol alone, or is the gateway's."""
    return name.startswith(_private_prefixes())


@cache
def _private_prefixes() -> tuple[str, ...]:
    return (*(f"{name}." for name in names()), *INTERNAL_HEADERS)


@cache
def _built_in(name: str) -> Protocol:
    found: Protocol = import_module(f"{protocols.__name__}.{name}.protocol").PROTOCOL
    return found


@cache
def _earlier_names() -> dict[str, str]:
    return {alias: name for name in BUILT_IN for alias in _built_in(name).aliases}


@cache
def _entry_points() -> dict[str, metadata.EntryPoint]:
    return {point.name: point for point in metadata.entry_points(group=ENTRY_POINT_GROUP)}


@cache
def _added(name: str) -> Protocol:
    point = _entry_points()[name]
    if name in BUILT_IN:
        raise InputError(f"entry point {point.value} takes the name of the built-in protocol '{name}'")
    try:
        found = point.load()
    except Exception as error:  # whatever a package does when it is imported, it must not stop the others
        raise InputError(f"entry point {point.value} cannot be loaded: {type(error).__name__}: {error}") from error
    if not isinstance(found, Protocol):
        raise InputError(f"entry point {point.value} is a {type(found).__name__}, not a Protocol")
    if found.name != name:
        raise InputError(f"entry point {point.value} is registered as '{name}' but is called '{found.name}'")

    def clues(frame: bytes, sender: Sender) -> Iterable[Clue]:
        return list(found.clues(frame, sender))  # a generator would raise outside of the guard

    return replace(
        found,
        decode=_guarded(found, found.decode),
        dissect=_guarded(found, found.dissect),
        clues=_guarded(found, clues),
        to_message=_guarded(found, found.to_message),
    )


def _guarded(protocol: Protocol, call: Callable[_Arguments, _Result]) -> Callable[_Arguments, _Result]:
    """Turn whatever an added codec raises into a ProtocolError: the frame is quarantined, and nothing else ends."""

    @wraps(call)
    def guarded(*args: _Arguments.args, **kwargs: _Arguments.kwargs) -> _Result:
        try:
            return call(*args, **kwargs)
        except WirelakeError:
            raise
        except Exception as error:
            what = getattr(call, "__name__", "codec")
            text = f"{protocol.name}: {what} raised {type(error).__name__}: {error}"
            raise ProtocolError(CODEC_FAULT, text, 0) from error

    return guarded
