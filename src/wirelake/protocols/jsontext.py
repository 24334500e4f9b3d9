"""JSON as several protocols carry it: strict UTF-8, compact, bounded depth, errors with an offset."""

import base64
import re
from typing import Any, Literal

import msgspec
from msgspec import UNSET, UnsetType

from wirelake.errors import LimitError, ProtocolError
from wirelake.limits import JSON_DEPTH_MAX, JSON_TEXTS_LOOKED_INTO_MAX, JSON_WEIGHT_MAX

_BYTE = re.compile(r" ?\(byte (\d+)\)")
_STRING = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"')
_SQUARE = bytes.maketrans(b"{}", b"[]")
_NO_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
_WEIGHTS = {b"{": 24, b"[": 4, b":": 4, b",": 1}  # what reading takes: a value of a list, a key, a list, an object
_HEAVIEST = max(_WEIGHTS.values())
_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder()

Encoding = Literal["base64"]


def read_json(data: bytes, offset: int = 0) -> Any:
    """The value written in `data`; `offset` is where `data` starts in the frame, for the error."""
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
        text = _BYTE.sub("", str(error))  # the offset is the error's own field
        raise ProtocolError("bad_json", text, offset + at) from error
    except RecursionError as error:
        raise LimitError("json_depth_max", f"JSON nests deeper than {JSON_DEPTH_MAX}", offset) from error
    if _is_deep(data):
        raise LimitError("json_depth_max", f"JSON nests deeper than {JSON_DEPTH_MAX}", offset)
    return value


def _weight(data: bytes) -> int:
    """About what it costs to read it, in values of a list. Brackets inside of a few long texts do not count."""
    weight = _plain_weight(data)
    if weight > JSON_WEIGHT_MAX and _has_few_texts(data):
        weight = _plain_weight(_STRING.sub(b"", data))
    return weight


def _has_few_texts(data: bytes) -> bool:
    """Whether there are few quotes around texts. Behind an escaped backslash, a quote is no part of the text."""
    quotes = data.count(b'"')
    if quotes > JSON_TEXTS_LOOKED_INTO_MAX and b"\\" in data:
        quotes -= max(0, data.count(rb"\"") - data.count(rb"\\"))
    return quotes <= JSON_TEXTS_LOOKED_INTO_MAX


def _plain_weight(data: bytes) -> int:
    """Counted as far as the limit."""
    total = 0
    for char, weight in _WEIGHTS.items():
        total += weight * data.count(char)
        if total > JSON_WEIGHT_MAX:
            break
    return total


def _is_deep(data: bytes) -> bool:
    """Valid JSON, so the brackets outside strings are balanced; each round takes off the innermost level."""
    if data.count(b"[") + data.count(b"{") <= JSON_DEPTH_MAX:
        return False
    brackets = _STRING.sub(b"", data).translate(_SQUARE, _NO_BRACKETS)
    for _ in range(JSON_DEPTH_MAX):
        brackets = brackets.replace(b"[]", b"")
        if not brackets:
            return False
    return True


def write_json(value: Any) -> bytes:
    """Compact JSON; bytes become base64."""
    return _encoder.encode(value)


def as_text(content: bytes) -> tuple[str, Encoding | UnsetType]:
    """Any bytes as JSON can say them: text where they are UTF-8, else base64; and how that is to be read."""
    try:
        return content.decode(), UNSET
    except UnicodeDecodeError:
        return base64.b64encode(content).decode(), "base64"
