"""comet's numbers. A frame's type is read by who sent it: the two sides count separately."""

from collections.abc import Mapping
from enum import IntEnum


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


CLIENT_TYPES: Mapping[int, ClientType] = {kind.value: kind for kind in ClientType}
SERVER_TYPES: Mapping[int, ServerType] = {kind.value: kind for kind in ServerType}
ERROR_NAMES: Mapping[int, str] = {code.value: code.name.lower() for code in ErrorCode}
