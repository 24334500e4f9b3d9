"""Convert JSON bodies, and provide the types and examples that several routes share."""

import base64
import binascii
from functools import cache
from typing import Annotated, Any, Final, get_type_hints

import msgspec
from msgspec import UNSET, Meta, UnsetType
from starlette.requests import Request

from wirelake.errors import ProtocolError
from wirelake.gateway.http.errors import ApiError
from wirelake.limits import HTTP_BODY_BYTES_MAX, HTTP_NAME_CHARS_MAX
from wirelake.protocols import registry
from wirelake.protocols.protocol import Protocol
from wirelake.protocols.redaction import BLANK_TEXT
from wirelake.protocols.text import Encoding, read_json, write_json

Name = Annotated[str, Meta(min_length=1, max_length=HTTP_NAME_CHARS_MAX, pattern="^[^\\u0000]*$")]

BASE64_SCHEMA: Final = {
    "type": "string",
    "contentEncoding": "base64",
    "pattern": "^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$",
}

# Examples in the API's description use the first protocol that offers a frame.
EXAMPLE_PROTOCOL: Final[Protocol] = max(registry.all_protocols(), key=lambda protocol: bool(protocol.example))
EXAMPLE_NAME: Final = EXAMPLE_PROTOCOL.name
EXAMPLE_FRAME: Final = EXAMPLE_PROTOCOL.example


async def read_bytes(request: Request, bytes_max: int | None = None) -> bytes:
    """Read a request's body; ApiError at the limit. The connection counts the bytes as they arrive."""
    bytes_max = HTTP_BODY_BYTES_MAX if bytes_max is None else bytes_max
    length = request.headers.get("content-length", "0")
    if length.isdecimal() and int(length) > bytes_max:
        raise _too_large(bytes_max)
    parts: list[bytes] = []
    size = 0
    async for part in request.stream():
        size += len(part)
        if size > bytes_max:
            raise _too_large(bytes_max)
        parts.append(part)
    return b"".join(parts)


def _too_large(bytes_max: int) -> ApiError:
    name = " (HTTP_BODY_BYTES_MAX)" if bytes_max == HTTP_BODY_BYTES_MAX else ""
    return ApiError(413, f"body exceeds the limit of {bytes_max} bytes{name}", headers={"connection": "close"})


def parse_body(raw: bytes, wanted: Any) -> Any:
    """Convert a JSON body to the type that the route takes; ApiError if it does not match."""
    try:
        value = read_json(raw or b"{}")
        if isinstance(value, dict):
            for name in value.keys() & _integers(wanted):
                if isinstance(value[name], float) and value[name].is_integer():
                    value[name] = int(value[name])  # in JSON Schema, 60.0 is an integer
        return msgspec.convert(value, wanted)
    except ProtocolError as error:
        raise ApiError(400, f"invalid JSON body: {error.text} (byte {error.offset})", "bad_json") from error
    except msgspec.ValidationError as error:
        raise ApiError(400, f"invalid body: {error}") from error


@cache
def _integers(wanted: Any) -> frozenset[str]:
    """Return the names of the integer fields of a body's type."""
    hints = get_type_hints(wanted) if isinstance(wanted, type) else {}
    return frozenset(name for name, hint in hints.items() if hint is int)


def redact(data: bytes, secrets: tuple[str, ...]) -> bytes:
    """Return a JSON body with the values of these fields blanked."""
    if not secrets or not data:
        return data
    value = read_json(data)
    return write_json({name: BLANK_TEXT if name in secrets else item for name, item in value.items()})


def encode_content(content: Any, encoding: Encoding | UnsetType) -> bytes:
    """Return text as UTF-8, or decoded from base64 if an encoding is given; return other values as JSON."""
    if encoding is not UNSET:
        return from_base64(content, "content")
    if not isinstance(content, str):
        return write_json(content)
    return content.encode()


def from_base64(text: Any, name: str) -> bytes:
    """Decode the base64 text of the field `name`; ApiError if it is invalid."""
    if not isinstance(text, str):
        raise ApiError(400, f"{name} must be base64 text")
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise ApiError(400, f"{name} is not base64: {error}") from error
