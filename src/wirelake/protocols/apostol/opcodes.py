"""apostol's numbers."""

from collections.abc import Mapping
from enum import IntEnum
from typing import Final

from wirelake.message import BROADCAST_DEVICE_TYPE

VERSION: Final = 1

# Bits of params. ANSWER, ZIPPED and SEALED speak of the whole command, and so does the direction.
FIRST: Final = 0x01
LAST: Final = 0x02
TO_DEVICE: Final = 0x04
ANSWER: Final = 0x08
ZIPPED: Final = 0x10
SEALED: Final = 0x20
RECEIPT: Final = 0x40
RESERVED: Final = 0x80
COMMAND_BITS: Final = TO_DEVICE | ANSWER | ZIPPED | SEALED

REQUEST_BIT: Final = 0x80  # of command_type: set in what goes to the device, clear in what comes from it

BROADCAST_DEVICE: Final = (BROADCAST_DEVICE_TYPE, "")  # type and serial of a broadcast


class CommandType(IntEnum):
    STATUS = 0x01
    TRANSPARENT = 0x02
    READINGS = 0x04


class ErrorCode(IntEnum):
    NONE = 0
    UNSPECIFIED = 1
    UNKNOWN_COMMAND = 2
    BAD_FORMAT = 3
    BAD_PARAMETERS = 4


COMMAND_NAMES: Mapping[int, str] = {kind.value: kind.name.lower() for kind in CommandType}
ERROR_NAMES: Mapping[int, str] = {code.value: code.name.lower().replace("_", " ") for code in ErrorCode}
DEVICE_TYPE_NAMES: Mapping[int, str] = {0x00: "IoT", 0x01: "Android", 0x02: "iOS", BROADCAST_DEVICE_TYPE: "undefined"}
TIME_SYNC_NAMES: Mapping[int, str] = {0: "undefined", 1: "by hand", 2: "NTP"}

# What a time means that is not one.
TIME_UNKNOWN: Final = 0
TIME_ERROR: Final = 1

_BIT_WORDS: Mapping[int, str] = {
    FIRST: "first packet",
    LAST: "last packet",
    ANSWER: "answer",
    ZIPPED: "zlib",
    SEALED: "AES-128",
    RECEIPT: "receipt",
}


def params_in_words(params: int) -> str:
    direction = "to the device" if params & TO_DEVICE else "from the device"
    return ", ".join([direction, *(words for bit, words in _BIT_WORDS.items() if params & bit)])
