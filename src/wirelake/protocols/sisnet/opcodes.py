"""sisnet's letters and numbers."""

from collections.abc import Mapping
from enum import IntEnum, StrEnum


class Form(IntEnum):
    """The first byte after the name."""

    OBJECT = ord("{")
    ARRAY = ord("[")
    BINARY = ord("B")
    HTTP = ord("H")
    REDIS = ord("R")


class Ans(IntEnum):
    """What came of a request. Above zero, the type of what `msg` holds."""

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
    """Both are read; an answer is written in that of its question."""

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

BYTES_FORMATS = frozenset({"byte", "bytes"})  # values of `fmt` that ask for the binary form
