import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gateway.http.calling import calling
from wirelake.gateway.http.assembly import ROUTES
from wirelake.gateway.http.errors import CODES
from wirelake.gateway.http.openapi import describe
from wirelake.gateway.http.route import Route

DESCRIPTION = describe(ROUTES)
NAMES = [f"{route.method} {route.path}" for route in ROUTES]

# The contract: these stay.
CONTRACT = {
    "GET /healthz",
    "GET /readyz",
    "GET /metrics",
    "GET /api/openapi.json",
    "POST /api/topics/{topic}/notifications",
    "GET /api/topics",
    "GET /api/sessions",
    "DELETE /api/sessions/{id}",
    "POST /api/identities",
    "GET /api/identities",
    "DELETE /api/identities/{name}",
    "POST /api/devices",
    "GET /api/devices",
    "DELETE /api/devices/{serial}",
    "POST /api/devices/{serial}/commands",
    "POST /api/services/{service}/{op}",
    "POST /api/decode",
    "GET /api/messages/{id}",
    "GET /api/ledger",
}


async def test_what_is_served_is_described_and_what_is_described_is_served(tmp_path: Path) -> None:
    async with calling(tmp_path) as caller:
        response = await caller.call("GET", "/api/openapi.json", bearer=None)
        assert response.json() == msgspec.json.decode(msgspec.json.encode(DESCRIPTION))
        for path, operations in response.json()["paths"].items():
            filled = re.sub(r"\{\w+\}", "x", path)
            refused = await caller.call("PATCH", filled)
            assert refused.status_code == 405, f"{path} is not served"
            served = {method.lower() for method in refused.headers["allow"].split(", ")} - {"head"}
            assert served == operations.keys()
    described = {f"{method.upper()} {path}" for path, found in DESCRIPTION["paths"].items() for method in found}
    assert described == set(NAMES)
    assert len(NAMES) == len(set(NAMES))
    assert described >= CONTRACT


@pytest.mark.parametrize("route", ROUTES, ids=NAMES)
def test_examples_are_what_the_schemas_say(route: Route) -> None:
    if route.takes is not None:
        msgspec.convert(route.example, route.takes)
    if route.gives is not None:
        msgspec.convert(route.example_answer, route.gives)
    operation = DESCRIPTION["paths"][route.path][route.method.lower()]
    assert route.summary.endswith(".")
    for body in [operation.get("requestBody"), operation["responses"][str(route.status)]]:
        for content in (body or {}).get("content", {}).values():
            check(content["example"], content["schema"])


@pytest.mark.parametrize("route", ROUTES, ids=NAMES)
def test_parameters_and_refusals_are_described(route: Route) -> None:
    operation = DESCRIPTION["paths"][route.path][route.method.lower()]
    in_path = {parameter["name"] for parameter in operation["parameters"] if parameter["in"] == "path"}
    assert in_path == set(re.findall(r"\{(\w+)\}", route.path))
    statuses = [int(status) for status in operation["responses"] if status != "default"]
    assert ("default" in operation["responses"]) == route.has_other_refusals
    assert all(status in CODES for status in statuses if status >= 400)
    assert ("security" in operation) == (401 in statuses)
    assert {400, 431, 500} <= set(statuses)
    assert (404 in statuses) >= bool(in_path)
    assert (413 in statuses) == (route.takes is not None)


def test_bounds_are_described() -> None:
    found = {}
    for route in ROUTES:
        for parameter in DESCRIPTION["paths"][route.path][route.method.lower()]["parameters"]:
            schema = parameter["schema"]
            if schema["type"] == "integer" and parameter["in"] != "path":
                found[route.path, parameter["name"]] = (schema["minimum"], schema["maximum"])
    assert found == {
        ("/api/topics", "limit"): (1, 10_000),
        ("/api/sessions", "limit"): (1, 10_000),
        ("/api/identities", "limit"): (1, 10_000),
        ("/api/devices", "limit"): (1, 10_000),
        ("/api/audit", "limit"): (1, 1000),
        ("/api/audit", "before"): (1, 2**53),
        ("/api/audit", "since"): (1, 2**45),
        ("/api/audit", "until"): (1, 2**45),
        ("/api/log", "limit"): (1, 1000),
        ("/api/log", "before"): (1, 2**53),
        ("/api/subscribe", "for_ms"): (1, 86_400_000),
        ("/api/services/{service}/{op}", "timeout_ms"): (1, 300_000),
        ("/api/services/{service}/{op}", "X-Timeout-Ms"): (1, 300_000),
    }


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("limit=0", "limit must be an integer from 1 to 10000, not '0'"),
        ("limit=10001", "limit must be an integer from 1 to 10000, not '10001'"),
        ("limit=", "limit must be an integer from 1 to 10000, not ''"),
        ("limit=1.0", "limit must be an integer from 1 to 10000, not '1.0'"),
        ("limit=1&limit=2", "limit is given 2 times"),
        ("after=1&after=2", "after is given 2 times"),
    ],
)
async def test_bounds_are_kept(tmp_path: Path, query: str, message: str) -> None:
    async with calling(tmp_path) as caller:
        assert await caller.refused(400, "bad_request", "GET", f"/api/devices?{query}") == message
        for limit in (1, 10_000):
            assert (await caller.call("GET", f"/api/devices?limit={limit}")).status_code == 200


def test_operations_have_names_of_their_own() -> None:
    ids = [operation["operationId"] for found in DESCRIPTION["paths"].values() for operation in found.values()]
    assert len(ids) == len(set(ids))


def test_every_reference_leads_somewhere() -> None:
    references = set(re.findall(r'"#/components/schemas/([^"]+)"', msgspec.json.encode(DESCRIPTION).decode()))
    assert references == DESCRIPTION["components"]["schemas"].keys()


def check(value: Any, schema: dict[str, Any]) -> None:
    """Validate a value by the parts of JSON Schema that the description uses."""
    if "$ref" in schema:
        check(value, DESCRIPTION["components"]["schemas"][schema["$ref"].rpartition("/")[2]])
        return
    if "anyOf" in schema:
        assert any(fits(value, each) for each in schema["anyOf"]), (value, schema)
        return
    if "enum" in schema:
        assert value in schema["enum"]
        return
    kinds: dict[str, Any] = {"object": dict, "array": list, "string": str, "integer": int, "boolean": bool}
    kinds |= {"null": type(None), "number": (int, float)}
    if "type" in schema:
        assert isinstance(value, kinds[schema["type"]]), (value, schema)
    if isinstance(value, dict):
        named = schema.get("properties", {})
        assert set(schema.get("required", [])) <= value.keys()
        for name, item in value.items():
            other = schema.get("additionalProperties", {})
            assert name in named or other is not False, f"{name} is not described"
            check(item, named.get(name, other if isinstance(other, dict) else {}))
    if isinstance(value, list):
        for item in value:
            check(item, schema.get("items", {}))


def fits(value: Any, schema: dict[str, Any]) -> bool:
    try:
        check(value, schema)
    except AssertionError:
        return False
    return True
