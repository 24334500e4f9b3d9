"""RESP's types. The first byte of a value says which one it is."""

from collections.abc import Mapping
from enum import IntEnum
from typing import Final

CRLF: Final = b"\r\n"


class Marker(IntEnum):
    SIMPLE_STRING = ord("+")
    SIMPLE_ERROR = ord("-")
    INTEGER = ord(":")
    BULK_STRING = ord("$")
    ARRAY = ord("*")
    NULL = ord("_")
    DOUBLE = ord(",")
    BOOLEAN = ord("#")
    BULK_ERROR = ord("!")
    VERBATIM_STRING = ord("=")
    BIG_NUMBER = ord("(")
    MAP = ord("%")
    SET = ord("~")
    PUSH = ord(">")
    ATTRIBUTE = ord("|")


MARKERS: Mapping[int, Marker] = {marker.value: marker for marker in Marker}

# How a value goes on after its first byte: a length and so many bytes, a count and so many values, or just a line.
BULKS: Final = frozenset({Marker.BULK_STRING, Marker.BULK_ERROR, Marker.VERBATIM_STRING})
AGGREGATES: Final = frozenset({Marker.ARRAY, Marker.MAP, Marker.SET, Marker.PUSH, Marker.ATTRIBUTE})
LINES: Final = frozenset(Marker) - BULKS - AGGREGATES


def values_in(marker: int, count: int) -> int:
    """How many values follow an aggregate's count: a pair is two, and an attribute stands before a value."""
    if marker == Marker.MAP:
        return 2 * count
    if marker == Marker.ATTRIBUTE:
        return 2 * count + 1
    return count
