"""Define what the broker needs from the gateway: peers, observers of peers, and a way to run long requests."""

from collections.abc import Hashable, Iterator
from typing import Protocol

from wirelake.commit import Commit
from wirelake.message import Message
from wirelake.protocols.session import Closing


class Requester(Protocol):
    """Who asks for something, and from where."""

    id: str  # of the session or the request
    protocol: str
    identity: str  # "" before the login
    address: str

    @property
    def is_admin(self) -> bool:
        """Tell whether it sent the admin token: it may do everything, whatever its identity."""
        ...


class Peer(Requester, Protocol):
    """A connected session. All calls come from one thread and return at once."""

    @property
    def sends_acks(self) -> bool:
        """Tell whether its protocol has acks. If not, the broker acks for it: see `implicit_acks`."""
        ...

    @property
    def bytes_in(self) -> int:
        """Return how many bytes were received from it so far."""
        ...

    @property
    def bytes_written(self) -> int:
        """Return how many bytes were written to it so far, including those that are still buffered."""
        ...

    @property
    def bytes_drained(self) -> int:
        """Return how many of those have left this machine, as far as is known; 0 once the connection is closing."""
        ...

    @property
    def pulls_backlog(self) -> bool:
        """Tell whether it requests what it missed itself. If not, the broker pushes that when it subscribes."""
        ...

    @property
    def encoding_key(self) -> Hashable | None:
        """Return the key that it shares with peers that get the same bytes, or None if it shares with none."""
        ...

    @property
    def is_congested(self) -> bool:
        """Tell whether more bytes wait for it than the limit allows."""
        ...

    @property
    def takes_commands(self) -> bool:
        """Tell whether commands for a device can be sent to it now."""
        ...

    @property
    def takes_broadcasts(self) -> bool:
        """Tell whether its protocol has commands that are addressed to all devices."""
        ...

    def encode_notification(self, message: Message) -> bytes:
        """Return the bytes of a notification for all peers with its encoding key."""
        ...

    def write(self, data: bytes) -> None:
        """Write bytes that `encode_notification` returned for its encoding key."""
        ...

    def send(self, message: Message) -> None:
        """Send a response, a request or a notification through its session."""
        ...

    def close(self, closing: Closing) -> None:
        """Close the connection and send the reason."""
        ...


class PeerObserver(Protocol):
    """A component that remembers peers, and must know what becomes of them."""

    def on_close(self, peer: Peer) -> None:
        """Forget the peer: its session is over."""
        ...

    def on_drain(self, peer: Peer) -> None:
        """Go on sending to a peer that is no longer congested."""
        ...


# A long request, which sends its response itself. It yields where others may run: None, or a commit to wait for.
Job = Iterator[Commit | None]


class JobRunner(Protocol):
    """Run long requests in slices, so that others have their turn in between."""

    def start(self, peer: Peer, message: Message, job: Job) -> None:
        """Run a job until it ends or its peer closes. An error of the request or of the disk becomes the response.

        What the peer sends meanwhile waits until the job ends.
        """
        ...


class InlineJobRunner:
    """Run each job at once to its end, without waiting for its commits: the broker's responses do that."""

    def start(self, _peer: Peer, _message: Message, job: Job) -> None:
        for _ in job:
            pass
