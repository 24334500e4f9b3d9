"""magline's numbers. Frames have a cmd; what a data frame is about is its business_cmd."""

from collections.abc import Mapping
from enum import IntEnum
from typing import Final

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
    """What is asked of the gateway itself. From USERS_FIRST on, the numbers are services."""

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
