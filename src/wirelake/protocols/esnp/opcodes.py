"""esnp's numbers: line types, flags, kinds of address, tags of values."""

from collections.abc import Mapping
from enum import Enum, IntEnum, auto


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
    TRACE = 1  # tell me of every hop
    TRACE_INFO = 2  # this tells of a hop
    RESP = 3
    REQUEST = 4
    INFO = 5  # one-way
    EVENT = 6  # one-way
    ASYNC = 7  # answer at once, work later


class AddressKind(IntEnum):
    OBJECT = 10
    OP = 20
    SERVICE = 30
    HOST = 40
    GROUP = 50


class Tag(IntEnum):
    """What kind of value a Var holds. Int and UInt are other names of Int32 and UInt32, with tags of their own."""

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
    """Head lines come before body lines. What is unknown may stand anywhere."""

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
    if line_type in _BODY:
        return Part.BODY
    return Part.HEAD if line_type in LINE_NAMES else Part.UNKNOWN


def line_name(line_type: int) -> str:
    """As the protocol's document calls it, or its number."""
    return LINE_NAMES.get(line_type, f"0x{line_type:02X}")
