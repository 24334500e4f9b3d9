"""What the requests of one gateway share: who is asking or listening now, and what is counted of them."""

import asyncio
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from starlette.requests import Request

from wirelake.address import Address
from wirelake.gateway.histogram import Histogram
from wirelake.gateway.http.auth import Authenticator
from wirelake.gateway.http.bodies import BodyBudget
from wirelake.gateway.http.errors import AGAIN, ApiError
from wirelake.gateway.http.request_context import RequestContext
from wirelake.gateway.http.reserve import HealthReserve
from wirelake.lake.query_process import QueryPool
from wirelake.limits import (
    HTTP_BODIES_BYTES_MAX,
    HTTP_BODY_BYTES_MAX,
    HTTP_HASHES_MAX,
    HTTP_REQUESTS_OPEN_MAX,
    HTTP_UNKNOWN_BODIES_BYTES_MAX,
    HTTP_UNKNOWN_BODIES_PER_ADDRESS_BYTES_MAX,
)
from wirelake.protocols.session import Closing

if TYPE_CHECKING:
    from wirelake.gateway.gateway import Gateway
    from wirelake.gateway.http.peer import HttpPeer
    from wirelake.gateway.http.subscriber import Subscriber

_SHUTDOWN = Closing("shutdown", "the gateway is shutting down")
_LAG_BOUNDS_S = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0)


class HttpApi:
    def __init__(self, gateway: "Gateway", address: Address) -> None:
        self.gateway = gateway
        self.address = address
        self.authenticator = Authenticator(gateway, address)
        self.hashing = asyncio.Semaphore(HTTP_HASHES_MAX)
        self.peers: set[HttpPeer] = set()  # those who wait for an answer of the broker
        self.checks: set[asyncio.Task[Any]] = set()  # of tokens, under way
        self.subscribers: dict[str, Subscriber] = {}  # by session
        self.open = 0  # requests that are worked on
        self.receiving = 0  # requests whose body is not complete, or whose sender is not known yet
        self.reserve = HealthReserve()
        self.bodies = BodyBudget(HTTP_BODIES_BYTES_MAX, HTTP_BODIES_BYTES_MAX)
        self.unknown_bodies = BodyBudget(HTTP_UNKNOWN_BODIES_BYTES_MAX, HTTP_UNKNOWN_BODIES_PER_ADDRESS_BYTES_MAX)
        self.queries = 0  # over the tables, under way
        self.query_pool = QueryPool(gateway.folder / "lake")
        self.traces = 0  # of messages, under way
        self.answered: Counter[tuple[str, str, int]] = Counter()  # by method, route and status
        self.loop_lag_s = Histogram(_LAG_BOUNDS_S)

    def streams_of(self, identity: str) -> "list[Subscriber]":
        return [subscriber for subscriber in self.subscribers.values() if subscriber.identity == identity]

    def end(self) -> None:
        """The gateway stops: nobody waits for an answer or a notification any more."""
        for check in list(self.checks):
            check.cancel()
        for peer in list(self.peers):
            peer.close(_SHUTDOWN)
        for subscriber in list(self.subscribers.values()):
            subscriber.close(_SHUTDOWN)

    @contextmanager
    def slot(self) -> Iterator[None]:
        """Work on a request that is complete, and whose sender is known; ApiError if too many are worked on.

        Only such requests count: unfinished ones, and those whose token is being checked, keep nobody out.
        """
        if self.open >= HTTP_REQUESTS_OPEN_MAX:
            raise ApiError(
                503,
                f"{HTTP_REQUESTS_OPEN_MAX} requests are open already (HTTP_REQUESTS_OPEN_MAX): try again",
                "busy",
                AGAIN,
            )
        self.open += 1
        try:
            yield
        finally:
            self.open -= 1

    def recognises(self, request: Request) -> bool:
        """Return whether it is known, without a slow check, who sends this request."""
        return self.authenticator.recognise_now(RequestContext(self, request))

    async def read(self, request: Request, bytes_max: int | None = None) -> bytes:
        """Read a request's body; ApiError at the limit. The connection counts its bytes as they arrive."""
        bytes_max = HTTP_BODY_BYTES_MAX if bytes_max is None else bytes_max
        length = request.headers.get("content-length", "0")
        if length.isdecimal() and int(length) > bytes_max:
            raise _too_large(bytes_max)
        parts: list[bytes] = []
        size = 0
        async for part in request.stream():
            size += len(part)
            if size > bytes_max:
                raise _too_large(bytes_max)
            parts.append(part)
        return b"".join(parts)


def _too_large(bytes_max: int) -> ApiError:
    name = " (HTTP_BODY_BYTES_MAX)" if bytes_max == HTTP_BODY_BYTES_MAX else ""
    return ApiError(413, f"body exceeds the limit of {bytes_max} bytes{name}", headers={"connection": "close"})
