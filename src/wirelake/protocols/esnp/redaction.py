"""Blank the values of secret DATA lines in requests to the gateway and in logins, and logins in payloads."""

from typing import Final

from wirelake.errors import EncodeError, ProtocolError
from wirelake.message import GATEWAY_SERVICE
from wirelake.protocols.esnp.constants import LineType, Tag
from wirelake.protocols.esnp.contents import OP, SERVICE
from wirelake.protocols.esnp.frames import EsnpMessage, decode
from wirelake.protocols.esnp.lines import Line, read_address
from wirelake.protocols.esnp.values import VarReader, read_text, write_bytes
from wirelake.protocols.frame import Sender
from wirelake.protocols.redaction import (
    LOGIN_OPS,
    SECRET_FIELDS,
    blank,
    blank_from,
    has_word,
    redact_payload,
)

_NAMED: Final = frozenset({LineType.DATA.value, LineType.HEADER.value, LineType.SESSION_INFO.value})
_LENGTH_BYTES_MAX: Final = 4  # that of the longest text in a message has no more
_WORDS: Final = tuple(name.encode() for name in SECRET_FIELDS)
_SMALL_BYTES: Final = 4096  # up to here, a search for the words is cheaper than a look at the lines


def redact(frame: bytes, sender: Sender) -> bytes:
    """Return a message without the secrets of a login."""
    if len(frame) <= _SMALL_BYTES and not has_word(frame.lower(), _WORDS):
        return frame
    try:
        message = decode(frame, sender)
    except ProtocolError:
        return blank_from(frame)
    service, op = _address(message)
    lines = message.lines
    if service == GATEWAY_SERVICE or op.lower() in LOGIN_OPS:
        lines = tuple([_redact_line(line) for line in lines])
    payload = message.payload
    if payload and redact_payload(service, payload) is not payload:
        lines = _with_payload(lines, redact_payload(service, payload))
    try:
        return frame if lines == message.lines else EsnpMessage(lines).encode()
    except EncodeError:  # longer than what is written
        return blank_from(frame)


def _address(message: EsnpMessage) -> tuple[str, str]:
    """Return service and operation; "" for one that is missing or malformed."""
    found: dict[int, str] = {}
    for line in message.lines:
        if line.type == LineType.ADDRESS:
            try:
                kind, text = read_address(line.data, VarReader())
            except ProtocolError:
                continue
            found.setdefault(kind, text)
    return found.get(SERVICE, ""), found.get(OP, "")


def _redact_line(line: Line) -> Line:
    if line.type not in _NAMED:
        return line
    try:
        name, start = read_text(line.data, 0)
    except ProtocolError:
        return Line(line.type, blank_from(line.data))
    if name.lower() not in SECRET_FIELDS:
        return line
    return Line(line.type, line.data[:start] + _blank_var(line.data[start:]))


def _blank_var(value: bytes) -> bytes:
    """Return a text of blanks that takes as many bytes as a value, whatever its type is."""
    for length_bytes in range(1, _LENGTH_BYTES_MAX + 1):
        size = len(value) - 1 - length_bytes
        text = bytes((Tag.STRING,)) + write_bytes(blank(bytes(max(size, 0))))
        if len(text) == len(value):
            return text
    return blank(value)  # no text has this size; as a value of no type, it is malformed


def _with_payload(lines: tuple[Line, ...], payload: bytes) -> tuple[Line, ...]:
    """Return the lines with another payload of the same size, divided as before."""
    found, place = [], 0
    for line in lines:
        if line.type == LineType.PAYLOAD:
            end = place + len(line.data)
            found.append(Line(line.type, payload[place:end]))
            place = end
        else:
            found.append(line)
    return tuple(found)
