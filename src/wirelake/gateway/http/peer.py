"""Send requests to the broker on behalf of HTTP clients, and wait for the responses."""

import asyncio
from collections.abc import Callable
from typing import Final

from wirelake.broker.broker import Broker
from wirelake.broker.peer import Peer
from wirelake.commit import Commit
from wirelake.errors import StateError
from wirelake.gateway.http.errors import AGAIN, ApiError
from wirelake.gateway.http.request_context import RequestContext
from wirelake.limits import HTTP_ANSWER_GRACE_S, HTTP_ANSWER_PARTS_MAX
from wirelake.message import Message
from wirelake.protocols.session import Closing
from wirelake.roles import Action


class HttpPeer:
    """The broker's `Peer` for the duration of one request."""

    sends_acks: Final = False
    takes_commands: Final = False
    takes_broadcasts: Final = False
    pulls_backlog: Final = False
    encoding_key: Final = None
    is_congested: Final = False
    bytes_in: Final = 0
    bytes_written: Final = 0
    bytes_drained: Final = 0

    def __init__(self, context: RequestContext) -> None:
        self.protocol = context.protocol
        self.id = context.id
        self.identity = context.identity
        self.is_admin = context.is_admin
        self.address = context.address
        self._parts: list[Message] = []
        self.response: asyncio.Future[list[Message]] = asyncio.get_running_loop().create_future()

    def send(self, message: Message) -> None:
        if self.response.done():
            return
        self._parts.append(message)
        if len(self._parts) > HTTP_ANSWER_PARTS_MAX:
            text = f"the response has more than {HTTP_ANSWER_PARTS_MAX} parts"
            self.response.set_exception(ApiError(502, text, "answer_too_long"))
        elif not message.more:
            self.response.set_result(self._parts)

    def close(self, closing: Closing) -> None:
        if not self.response.done():
            self.response.set_exception(ApiError(503, closing.text or closing.code, headers=AGAIN))

    def encode_notification(self, message: Message) -> bytes:
        raise StateError(f"a request has no subscriptions, but got a {message.kind}")

    def write(self, data: bytes) -> None:
        raise StateError(f"a request has no subscriptions, but got {len(data)} bytes")


class BrokerClient:
    """Call the broker at the current time, and flush what it has to send."""

    def __init__(
        self,
        broker: Broker,
        flush_soon: Callable[[], None],
        now_s: Callable[[], float],
        now_ms: Callable[[], int],
        is_stopping: Callable[[], bool],
    ) -> None:
        self.broker = broker
        self.flush_soon = flush_soon
        self.is_stopping = is_stopping
        self.now_ms = now_ms
        self._now_s = now_s
        self._waiting: set[HttpPeer] = set()

    async def request(self, context: RequestContext, message: Message, timeout_s: float) -> list[Message]:
        """Return the parts of the response, usually one. ApiError if there is none in time."""
        if self.is_stopping():
            raise ApiError(503, "the gateway is shutting down", headers=AGAIN)
        peer = HttpPeer(context)
        self._waiting.add(peer)
        try:
            self.handle(peer, message)
            async with asyncio.timeout(timeout_s + HTTP_ANSWER_GRACE_S):
                return await peer.response
        except TimeoutError as error:
            raise ApiError(504, "timeout") from error
        finally:
            self._waiting.discard(peer)
            self.broker.on_close(peer)

    def handle(self, peer: Peer, message: Message) -> None:
        self.broker.handle(peer, message, self._now_s(), self.now_ms())
        self.flush_soon()

    def authorize(self, context: RequestContext, action: Action, target: str) -> None:
        """Raise AccessDeniedError, which becomes the status 403, if the sender of a request may not do this."""
        self.broker.access.authorize(context, action, target)

    def publish(self, context: RequestContext, topic: str, message: Message) -> tuple[Message, Commit | None]:
        """Publish a message; see `Broker.publish`."""
        self.authorize(context, Action.PUBLISH, topic)
        published = self.broker.publish(topic, message, context.identity, self.now_ms())
        self.flush_soon()
        return published

    def on_drain(self, peer: Peer) -> None:
        self.broker.on_drain(peer)
        self.flush_soon()

    def close(self, closing: Closing) -> None:
        """Fail all requests that wait for a response."""
        for peer in list(self._waiting):
            peer.close(closing)
