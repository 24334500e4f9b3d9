"""Content between bytes and JSON: text where it is UTF-8, base64 where it is not."""

import base64
import binascii
from typing import Any, Literal

from msgspec import UNSET, UnsetType

from wirelake.gateway.http.errors import ApiError
from wirelake.protocols.jsontext import write_json

Encoding = Literal["base64"]


def as_text(content: bytes) -> tuple[str, Encoding | UnsetType]:
    """The text, and how it is to be read."""
    try:
        return content.decode(), UNSET
    except UnicodeDecodeError:
        return base64.b64encode(content).decode(), "base64"


def as_bytes(content: Any, encoding: Encoding | UnsetType) -> bytes:
    """Text as UTF-8 or, with an encoding, as base64; anything else as its JSON."""
    if encoding is not UNSET:
        return from_base64(content, "content")
    if not isinstance(content, str):
        return write_json(content)
    return content.encode()


def from_base64(text: Any, name: str) -> bytes:
    if not isinstance(text, str):
        raise ApiError(400, f"{name} is base64 text")
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise ApiError(400, f"{name} is not base64: {error}") from error
