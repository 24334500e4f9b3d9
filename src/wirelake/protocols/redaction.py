"""Blank the secrets of logins in bytes that are stored or shown: see `Protocol.redact`.

Blanks have the length of what they replace, so that a redacted frame decodes to the same message, without its secrets.
Bytes that cannot be decoded are blanked from the first sign of a login on: where in them the secret is, nobody knows.
"""

import re
from collections.abc import Callable
from collections.abc import Set as AbstractSet
from functools import cache
from typing import Final

from wirelake.errors import InputError, ProtocolError, UnknownProtocolError
from wirelake.protocols import registry
from wirelake.protocols.frame import Sender
from wirelake.protocols.protocol import Protocol
from wirelake.protocols.text import read_json

BLANK: Final = b"*"
BLANK_TEXT: Final = "…"  # where the length may change
SECRET_FIELDS: Final = frozenset({"token", "password", "passwd", "secret", "sid"})
LOGIN_OPS: Final = frozenset({"login", "auth", "hello"})
# What else the fields of a login, or the keys beside them, may contain without being a secret.
HARMLESS_FIELDS: Final = frozenset(
    {"cmd", "command", "fmt", "lnk", "name", "service", "ver"}
    | {"client_name", "compress", "format", "user", "username", "version"}
)

_SECRET_WORD: Final = re.compile(rb"token|passw|secret|login|auth|hello", re.IGNORECASE)
_STRING: Final = rb'"[^"\\]*(?:\\.[^"\\]*)*"'
_JSON_TOKEN: Final = re.compile(rb"%b|[{}\[\],:]|[^\s{}\[\],:\"]+" % _STRING, re.DOTALL)
_NOT_PUNCTUATION: Final = re.compile(rb'[^\s{}\[\]:,"]')
_DIGIT: Final = re.compile(rb"[0-9]")
_BLANKED: Final = f'"{BLANK_TEXT}"'.encode()


def blank(data: bytes) -> bytes:
    """Return as many blanks."""
    return BLANK * len(data)


def blank_from(data: bytes, sign: re.Pattern[bytes] = _SECRET_WORD) -> bytes:
    """Blank everything behind the first sign of a login. Return the same object if there is none."""
    found = sign.search(data)
    return data if found is None else data[: found.end()] + blank(data[found.end() :])


def has_word(text: bytes, words: tuple[bytes, ...]) -> bool:
    """Return whether one of the words, or the name of a service whose payloads may be logins, is in the text."""
    for word in words:  # twice as fast as `any`
        if word in text:
            return True
    for service in _payload_services():  # noqa: SIM110
        if service in text:
            return True
    return False


def redact_stored(protocol: str, direction: str, frame: bytes) -> bytes:
    """Return the bytes of a log record as they are shown. Logs of earlier versions have secrets in them."""
    try:
        found = registry.get(protocol)
    except (UnknownProtocolError, InputError):  # of HTTP, of the gateway itself, or no longer installed
        return frame
    return found.redact_all([frame], Sender.SERVER if direction == "out" else Sender.CLIENT)[0]


# ── JSON


def redact_json(text: bytes, inner: AbstractSet[str] = frozenset()) -> bytes:
    """Blank all values in JSON but those of harmless keys. Under the keys `inner`, objects are blanked likewise.

    Of text that is not JSON, or too large to read, only quotes, brackets, colons and commas stay.
    """
    try:
        read_json(text)
    except ProtocolError:
        return _NOT_PUNCTUATION.sub(BLANK, text)
    tokens = list(_JSON_TOKEN.finditer(text))
    parts: list[bytes] = []
    reader = _TokenReader(text, tokens, parts)
    if reader.next == b"{":
        _redact_object(reader, inner)
    else:
        reader.blank_value()
    return b"".join(parts) + text[tokens[-1].end() :]


def blank_fields(text: bytes, names: AbstractSet[str]) -> bytes:
    """Blank the values of these keys of a JSON object, whatever their case. Values that are blanked already stay."""
    if not isinstance(read_json(text), dict):
        return text
    tokens = list(_JSON_TOKEN.finditer(text))
    parts: list[bytes] = []
    reader = _TokenReader(text, tokens, parts)
    reader.keep()
    while reader.next != b"}":
        if reader.next == b",":
            reader.keep()
        name = read_json(reader.keep())
        reader.keep()  # the colon
        if name.lower() in names and reader.next != _BLANKED:
            reader.blank_value()
        else:
            reader.keep_value()
    reader.keep()
    return b"".join(parts) + text[tokens[-1].end() :]


class _TokenReader:
    """Reads the tokens of valid JSON, and writes them, blanked or not, with the white space before each."""

    __slots__ = ("_at", "_end", "_parts", "_text", "_tokens")

    def __init__(self, text: bytes, tokens: list[re.Match[bytes]], parts: list[bytes]) -> None:
        self._text, self._tokens, self._parts = text, tokens, parts
        self._at = self._end = 0

    @property
    def next(self) -> bytes:
        return self._tokens[self._at][0]

    def keep(self) -> bytes:
        """Write the next token as it is."""
        return self._write(self.next)

    def blank(self) -> bytes:
        """Write the next token blanked: the characters of a text, the digits of a number."""
        token = self.next
        if token[:1] == b'"':
            return self._write(b'"' + blank(token[1:-1]) + b'"')
        return self._write(_DIGIT.sub(b"1", token))

    def keep_value(self) -> None:
        """Write the next value, with all that is nested in it, as it is."""
        self._write_value(self.keep)

    def blank_value(self) -> None:
        """Write the next value, with all that is nested in it, blanked."""
        self._write_value(self.blank)

    def _write_value(self, write: Callable[[], bytes]) -> None:
        depth = 0
        while True:
            token = write()
            depth += (token in b"{[") - (token in b"}]")
            if not depth:
                return

    def _write(self, token: bytes) -> bytes:
        found = self._tokens[self._at]
        self._parts += (self._text[self._end : found.start()], token)
        self._at, self._end = self._at + 1, found.end()
        return token


def _redact_object(tokens: _TokenReader, inner: AbstractSet[str]) -> None:
    tokens.keep()
    while tokens.next != b"}":
        if tokens.next == b",":
            tokens.keep()
        name = read_json(tokens.keep())
        tokens.keep()  # the colon
        if name in inner and tokens.next == b"{":
            _redact_object(tokens, frozenset())
        elif name in HARMLESS_FIELDS and tokens.next not in (b"{", b"["):
            tokens.keep()
        else:
            tokens.blank_value()
    tokens.keep()


# ── logins inside requests to services


def redact_payload(service: str, payload: bytes) -> bytes:
    """Blank the secrets in the payload of a request to this service, which may be a frame: `Protocol.payload_service`.

    Return the same object if there are none.
    """
    protocol = _payload_protocols().get(service)
    return payload if protocol is None or not payload else protocol.redact(payload, Sender.CLIENT)


@cache
def _payload_services() -> tuple[bytes, ...]:
    return tuple(service.encode() for service in _payload_protocols())


def takes_frames(service: str) -> bool:
    """Return whether requests to this service carry frames of a protocol as their payload."""
    return service in _payload_protocols()


def may_take_frames(before: str) -> bool:
    """Return whether there is such a service whose name begins with this text."""
    return any(service.startswith(before) for service in _payload_protocols())


def is_login_payload(service: str, payload: bytes) -> bool:
    """Return whether the payload of a request to this service contains credentials."""
    protocol = _payload_protocols().get(service)
    return protocol is not None and protocol.is_login is not None and protocol.is_login(payload)


@cache
def _payload_protocols() -> dict[str, Protocol]:
    return {each.payload_service: each for each in registry.all_protocols() if each.payload_service}
