"""Read who did what from records of the log: the rows of `silver.audit`.

| record | action | outcome | target |
| --- | --- | --- | --- |
| audit | as noted | as noted | as noted |
| login | login | ok | |
| refuse | login | refused | the name that was claimed |
| refuse of a device's packet | packet | refused | |
| deny | the action of the role that is missing | refused | its target |
| logout | logout | ok | |
| open of a session whose identity is known: a device, a stream of HTTP | connect | ok | |
| close of a session that had an identity | disconnect | ok | |
"""

from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import DecodeError, Struct, json

from wirelake.log.interface import AT_TYPE, SEQ_TYPE, TEXT_TYPE

# Events of the log
AUDIT: Final = "audit"
LOGIN: Final = "login"
REFUSE: Final = "refuse"
DENY: Final = "deny"
LOGOUT: Final = "logout"
OPEN: Final = "open"
CLOSE: Final = "close"
# Outcomes
OK: Final = "ok"
REFUSED: Final = "refused"
FAILED: Final = "failed"
OUTCOMES: Final = (OK, REFUSED, FAILED)

SCHEMA: Final = pa.schema(
    [
        ("seq", SEQ_TYPE),
        ("received_at", AT_TYPE),
        ("node", TEXT_TYPE),
        ("protocol", TEXT_TYPE),
        ("action", TEXT_TYPE),
        ("outcome", TEXT_TYPE),
        ("identity", TEXT_TYPE),
        ("peer", TEXT_TYPE),
        ("session", TEXT_TYPE),
        ("target", TEXT_TYPE),
        ("detail", TEXT_TYPE),
    ]
)
_LOGGED: Final = {"received_at": "at"}  # columns with another name in the log
_EVENTS: Final = pa.array([AUDIT, LOGIN, REFUSE, DENY, LOGOUT, OPEN, CLOSE])
_OF_IDENTITIES: Final = pa.array([OPEN, CLOSE])  # of interest only if the session has an identity
_ACTIONS: Final = {LOGIN: "login", LOGOUT: "logout", OPEN: "connect", CLOSE: "disconnect"}
_PACKET: Final = "packet"
_decode: Final = json.Decoder(dict[str, Any]).decode
_NOTHING: Final = pa.RecordBatch.from_pylist([], SCHEMA)


class _Action(Struct, frozen=True):
    """Hold what a note says."""

    action: str
    outcome: str
    target: str
    detail: str  # JSON, or ""


def audit_rows(batch: Any) -> Any:
    """Return the records of a batch that belong to an audit, in their order, as a batch of SCHEMA."""
    found = batch.filter(pc.is_in(batch["event"], _EVENTS))
    if found.num_rows:
        is_anonymous = pc.and_(pc.is_in(found["event"], _OF_IDENTITIES), pc.equal(found["identity"], ""))
        found = found.filter(pc.invert(is_anonymous))
    if not found.num_rows:
        return _NOTHING
    texts = zip(*(found[name].to_pylist() for name in ("event", "direction", "note")), strict=True)
    actions = [_action(event, direction, note) for event, direction, note in texts]
    columns = [
        pa.array([getattr(each, name) for each in actions], TEXT_TYPE)
        if name in _Action.__struct_fields__
        else found[_LOGGED.get(name, name)]
        for name in SCHEMA.names
    ]
    return pa.record_batch(columns, SCHEMA)


def _action(event: str, direction: str, text: str) -> _Action:
    note = _read_note(text)
    action, outcome, target = _ACTIONS.get(event, event), OK, ""
    if event == AUDIT:
        action, target, outcome = (str(note.pop(name, "")) for name in ("action", "target", "outcome"))
    elif event == DENY:
        action, target, outcome = str(note.pop("action", "")), str(note.pop("target", "")), REFUSED
    elif event == REFUSE:
        action = _PACKET if direction else _ACTIONS[LOGIN]
        target, outcome = str(note.pop("user", "")), REFUSED
    return _Action(action, outcome, target, json.encode(note).decode() if note else "")


def _read_note(text: str) -> dict[str, Any]:
    """Return what a note says; a text that is none of the gateway's notes, as it is."""
    try:
        return _decode(text) if text else {}
    except DecodeError:
        return {"note": text}
