"""Compile redis patterns: `*`, `?`, `[a-c]`, `[^a]`, and a backslash before a literal character."""

import re
from functools import lru_cache

from wirelake.errors import InputError
from wirelake.limits import STATE_PATTERN_BYTES_MAX


@lru_cache(maxsize=256)
def compile_glob(pattern: bytes) -> re.Pattern[bytes]:
    """Return a regular expression to be used with `fullmatch`.

    Each `*` with what follows it is an atomic group: it takes the first match and never backtracks, so that no pattern
    needs more than length × length steps.
    """
    if len(pattern) > STATE_PATTERN_BYTES_MAX:
        raise InputError(f"ERR a pattern has at most {STATE_PATTERN_BYTES_MAX} bytes")
    parts: list[bytes] = []
    group = b""  # of the last star, not closed yet
    index = 0
    while index < len(pattern):
        char = pattern[index : index + 1]
        index += 1
        if char == b"*":
            if group != b".*?":
                parts.append(_close(group))
                group = b".*?"
            continue
        if char == b"?":
            part = b"."
        elif char == b"[":
            part, index = _class(pattern, index)
        else:
            if char == b"\\" and index < len(pattern):
                char = pattern[index : index + 1]
                index += 1
            part = re.escape(char)
        if group:
            group += part
        else:
            parts.append(part)
    # The last star must reach the end, so it may backtrack: what follows it has a fixed length.
    return re.compile(b"".join(parts) + group, re.DOTALL)


def _close(group: bytes) -> bytes:
    return b"(?>" + group + b")" if group else b""


def _class(pattern: bytes, index: int) -> tuple[bytes, int]:
    """Translate a character class; as in redis, a missing `]` is assumed at the end."""
    is_negated = pattern[index : index + 1] == b"^"
    index += is_negated
    members: list[bytes] = []
    while index < len(pattern) and pattern[index] != ord("]"):
        if pattern[index] == ord("\\") and index + 1 < len(pattern):
            index += 1
            members.append(re.escape(pattern[index : index + 1]))
        elif pattern[index + 1 : index + 2] == b"-" and index + 2 < len(pattern):
            low, high = sorted((pattern[index], pattern[index + 2]))
            members.append(re.escape(bytes([low])) + b"-" + re.escape(bytes([high])))
            index += 2
        else:
            members.append(re.escape(pattern[index : index + 1]))
        index += 1
    if not members:
        return (b"." if is_negated else b"(?!)"), index + 1
    return b"[" + (b"^" if is_negated else b"") + b"".join(members) + b"]", index + 1
