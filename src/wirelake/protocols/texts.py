"""Text out of bytes that may be UTF-8 or, from older terminals, GBK."""

import binascii
from base64 import b64decode
from typing import Any

from wirelake.protocols.jsontext import write_json


def text_of(data: bytes) -> str:
    """Never fails: what is neither becomes text with marks in place of the bad bytes."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        pass
    try:
        return data.decode("gbk")
    except UnicodeDecodeError:
        return data.decode(errors="replace")


def word_of(value: Any) -> str:
    """A JSON value where a word is expected; a number there is read as its digits."""
    if isinstance(value, str):
        return value
    return "" if value is None else write_json(value).decode()


def from_base64(value: Any) -> bytes | None:
    if not isinstance(value, str):
        return None
    try:
        return b64decode(value, validate=True)
    except (binascii.Error, ValueError):
        return None
