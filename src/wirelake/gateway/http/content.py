"""Content from JSON to bytes: text is UTF-8, or base64 where it says so."""

import base64
import binascii
from typing import Any, Final

from msgspec import UNSET, UnsetType

from wirelake.gateway.http.errors import ApiError
from wirelake.protocols.jsontext import Encoding, write_json

BASE64_SCHEMA: Final = {
    "type": "string",
    "contentEncoding": "base64",
    "pattern": "^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$",
}


def as_bytes(content: Any, encoding: Encoding | UnsetType) -> bytes:
    """Text as UTF-8 or, with an encoding, as base64; anything else as its JSON."""
    if encoding is not UNSET:
        return from_base64(content, "content")
    if not isinstance(content, str):
        return write_json(content)
    return content.encode()


def from_base64(text: Any, name: str) -> bytes:
    if not isinstance(text, str):
        raise ApiError(400, f"{name} must be base64 text")
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise ApiError(400, f"{name} is not base64: {error}") from error
