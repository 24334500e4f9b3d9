"""Bytes from the command line: hex words, or standard input."""

import sys

from wirelake.cli.limits import CLI_INPUT_BYTES_MAX
from wirelake.errors import InputError
from wirelake.protocols.hextext import parse_hex


def read_input(words: tuple[str, ...], *, raw: bool) -> bytes:
    """The bytes that the words spell, or standard input for a lone `-`. At least one."""
    data = _read(words, raw=raw)
    if not data:
        raise InputError("there are no bytes to look at")
    return data


def _read(words: tuple[str, ...], *, raw: bool) -> bytes:
    if words == ("-",):
        data = sys.stdin.buffer.read(CLI_INPUT_BYTES_MAX + 1)
        if len(data) > CLI_INPUT_BYTES_MAX:
            raise InputError(f"standard input holds more than {CLI_INPUT_BYTES_MAX} bytes")
        if raw:
            return data
        try:
            return parse_hex(data.decode("latin-1"))
        except InputError as error:
            raise InputError(f"{error}; if standard input holds the bytes themselves, use --raw") from error
    if raw:
        raise InputError("--raw reads bytes from standard input: give '-' instead of hex")
    return parse_hex(" ".join(words))
