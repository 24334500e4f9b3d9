"""Redis patterns for keys: `*`, `?`, `[a-c]`, `[^a]`, and a backslash before what is meant as it is."""

import re
from functools import lru_cache

from wirelake.errors import InputError
from wirelake.limits import STATE_PATTERN_BYTES_MAX


@lru_cache(maxsize=256)
def glob(pattern: bytes) -> re.Pattern[bytes]:
    """For `fullmatch`.

    Each `*` with what follows it is an atomic group: it takes the first place that fits and never comes back, so that
    no pattern needs more than length × length steps.
    """
    if len(pattern) > STATE_PATTERN_BYTES_MAX:
        raise InputError(f"ERR a pattern has at most {STATE_PATTERN_BYTES_MAX} bytes")
    pieces: list[bytes] = []
    group = b""  # of the last star, still open
    place = 0
    while place < len(pattern):
        char = pattern[place : place + 1]
        place += 1
        if char == b"*":
            if group != b".*?":
                pieces.append(_closed(group))
                group = b".*?"
            continue
        if char == b"?":
            piece = b"."
        elif char == b"[":
            piece, place = _class(pattern, place)
        else:
            if char == b"\\" and place < len(pattern):
                char = pattern[place : place + 1]
                place += 1
            piece = re.escape(char)
        if group:
            group += piece
        else:
            pieces.append(piece)
    # The last star must reach the end, so it may come back: what follows it has a fixed length.
    return re.compile(b"".join(pieces) + group, re.DOTALL)


def _closed(group: bytes) -> bytes:
    return b"(?>" + group + b")" if group else b""


def _class(pattern: bytes, place: int) -> tuple[bytes, int]:
    """One character out of a set; as in redis, a missing `]` is taken to be at the end."""
    refused = pattern[place : place + 1] == b"^"
    place += refused
    members: list[bytes] = []
    while place < len(pattern) and pattern[place] != ord("]"):
        if pattern[place] == ord("\\") and place + 1 < len(pattern):
            place += 1
            members.append(re.escape(pattern[place : place + 1]))
        elif pattern[place + 1 : place + 2] == b"-" and place + 2 < len(pattern):
            low, high = sorted((pattern[place], pattern[place + 2]))
            members.append(re.escape(bytes([low])) + b"-" + re.escape(bytes([high])))
            place += 2
        else:
            members.append(re.escape(pattern[place : place + 1]))
        place += 1
    if not members:
        return (b"." if refused else b"(?!)"), place + 1
    return b"[" + (b"^" if refused else b"") + b"".join(members) + b"]", place + 1
