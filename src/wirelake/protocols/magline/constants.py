"""The numbers of magline: commands, error numbers, reasons and limits.

Every frame has a cmd; the business_cmd of a data frame says what it is about.
"""

from collections.abc import Mapping
from enum import IntEnum
from typing import Final

from wirelake.limits import KIB, MIB

VERSION: Final = 1
MAGIC_CONTROL: Final = 0x7F
MAGIC_DATA: Final = 0x7E


class Cmd(IntEnum):
    SYN = 1
    ACK = 2
    ERR = 3
    PIN = 4
    PON = 5
    REQ = 6
    REP = 7
    PSH = 8
    FIN = 9


class Business(IntEnum):
    """Requests to the gateway itself. From USERS_FIRST on, the numbers are services."""

    LOGIN = 1
    SUBSCRIBE = 2
    UNSUBSCRIBE = 3
    PUBLISH = 4
    NOTIFICATION = 5  # in a PSH only
    ACK = 6
    COMMAND = 7  # to a device


class ErrorNumber(IntEnum):
    FAILED = 0  # a service failed and gave no number that fits
    VERSION = 1
    MALFORMED = 2
    BAD_HMAC = 3
    REPLAY = 4
    UNKNOWN_SESSION = 5
    NOT_LOGGED_IN = 6
    NO_SUCH_SERVICE = 7
    TIMEOUT = 8
    TOO_LARGE = 9
    BUSY = 10
    ACCESS_DENIED = 11


class Reason(IntEnum):
    NORMAL = 0
    ERROR = 1
    IDLE = 2
    REKEY = 3
    SHUTDOWN = 4
    REPLACED = 5


USERS_FIRST: Final = 16
RESUME_PROOF: Final = 0x0001  # in the head_optional of a SYN
CMDS: Mapping[int, Cmd] = {cmd.value: cmd for cmd in Cmd}
MAGICS: Mapping[Cmd, int] = {cmd: MAGIC_DATA if cmd in (Cmd.REQ, Cmd.REP, Cmd.PSH) else MAGIC_CONTROL for cmd in Cmd}
BUSINESS_NAMES: Mapping[int, str] = {business.value: business.name.lower() for business in Business}
ERROR_NAMES: Mapping[int, str] = {number.value: number.name.lower().replace("_", " ") for number in ErrorNumber}
REASON_NAMES: Mapping[int, str] = {reason.value: reason.name.lower() for reason in Reason}
REASONS: Mapping[str, Reason] = {reason.name.lower(): reason for reason in Reason}


# ── limits: each name ends with its unit; a setting can change those marked (setting)

MAGLINE_MESSAGE_BYTES_MAX: Final = MIB  # (setting) a frame's body
MAGLINE_HEADER_BYTES_MAX: Final = 4 * KIB  # (setting) a frame's message header
MAGLINE_LOGIN_FRAME_BYTES_MAX: Final = 16 * KIB  # (setting) before the login, head and message header included
MAGLINE_SEQ_MAX: Final = 0xFFFF_0000  # then new keys are needed: a seq never wraps under one key
MAGLINE_REQUESTS_OPEN_MAX: Final = 256
MAGLINE_HELD_FRAMES_MAX: Final = 64  # requests that wait for a login or for new keys
MAGLINE_HELD_BYTES_MAX: Final = MIB  # the data of all of them
MAGLINE_PING_S: Final = 20.0  # interval of our own client's PINs
MAGLINE_IDLE_S: Final = 60.0  # (setting)
MAGLINE_LOGIN_S: Final = 10.0  # (setting) from connecting to a decided login
MAGLINE_RESUME_S: Final = 120.0  # (setting) how long a lost session can be resumed
