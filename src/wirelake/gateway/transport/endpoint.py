"""Define what a connection belongs to: a listener that accepts peers, or an upstream to connect to."""

from typing import TYPE_CHECKING, Protocol

from wirelake.message import Message
from wirelake.protocols.frame import Sender
from wirelake.protocols.protocol import Protocol as WireProtocol
from wirelake.protocols.session import Session
from wirelake.protocols.splitter import Splitter

if TYPE_CHECKING:
    from wirelake.gateway.gateway import Gateway
    from wirelake.gateway.transport.connection import Connection


class Endpoint(Protocol):
    gateway: "Gateway"
    protocol: WireProtocol
    other: Sender  # who is at the other end

    def new_session(self, now_s: float) -> Session: ...

    def new_splitter(self) -> Splitter: ...

    def admit(self, connection: "Connection") -> str:
        """Give the connection a slot, or answer why it may have none."""
        ...

    def on_open(self, connection: "Connection") -> None:
        """Messages can be exchanged."""
        ...

    def on_message(self, connection: "Connection", message: Message) -> None:
        """The connection's session handed this up."""
        ...

    def on_close(self, connection: "Connection") -> None:
        """A connection that was admitted is over."""
        ...
