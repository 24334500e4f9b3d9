"""What the rest of Wirelake asks of an event log. Segments on disk are behind it today; a cluster's log can be."""

from collections.abc import Iterator, Sequence
from typing import Any, Protocol

from wirelake.commit import Commit
from wirelake.log.alike import Alike

Texts = tuple[str, ...] | str  # one for each record, or one for all


class EventLog(Protocol):
    """Records get seqs in the order they are appended, without gaps, and are read in that order."""

    @property
    def next_seq(self) -> int:
        """The seq that the next record will have."""
        ...

    def append(
        self,
        at_us: int,
        protocol: str,
        event: str,
        direction: str,
        session: str,
        identity: str,
        peer: str,
        frame: bytes,
        note: str = "",
    ) -> Commit:
        """One record; the commit says when it is durable. BusyError, LogWriteError: refuse the work it belongs to."""
        ...

    def append_many(
        self,
        at_us: int,
        protocol: str,
        event: str,
        direction: str,
        session: str,
        identity: str,
        peer: str,
        frames: Sequence[bytes],
        note: str = "",
    ) -> Commit:
        """A record for each frame, all else being the same; durable together."""
        ...

    def append_rows(
        self,
        at_us: int,
        protocol: str,
        event: str,
        direction: str,
        sessions: Texts,
        identities: Texts,
        peers: Texts,
        frames: tuple[bytes, ...] | Alike,
        notes: Texts = "",
    ) -> Commit:
        """A record for each frame, each of a session of its own; durable together."""
        ...

    def read(self, from_seq: int | None = None, until_seq: int | None = None, wait_s: float = 0.0) -> Iterator[Any]:
        """Record batches of the schema in `schema.py`, durable records only.

        From the oldest record, or from `from_seq`; GoneError if that was removed. Without `until_seq` it ends where the
        log ends, after waiting there up to `wait_s` for more.
        """
        ...

    def commit_position(self, consumer: str, seq: int) -> None:
        """The consumer has done with all records before `seq`. Durable when this returns."""
        ...

    def position(self, consumer: str) -> int | None:
        """What the consumer committed last, or None."""
        ...

    def close(self) -> None:
        """Returns once all that was appended is durable."""
        ...
