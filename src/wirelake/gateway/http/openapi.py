"""Describe the routes as OpenAPI 3.1, and serve the description at `/api/openapi.json`."""

import re
from collections.abc import Sequence
from functools import cached_property
from importlib.metadata import version
from typing import Any, Final

import msgspec

from wirelake.gateway.http.errors import CODES, ErrorBody
from wirelake.gateway.http.request_context import RequestContext
from wirelake.gateway.http.route import Access, BoundRoute, Parameter, Route

_REFERENCE: Final = "#/components/schemas/{name}"
_IN_PATH: Final = re.compile(r"\{(\w+)\}")
_PHRASES: Final = {
    400: "Invalid request: the message says where.",
    401: "Missing or invalid token.",
    403: "Not allowed for this identity.",
    404: "Not found.",
    409: "Conflict: it exists already, or not yet.",
    413: "The body exceeds its limit.",
    429: "Too many requests: try again later.",
    431: "The request line and headers exceed their limit.",
    500: "Internal error: see the log of the gateway.",
    501: "Not encodable in the provider's protocol.",
    502: "The provider failed or disconnected.",
    503: "Unavailable: try again later.",
    504: "No response in time.",
    507: "A storage limit is reached.",
}


def describe(routes: Sequence[Route]) -> dict[str, Any]:
    types = [kind for route in routes for kind in (route.takes, route.gives) if kind is not None]
    schemas, components = msgspec.json.schema_components([*types, ErrorBody], ref_template=_REFERENCE)
    by_type = {repr(kind): schema for kind, schema in zip([*types, ErrorBody], schemas, strict=True)}
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route, by_type, components)
    used = msgspec.json.encode([paths, components]).decode()
    components = {name: schema for name, schema in components.items() if _REFERENCE.format(name=name) + '"' in used}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Wirelake",
            "version": version("wirelake"),
            "description": "Publish, subscribe, call services and inspect the gateway. Success means: on disk.",
        },
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {
                "bearer": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "The admin token, NAME:TOKEN of an identity, or its token alone.",
                }
            },
        },
    }


class OpenApiRoutes:
    """Serve the description of all routes, this one included."""

    def __init__(self, described: Sequence[Route]) -> None:
        self._described = described

    def routes(self) -> tuple[BoundRoute, ...]:
        return (SHOW.bind(self.show),)

    async def show(self, _context: RequestContext, _body: None) -> dict[str, Any]:
        return self._description

    @cached_property
    def _description(self) -> dict[str, Any]:
        return describe(self._described)


SHOW: Final = Route(
    method="GET",
    path="/api/openapi.json",
    operation_id="openapi.show",
    summary="Get this description.",
    access=Access.ANYBODY,
    gives=dict[str, Any],
    example_answer={"openapi": "3.1.0"},
)
ROUTES: Final = (SHOW,)


def _operation(route: Route, schemas: dict[str, Any], components: dict[str, Any]) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "summary": route.summary,
        "operationId": route.operation_id,
        "tags": [route.path.split("/")[2] if route.path.startswith("/api/") else "gateway"],
        "parameters": [_parameter(route, parameter) for parameter in route.parameters],
        "responses": _responses(route, schemas),
    }
    if route.takes is not None:
        schema = schemas[repr(route.takes)]
        if route.describe_body is not None:
            schema = route.describe_body(components.get(schema.get("$ref", "").rpartition("/")[2], schema))
        content = {"schema": schema, "example": route.example}
        operation["requestBody"] = {"required": _needs_body(route), "content": {"application/json": content}}
    if route.access is not Access.ANYBODY:
        operation["security"] = [{"bearer": []}]
    if route.access is Access.SCRAPER:
        operation["security"].append({})  # or no token, if the setting http.metrics allows that
    return operation


def _needs_body(route: Route) -> bool:
    """Return whether a body is required: an empty one counts as `{}`, which is enough for some routes."""
    try:
        msgspec.convert({}, route.takes)
    except msgspec.ValidationError:
        return True
    return False


def _parameter(route: Route, parameter: Parameter) -> dict[str, Any]:
    in_path = parameter.name in _IN_PATH.findall(route.path)
    return {
        "name": parameter.name,
        "in": "path" if in_path else "header" if parameter.is_header else "query",
        "required": in_path or parameter.is_required,
        "description": parameter.text,
        "schema": parameter.schema(),
    }


def _responses(route: Route, schemas: dict[str, Any]) -> dict[str, Any]:
    good: dict[str, Any] = {"description": "Done."}
    if route.gives is not None:
        content = {"schema": schemas[repr(route.gives)], "example": route.example_answer}
        if route.is_stream:
            content = _events(content)
        good = {"description": "Success.", "content": {route.media_type: content}}
    refusals = {400, 431, 500, *route.refusals}
    if route.access is not Access.ANYBODY:
        refusals |= {401, 403, 429, 503}
    if _IN_PATH.search(route.path):
        refusals |= {404}
    if route.takes is not None:
        refusals |= {413}
    error = {"application/json": {"schema": schemas[repr(ErrorBody)]}}
    refused = {str(status): {"description": _PHRASES[status], "content": error} for status in sorted(refusals)}
    if route.has_other_refusals:
        refused["default"] = {"description": "Another error, with the code given by the service.", "content": error}
    return {str(route.status): good, **refused}


def _events(content: dict[str, Any]) -> dict[str, Any]:
    """Describe server-sent events: each has an object of this schema as its data; the last one says why it ends."""
    data = {"type": "string", "contentMediaType": "application/json"}
    notification = {"id": {"type": "string"}, "data": {**data, "contentSchema": content["schema"]}}
    reason = {"type": "object", "properties": {"code": {"type": "string"}, "message": {"type": "string"}}}
    end = {"event": {"enum": ["end"]}, "data": {**data, "contentSchema": {**reason, "required": ["code", "message"]}}}
    choices = [
        {"type": "object", "properties": notification, "required": ["data"], "additionalProperties": False},
        {"type": "object", "properties": end, "required": ["event", "data"], "additionalProperties": False},
    ]
    example = {"id": content["example"]["id"], "data": msgspec.json.encode(content["example"]).decode()}
    return {"schema": {"anyOf": choices}, "example": example}


assert _PHRASES.keys() <= CODES.keys()  # noqa: S101 (every described status has a code)
