"""Hex as people paste it: with spaces, colons, 0x, \\x, commas or line breaks."""

import re
import sys

from wirelake.errors import InputError
from wirelake.limits import CLI_INPUT_BYTES_MAX

_FILLER = re.compile(r"0[xX]|\\x|[\s:,\-]")
_NOT_HEX = re.compile(r"[^0-9a-fA-F]")


def read_input(words: tuple[str, ...], *, raw: bool) -> bytes:
    """The bytes that the words spell, or standard input for a lone `-`."""
    if words == ("-",):
        data = sys.stdin.buffer.read(CLI_INPUT_BYTES_MAX + 1)
        if len(data) > CLI_INPUT_BYTES_MAX:
            raise InputError(f"standard input holds more than {CLI_INPUT_BYTES_MAX} bytes")
        return data if raw else parse_hex(data.decode("latin-1"))
    if raw:
        raise InputError("--raw reads bytes from standard input: give '-' instead of hex")
    return parse_hex(" ".join(words))


def parse_hex(text: str) -> bytes:
    digits = _FILLER.sub("", text)
    bad = _NOT_HEX.search(digits)
    if bad is not None:
        place = text.find(bad[0]) + 1
        raise InputError(f"'{bad[0]}' (character {place}) is not a hex digit")
    if len(digits) % 2:
        raise InputError(f"{len(digits)} hex digits are not a whole number of bytes")
    return bytes.fromhex(digits)
