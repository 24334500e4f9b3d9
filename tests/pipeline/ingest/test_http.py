"""Test the records of the HTTP listener as messages."""

from typing import Any

import pytest

from pipeline.ingest.inputs import log_batch
from wirelake.gateway.http.assembly import ROUTES
from wirelake.pipeline.ingest.decode import decode_batch
from wirelake.pipeline.ingest.http import match_path
from wirelake.protocols.text import write_json


def record(direction: str, method: str, path: str, body: bytes, **note: Any) -> dict[str, Any]:
    text = write_json({"method": method, "path": path, **note}).decode()
    return {"protocol": "http", "direction": direction, "frame": body, "note": text, "session": "x7"}


def row_of(*records: dict[str, Any]) -> dict[str, Any]:
    (row,) = decode_batch(log_batch(*records)).messages.to_pylist()
    names = ("kind", "name", "topic", "service", "op", "correlation", "status", "fields", "payload", "decoder")
    return {name: row[name] for name in names}


def test_publishing() -> None:
    path = "/api/topics/%40news%2Fsport/notifications"
    assert row_of(record("in", "POST", path, b'{"content":"hi"}')) == {
        "kind": "request",
        "name": "POST /api/topics/{topic}/notifications",
        "topic": "@news/sport",
        "service": "wirelake",
        "op": "publish",
        "correlation": "x7",
        "status": None,
        "fields": '{"content":"hi"}',
        "payload": b"",
        "decoder": "http/1",
    }
    answer = row_of(record("out", "POST", path, b'{"id":"7"}', status=201))
    assert (answer["kind"], answer["status"], answer["fields"]) == ("response", "ok", '{"id":"7"}')
    assert (answer["topic"], answer["correlation"]) == ("@news/sport", "x7")


def test_asking_a_service() -> None:
    request = row_of(record("in", "POST", "/api/services/magline%2F17/call", b'{"meter":7,"payload":"AAE="}'))
    assert (request["service"], request["op"], request["fields"], request["payload"]) == (
        "magline/17",
        "call",
        '{"meter":7}',
        b"\x00\x01",
    )
    odd = row_of(record("in", "POST", "/api/services/a/b", b'{"payload":"no base64!"}'))
    assert (odd["fields"], odd["payload"]) == ('{"payload":"no base64!"}', b"")


def test_a_failure() -> None:
    body = b'{"error":{"code":"not_found","message":"there is no device"}}'
    row = row_of(record("out", "POST", "/api/devices/1234/commands", body, status=404))
    assert (row["op"], row["status"], row["fields"]) == ("command", "there is no device", '{"code":404}')
    bare = row_of(record("out", "DELETE", "/api/devices/1234", b"", status=503))
    assert (bare["name"], bare["status"]) == ("DELETE /api/devices/{serial}", "status 503")


@pytest.mark.parametrize("route", [route for route in ROUTES if route.is_recorded], ids=lambda route: route.path)
def test_every_recorded_route_has_a_name(route: Any) -> None:
    """Check that there are few names, whatever the path contains: gold.traffic_minute counts by them."""
    path, _, op = match_path(route.path.replace("{", "%7B").replace("}", "%7D"))
    assert path.replace("{name}", "{}").replace("{id}", "{}").count("{") == route.path.count("{")
    assert path.split("{")[0] == route.path.split("{")[0]
    assert op or "{op}" in route.path


def test_an_unknown_path_and_a_body_that_is_no_object() -> None:
    row = row_of(record("in", "PUT", "/elsewhere", b"[1]"))
    assert (row["name"], row["op"], row["fields"]) == ("PUT", None, '{"body":[1]}')


def test_what_cannot_be_read() -> None:
    bad = {**record("in", "PUT", "/", b"{}"), "note": "x"}
    rows = decode_batch(log_batch(record("in", "PUT", "/", b"{"), bad)).quarantine.to_pylist()
    assert [(row["reason"], row["decoder"]) for row in rows] == [("bad_json", "http/1"), ("bad_note", "http/1")]
