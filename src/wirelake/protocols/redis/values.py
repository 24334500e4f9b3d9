"""Convert between RESP values and plain Python values, as the fields of messages contain them."""

from typing import Any

from wirelake.errors import TranslationError
from wirelake.protocols.redis import frames
from wirelake.protocols.redis.commands import error
from wirelake.protocols.redis.constants import REDIS_DEPTH_MAX, REDIS_LINE_BYTES_MAX, REDIS_NUMBER_CHARS_MAX
from wirelake.protocols.redis.frames import I64_MAX, I64_MIN, Pair, Value
from wirelake.protocols.redis.housekeeping import as_text

_BITS_MAX = 3 * REDIS_NUMBER_CHARS_MAX  # a decimal digit takes more than three bits


def to_plain(value: Value) -> Any:  # noqa: PLR0911 (one return a type)
    """Return a plain value. Bulk strings are bytes; numbers of more than 64 bits are text."""
    match value:
        case frames.SimpleString() | frames.SimpleError() | frames.BulkError():
            return as_text(value.text)
        case frames.BulkString() | frames.VerbatimString():
            return value.data
        case frames.Integer() | frames.Boolean() | frames.Double():
            return value.value
        case frames.BigNumber():
            return value.value if I64_MIN <= value.value <= I64_MAX else value.text.decode()
        case frames.Array() | frames.Set() | frames.Push():
            return [to_plain(item) for item in value.items]
        case frames.Map():
            return pairs_to_plain(value.pairs)
        case frames.Attribute():
            return to_plain(value.value)
    return None


def pairs_to_plain(pairs: tuple[Pair, ...]) -> dict[str, Any] | list[list[Any]]:
    """Return a dict if all keys are different texts, else a list of pairs."""
    found = {_key(pair.key): to_plain(pair.value) for pair in pairs}
    if None in found or len(found) < len(pairs):
        return [[to_plain(pair.key), to_plain(pair.value)] for pair in pairs]
    return {str(key): value for key, value in found.items()}


def _key(value: Value) -> str | None:
    match value:
        case frames.SimpleString():
            return as_text(value.text)
        case frames.BulkString() if value.data.isascii():
            return value.data.decode()
        case frames.BulkString():
            try:
                return value.data.decode()
            except UnicodeDecodeError:
                return None
    return None


def from_plain(plain: Any, depth: int = 0) -> Value:  # noqa: PLR0911 (one return a type)
    """Return the RESP value of a plain one. Raise TranslationError if RESP has none."""
    if depth >= REDIS_DEPTH_MAX and isinstance(plain, list | tuple | set | frozenset | dict):
        raise TranslationError(f"values nest deeper than {REDIS_DEPTH_MAX}")
    match plain:
        case None:
            return frames.Null()
        case bool():
            return frames.Boolean(plain)
        case int():
            return _whole_number(plain)
        case float():
            return frames.Double(repr(plain).encode())
        case str():
            return _text(plain, depth)
        case bytes():
            return frames.BulkString(plain)
        case list() | tuple():
            return frames.Array(
                tuple(
                    [frames.BulkString(item) if type(item) is bytes else from_plain(item, depth + 1) for item in plain]
                )
            )
        case frames.EncodedArray() | frames.EncodedMap():
            return plain
        case set() | frozenset():
            return frames.Set(tuple([from_plain(item, depth + 1) for item in plain]))
        case dict():
            return frames.Map(
                tuple([Pair(from_plain(key, depth + 1), from_plain(each, depth + 1)) for key, each in plain.items()])
            )
    raise TranslationError(f"RESP has no value for a {type(plain).__name__}")


def _whole_number(number: int) -> Value:
    if I64_MIN <= number <= I64_MAX:
        return frames.Integer(number)
    if number.bit_length() > _BITS_MAX:
        raise TranslationError(f"a number of more than {REDIS_NUMBER_CHARS_MAX} digits")
    return frames.BigNumber(b"%d" % number)


def _text(text: str, depth: int) -> Value:
    """Return a status, as OK is, for a text that is not nested, else a bulk string."""
    data = text.encode(errors="backslashreplace")
    if depth or b"\r" in data or b"\n" in data or len(data) > REDIS_LINE_BYTES_MAX:
        return frames.BulkString(data)
    return frames.SimpleString(data)


# ── RESP 2


def in_version_2(value: Value) -> Value:  # noqa: PLR0911 (one return a type)
    """Return the nearest value that RESP 2 has."""
    match value:
        case frames.Null():
            return frames.NullBulkString()
        case frames.Boolean():
            return frames.Integer(int(value.value))
        case frames.Double() | frames.BigNumber():
            return frames.BulkString(value.text)
        case frames.VerbatimString():
            return frames.BulkString(value.data)
        case frames.BulkError():
            return error(value.text)
        case frames.Array() | frames.Set() | frames.Push():
            return frames.Array(
                tuple([item if type(item) is frames.BulkString else in_version_2(item) for item in value.items])
            )
        case frames.EncodedMap():
            return frames.EncodedArray(b"*%d\r\n%b" % (2 * value.count, value.data))
        case frames.Map():
            sides = [side for pair in value.pairs for side in (pair.key, pair.value)]
            return frames.Array(tuple([in_version_2(side) for side in sides]))
        case frames.Attribute():
            return in_version_2(value.value)
    return value
