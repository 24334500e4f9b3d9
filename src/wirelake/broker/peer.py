"""What the broker knows of a live session. The gateway's connections are such peers; so are the tests' own."""

from collections.abc import Hashable
from typing import Protocol

from wirelake.message import Message
from wirelake.protocols.session import Closing


class Peer(Protocol):
    """Somebody connected. All calls come from one thread and return at once."""

    id: str  # of the session
    protocol: str
    identity: str  # empty before the login

    @property
    def sends_acks(self) -> bool:
        """Whether its protocol has acks; otherwise notifications are acked for it: see `implicit_acks`."""
        ...

    @property
    def bytes_in(self) -> int:
        """Count the bytes received from it so far."""
        ...

    @property
    def bytes_written(self) -> int:
        """Count the bytes handed over for it so far, those that still wait included."""
        ...

    @property
    def bytes_drained(self) -> int:
        """Count those of them that left this machine, as far as it can tell; 0 once the connection is closing."""
        ...

    @property
    def pulls_backlog(self) -> bool:
        """Whether it asks for what it missed (comet); otherwise that is pushed when it subscribes."""
        ...

    @property
    def encoding_key(self) -> Hashable | None:
        """Peers of one audience get the same bytes for a notification; None: it has to be sealed for this one."""
        ...

    @property
    def is_congested(self) -> bool:
        """Whether it reads more slowly than it is written to, by more than the limit."""
        ...

    def encode_notification(self, message: Message) -> bytes:
        """A notification as this peer's audience is told of it."""
        ...

    def write(self, data: bytes) -> None:
        """Bytes for its audience, as they are."""
        ...

    def send(self, message: Message) -> None:
        """An answer, a request or a notification, through its own session."""
        ...

    def close(self, closing: Closing) -> None:
        """Close the connection and tell it why."""
        ...


class PeerObserver(Protocol):
    """Somebody who remembers peers, and has to know what becomes of them."""

    def on_close(self, peer: Peer) -> None:
        """The peer is gone."""
        ...

    def on_drain(self, peer: Peer) -> None:
        """A slow reader has caught up."""
        ...
