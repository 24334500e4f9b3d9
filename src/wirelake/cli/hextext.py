"""Read bytes from the command line: hex words, or standard input."""

import sys

from wirelake.cli.limits import CLI_INPUT_BYTES_MAX
from wirelake.errors import InputError
from wirelake.protocols.hextext import parse_hex


def read_input(words: tuple[str, ...], *, raw: bool) -> bytes:
    """Return the bytes of the hex words, or of standard input for a single `-`; raise InputError if there are none."""
    data = _read(words, raw=raw)
    if not data:
        raise InputError("no bytes given")
    return data


def _read(words: tuple[str, ...], *, raw: bool) -> bytes:
    if words == ("-",):
        data = sys.stdin.buffer.read(CLI_INPUT_BYTES_MAX + 1)
        if len(data) > CLI_INPUT_BYTES_MAX:
            raise InputError(f"standard input has more than {CLI_INPUT_BYTES_MAX} bytes (CLI_INPUT_BYTES_MAX)")
        if raw:
            return data
        try:
            return parse_hex(data.decode("latin-1"))
        except InputError as error:
            raise InputError(f"{error}; if standard input has raw bytes, use --raw") from error
    if raw:
        raise InputError("--raw reads bytes from standard input: pass '-' instead of hex")
    return parse_hex(" ".join(words))
