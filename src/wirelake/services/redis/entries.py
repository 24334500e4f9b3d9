"""Entries of streams: their ids, and their fields as the content of a notification.

An entry's id is its position in the topic, `<position>-0`. Its fields are a JSON object of texts, which may name one
twice; bytes that are no UTF-8 are lone surrogates in it (`\\udc80` to `\\udcff`), so that nothing is lost on the way. A
content that is no such object has one field, `content`: so subscribers of other protocols get plain text where an entry
has just that field, and what they publish can be read as entries.
"""

import json
from typing import Any, Final

from wirelake.errors import InputError
from wirelake.limits import VALUES_ENTRY_BYTES_MAX
from wirelake.services.redis.arguments import Args

CONTENT: Final = b"content"
BAD_ID: Final = "ERR Invalid stream ID specified as stream command argument"

_ID_BYTES_MAX: Final = 127
_U64_MAX: Final = 2**64 - 1


class _NoFieldsError(ValueError):
    """JSON, but not an object of texts."""


def content_of_fields(fields: Args) -> bytes:
    """What is published for names and values in turn."""
    if len(fields) == 2 and fields[0] == CONTENT and _fields_in(fields[1]) is None:
        return fields[1]
    texts = [json.dumps(field.decode(errors="surrogateescape"), ensure_ascii=False) for field in fields]
    members = [f"{name}:{value}" for name, value in zip(texts[::2], texts[1::2], strict=True)]
    text = "{" + ",".join(members) + "}"
    try:
        content = text.encode()
    except UnicodeEncodeError:  # a lone surrogate: bytes that were no UTF-8
        content = b"".join([c.encode() if not 0xD800 <= ord(c) <= 0xDFFF else b"\\u%04x" % ord(c) for c in text])
    if len(content) > VALUES_ENTRY_BYTES_MAX:
        raise InputError(f"ERR an entry has at most {VALUES_ENTRY_BYTES_MAX} bytes, as JSON")
    return content


def fields_of_content(content: bytes) -> list[bytes]:
    """Names and values in turn."""
    found = _fields_in(content)
    return [CONTENT, content] if found is None else found


def _fields_in(content: bytes) -> list[bytes] | None:
    if not content.startswith(b"{") or not content.endswith(b"}") or len(content) > VALUES_ENTRY_BYTES_MAX:
        return None
    try:
        found = json.loads(content, object_pairs_hook=_texts)
        return [text.encode(errors="surrogateescape") for text in found] or None
    except (ValueError, RecursionError):
        return None


def _texts(members: list[tuple[str, Any]]) -> list[str]:
    texts = [text for member in members for text in member]
    if not all(isinstance(text, str) for text in texts):
        raise _NoFieldsError
    return texts


def id_of(position: int) -> bytes:
    return b"%d-0" % position


def read_id(text: bytes, missing_seq: int = 0) -> tuple[int, int]:
    """Both numbers of an id; the second may be left out."""
    if not text or len(text) > _ID_BYTES_MAX:
        raise InputError(BAD_ID)
    first, dash, second = text.partition(b"-")
    if dash and not second:
        raise InputError(BAD_ID)
    return _number(first), _number(second) if dash else missing_seq


def first_position(text: bytes) -> int:
    """Of a range that begins here."""
    if text == b"-":
        return 1
    if text == b"+":
        return _U64_MAX
    exclusive = text.startswith(b"(")
    position, seq = read_id(text.removeprefix(b"(") if exclusive else text)
    if exclusive and (position, seq) == (_U64_MAX, _U64_MAX):
        raise InputError("ERR invalid start ID for the interval")
    return position + 1 if exclusive or seq else position


def last_position(text: bytes) -> int:
    """Of a range that ends here."""
    if text == b"+":
        return _U64_MAX
    if text == b"-":
        return 0
    exclusive = text.startswith(b"(")
    position, seq = read_id(text.removeprefix(b"(") if exclusive else text, _U64_MAX)
    if exclusive and (position, seq) == (0, 0):
        raise InputError("ERR invalid end ID for the interval")
    return position - 1 if exclusive and not seq else position


def _number(digits: bytes) -> int:
    if not digits.isdigit() or int(digits) > _U64_MAX:
        raise InputError(BAD_ID)
    return int(digits)
