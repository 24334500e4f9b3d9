"""Hex as people paste it: with spaces, colons, 0x, \\x, commas or line breaks."""

import re

from wirelake.errors import InputError

_FILLER_PATTERN = r"(?:0[xX]|\\x|[ \t\n\r\f\v:,\-])"
_DIGIT_PATTERN = rf"{_FILLER_PATTERN}*[0-9a-fA-F]"
HEX_PATTERN = f"^(?:{_DIGIT_PATTERN}{_DIGIT_PATTERN})*{_FILLER_PATTERN}*$"  # what `parse_hex` takes
_FILLER = re.compile(_FILLER_PATTERN)
_NOT_HEX = re.compile(r"[^0-9a-fA-F]")


def parse_hex(text: str) -> bytes:
    digits = _FILLER.sub("", text)
    bad = _NOT_HEX.search(digits)
    if bad is not None:
        place = text.find(bad[0]) + 1
        raise InputError(f"{bad[0]!a} (character {place}) is not a hex digit")
    if len(digits) % 2:
        raise InputError(f"{len(digits)} hex digits are not a whole number of bytes")
    return bytes.fromhex(digits)
