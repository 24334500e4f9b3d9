"""The letters and numbers of sisnet, and its limits."""

from collections.abc import Mapping
from enum import IntEnum, StrEnum
from typing import Final

from wirelake.limits import KIB, MIB
from wirelake.protocols.packed_records import TABLES_MAX


class Form(IntEnum):
    """The first byte after the name."""

    OBJECT = ord("{")
    ARRAY = ord("[")
    BINARY = ord("B")
    HTTP = ord("H")
    REDIS = ord("R")


class Ans(IntEnum):
    """The result of a request. Above zero, it is the type of `msg`."""

    EXPIRED = -100
    FAILED = -1
    OK = 0
    INTEGER = 1
    STRING = 2
    ARRAY = 3
    ARRAY_2D = 4
    OBJECT = 5
    BYTES = 6


class Dialect(StrEnum):
    """We read both, and answer in the dialect of the request."""

    NEW = "new"  # command, ask; ans, msg
    OLD = "old"  # cmd, argv; login, logout, bare arrays and objects


FORMS: Mapping[int, Form] = {form.value: form for form in Form}
ANS_NAMES: Mapping[int, str] = {ans.value: ans.name.lower() for ans in Ans}

# The flags byte of the binary form.
EXTENDED = 0x80
ANSWER = 0x40
RESERVED_IN_ANSWERS = 0x10
REQUEST_FIELDS = ((0x01, "ver"), (0x02, "command"), (0x04, "service"), (0x08, "ask"), (0x10, "fmt"), (0x20, "lnk"))
ANSWER_FIELDS = ((0x01, "ver"), (0x02, "ans"), (0x04, "msg"), (0x08, "fuc"), (0x20, "lnk"))
NUMBER_FIELDS = frozenset({"ans", "fuc"})  # decimal text

BYTES_FORMATS = frozenset({"byte", "bytes"})  # values of `fmt` that select the binary form


# ── limits: each name ends with its unit; a setting can change those marked (setting)

SISNET_MESSAGE_BYTES_MAX: Final = 16 * MIB  # (setting)
SISNET_LOGIN_FRAME_BYTES_MAX: Final = 16 * KIB  # (setting) before the login; of a WebSocket, its handshake too
SISNET_INFLATED_BYTES_MAX: Final = 16 * MIB  # (setting) of one content compressed by snappy
SISNET_NAME_BYTES_MAX: Final = 128
SISNET_TABLES_MAX: Final = TABLES_MAX  # of a session, for each direction
LIMIT_CODE_PREFIX: Final = "sisnet_"  # of the codes of errors about packed records
SISNET_REQUESTS_OPEN_MAX: Final = 256  # for each direction
SISNET_SUBSCRIPTIONS_MAX: Final = 1024  # on one connection, and the topics in them together
SISNET_UNSUB_BYTES_MAX: Final = 4 * KIB  # of an unsub to a provider; a longer one is replaced by key and sdb
SISNET_HELD_FRAMES_MAX: Final = 64  # while a login is checked
SISNET_PING_S: Final = 40.0  # interval of our own client's pings
SISNET_IDLE_S: Final = 120.0  # (setting)
SISNET_LOGIN_S: Final = 10.0  # (setting) from connecting to a decided login
SISNET_ANSWER_S: Final = 30.0  # how long a peer may take to answer a request
