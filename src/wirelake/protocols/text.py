"""Text formats that several protocols share: JSON, base64, hex, and text that is UTF-8 or GBK."""

import base64
import binascii
import re
from base64 import b64decode
from typing import Any, Literal

import msgspec
from msgspec import UNSET, UnsetType

from wirelake.errors import InputError, LimitError, ProtocolError
from wirelake.limits import JSON_DEPTH_MAX, JSON_TEXTS_LOOKED_INTO_MAX, JSON_WEIGHT_MAX

# ── JSON

_BYTE = re.compile(r" ?\(byte (\d+)\)")
_STRING = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"')
_SQUARE = bytes.maketrans(b"{}", b"[]")
_NO_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
_WEIGHTS = {b"{": 24, b"[": 4, b":": 4, b",": 1}  # cost of decoding an object, a list, a key, a list item
_HEAVIEST = max(_WEIGHTS.values())
_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder()

Encoding = Literal["base64"]


def read_json(data: bytes, offset: int = 0) -> Any:
    """Decode `data`, which starts at `offset` in its frame. Raise ProtocolError with the offset in the frame."""
    if len(data) * _HEAVIEST > JSON_WEIGHT_MAX and _weight(data) > JSON_WEIGHT_MAX:
        text = "JSON has too many values: about a million numbers, or 150 000 objects, are read at once"
        raise LimitError("json_weight_max", text, offset)
    try:
        value = _decoder.decode(data)
    except UnicodeDecodeError as error:
        raise ProtocolError("bad_utf8", "JSON text is not UTF-8", offset) from error
    except msgspec.MsgspecError as error:
        place = _BYTE.search(str(error))
        at = int(place[1]) if place else len(data)
        text = _BYTE.sub("", str(error))  # the offset is a field of the error
        raise ProtocolError("bad_json", text, offset + at) from error
    except RecursionError as error:
        raise LimitError("json_depth_max", f"JSON nests deeper than {JSON_DEPTH_MAX}", offset) from error
    if _is_deep(data):
        raise LimitError("json_depth_max", f"JSON nests deeper than {JSON_DEPTH_MAX}", offset)
    return value


def _weight(data: bytes) -> int:
    """Return the approximate cost of decoding, in list items. Brackets inside a few long texts do not count."""
    weight = _plain_weight(data)
    if weight > JSON_WEIGHT_MAX and _has_few_texts(data):
        weight = _plain_weight(_STRING.sub(b"", data))
    return weight


def _has_few_texts(data: bytes) -> bool:
    """Return whether there are few texts. A quote after an escaped backslash ends a text."""
    quotes = data.count(b'"')
    if quotes > JSON_TEXTS_LOOKED_INTO_MAX and b"\\" in data:
        quotes -= max(0, data.count(rb"\"") - data.count(rb"\\"))
    return quotes <= JSON_TEXTS_LOOKED_INTO_MAX


def _plain_weight(data: bytes) -> int:
    """Return the weight of all brackets, colons and commas, up to the limit."""
    total = 0
    for char, weight in _WEIGHTS.items():
        total += weight * data.count(char)
        if total > JSON_WEIGHT_MAX:
            break
    return total


def _is_deep(data: bytes) -> bool:
    """Return whether valid JSON nests too deep. Its brackets are balanced; each round removes the innermost level."""
    if data.count(b"[") + data.count(b"{") <= JSON_DEPTH_MAX:
        return False
    brackets = _STRING.sub(b"", data).translate(_SQUARE, _NO_BRACKETS)
    for _ in range(JSON_DEPTH_MAX):
        brackets = brackets.replace(b"[]", b"")
        if not brackets:
            return False
    return True


def write_json(value: Any) -> bytes:
    """Encode a value as compact JSON; bytes become base64."""
    return _encoder.encode(value)


def as_text(content: bytes) -> tuple[str, Encoding | UnsetType]:
    """Return bytes as text for JSON, and its encoding: UTF-8, or else base64."""
    try:
        return content.decode(), UNSET
    except UnicodeDecodeError:
        return base64.b64encode(content).decode(), "base64"


# ── text and base64


def text_of(data: bytes) -> str:
    """Decode UTF-8 or, from older terminals, GBK. Replace invalid bytes; never raise."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        pass
    try:
        return data.decode("gbk")
    except UnicodeDecodeError:
        return data.decode(errors="replace")


def word_of(value: Any) -> str:
    """Return a JSON value as text: a number as its digits, null as ""."""
    if isinstance(value, str):
        return value
    return "" if value is None else write_json(value).decode()


def from_base64(value: Any) -> bytes | None:
    """Decode a JSON value that is base64 text; return None for any other."""
    if not isinstance(value, str):
        return None
    try:
        return b64decode(value, validate=True)
    except (binascii.Error, ValueError):
        return None


# ── hex

_FILLER_PATTERN = r"(?:0[xX]|\\x|[ \t\n\r\f\v:,\-])"
_DIGIT_PATTERN = rf"{_FILLER_PATTERN}*[0-9a-fA-F]"
HEX_PATTERN = f"^(?:{_DIGIT_PATTERN}{_DIGIT_PATTERN})*{_FILLER_PATTERN}*$"  # what `parse_hex` accepts
_FILLER = re.compile(_FILLER_PATTERN)
_NOT_HEX = re.compile(r"[^0-9a-fA-F]")


def parse_hex(text: str) -> bytes:
    """Decode hex as people paste it: with spaces, colons, commas, dashes, 0x or \\x. Raise InputError."""
    digits = _FILLER.sub("", text)
    bad = _NOT_HEX.search(digits)
    if bad is not None:
        place = text.find(bad[0]) + 1
        raise InputError(f"{bad[0]!a} (character {place}) is not a hex digit")
    if len(digits) % 2:
        raise InputError(f"{len(digits)} hex digits are not a whole number of bytes")
    return bytes.fromhex(digits)
