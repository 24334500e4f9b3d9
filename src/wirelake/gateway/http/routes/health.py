"""Report liveness and readiness."""

from typing import TYPE_CHECKING, Literal

from msgspec import Struct
from starlette.responses import Response

from wirelake.gateway.http.errors import AGAIN, ErrorBody, ErrorDetail
from wirelake.gateway.http.request_context import RequestContext
from wirelake.gateway.http.route import Access, Route
from wirelake.protocols.jsontext import write_json

if TYPE_CHECKING:
    from wirelake.gateway.gateway import Gateway


class Alive(Struct):
    status: Literal["ok"]


class Ready(Struct):
    status: Literal["ready"]
    doors: dict[str, str]  # where each listens


class NotReady(ErrorBody):
    reasons: list[str]


async def alive(_: RequestContext, __: None) -> Alive:
    return Alive("ok")


async def ready(exchange: RequestContext, _: None) -> Ready | Response:
    reasons = reasons_against(exchange.gateway)
    if reasons:
        body = NotReady(ErrorDetail("not_ready", "; ".join(reasons)), reasons)
        return Response(write_json(body), 503, AGAIN, "application/json")
    return Ready("ready", {name: str(listener.address) for name, listener in exchange.gateway.listeners.items()})


def reasons_against(gateway: "Gateway") -> list[str]:
    """Return the reasons why the gateway is not ready."""
    reasons = [gateway.ready] if gateway.ready else []
    if gateway.log_behind:
        reasons.append("the log is behind")
    trouble = gateway.state.error
    if trouble is not None:
        reasons.append(str(trouble))
    reasons += [
        f"the {name} listener is closed" for name, listener in gateway.listeners.items() if not listener.is_open
    ]
    return reasons


ROUTES = (
    Route(
        method="GET",
        path="/healthz",
        summary="Report whether the process is alive.",
        handle=alive,
        access=Access.ANYBODY,
        gives=Alive,
        example_answer={"status": "ok"},
    ),
    Route(
        method="GET",
        path="/readyz",
        summary="Report whether the log is writable and the state and listeners are open; if not, 503 with reasons.",
        handle=ready,
        access=Access.ANYBODY,
        gives=Ready,
        refusals=(503,),
        example_answer={"status": "ready", "doors": {"http": "127.0.0.1:7080"}},
    ),
)
