"""A station: asks services by their address, publishes, subscribes, and provides services."""

import ssl
import time
from collections.abc import Callable
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from wirelake.backoff import Backoff
from wirelake.clients.service import ServiceClient
from wirelake.clients.values import contents_of, joined
from wirelake.errors import StateError
from wirelake.limits import CLIENT_ANSWER_S, CLIENT_CLOSE_S, CLIENT_CONNECT_S, CLIENT_INBOX_MAX
from wirelake.message import TRACE, Kind, Message, Operation
from wirelake.protocols.esnp.address import parse_url
from wirelake.protocols.esnp.client import ClientSession
from wirelake.protocols.esnp.opcodes import Flag
from wirelake.protocols.esnp.protocol import PROTOCOL
from wirelake.protocols.esnp.session import SessionSettings
from wirelake.protocols.session import Session


class Hop(Struct, frozen=True):
    """What happened to a request on its way."""

    hop: str  # received, routed to, answered by
    node: str
    at_ms: int


class EsnpClient(ServiceClient):
    """An address is `esnp://HOST/SERVICE/OP?o=OBJECT&g=GROUP&to=MS`, or shortly `SERVICE/OP`; `_` for an absent part.

    Values are those of `values.py`: fields as a dict, bytes as the payload, both together, or one plain value.
    """

    protocol = PROTOCOL

    def __init__(
        self,
        host: str,
        port: int,
        user: str,
        token: str,
        *,
        settings: SessionSettings = SessionSettings(),
        tls: ssl.SSLContext | None = None,
        answer_s: float = CLIENT_ANSWER_S,
        connect_s: float | None = CLIENT_CONNECT_S,
        inbox_max: int = CLIENT_INBOX_MAX,
        backoff: Backoff | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(
            host,
            port,
            user,
            token,
            tls=tls,
            answer_s=answer_s,
            connect_s=connect_s,
            inbox_max=inbox_max,
            backoff=backoff,
            clock=clock,
        )
        self._settings = replace(settings, reply_s=answer_s + CLIENT_CLOSE_S)  # ours is over first, and says more
        self._hops: dict[str, list[Hop]] = {}  # by correlation

    # For users

    async def ask(self, address: str, value: Any = None) -> Any:
        """The answer's value; several messages are joined. The gateway waits for it as long as `to` says, or 5 s."""
        return joined(await self.ask_packets(address, value))

    async def ask_packets(self, address: str, value: Any = None) -> list[Any]:
        """The value of each message of the answer."""
        return await self._ask_packets(_request(address, value))

    async def trace(self, address: str, value: Any = None) -> tuple[Any, list[Hop]]:
        """The answer, and every hop of the request before it."""
        message = _request(address, value)
        correlation = self._new_correlation()
        hops = self._hops[correlation] = []
        try:
            headers = {**message.headers, "esnp.flags": [Flag.TRACE.value]}
            found = await self._ask_packets(replace(message, correlation=correlation, headers=headers))
            return joined(found), hops
        finally:
            del self._hops[correlation]

    async def tell(self, address: str, value: Any = None, *, event: bool = False) -> None:
        """What wants no answer: written when this returns, and no more is known. `event`: FLAG 6 instead of 5."""
        message = replace(_request(address, value), kind=Kind.EVENT, name="event" if event else "info")
        self._check(message)
        await self._until_ready()
        if self._line is None:
            raise StateError("the connection is gone")
        await self._line.drained()
        self._say(message)

    # For StreamClient

    def _new_session(self, now_s: float) -> Session:
        return ClientSession(now_s, self._settings)

    def _told(self, message: Message) -> None:
        if message.name != TRACE:
            super()._told(message)
            return
        hops = self._hops.get(message.correlation)
        if hops is not None:
            said = message.fields
            hops.append(Hop(str(said.get("hop", "")), str(said.get("node", "")), int(said.get("at_ms", 0))))


def _request(address: str, value: Any) -> Message:
    parsed = parse_url(address if "://" in address else f"esnp://_/{address}")
    headers = {} if parsed.timeout_ms is None else {"timeout_ms": parsed.timeout_ms}
    target: Operation = parsed.operation
    return Message(kind=Kind.REQUEST, target=target, headers=headers, **contents_of(value))
