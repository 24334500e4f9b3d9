"""Services: ask one, whatever protocol its provider speaks.

A JSON object becomes the request's fields, and `payload` (base64) beside them its bytes; the answer has the same form.
An answer in several parts is `{"parts": […]}`. What a service says went wrong is the answer's status where its number
can be one, else 502.
"""

import base64
from typing import Any, Final

from wirelake.broker.services import TIMED_OUT, not_found
from wirelake.gateway.http.content import from_base64
from wirelake.gateway.http.errors import ApiError, failed
from wirelake.gateway.http.exchange import Exchange
from wirelake.gateway.http.peer import HttpPeer
from wirelake.gateway.http.route import Parameter, Route
from wirelake.limits import HTTP_CALL_MS_MAX
from wirelake.message import GATEWAY_SERVICE, Failure, FailureCode, Kind, Message, Op, Operation

_PAYLOAD: Final = "payload"
_TIMEOUT_HEADER: Final = "x-timeout-ms"


async def ask(exchange: Exchange, body: dict[str, Any]) -> dict[str, Any]:
    service, op = exchange.path("service"), exchange.path("op")
    if service == GATEWAY_SERVICE and op != Op.PING:
        raise ApiError(404, "what the gateway itself does has paths of its own here: see /api/openapi.json")
    asked = exchange.query("timeout_ms") or exchange.header(_TIMEOUT_HEADER)
    timeout_ms = exchange.number("timeout_ms", asked, int(exchange.gateway.broker.call_s * 1000), HTTP_CALL_MS_MAX)
    payload = from_base64(body.pop(_PAYLOAD), _PAYLOAD) if _PAYLOAD in body else b""
    request = Message(
        kind=Kind.REQUEST,
        source=exchange.identity,
        target=Operation(service, op, exchange.query("object")),
        correlation=exchange.id,
        headers={"timeout_ms": timeout_ms},
        fields=body,
        payload=payload,
    )
    parts = await HttpPeer(exchange).ask(request, timeout_ms / 1000)
    own: dict[tuple[int, str], str] = {  # the gateway's own words, which are those of esnp, and what they mean
        (
            FailureCode.NOT_FOUND,
            not_found(Operation(service, op)),
        ): f"nobody provides the service {service!r} with {op!r}",
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


ROUTES = (
    Route(
        method="POST",
        path="/api/services/{service}/{op}",
        summary="Ask a service, and answer with what it says.",
        handle=ask,
        takes=dict[str, Any],
        gives=dict[str, Any],
        recorded=True,
        parameters=(
            Parameter("service", "As its provider registered it."),
            Parameter("op", "What is asked of it."),
            Parameter("object", "What it is about, where the service wants that."),
            Parameter("timeout_ms", "For the answer; the setting broker.call_s if not given.", "integer"),
            Parameter("X-Timeout-Ms", "The same, as a header.", "integer", header=True),
        ),
        refusals=(404, 501, 502, 504),
        example={"meter": 7, _PAYLOAD: "AAE="},
        example_answer={"ok": True},
    ),
)
