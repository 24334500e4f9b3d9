"""Blank the passwords of logins, in every form of a message, and logins in requests to other services."""

from base64 import b64encode
from typing import Final

from msgspec.structs import replace

from wirelake.errors import EncodeError, ProtocolError
from wirelake.protocols.frame import Sender
from wirelake.protocols.redaction import (
    HARMLESS_FIELDS,
    LOGIN_OPS,
    blank,
    has_word,
    redact_json,
    redact_payload,
)
from wirelake.protocols.redis.redaction import redact as redact_command
from wirelake.protocols.sisnet.binary import BinaryRequest, Extension
from wirelake.protocols.sisnet.envelope import SisnetFrame
from wirelake.protocols.sisnet.forms import DataLine, Http, Json, Redis
from wirelake.protocols.sisnet.frames import decode
from wirelake.protocols.sisnet.request import Request, read_request
from wirelake.protocols.sisnet.translation import is_request
from wirelake.protocols.text import from_base64, text_of

_ASKS: Final = frozenset({"ask", "argv"})
_WORDS: Final = (b"login", b"passw", b"auth", b"hello", b"AUTH", b"HELLO", b"\\u00")  # the last: any letter, in JSON
_SMALL_BYTES: Final = 4096  # in longer messages, a login is found as it must be spelled


def redact(frame: bytes, sender: Sender) -> bytes:
    """Return a message without the secrets of a login."""
    text = frame.lower() if len(frame) <= _SMALL_BYTES else frame
    if not has_word(text, _WORDS):
        return frame
    try:
        message = decode(frame, sender)
        found = _redact_message(message, sender)
        return frame if found is message else found.encode()
    except (ProtocolError, EncodeError):
        return _redact_unreadable(frame)


def _redact_unreadable(frame: bytes) -> bytes:
    """Blank bytes that resemble a login from where its contents may begin."""
    starts = [place for place in (frame.find(b"{"), frame.find(b"["), frame.find(b":")) if place >= 0]
    start = min(starts, default=-1) + 1
    return frame[:start] + blank(frame[start:])


def _redact_message(message: SisnetFrame, sender: Sender) -> SisnetFrame:
    if isinstance(message, Redis):
        content = redact_command(message.content, sender)
        return message if content is message.content else replace(message, content=content)
    if not is_request(message, sender):
        return message
    request = read_request(message)
    if request.command.rpartition(".")[2].lower() in LOGIN_OPS:
        return _redact_login(message)
    return _redact_service_request(message, request)


def _redact_login(message: SisnetFrame) -> SisnetFrame:
    if isinstance(message, Json):
        return replace(message, text=redact_json(message.text, _ASKS))
    if isinstance(message, Http):
        return replace(message, content=redact_json(message.content, _ASKS))
    if isinstance(message, DataLine):
        return replace(message, data=blank(message.data))
    if isinstance(message, BinaryRequest):
        extensions = message.extensions
        if extensions is not None:
            extensions = tuple(
                each if text_of(each.name) in HARMLESS_FIELDS else Extension(each.name, blank(each.data))
                for each in extensions
            )
        ask = None if message.ask is None else redact_json(message.ask)
        data = None if message.data is None else blank(message.data)
        return replace(message, ask=ask, data=data, extensions=extensions)
    return message


def _redact_service_request(message: SisnetFrame, request: Request) -> SisnetFrame:
    """Blank the login in the payload of a request to a service: raw, or base64 in JSON."""
    raw = request.payload
    if isinstance(message, BinaryRequest) and raw:
        found = redact_payload(request.service, raw)
        if found is raw:
            return message
        return replace(message, data=found) if message.data is not None else replace(message, ask=found)
    ask = request.ask
    payload = from_base64(ask.get("payload")) if isinstance(ask, dict) else None
    if payload is None or (found := redact_payload(request.service, payload)) is payload:
        return message
    before, after = ask["payload"].encode(), b64encode(found)
    if isinstance(message, Json) and before in message.text and len(before) == len(after):
        return replace(message, text=message.text.replace(before, after))
    if isinstance(message, BinaryRequest) and message.ask is not None and before in message.ask:
        return replace(message, ask=message.ask.replace(before, after))
    return _redact_login(message)
