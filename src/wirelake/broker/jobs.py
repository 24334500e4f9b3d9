"""Long requests: answered bit by bit, so that others have their turns in between."""

from collections.abc import Iterator
from typing import Protocol

from wirelake.broker.peer import Peer
from wirelake.commit import Commit
from wirelake.message import Message

Job = Iterator[Commit | None]  # yields when it may be interrupted, or what it waits for; says its answer itself


class Jobs(Protocol):
    def start(self, peer: Peer, message: Message, job: Job) -> None:
        """Run a job to its end, or until its peer is gone. A fault of the asker's, or of the disk, is its answer.

        What the peer sends meanwhile waits until the job is done.
        """
        ...


class AtOnce:
    """Jobs where nobody else wants a turn, as in tests. What they wait for is waited for by the broker anyway."""

    def start(self, _peer: Peer, _message: Message, job: Job) -> None:
        for _ in job:
            pass
