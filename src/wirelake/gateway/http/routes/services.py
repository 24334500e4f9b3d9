"""Call services, whatever protocol their provider speaks.

A JSON object becomes the request's fields, and `payload` (base64) in it the request's payload; the response has the
same form. A response in several parts is `{"parts": […]}`. The code of a service's error becomes the status if it is a
valid one, else the status is 502.
"""

import base64
from typing import Any, Final

from wirelake.broker.services import TIMED_OUT, not_found
from wirelake.gateway.http.bodies import BASE64_SCHEMA, from_base64
from wirelake.gateway.http.errors import ApiError, service_error
from wirelake.gateway.http.peer import BrokerClient
from wirelake.gateway.http.request_context import RequestContext
from wirelake.gateway.http.route import BoundRoute, Parameter, Route
from wirelake.limits import HTTP_CALL_MS_MAX
from wirelake.message import GATEWAY_SERVICE, Failure, FailureCode, Kind, Message, Op, Operation
from wirelake.protocols.redaction import BLANK_TEXT, LOGIN_OPS, SECRET_FIELDS, redact_payload, takes_frames
from wirelake.protocols.text import from_base64 as base64_value
from wirelake.protocols.text import read_json, write_json

_PAYLOAD: Final = "payload"


class ServiceRoutes:
    def __init__(self, client: BrokerClient) -> None:
        self._client = client

    def routes(self) -> tuple[BoundRoute, ...]:
        return (CALL.bind(self.call),)

    async def call(self, context: RequestContext, body: dict[str, Any]) -> dict[str, Any]:
        service, op = context.path("service"), context.path("op")
        if service == GATEWAY_SERVICE and op != Op.PING:
            raise ApiError(404, "services of the gateway itself have their own paths: see /api/openapi.json")
        timeout_ms = context.number("timeout_ms", int(self._client.broker.call_s * 1000))
        target = Operation(service, op, context.query("object"), group=context.query("group"))
        payload = from_base64(body.pop(_PAYLOAD), _PAYLOAD) if _PAYLOAD in body else b""
        request = Message(
            kind=Kind.REQUEST,
            source=context.identity,
            target=target,
            correlation=context.id,
            headers={"timeout_ms": timeout_ms},
            fields=body,
            payload=payload,
        )
        parts = await self._client.request(context, request, timeout_ms / 1000)
        group = f" in the group {target.group!r}" if target.group else ""
        texts: dict[tuple[int, str], str] = {  # the gateway's own failures, whose texts are those of a wire protocol
            (FailureCode.NOT_FOUND, not_found(target)): f"nobody provides the service {service!r} with {op!r}{group}",
            (FailureCode.TIMEOUT, TIMED_OUT): f"{service!r} did not answer {op!r} within {timeout_ms} ms",
        }
        values = [_values(part, texts) for part in parts]
        return values[0] if len(values) == 1 else {"parts": values}


def redact_request(context: RequestContext, data: bytes) -> bytes:
    """Blank the secrets of a login to a service, in its fields or in its payload."""
    service, is_login = context.path("service"), context.path("op").lower() in LOGIN_OPS
    if not data or not (is_login or takes_frames(service)):
        return data
    body = read_json(data)
    if is_login:
        body = {name: BLANK_TEXT if name.lower() in SECRET_FIELDS else value for name, value in body.items()}
    payload = base64_value(body.get(_PAYLOAD))
    if payload is not None:
        body[_PAYLOAD] = base64.b64encode(redact_payload(service, payload)).decode()
    return write_json(body)


def _values(response: Message, texts: dict[tuple[int, str], str]) -> dict[str, Any]:
    failure = response.failure
    if failure is not None:
        raise service_error(Failure(texts.get((failure.code, failure.text), failure.text), failure.code))
    values = dict(response.fields)
    if response.payload:
        values[_PAYLOAD] = base64.b64encode(response.payload).decode()
    return values


def _describe_fields(schema: dict[str, Any]) -> dict[str, Any]:
    return {**schema, "properties": {_PAYLOAD: BASE64_SCHEMA}}


CALL: Final = Route(
    method="POST",
    path="/api/services/{service}/{op}",
    operation_id="services.ask",
    summary="Call a service and return its response.",
    takes=dict[str, Any],
    gives=dict[str, Any],
    is_recorded=True,
    redact_request=redact_request,
    parameters=(
        Parameter("service", "Name of the service."),
        Parameter("op", "Operation."),
        Parameter("object", "Object of the request, if the service needs one."),
        Parameter("group", "Group of providers to choose from."),
        Parameter(
            "timeout_ms",
            "Timeout; default: the setting broker.call_s.",
            "integer",
            most=HTTP_CALL_MS_MAX,
        ),
        Parameter("X-Timeout-Ms", "The same as a header.", "integer", is_header=True, most=HTTP_CALL_MS_MAX),
    ),
    refusals=(501, 502, 504),
    has_other_refusals=True,
    describe_body=_describe_fields,
    example={"meter": 7, _PAYLOAD: "AAE="},
    example_answer={"ok": True},
)

ROUTES: Final = (CALL,)
