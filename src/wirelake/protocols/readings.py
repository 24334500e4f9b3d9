"""The readings of a telemetry message: what a device measured, by name, with a unit.

Every numeric field of the message is a reading of that name; a boolean counts as 0 or 1. Texts, bytes, lists and nested
values are no readings. A unit comes from the header `units` of the message, else from the layout of the protocol, if
that marks a field of this name as `scaled`.

A protocol with `device_codes` numbers its readings: there they are the items of the field `readings`, each with a
`type` and a `value`, and no other field is one. `Protocol.readings` has their names and units.
"""

from collections.abc import Iterable, Mapping
from math import isfinite
from typing import Any, Final

from msgspec import Struct

from wirelake.limits import DEVICE_READINGS_MAX
from wirelake.message import UNITS, Message
from wirelake.protocols.protocol import Protocol

TYPED: Final = "readings"  # the field of readings that have numbers
_VALUE_MAX: Final = 2.0**1023  # larger integers do not fit a float64


class TelemetryReading(Struct, frozen=True, omit_defaults=True):
    """One value that a device measured. `type` is its number, in a protocol that numbers readings."""

    name: str
    value: float
    unit: str = ""
    type: int | None = None


def readings_of(protocol: Protocol, message: Message) -> list[TelemetryReading]:
    """Return the readings of a telemetry message, in its order; at most `DEVICE_READINGS_MAX`."""
    if protocol.device_codes is not None:
        return typed_readings(protocol, _items(message.fields.get(TYPED)))
    return named_readings(protocol, message.fields, message.headers.get(UNITS))


def named_readings(protocol: Protocol, fields: Mapping[str, Any], units: object = None) -> list[TelemetryReading]:
    """Return the readings among these fields. `units` is the header of the message."""
    own = units if isinstance(units, Mapping) else {}
    described = protocol.layout.units if protocol.layout is not None else {}
    found = []
    for name, given in fields.items():
        value = number(given)
        if value is not None:
            unit = own.get(name) or described.get(name, "")
            found.append(TelemetryReading(name, value, unit if isinstance(unit, str) else ""))
    return found[:DEVICE_READINGS_MAX]


def typed_readings(protocol: Protocol, values: Iterable[tuple[int, Any]]) -> list[TelemetryReading]:
    """Return readings given by number. A value that is no number is left out."""
    found = []
    for kind, given in values:
        value = number(given)
        if value is not None:
            known = protocol.reading_name(kind)
            found.append(TelemetryReading(known.name, value, known.unit, kind))
    return found[:DEVICE_READINGS_MAX]


def number(value: object) -> float | None:
    """Return the value of a reading, or None if this is none."""
    if isinstance(value, float):
        return value if isfinite(value) else None
    if isinstance(value, int):  # also a bool
        return float(value) if -_VALUE_MAX < value < _VALUE_MAX else None
    return None


def _items(given: object) -> list[tuple[int, Any]]:
    """Return the pairs of number and value of the field `readings`."""
    if not isinstance(given, list | tuple):
        return []
    items = [each for each in given if isinstance(each, Mapping)]
    return [(each["type"], each.get("value")) for each in items if isinstance(each.get("type"), int)]
