"""Decide which protocol a captured connection speaks, and which end is the server.

The ports decide if a protocol has one of them, by the settings or by default. Otherwise it is the protocol that the
user names, or the one that the first bytes are evidence for. The server is the end with the protocol's port, else the
one that did not send the first SYN, else the one whose bytes look like a server's.
"""

from collections.abc import Iterable
from typing import Final

from msgspec import Struct

from wirelake.capture.ip_packets import HostPort
from wirelake.capture.websocket_messages import WebSocketMessages
from wirelake.config import Settings
from wirelake.errors import ProtocolError
from wirelake.limits import CAPTURE_CHOOSE_BYTES_MAX, CAPTURE_IDENTIFY_BITS
from wirelake.protocols import registry
from wirelake.protocols.frame import Sender
from wirelake.protocols.inspection import UNREADABLE_BITS, weigh
from wirelake.protocols.protocol import Carrier, Protocol

_TLS: Final = b"\x16\x03"
_HELLOS: Final = (1, 2)  # of a client and of a server
_GET: Final = b"GET "


class Conversation(Struct):
    """What is known of a connection whose protocol is not decided yet."""

    first: HostPort  # sent the first packet
    second: HostPort
    is_datagrams: bool
    client: HostPort | None = None  # if a SYN shows it
    data: dict[HostPort, list[bytes]] = {}  # the first bytes of each end: of datagrams one by one
    is_over: bool = False  # no more bytes will come

    @property
    def size(self) -> int:
        return sum(len(part) for parts in self.data.values() for part in parts)

    def other(self, end: HostPort) -> HostPort:
        return self.second if end == self.first else self.first

    def sent(self, end: HostPort) -> list[bytes]:
        """Return the messages of datagrams, or the stream as one message."""
        parts = self.data.get(end, [])
        return parts if self.is_datagrams or not parts else [b"".join(parts)]


class Choice(Struct, frozen=True):
    """A decision. Without a protocol, `reason` says why the connection is left out."""

    reason: str
    protocol: Protocol | None = None
    carrier: Carrier = Carrier.TCP
    client: HostPort = ("", 0)


class ProtocolChooser:
    """Decide for one conversation after the other. `named` is the protocol that the user names."""

    def __init__(self, settings: Settings, named: Protocol | None) -> None:
        self._named = named
        self._ports: dict[tuple[bool, int], tuple[Protocol, set[Carrier]]] = {}  # by whether it is UDP, and the port
        installed = registry.all_protocols()
        for protocol in installed:
            for setting, carriers in protocol.listeners.items():
                if (address := settings.address(setting)) is not None:
                    self._add(protocol, address.port, carriers)
        for protocol in installed:
            for transport in protocol.transports:
                self._add(protocol, transport.port, (transport.carrier,))

    def _add(self, protocol: Protocol, port: int, carriers: Iterable[Carrier]) -> None:
        for carrier in carriers:
            key = carrier is Carrier.UDP, port
            if port and self._ports.setdefault(key, (protocol, set()))[0] is protocol:
                self._ports[key][1].add(carrier)

    def choose(self, talk: Conversation) -> Choice | None:
        """Return the decision, or None if more bytes are needed for it."""
        if any(_is_tls_hello(part) for end in talk.data for part in talk.sent(end)):
            return Choice("encrypted with TLS")
        known = [end for end in (talk.second, talk.first) if (talk.is_datagrams, end[1]) in self._ports]
        if known:
            server = known[0] if len(known) == 1 or talk.client is None else talk.other(talk.client)
            return self._by_port(talk, server)
        if talk.size == 0:
            return Choice("no data") if talk.is_over else None
        return self._by_bytes(talk)

    def _by_port(self, talk: Conversation, server: HostPort) -> Choice | None:
        protocol, carriers = self._ports[talk.is_datagrams, server[1]]
        client = talk.other(server)
        how = f"port {server[1]}"
        if talk.is_datagrams:
            return Choice(how, protocol, Carrier.UDP, client)
        if Carrier.WEBSOCKET in carriers:
            start = b"".join(talk.sent(client))[: len(_GET)]
            if len(start) < len(_GET) and not talk.is_over and not talk.sent(server):
                return None
            if start == _GET:
                return Choice(how, protocol, Carrier.WEBSOCKET, client)
            if Carrier.TCP not in carriers:
                return Choice("a WebSocket whose handshake is not in the capture")
        return Choice(how, protocol, Carrier.TCP, client)

    def _by_bytes(self, talk: Conversation) -> Choice | None:
        candidates = registry.all_protocols() if self._named is None else (self._named,)
        clients = (talk.first, talk.second) if talk.client is None else (talk.client,)
        ranked = [
            (_bits(talk, protocol, carrier, client), protocol, carrier, client)
            for protocol in candidates
            for carrier in dict.fromkeys(transport.carrier for transport in protocol.transports)
            if (carrier is Carrier.UDP) is talk.is_datagrams
            for client in clients
            if carrier is not Carrier.WEBSOCKET or b"".join(talk.sent(client)).startswith(_GET)
        ]
        ranked.sort(key=lambda each: -each[0])
        if ranked and self._named is not None:
            _, protocol, carrier, client = ranked[0]
            return Choice("as requested", protocol, carrier, client)
        if ranked and ranked[0][0] >= CAPTURE_IDENTIFY_BITS:
            bits, protocol, carrier, client = ranked[0]
            if all(other is protocol or rest < bits for rest, other, *_ in ranked[1:]):
                return Choice(f"{bits:.0f} bits of evidence", protocol, carrier, client)
        if talk.is_over or talk.size >= CAPTURE_CHOOSE_BYTES_MAX:
            return Choice("unknown protocol" if self._named is None else f"no transport of {self._named.name}")
        return None


def _is_tls_hello(data: bytes) -> bool:
    return len(data) > 5 and data[:2] == _TLS and data[5] in _HELLOS


def _bits(talk: Conversation, protocol: Protocol, carrier: Carrier, client: HostPort) -> float:
    """Return the evidence in the bytes of both ends."""
    bits = 0.0
    for end, sender in ((client, Sender.CLIENT), (talk.other(client), Sender.SERVER)):
        messages = talk.sent(end)
        if carrier is Carrier.WEBSOCKET:
            try:
                messages = [each for stream in messages for each in WebSocketMessages(sender).receive(stream)]
            except ProtocolError:
                return UNREADABLE_BITS
        for message in messages:
            found = weigh(message, protocol, carrier, sender)
            bits += found.bits + (UNREADABLE_BITS if found.failure is not None else 0.0)
    return bits
