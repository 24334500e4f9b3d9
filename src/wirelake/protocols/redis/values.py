"""RESP values ⇄ plain Python values, as they stand in the fields of messages."""

from typing import Any

from wirelake.errors import TranslationError
from wirelake.protocols.redis import frames
from wirelake.protocols.redis.frames import I64_MAX, I64_MIN, Pair, Value
from wirelake.protocols.redis.hello import as_text
from wirelake.protocols.redis.limits import REDIS_DEPTH_MAX, REDIS_LINE_BYTES_MAX, REDIS_NUMBER_CHARS_MAX

_BITS_MAX = 3 * REDIS_NUMBER_CHARS_MAX  # a decimal digit takes more than three bits


def to_plain(value: Value) -> Any:  # noqa: PLR0911 (one return a type)
    """Bulk strings stay bytes; numbers that 64 bits do not hold stay text."""
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
    """A dict where all keys are different texts, else a list of pairs."""
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
    """The value that says this. Raises TranslationError where RESP has none."""
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
    """By itself a text is a status, as OK is; inside a list it is an item like any other."""
    data = text.encode(errors="backslashreplace")
    if depth or b"\r" in data or b"\n" in data or len(data) > REDIS_LINE_BYTES_MAX:
        return frames.BulkString(data)
    return frames.SimpleString(data)
