"""The numbers of esnp: line types, flags, kinds of address, tags of values, and limits."""

from collections.abc import Mapping
from enum import Enum, IntEnum, auto
from typing import Final

from wirelake.limits import KIB, MIB


class LineType(IntEnum):
    END = 0x00
    SESSION_INFO = 0x10
    MESSAGE_ID = 0x11
    SOURCE_MESSAGE_ID = 0x12
    MESSAGE_KIND = 0x13  # withdrawn
    HEADER = 0x14
    DATA = 0x15
    PAYLOAD = 0x16
    ADDRESS = 0x17
    SOURCE_ADDRESS = 0x18
    TRACE = 0x19  # withdrawn
    TRACE_RESP = 0x1A  # withdrawn
    SEQ_NO = 0x1B
    XDATA = 0x1C
    ERROR = 0x1D
    FLAG = 0x1E
    VERSION = 0x1F


APPLICATION_TYPES = range(0x80, 0x100)


class Flag(IntEnum):
    TRACE = 1  # report every hop
    TRACE_INFO = 2  # the report of a hop
    RESP = 3
    REQUEST = 4
    INFO = 5  # one-way
    EVENT = 6  # one-way
    ASYNC = 7  # answer at once, before the work is done


class AddressKind(IntEnum):
    OBJECT = 10
    OP = 20
    SERVICE = 30
    HOST = 40
    GROUP = 50


class Tag(IntEnum):
    """The type of a Var. Int and UInt are the same as Int32 and UInt32, but have tags of their own."""

    NULL = 0
    BOOL = 1
    INT = 2
    INT8 = 3
    INT16 = 4
    INT32 = 5
    INT64 = 6
    UINT = 7
    UINT8 = 8
    UINT16 = 9
    UINT32 = 10
    UINT64 = 11
    FLOAT32 = 13
    FLOAT64 = 14
    BYTES = 17
    MAP = 21
    LIST = 23
    STRING = 24


class Part(Enum):
    """Whether a line belongs before or after the others. Lines of unknown types may be anywhere."""

    HEAD = auto()
    UNKNOWN = auto()
    BODY = auto()


LINE_NAMES: Mapping[int, str] = {kind.value: kind.name for kind in LineType}
FLAG_NAMES: Mapping[int, str] = {flag.value: flag.name.lower() for flag in Flag}
ADDRESS_NAMES: Mapping[int, str] = {kind.value: kind.name.lower() for kind in AddressKind}
TAG_NAMES: Mapping[int, str] = {tag.value: tag.name.lower() for tag in Tag}

WITHDRAWN: frozenset[int] = frozenset({0x13, 0x19, 0x1A})
FIXED_SIZES: Mapping[int, int] = {0x11: 8, 0x12: 8, 0x1F: 4}  # MESSAGE_ID, SOURCE_MESSAGE_ID, VERSION
_BODY = frozenset({0x10, 0x14, 0x15, 0x16, 0x1C, *APPLICATION_TYPES})


def part_of(line_type: int) -> Part:
    """Return the part of a message that lines of this type belong to."""
    if line_type in _BODY:
        return Part.BODY
    return Part.HEAD if line_type in LINE_NAMES else Part.UNKNOWN


def line_name(line_type: int) -> str:
    """Return the name of a line type in the specification, or its number."""
    return LINE_NAMES.get(line_type, f"0x{line_type:02X}")


# ── limits: each name ends with its unit; a setting can change those marked (setting)

ESNP_FRAME_BYTES_MAX: Final = 10 * MIB  # (setting)
ESNP_LOGIN_FRAME_BYTES_MAX: Final = 4 * KIB  # (setting) before the login
ESNP_LINES_MAX: Final = 16_384  # in one message: four bytes of the wire become an object
ESNP_DEPTH_MAX: Final = 32  # Maps and Lists inside each other
ESNP_ITEMS_MAX: Final = 65_536  # values in all Maps and Lists of one message: two bytes become an object
ESNP_ADDRESSES_KEPT_MAX: Final = 1024  # that were read, since most messages go to the same few
ESNP_ADDRESS_KEPT_BYTES_MAX: Final = 64  # of each
ESNP_REQUESTS_OPEN_MAX: Final = 1024  # in each direction
ESNP_HELD_FRAMES_MAX: Final = 64  # while a login is checked
ESNP_ANSWERS_WAITING_MAX: Final = 2048  # answers held behind an unanswered request without a number
ESNP_LOGIN_S: Final = 5.0  # (setting) from connecting to a decided login
ESNP_REPLY_S: Final = 5.0  # for an answer, if the request has no timeout
ESNP_REPLY_S_MAX: Final = 600.0  # for an answer, whatever the request's timeout is
