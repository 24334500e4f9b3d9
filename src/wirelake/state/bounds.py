"""What may be stored at all. Checked before a batch is touched: one bad row would fail the whole of it."""

from typing import Final

from wirelake.errors import InputError
from wirelake.limits import STATE_CONTENT_BYTES_MAX, STATE_NAME_BYTES_MAX

_I64_MAX: Final = 2**63 - 1
_PLAIN_CHARS: Final = STATE_NAME_BYTES_MAX // 4  # at most four bytes each


def check_name(name: str, what: str) -> None:
    """Not empty, valid Unicode, without NUL, within the limit."""
    if name.isascii() and 0 < len(name) <= _PLAIN_CHARS and "\0" not in name:
        return
    try:
        size = len(name.encode())
    except UnicodeEncodeError as error:
        raise InputError(f"{what} is not valid Unicode") from error
    if not size:
        raise InputError(f"{what} is empty")
    if size > STATE_NAME_BYTES_MAX:
        raise InputError(f"{what} has {size} bytes, over the limit of {STATE_NAME_BYTES_MAX}")
    if "\0" in name:
        raise InputError(f"{what} holds a NUL")


def check_content(content: bytes, what: str) -> None:
    if len(content) > STATE_CONTENT_BYTES_MAX:
        raise InputError(f"{what} has {len(content)} bytes, over the limit of {STATE_CONTENT_BYTES_MAX}")


def check_integer(number: int, what: str) -> None:
    """Fits 64 bits, signed."""
    if not -_I64_MAX - 1 <= number <= _I64_MAX:
        raise InputError(f"{what} does not fit 64 bits")
