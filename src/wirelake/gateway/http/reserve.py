"""Keep room for health checks when no more connections are let in.

A connection beyond the limits is kept for a moment, but only `/healthz` and `/readyz` are answered on it. Those that
send nothing cannot fill the reserve: a new one takes the place of the oldest from the address that has the most.
"""

from collections.abc import Callable
from typing import Final

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from wirelake.gateway.http.errors import AGAIN, ApiError, error_response
from wirelake.limits import HTTP_HEALTH_CONNECTIONS_MAX, HTTP_HEALTH_CONNECTIONS_PER_ADDRESS_MAX

PATHS: Final = frozenset({"/healthz", "/readyz"})
Evict = Callable[[], None]


class HealthReserve:
    """Connections are known by what ends them."""

    def __init__(self) -> None:
        self._by_host: dict[str, dict[Evict, None]] = {}
        self._open = 0

    def __len__(self) -> int:
        return self._open

    def enter(self, host: str, evict: Evict) -> None:
        own = self._by_host.get(host, {})
        if len(own) >= HTTP_HEALTH_CONNECTIONS_PER_ADDRESS_MAX:
            self._make_room(host)
        elif self._open >= HTTP_HEALTH_CONNECTIONS_MAX:
            self._make_room(max(self._by_host, key=lambda each: len(self._by_host[each])))
        self._by_host.setdefault(host, {})[evict] = None
        self._open += 1

    def leave(self, host: str, evict: Evict) -> None:
        own = self._by_host.get(host)
        if own is not None and evict in own:
            del own[evict]
            self._open -= 1
            if not own:
                del self._by_host[host]

    def _make_room(self, host: str) -> None:
        oldest = next(iter(self._by_host[host]))
        self.leave(host, oldest)
        oldest()


class HealthOnly:
    """An ASGI application: that of the gateway, of which only health and readiness can be asked, once."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_last(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = [*message.get("headers", ()), (b"connection", b"close")]
                message = {**message, "headers": headers}
            await send(message)

        if scope["path"] in PATHS:
            await self._app(scope, receive, send_last)
            return
        error = ApiError(503, "too many connections; only /healthz and /readyz are served", "busy", AGAIN)
        await error_response(error)(scope, receive, send_last)
