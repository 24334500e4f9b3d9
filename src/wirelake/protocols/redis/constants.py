"""The types of RESP, which the first byte of a value selects, and the limits."""

from collections.abc import Mapping
from enum import IntEnum
from typing import Final

from wirelake.limits import KIB, MIB

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

# What follows the first byte of a value: a length and bytes, a count and values, or a line.
BULKS: Final = frozenset({Marker.BULK_STRING, Marker.BULK_ERROR, Marker.VERBATIM_STRING})
AGGREGATES: Final = frozenset({Marker.ARRAY, Marker.MAP, Marker.SET, Marker.PUSH, Marker.ATTRIBUTE})
LINES: Final = frozenset(Marker) - BULKS - AGGREGATES


def values_in(marker: int, count: int) -> int:
    """Return how many values follow the count of an aggregate: a pair is two, and an attribute precedes a value."""
    if marker == Marker.MAP:
        return 2 * count
    if marker == Marker.ATTRIBUTE:
        return 2 * count + 1
    return count


# ── limits: each name ends with its unit; a setting can change those marked (setting)

REDIS_FRAME_BYTES_MAX: Final = 32 * MIB  # (setting) a command
REDIS_LOGIN_FRAME_BYTES_MAX: Final = 16 * KIB  # (setting) before the login
REDIS_BULK_BYTES_MAX: Final = 16 * MIB
REDIS_LINE_BYTES_MAX: Final = 64 * KIB  # an inline command, a simple string or an error
REDIS_ITEMS_MAX: Final = 1024 * 1024  # values in one aggregate, and in one frame altogether
REDIS_ARGUMENTS_MAX: Final = 65_536  # of one command
REDIS_DEPTH_MAX: Final = 32  # aggregates within each other
REDIS_NUMBER_CHARS_MAX: Final = 4096  # doubles and big numbers; Python refuses to read integers beyond 4300 digits
REDIS_REQUESTS_OPEN_MAX: Final = 65_536  # one read of a socket may contain thousands of commands
REDIS_REQUESTS_PAUSE_AT: Final = 1024  # with as many open, the socket is not read
REDIS_ANSWERS_BYTES_MAX: Final = 32 * MIB  # answers held behind an unanswered request
REDIS_ANSWERS_PAUSE_BYTES: Final = 1 * MIB  # with as much held, the socket is not read
REDIS_HELD_FRAMES_MAX: Final = 8192  # while a login is checked
REDIS_HELD_BYTES_MAX: Final = 1 * MIB
REDIS_SKIMMED_BYTES_MAX: Final = MIB  # a longer command is decoded alone
REDIS_SUBSCRIPTIONS_MAX: Final = 10_000  # channels and patterns of one connection
REDIS_QUEUED_COMMANDS_MAX: Final = 4096  # between MULTI and EXEC
REDIS_QUEUED_WORDS_MAX: Final = 65_536  # commands and arguments between MULTI and EXEC
REDIS_QUEUED_BYTES_MAX: Final = 32 * MIB
REDIS_LOGIN_S: Final = 10.0  # (setting) from connecting to a decided login
REDIS_LEAVE_S: Final = 5.0  # how long to wait for the last answers before closing
REDIS_PING_S: Final = 60.0  # interval of our own client's PINGs
