"""Limit what requests may use: how many run at once, the memory of their bodies, and connections for health checks."""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from wirelake.gateway.http.errors import AGAIN, ApiError, error_response
from wirelake.limits import (
    HTTP_BODIES_BYTES_MAX,
    HTTP_HEALTH_CONNECTIONS_MAX,
    HTTP_HEALTH_CONNECTIONS_PER_ADDRESS_MAX,
    HTTP_REQUESTS_OPEN_MAX,
    HTTP_UNKNOWN_BODIES_BYTES_MAX,
    HTTP_UNKNOWN_BODIES_PER_ADDRESS_BYTES_MAX,
)

HEALTH_PATHS: Final = frozenset({"/healthz", "/readyz"})
Evict = Callable[[], None]


class ConcurrencyLimit:
    """Bound how many operations of one kind run at once. `refusal` makes the error for the next one."""

    def __init__(self, running_max: int, refusal: Callable[[int], ApiError]) -> None:
        self.running = 0
        self._running_max = running_max
        self._refusal = refusal

    @contextmanager
    def slot(self) -> Iterator[None]:
        """Count an operation while the block runs; ApiError if too many run already."""
        if self.running >= self._running_max:
            raise self._refusal(self.running)
        self.running += 1
        try:
            yield
        finally:
            self.running -= 1


def busy(what: str, limit_name: str, headers: Mapping[str, str] | None = AGAIN) -> Callable[[int], ApiError]:
    """Return what makes the refusal of a `ConcurrencyLimit`."""
    return lambda running: ApiError(429, f"{running} {what} already ({limit_name}): try again", headers=headers)


class BodyBudget:
    """Bound the bytes of bodies in memory, in total and per address, counted as they arrive."""

    def __init__(self, bytes_max: int, per_address_bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.per_address_bytes_max = per_address_bytes_max
        self.used_bytes = 0
        self._by_host: Counter[str] = Counter()

    def reserve(self, host: str, size_bytes: int) -> bool:
        """Count these bytes. Return False, and count nothing, if they exceed a limit."""
        if self.used_bytes + size_bytes > self.bytes_max:
            return False
        if self._by_host[host] + size_bytes > self.per_address_bytes_max:
            return False
        self.used_bytes += size_bytes
        self._by_host[host] += size_bytes
        return True

    def release(self, host: str, size_bytes: int) -> None:
        self.used_bytes -= size_bytes
        self._by_host[host] -= size_bytes
        if not self._by_host[host]:
            del self._by_host[host]


class HealthReserve:
    """Keep connections beyond the limits for a moment, so that health checks are answered at any load.

    Silent connections cannot fill the reserve: a new one evicts the oldest one of the address that has the most. A
    connection is identified by the callable that ends it.
    """

    def __init__(self) -> None:
        self._by_host: dict[str, dict[Evict, None]] = {}
        self._open = 0

    def __len__(self) -> int:
        return self._open

    def enter(self, host: str, evict: Evict) -> None:
        own = self._by_host.get(host, {})
        if len(own) >= HTTP_HEALTH_CONNECTIONS_PER_ADDRESS_MAX:
            self._evict_oldest(host)
        elif self._open >= HTTP_HEALTH_CONNECTIONS_MAX:
            self._evict_oldest(max(self._by_host, key=lambda each: len(self._by_host[each])))
        self._by_host.setdefault(host, {})[evict] = None
        self._open += 1

    def leave(self, host: str, evict: Evict) -> None:
        own = self._by_host.get(host)
        if own is not None and evict in own:
            del own[evict]
            self._open -= 1
            if not own:
                del self._by_host[host]

    def _evict_oldest(self, host: str) -> None:
        oldest = next(iter(self._by_host[host]))
        self.leave(host, oldest)
        oldest()


class HealthOnly:
    """An ASGI application that serves health and readiness only, one request per connection."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_last(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = [*message.get("headers", ()), (b"connection", b"close")]
                message = {**message, "headers": headers}
            await send(message)

        if scope["path"] in HEALTH_PATHS:
            await self._app(scope, receive, send_last)
            return
        error = ApiError(503, "too many connections; only /healthz and /readyz are served", "busy", AGAIN)
        await error_response(error)(scope, receive, send_last)


class RequestLimiter:
    """The limits that all requests of one listener share.

    Only complete requests of a known sender take one of the slots: unfinished requests, and those whose token is being
    checked, do not block others.
    """

    def __init__(self) -> None:
        self.open = ConcurrencyLimit(HTTP_REQUESTS_OPEN_MAX, _too_many_requests)
        self.receiving = 0  # requests whose body is incomplete or whose sender is not authenticated yet
        self.reserve = HealthReserve()
        self.bodies = BodyBudget(HTTP_BODIES_BYTES_MAX, HTTP_BODIES_BYTES_MAX)
        self.unknown_bodies = BodyBudget(HTTP_UNKNOWN_BODIES_BYTES_MAX, HTTP_UNKNOWN_BODIES_PER_ADDRESS_BYTES_MAX)
        self._token_checks: set[asyncio.Task[Any]] = set()

    @contextmanager
    def receive(self) -> Iterator[None]:
        """Count a request as incomplete while the block runs."""
        self.receiving += 1
        try:
            yield
        finally:
            self.receiving -= 1

    @contextmanager
    def token_check(self, task: asyncio.Task[Any]) -> Iterator[None]:
        """Let `cancel_token_checks` cancel this task while the block runs."""
        self._token_checks.add(task)
        try:
            yield
        finally:
            self._token_checks.discard(task)

    def cancel_token_checks(self) -> None:
        for check in list(self._token_checks):
            check.cancel()


def _too_many_requests(running: int) -> ApiError:
    return ApiError(503, f"{running} requests are open already (HTTP_REQUESTS_OPEN_MAX): try again", "busy", AGAIN)
