"""Asks the broker one question for an HTTP request, and waits for the answer."""

import asyncio
from typing import Final

from wirelake.errors import StateError
from wirelake.gateway.http.errors import AGAIN, ApiError
from wirelake.gateway.http.request_context import RequestContext
from wirelake.limits import HTTP_ANSWER_GRACE_S, HTTP_ANSWER_PARTS_MAX
from wirelake.message import Message
from wirelake.protocols.session import Closing


class HttpPeer:
    """The broker's `Peer` for the length of one request."""

    sends_acks: Final = False
    pulls_backlog: Final = False
    encoding_key: Final = None
    is_congested: Final = False
    bytes_in: Final = 0
    bytes_written: Final = 0
    bytes_drained: Final = 0

    def __init__(self, exchange: RequestContext) -> None:
        self.protocol = exchange.protocol
        self.id = exchange.id
        self.identity = exchange.identity
        self.is_admin = exchange.admin
        self._api = exchange.api
        self._parts: list[Message] = []
        self._answered: asyncio.Future[list[Message]] = asyncio.get_running_loop().create_future()

    async def ask(self, message: Message, timeout_s: float) -> list[Message]:
        """The answer's parts, mostly one. ApiError where there is none in time."""
        gateway = self._api.gateway
        if gateway.stopping:
            raise ApiError(503, "the gateway is shutting down", headers=AGAIN)
        self._api.peers.add(self)
        try:
            gateway.broker.handle(self, message, gateway.now_s(), gateway.now_ms())
            gateway.flush_soon()
            async with asyncio.timeout(timeout_s + HTTP_ANSWER_GRACE_S):
                return await self._answered
        except TimeoutError as error:
            raise ApiError(504, "timeout") from error
        finally:
            self._api.peers.discard(self)
            gateway.broker.on_close(self)

    def send(self, message: Message) -> None:
        if self._answered.done():
            return
        self._parts.append(message)
        if len(self._parts) > HTTP_ANSWER_PARTS_MAX:
            text = f"the response has more than {HTTP_ANSWER_PARTS_MAX} parts"
            self._answered.set_exception(ApiError(502, text, "answer_too_long"))
        elif not message.more:
            self._answered.set_result(self._parts)

    def close(self, closing: Closing) -> None:
        if not self._answered.done():
            self._answered.set_exception(ApiError(503, closing.text or closing.code, headers=AGAIN))

    def encode_notification(self, message: Message) -> bytes:
        raise StateError(f"a request subscribes to nothing, and gets no {message.kind}")

    def write(self, data: bytes) -> None:
        raise StateError(f"a request subscribes to nothing, and gets no {len(data)} bytes")
