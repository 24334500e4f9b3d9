"""The numbers of comet: frame types, error codes and limits.

The type of a frame depends on its sender: clients and servers have separate numbers.
"""

from collections.abc import Mapping
from enum import IntEnum
from typing import Final

from wirelake.limits import KIB


class ClientType(IntEnum):
    AUTH = 0
    EXCHANGE_KEY = 1
    GET_TOPIC_LIST = 2
    SUBSCRIBE = 3
    UNSUBSCRIBE = 4
    GET_MESSAGE_LIST = 5
    HEARTBEAT = 6
    MESSAGE_ACK = 7
    REPORT_ENVIRON = 8


class ServerType(IntEnum):
    OK = 0
    ERROR = 1
    AUTH_SUCCESS = 2
    TOPIC_LIST = 3
    MESSAGE_LIST = 4
    MESSAGE = 5


class ErrorCode(IntEnum):
    TOKEN_WRONG = 0
    CLIENT_UNKNOWN = 1
    CONNECTED_ELSEWHERE = 2
    SERVER_ERROR = 3
    BAD_ARGUMENTS = 4
    NOT_AUTHENTICATED = 5
    TOO_MANY_REQUESTS = 6
    ACCESS_DENIED = 7


ERROR_NAMES: Mapping[int, str] = {code.value: code.name.lower() for code in ErrorCode}


# ── limits: each name ends with its unit; a setting can change those marked (setting)

COMET_FRAME_BYTES_MAX: Final = 2 + 0xFFFF  # readers accept the unsigned range
COMET_WRITE_LENGTH_MAX: Final = 0x7FFF  # writers use the signed range, as the authors' server reads it
COMET_WRITE_COUNT_MAX: Final = 0x7F
COMET_MESSAGE_EXTRA_BYTES: Final = 125  # of a notification besides its content, at most: id, time, seal
COMET_CONTENT_BYTES_MAX: Final = COMET_WRITE_LENGTH_MAX - 2 - COMET_MESSAGE_EXTRA_BYTES
COMET_TOPIC_CHARS_MAX: Final = 256
COMET_REQUESTS_OPEN_MAX: Final = 256
COMET_HELD_FRAMES_MAX: Final = 64  # while a login is checked
COMET_ANSWERS_WAITING_MAX: Final = 1024  # behind an unanswered request
COMET_HEARTBEAT_S: Final = 40.0  # interval of our own client's heartbeats
COMET_IDLE_S: Final = 120.0  # (setting)
COMET_LOGIN_FRAME_BYTES_MAX: Final = 8 * KIB  # (setting) before the login; the longest name and token fit
COMET_LOGIN_S: Final = 10.0  # (setting) from connecting to a decided login
