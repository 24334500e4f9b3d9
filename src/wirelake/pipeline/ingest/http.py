"""Decode HTTP requests as the gateway records them: method, path and status in the note, JSON in the frame.

A request's id is its session, which pairs it with its response.
"""

import re
from base64 import b64decode
from typing import Any, Final
from urllib.parse import unquote

import msgspec
import numpy as np

from wirelake.errors import ProtocolError
from wirelake.message import GATEWAY_SERVICE, Failure, Kind, Message, Operation
from wirelake.protocols.columnar import DecodedFrames, RefusedFrame, Row, message_columns, row_of
from wirelake.protocols.text import read_json

NAME: Final = "http"
DECODER_VERSION: Final = 1
_DEVICES: Final = "devices"
_PAYLOAD: Final = "payload"
# Longer paths first: names may contain slashes, as the gateway's own routes allow.
_PATHS: Final = (
    ("/api/topics/{topic}/notifications", re.compile(r"/api/topics/(?P<topic>.+)/notifications"), "publish"),
    ("/api/services/{service}/{op}", re.compile(r"/api/services/(?P<service>.+)/(?P<op>.+)"), ""),
    ("/api/devices/*/commands", re.compile(r"/api/devices/(?:\*|%2A)/commands"), "command"),
    ("/api/devices/{serial}/commands", re.compile(r"/api/devices/(?P<serial>.+)/commands"), "command"),
    ("/api/subscribe", re.compile(r"/api/subscribe"), "subscribe"),
    ("/api/acks", re.compile(r"/api/acks"), "ack"),
    ("/api/devices/{serial}", re.compile(r"/api/devices/(?P<serial>.+)"), _DEVICES),
    ("/api/devices", re.compile(r"/api/devices"), _DEVICES),
    ("/api/identities/{name}/tokens/{id}", re.compile(r"/api/identities/(?P<named>.+)/tokens/(?P<id>.+)"), "tokens"),
    ("/api/identities/{name}/tokens", re.compile(r"/api/identities/(?P<named>.+)/tokens"), "tokens"),
    ("/api/identities/{name}/roles", re.compile(r"/api/identities/(?P<named>.+)/roles"), "roles"),
    ("/api/identities/{name}", re.compile(r"/api/identities/(?P<named>.+)"), "identities"),
    ("/api/identities", re.compile(r"/api/identities"), "identities"),
    ("/api/sessions/{id}", re.compile(r"/api/sessions/(?P<named>.+)"), "sessions"),
)


class RequestNote(msgspec.Struct, frozen=True):
    method: str = ""
    path: str = ""
    status: int = 0


_note_decoder: Final = msgspec.json.Decoder(RequestNote)


def decode_records(frames: Any, notes: Any, sessions: Any, from_server: Any) -> DecodedFrames:
    """Decode records. Refuse bodies that are not JSON, and notes that are not those of a request."""
    rows: list[Row] = []
    good: list[int] = []
    refused: list[RefusedFrame] = []
    columns = (frames.to_pylist(), notes.to_pylist(), sessions.to_pylist(), from_server.tolist())
    for index, (frame, note, session, is_response) in enumerate(zip(*columns, strict=True)):
        try:
            rows.append(_row(frame or b"", note or "", session or "", is_response))
        except ProtocolError as error:
            refused.append(RefusedFrame(index, error.code, error.text, error.offset))
            continue
        good.append(index)
    return DecodedFrames(np.array(good, np.int64), message_columns(rows), refused)


def _row(frame: bytes, text: str, session: str, is_response: bool) -> Row:
    try:
        note = _note_decoder.decode(text)
    except msgspec.DecodeError as error:
        raise ProtocolError("bad_note", f"the note is not that of an HTTP request: {error}", 0) from error
    body = read_json(frame) if frame else {}
    fields: dict[str, Any] = dict(body) if isinstance(body, dict) else {"body": body}
    path, found, op = match_path(note.path)
    payload = _payload(fields) if "service" in found else b""
    failure = _failure(fields, note.status) if is_response and note.status >= 400 else None
    message = Message(
        kind=Kind.RESPONSE if is_response else Kind.REQUEST,
        name=f"{note.method} {path}".strip(),
        protocol=NAME,
        correlation=session,
        target=Operation(found.get("service", GATEWAY_SERVICE), found.get("op", op)),
        fields=fields,
        payload=payload,
        failure=failure,
    )
    row = row_of(message)
    return (*row[:2], found.get("topic"), *row[3:])


def match_path(path: str) -> tuple[str, dict[str, str], str]:
    """Return the route, the names in the path, and the operation of the gateway."""
    for route, form, op in _PATHS:
        match = form.fullmatch(path)
        if match is not None:
            return route, {name: unquote(text, errors="replace") for name, text in match.groupdict().items()}, op
    return "", {}, ""


def _payload(fields: dict[str, Any]) -> bytes:
    """Remove and return a service's payload, which is base64 in one of the fields."""
    given = fields.get(_PAYLOAD)
    if not isinstance(given, str):
        return b""
    try:
        payload = b64decode(given, validate=True)
    except ValueError:
        return b""
    del fields[_PAYLOAD]
    return payload


def _failure(fields: dict[str, Any], status: int) -> Failure:
    error = fields.pop("error", None)
    text = error.get("message") if isinstance(error, dict) else None
    return Failure(text if isinstance(text, str) else f"status {status}", status)
