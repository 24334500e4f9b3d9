"""Services: ask one, whatever protocol its provider speaks.

A JSON object becomes the request's fields, and `payload` (base64) beside them its bytes; the answer has the same form.
An answer in several parts is `{"parts": […]}`. What a service says went wrong is the answer's status where its number
can be one, else 502.
"""

import base64
from typing import Any, Final

from wirelake.broker.services import TIMED_OUT, not_found
from wirelake.gateway.http.content import BASE64_SCHEMA, from_base64
from wirelake.gateway.http.errors import ApiError, failed
from wirelake.gateway.http.peer import HttpPeer
from wirelake.gateway.http.request_context import RequestContext
from wirelake.gateway.http.route import Parameter, Route
from wirelake.limits import HTTP_CALL_MS_MAX
from wirelake.message import GATEWAY_SERVICE, Failure, FailureCode, Kind, Message, Op, Operation

_PAYLOAD: Final = "payload"


async def ask(exchange: RequestContext, body: dict[str, Any]) -> dict[str, Any]:
    service, op = exchange.path("service"), exchange.path("op")
    if service == GATEWAY_SERVICE and op != Op.PING:
        raise ApiError(404, "services of the gateway itself have their own paths: see /api/openapi.json")
    timeout_ms = exchange.number("timeout_ms", int(exchange.gateway.broker.call_s * 1000))
    target = Operation(service, op, exchange.query("object"), group=exchange.query("group"))
    payload = from_base64(body.pop(_PAYLOAD), _PAYLOAD) if _PAYLOAD in body else b""
    request = Message(
        kind=Kind.REQUEST,
        source=exchange.identity,
        target=target,
        correlation=exchange.id,
        headers={"timeout_ms": timeout_ms},
        fields=body,
        payload=payload,
    )
    parts = await HttpPeer(exchange).ask(request, timeout_ms / 1000)
    group = f" in the group {target.group!r}" if target.group else ""
    own: dict[tuple[int, str], str] = {  # the gateway's own words, which are those of esnp, and what they mean
        (FailureCode.NOT_FOUND, not_found(target)): f"nobody provides the service {service!r} with {op!r}{group}",
        (FailureCode.TIMEOUT, TIMED_OUT): f"{service!r} did not answer {op!r} within {timeout_ms} ms",
    }
    values = [_values(part, own) for part in parts]
    return values[0] if len(values) == 1 else {"parts": values}


def _values(answer: Message, own: dict[tuple[int, str], str]) -> dict[str, Any]:
    failure = answer.failure
    if failure is not None:
        raise failed(Failure(own.get((failure.code, failure.text), failure.text), failure.code))
    values = dict(answer.fields)
    if answer.payload:
        values[_PAYLOAD] = base64.b64encode(answer.payload).decode()
    return values


def _describe_fields(schema: dict[str, Any]) -> dict[str, Any]:
    return {**schema, "properties": {_PAYLOAD: BASE64_SCHEMA}}


ROUTES = (
    Route(
        method="POST",
        path="/api/services/{service}/{op}",
        summary="Call a service and return its response.",
        handle=ask,
        takes=dict[str, Any],
        gives=dict[str, Any],
        recorded=True,
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
            Parameter("X-Timeout-Ms", "The same as a header.", "integer", header=True, most=HTTP_CALL_MS_MAX),
        ),
        refusals=(501, 502, 504),
        any_refusal=True,
        describe_body=_describe_fields,
        example={"meter": 7, _PAYLOAD: "AAE="},
        example_answer={"ok": True},
    ),
)
