"""Requests by HTTP, as the gateway records them: method, path and status in the note, JSON in the frame.

A request's id is its session, so request and answer pair up by it.
"""

import re
from base64 import b64decode
from typing import Any, Final
from urllib.parse import unquote

import msgspec
import numpy as np

from wirelake.errors import ProtocolError
from wirelake.message import GATEWAY_SERVICE, Failure, Kind, Message, Operation
from wirelake.pipeline.decode.decoded import Fault, Part
from wirelake.pipeline.decode.rows import Row, batch_of, row_of
from wirelake.protocols.jsontext import read_json

NAME: Final = "http"
DECODER_VERSION: Final = 1
_DEVICES: Final = "devices"
_PAYLOAD: Final = "payload"
# Longer paths first: names may hold slashes, as the gateway's own routes allow.
_PATHS: Final = (
    ("/api/topics/{topic}/notifications", re.compile(r"/api/topics/(?P<topic>.+)/notifications"), "publish"),
    ("/api/services/{service}/{op}", re.compile(r"/api/services/(?P<service>.+)/(?P<op>.+)"), ""),
    ("/api/devices/*/commands", re.compile(r"/api/devices/(?:\*|%2A)/commands"), "command"),
    ("/api/devices/{serial}/commands", re.compile(r"/api/devices/(?P<serial>.+)/commands"), "command"),
    ("/api/subscribe", re.compile(r"/api/subscribe"), "subscribe"),
    ("/api/acks", re.compile(r"/api/acks"), "ack"),
    ("/api/devices/{serial}", re.compile(r"/api/devices/(?P<serial>.+)"), _DEVICES),
    ("/api/devices", re.compile(r"/api/devices"), _DEVICES),
    ("/api/identities/{name}", re.compile(r"/api/identities/(?P<named>.+)"), "identities"),
    ("/api/identities", re.compile(r"/api/identities"), "identities"),
    ("/api/sessions/{id}", re.compile(r"/api/sessions/(?P<named>.+)"), "sessions"),
)


class Note(msgspec.Struct, frozen=True):
    method: str = ""
    path: str = ""
    status: int = 0


_note_decoder: Final = msgspec.json.Decoder(Note)


def decode_records(frames: Any, notes: Any, sessions: Any, from_server: Any) -> Part:
    """Bodies that are not JSON are bad; a note that is not ours leaves its columns empty."""
    rows: list[Row] = []
    good: list[int] = []
    faults: list[Fault] = []
    columns = (frames.to_pylist(), notes.to_pylist(), sessions.to_pylist(), from_server.tolist())
    for place, (frame, note, session, is_answer) in enumerate(zip(*columns, strict=True)):
        try:
            rows.append(_row(frame or b"", note or "", session or "", is_answer))
        except ProtocolError as error:
            faults.append(Fault(place, error.code, error.text, error.offset))
            continue
        good.append(place)
    return Part(np.array(good, np.int64), batch_of(rows), faults)


def _row(frame: bytes, text: str, session: str, is_answer: bool) -> Row:
    try:
        note = _note_decoder.decode(text)
    except msgspec.DecodeError as error:
        raise ProtocolError("bad_note", f"the note is not that of a request: {error}", 0) from error
    body = read_json(frame) if frame else {}
    fields: dict[str, Any] = dict(body) if isinstance(body, dict) else {"body": body}
    path, found, op = looked_up(note.path)
    payload = _payload(fields) if "service" in found else b""
    failure = _failure(fields, note.status) if is_answer and note.status >= 400 else None
    message = Message(
        kind=Kind.RESPONSE if is_answer else Kind.REQUEST,
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


def looked_up(path: str) -> tuple[str, dict[str, str], str]:
    """The route, the names in the path, and what it asks of the gateway."""
    for route, form, op in _PATHS:
        match = form.fullmatch(path)
        if match is not None:
            return route, {name: unquote(text, errors="replace") for name, text in match.groupdict().items()}, op
    return "", {}, ""


def _payload(fields: dict[str, Any]) -> bytes:
    """A service's bytes stand beside its fields as base64; moved out where that is what they are."""
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
