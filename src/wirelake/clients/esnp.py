"""Connect a station over esnp: call services by address, provide them, publish and subscribe."""

from typing import Any, Unpack

from msgspec import Struct
from msgspec.structs import replace

from wirelake.clients.client import DEFAULT_OPTIONS, ClientOptions, DeprecatedOptions, resolve_options
from wirelake.clients.serving import ServiceClient, contents_of, join_packets
from wirelake.errors import StateError
from wirelake.limits import CLIENT_CLOSE_S
from wirelake.message import TRACE, Kind, Message, Operation
from wirelake.protocols.esnp.address import parse_url
from wirelake.protocols.esnp.client import ClientSession
from wirelake.protocols.esnp.constants import Flag
from wirelake.protocols.esnp.protocol import PROTOCOL
from wirelake.protocols.esnp.session import SessionSettings
from wirelake.protocols.session import Session


class Hop(Struct, frozen=True):
    """One step of a request on its way."""

    hop: str  # received, routed to, answered by
    node: str
    at_ms: int


class EsnpClient(ServiceClient):
    """Call and provide services as a station.

    An address is `esnp://HOST/SERVICE/OP?o=OBJECT&g=GROUP&to=MS`, with `_` for an absent part, or just `SERVICE/OP`.
    Values are those of `serving.py`: fields as a dict, bytes as the payload, both together, or one plain value.
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
        options: ClientOptions = DEFAULT_OPTIONS,
        **deprecated: Unpack[DeprecatedOptions],
    ) -> None:
        options = resolve_options(options, deprecated)
        super().__init__(host, port, user, token, options=options)
        # The client's own timeout must be the first, because its error says more.
        self._settings = replace(settings, reply_s=options.answer_s + CLIENT_CLOSE_S)
        self._hops: dict[str, list[Hop]] = {}  # by correlation

    # For users

    async def ask(self, address: str, value: Any = None) -> Any:
        """Return the value of the response; several messages are joined. The gateway waits for `to` ms, or 5 s."""
        return join_packets(await self.ask_packets(address, value))

    async def ask_packets(self, address: str, value: Any = None) -> list[Any]:
        """Return the value of each message of the response."""
        return await self._ask_packets(_request(address, value))

    async def trace(self, address: str, value: Any = None) -> tuple[Any, list[Hop]]:
        """Return the response and every hop of the request."""
        message = _request(address, value)
        correlation = self._new_correlation()
        hops = self._hops[correlation] = []
        try:
            headers = {**message.headers, "esnp.flags": [Flag.TRACE.value]}
            packets = await self._ask_packets(replace(message, correlation=correlation, headers=headers))
            return join_packets(packets), hops
        finally:
            del self._hops[correlation]

    async def tell(self, address: str, value: Any = None, *, event: bool = False) -> None:
        """Send a message that expects no response; it is written when this returns. `event`: FLAG 6 instead of 5."""
        message = replace(_request(address, value), kind=Kind.EVENT, name="event" if event else "info")
        self._check(message)
        await self._until_ready()
        if self._transport is None:
            raise StateError("the connection is gone")
        await self._transport.drain()
        self._send(message)

    # For StreamClient

    def _new_session(self, now_s: float) -> Session:
        return ClientSession(now_s, self._settings)

    def _on_other_message(self, message: Message) -> None:
        if message.name != TRACE:
            super()._on_other_message(message)
            return
        hops = self._hops.get(message.correlation)
        if hops is not None:
            fields = message.fields
            hops.append(Hop(str(fields.get("hop", "")), str(fields.get("node", "")), int(fields.get("at_ms", 0))))


def _request(address: str, value: Any) -> Message:
    parsed = parse_url(address if "://" in address else f"esnp://_/{address}")
    headers = {} if parsed.timeout_ms is None else {"timeout_ms": parsed.timeout_ms}
    target: Operation = parsed.operation
    return Message(kind=Kind.REQUEST, target=target, headers=headers, **contents_of(value))
