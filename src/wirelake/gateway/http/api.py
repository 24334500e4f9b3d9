"""What the requests of one gateway share: who is asking or listening now, and what is counted of them."""

import asyncio
from collections import Counter
from typing import TYPE_CHECKING

from starlette.requests import Request

from wirelake.config import Address
from wirelake.gateway.histogram import Histogram
from wirelake.gateway.http.auth import Doorkeeper
from wirelake.gateway.http.errors import AGAIN, ApiError
from wirelake.lake.query_process import QueryPool
from wirelake.limits import HTTP_BODIES_BYTES_MAX, HTTP_BODY_BYTES_MAX, HTTP_HASHES_MAX
from wirelake.protocols.session import Closing

if TYPE_CHECKING:
    from wirelake.gateway.gateway import Gateway
    from wirelake.gateway.http.peer import HttpPeer
    from wirelake.gateway.http.subscriber import Subscriber

_SHUTDOWN = Closing("shutdown", "the gateway is shutting down")
_LAG_BOUNDS_S = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0)


class Api:
    def __init__(self, gateway: "Gateway", address: Address) -> None:
        self.gateway = gateway
        self.address = address
        self.doorkeeper = Doorkeeper(gateway, address)
        self.hashing = asyncio.Semaphore(HTTP_HASHES_MAX)
        self.peers: set[HttpPeer] = set()  # those who wait for an answer of the broker
        self.subscribers: dict[str, Subscriber] = {}  # by session
        self.open = 0  # requests under way
        self.queries = 0  # over the tables, under way
        self.query_pool = QueryPool(gateway.folder / "lake")
        self.traces = 0  # of messages, under way
        self.answered: Counter[tuple[str, str, int]] = Counter()  # by method, route and status
        self.loop_lag_s = Histogram(_LAG_BOUNDS_S)
        self._bodies_bytes = 0

    def streams_of(self, identity: str) -> "list[Subscriber]":
        return [subscriber for subscriber in self.subscribers.values() if subscriber.identity == identity]

    def end(self) -> None:
        """The gateway stops: nobody waits for an answer or a notification any more."""
        for peer in list(self.peers):
            peer.end(_SHUTDOWN)
        for subscriber in list(self.subscribers.values()):
            subscriber.end(_SHUTDOWN)

    async def read(self, request: Request) -> bytes:
        """A request's body. Give it back with `forget` when it is done with."""
        length = request.headers.get("content-length", "0")
        if length.isdecimal() and int(length) > HTTP_BODY_BYTES_MAX:
            raise _too_large()
        parts: list[bytes] = []
        size = 0
        try:
            async for part in request.stream():
                size += len(part)
                self._bodies_bytes += len(part)
                if size > HTTP_BODY_BYTES_MAX:
                    raise _too_large()
                if self._bodies_bytes > HTTP_BODIES_BYTES_MAX:
                    raise ApiError(429, f"bodies of {HTTP_BODIES_BYTES_MAX} bytes are under way already", headers=AGAIN)
                parts.append(part)
        except BaseException:
            self._bodies_bytes -= size
            raise
        return b"".join(parts)

    def forget(self, body: bytes) -> None:
        self._bodies_bytes -= len(body)


def _too_large() -> ApiError:
    text = f"the body is over the limit of {HTTP_BODY_BYTES_MAX} bytes (HTTP_BODY_BYTES_MAX)"
    return ApiError(413, text, headers={"connection": "close"})
