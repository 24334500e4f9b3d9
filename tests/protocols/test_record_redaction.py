"""Stored records are redacted as the gateway redacts them now; those that it wrote stay as they are."""

from base64 import b64encode
from typing import Any

import pytest
from pipeline.ingest.inputs import captured, frame_records, log_batch

from protocols.test_redaction import MORE_LOGINS, OTHERS, SECRET, UNREADABLE
from protocols.test_secrets import LOGINS, TOKEN, resp, spellings
from wirelake.errors import UnknownProtocolError
from wirelake.protocols import registry
from wirelake.protocols.frame import Sender
from wirelake.protocols.record_redaction import RecordRedactor, redact_body
from wirelake.protocols.text import write_json


def record(protocol: str, frame: bytes, **rest: str) -> dict[str, Any]:
    return {"protocol": protocol, "frame": frame, **rest}


def request(path: str, body: Any, **rest: str) -> dict[str, Any]:
    note = write_json({"method": "POST", "path": path}).decode()
    return record("http", body if isinstance(body, bytes) else write_json(body), note=note, **rest)


def test_frames_are_blanked_as_their_protocols_say() -> None:
    logins = [*LOGINS, *MORE_LOGINS]
    batch = log_batch(*(record(name, frame) for name, frame in [*logins, *OTHERS]))
    redactor = RecordRedactor()
    found = redactor.redact(batch)
    assert found == {row: registry.get(name).redact(frame, Sender.CLIENT) for row, (name, frame) in enumerate(logins)}
    assert redactor.examined.total() == len(logins) + len(OTHERS)
    assert redactor.changed.total() == len(logins)


@pytest.mark.parametrize(("name", "data"), UNREADABLE)
def test_quarantined_bytes_are_blanked_and_then_stay(name: str, data: bytes) -> None:
    redactor = RecordRedactor()
    blanked = redactor.redact(log_batch(record(name, data, event="quarantine")))[0]
    assert blanked == registry.get(name).redact(data, Sender.CLIENT)
    assert redactor.redact(log_batch(record(name, blanked, event="quarantine"))) == {}


@pytest.mark.parametrize("name", registry.BUILT_IN)
def test_what_the_gateway_would_write_now_stays(name: str) -> None:
    protocol = registry.get(name)
    frames = [(protocol.redact(frame, sender), sender) for frame, sender in captured(name)]
    assert RecordRedactor().redact(log_batch(*frame_records(name, frames))) == {}


def test_answers_are_redacted_as_those_of_a_server() -> None:
    error = b"-ERR Syntax error in HELLO option '" + SECRET + b"'\r\n"
    redactor = RecordRedactor()
    found = redactor.redact(log_batch(record("redis", error, direction="out"), record("redis", resp(b"PING"))))
    assert list(found) == [0]
    assert SECRET not in found[0]


def test_one_protocol_can_be_chosen_and_must_exist() -> None:
    batch = log_batch(*(record(name, frame) for name, frame in LOGINS))
    redactor = RecordRedactor("comet")
    assert {LOGINS[row][0] for row in redactor.redact(batch)} == {"comet"} == set(redactor.examined)
    with pytest.raises(UnknownProtocolError, match="nonesuch"):
        RecordRedactor("nonesuch")


def test_records_of_protocols_that_are_not_installed_are_counted() -> None:
    redactor = RecordRedactor()
    batch = log_batch(record("nonesuch", SECRET), record("nonesuch", b""), record("", SECRET, event="publish"))
    assert redactor.redact(batch) == {}
    assert (redactor.unknown, redactor.examined) == ({"nonesuch": 1}, {})


HTTP = [
    request("/api/identities", {"name": "bob", "token": TOKEN}),
    request("/api/identities", {"token": TOKEN, "name": "bob"}, direction="out"),
    request("/api/devices", {"serial": "d1", "key": TOKEN}),
    request("/api/services/shop/login", {"user": "ann", "password": TOKEN, "more": {"a": [1, "b"]}}),
    request("/api/services/shop/Auth", b'{ "Token" : ["' + SECRET + b'\\"", 7], "x" : 1 }'),
    request("/api/services/redis/x", {"payload": b64encode(resp(b"AUTH", b"ann", SECRET)).decode()}),
]
HARMLESS = [
    request("/api/identities", {"name": "bob", "token": "…"}),
    request("/api/services/shop/buy", {"token": TOKEN}),
    request("/api/topics/token/notifications", {"token": TOKEN}),
    request("/api/services/redis/x", {"payload": b64encode(resp(b"PING")).decode()}),
    request("/api/identities", b'["token"]'),
    request("/api/identities", b"not JSON"),
    record("http", SECRET, note="not JSON"),
    record("http", SECRET, note="[]"),
    record("http", SECRET, note='{"path":7}'),
]


@pytest.mark.parametrize("stored", HTTP, ids=lambda stored: stored["note"])
def test_secrets_in_http_bodies_are_blanked(stored: dict[str, Any]) -> None:
    redactor = RecordRedactor("http")
    blanked = redactor.redact(log_batch(stored))[0]
    assert len(blanked) == len(stored["frame"])
    assert not [spelling for spelling in spellings(SECRET) if spelling in blanked]
    assert redact_body(stored["note"], blanked) == blanked
    kept = (b"bob", b"d1", b"ann", b'"x" : 1', b'{"a":[1,"b"]}')
    assert [word for word in kept if word in stored["frame"]] == [word for word in kept if word in blanked]


@pytest.mark.parametrize("stored", HARMLESS)
def test_other_http_bodies_stay(stored: dict[str, Any]) -> None:
    assert redact_body(stored["note"], stored["frame"]) == stored["frame"]
