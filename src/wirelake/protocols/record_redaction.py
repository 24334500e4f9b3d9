"""Redact records that are stored already: of the log, or of a table with its columns.

The gateway blanks secrets before it writes a frame. Earlier versions did not, and the `redact` of a protocol may
recognise more than it did when a record was written. Records that are redacted already stay as they are.
"""

from base64 import b64encode
from collections import Counter
from collections.abc import Sequence
from typing import Any, Final
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from wirelake.errors import InputError, ProtocolError
from wirelake.protocols import registry
from wirelake.protocols.frame import Sender
from wirelake.protocols.protocol import Protocol
from wirelake.protocols.redaction import LOGIN_OPS, SECRET_FIELDS, blank_fields, redact_payload
from wirelake.protocols.text import from_base64, read_json

HTTP: Final = "http"  # has records, but no codec
_WHOLE: Final = pa.array(["frame", "fault"])  # events whose bytes are a frame; others have what could not be split
_SERVICES: Final = "/api/services/"
_SECRETS_BELOW: Final = {"/api/identities": frozenset({"token"}), "/api/devices": frozenset({"key"})}


class RecordRedactor:
    """Redact records, of one protocol or of all, and count them by protocol."""

    def __init__(self, protocol: str = "") -> None:
        """Raise InputError if there is no protocol of this name."""
        self._only = protocol if protocol in ("", HTTP) else registry.get(protocol).name
        self.examined: Counter[str] = Counter()  # records with bytes
        self.changed: Counter[str] = Counter()
        self.unknown: Counter[str] = Counter()  # of protocols that are not installed

    def redact(self, records: Any) -> dict[int, bytes]:
        """Return the frames to be changed, by row; each is as long as before."""
        found: dict[int, bytes] = {}
        has_bytes = pc.fill_null(pc.greater(pc.binary_length(records.column("frame")), 0), fill_value=False)
        names = pc.unique(records.column("protocol").filter(has_bytes)).to_pylist()
        for name in filter(None, names):
            is_own = pc.and_(has_bytes, pc.fill_null(pc.equal(records.column("protocol"), name), fill_value=False))
            if name == HTTP:
                if self._only in ("", HTTP):
                    found |= self._redact_http(records, _indices(is_own))
                continue
            try:
                protocol = registry.get(name)
            except InputError:
                self.unknown[name] += int(pc.sum(is_own).as_py())
                continue
            if self._only in ("", protocol.name):
                found |= self._redact_frames(protocol, records, is_own)
        return found

    def _redact_frames(self, protocol: Protocol, records: Any, is_own: Any) -> dict[int, bytes]:
        found: dict[int, bytes] = {}
        is_out = pc.fill_null(pc.equal(records.column("direction"), "out"), fill_value=False)
        is_whole = pc.is_in(records.column("event"), value_set=_WHOLE)
        for whole in (True, False):
            for sender, out in ((Sender.CLIENT, False), (Sender.SERVER, True)):
                same = pc.and_(pc.equal(is_whole, whole), pc.equal(is_out, out))
                rows = _indices(pc.and_(is_own, same))
                frames = _take(records, "frame", rows)
                self.examined[protocol.name] += len(rows)
                redacted: Sequence[bytes] = (
                    protocol.redact_all(frames, sender) if whole else [protocol.redact(each, sender) for each in frames]
                )
                found |= self._differing(protocol.name, rows, frames, redacted)
        return found

    def _redact_http(self, records: Any, rows: Any) -> dict[int, bytes]:
        bodies, notes = _take(records, "frame", rows), _take(records, "note", rows)
        self.examined[HTTP] += len(rows)
        return self._differing(HTTP, rows, bodies, list(map(redact_body, notes, bodies)))

    def _differing(self, protocol: str, rows: Any, before: Sequence[bytes], after: Sequence[bytes]) -> dict[int, bytes]:
        found = {
            row: new if len(new) == len(old) else bytes(len(old))
            for row, old, new in zip(rows.tolist(), before, after, strict=True)
            if new is not old and new != old
        }
        self.changed[protocol] += len(found)
        return found


def redact_body(note: str, body: bytes) -> bytes:
    """Blank the secrets in the body of a recorded HTTP request or response, which its note describes."""
    try:
        path = read_json(note.encode())["path"]
        if path.startswith(_SERVICES):
            return _redact_call(path, body)
        secrets = next((names for below, names in _SECRETS_BELOW.items() if path.startswith(below)), frozenset[str]())
        return blank_fields(body, secrets) if secrets else body
    except (ProtocolError, KeyError, TypeError, AttributeError):  # not a note of ours, or not JSON
        return body


def _redact_call(path: str, body: bytes) -> bytes:
    service, _, op = (unquote(part, errors="replace") for part in path.removeprefix(_SERVICES).rpartition("/"))
    if op.lower() in LOGIN_OPS:
        body = blank_fields(body, SECRET_FIELDS)
    values = read_json(body)
    payload = from_base64(values.get("payload")) if isinstance(values, dict) else None
    if payload is None or (found := redact_payload(service, payload)) is payload:
        return body
    return body.replace(values["payload"].encode(), b64encode(found))


def _indices(which: Any) -> Any:
    return np.flatnonzero(which.to_numpy(zero_copy_only=False) if isinstance(which, pa.Array) else which.to_numpy())


def _take(records: Any, column: str, rows: Any) -> list[Any]:
    return records.column(column).take(pa.array(rows)).to_pylist()  # type: ignore[no-any-return]
