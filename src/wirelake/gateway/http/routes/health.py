"""Report liveness and readiness."""

from collections.abc import Callable, Mapping
from typing import Final, Literal, Protocol

from msgspec import Struct
from starlette.responses import Response

from wirelake.address import Address
from wirelake.gateway.http.errors import AGAIN, ErrorBody, ErrorDetail
from wirelake.gateway.http.request_context import RequestContext
from wirelake.gateway.http.route import Access, BoundRoute, Route
from wirelake.protocols.text import write_json
from wirelake.state.store import StateStore


class Alive(Struct):
    status: Literal["ok"]


class Ready(Struct):
    """`listeners` has the address of each listener. `doors` is its earlier name, for one release."""

    status: Literal["ready"]
    listeners: dict[str, str]
    doors: dict[str, str]


class NotReady(ErrorBody):
    reasons: list[str]


class Listening(Protocol):
    """A listener of any protocol."""

    @property
    def address(self) -> Address: ...

    @property
    def is_open(self) -> bool: ...


class GatewayStatus(Struct, frozen=True):
    """What changes while the gateway runs is a callable."""

    started_ms: int
    is_stopping: Callable[[], bool]
    refusal: Callable[[], str]  # why the gateway accepts no work, or ""
    is_log_behind: Callable[[], bool]
    listeners: Mapping[str, Listening]

    def addresses(self) -> dict[str, str]:
        """Return the address of each listener."""
        return {name: str(listener.address) for name, listener in self.listeners.items()}


class HealthRoutes:
    def __init__(self, status: GatewayStatus, state: StateStore) -> None:
        self._status = status
        self._state = state

    def routes(self) -> tuple[BoundRoute, ...]:
        return (ALIVE.bind(self.alive), READY.bind(self.ready))

    async def alive(self, _context: RequestContext, _body: None) -> Alive:
        return Alive("ok")

    async def ready(self, _context: RequestContext, _body: None) -> Ready | Response:
        reasons = self._reasons()
        if reasons:
            body = NotReady(ErrorDetail("not_ready", "; ".join(reasons)), reasons)
            return Response(write_json(body), 503, AGAIN, "application/json")
        addresses = self._status.addresses()
        return Ready("ready", addresses, addresses)

    def _reasons(self) -> list[str]:
        """Return the reasons why the gateway is not ready."""
        status = self._status
        reasons = [refusal] if (refusal := status.refusal()) else []
        if status.is_log_behind():
            reasons.append("the log is behind")
        state_error = self._state.error
        if state_error is not None:
            reasons.append(str(state_error))
        reasons += [
            f"the {name} listener is closed" for name, listener in status.listeners.items() if not listener.is_open
        ]
        return reasons


ALIVE: Final = Route(
    method="GET",
    path="/healthz",
    operation_id="health.alive",
    summary="Report whether the process is alive.",
    access=Access.ANYBODY,
    gives=Alive,
    example_answer={"status": "ok"},
)

READY: Final = Route(
    method="GET",
    path="/readyz",
    operation_id="health.ready",
    summary="Report whether the log is writable and the state and listeners are open; if not, 503 with reasons.",
    access=Access.ANYBODY,
    gives=Ready,
    refusals=(503,),
    example_answer={
        "status": "ready",
        "listeners": {"http": "127.0.0.1:7080"},
        "doors": {"http": "127.0.0.1:7080"},
    },
)

ROUTES: Final = (ALIVE, READY)
