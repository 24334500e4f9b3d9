"""Where records wait for the disk: filled by the thread that appends, emptied by the thread that writes.

Appending takes no lock. A caller (1) adds its cells to the list, then (2) reads which commit is the current one. The
writer (1) puts a new commit in place, then (2) takes the cells out of the list, and (3) resolves the old commit once
they are on disk. So whoever holds the old commit had added its cells before they were taken. A caller in between may
hold the new commit for cells that went with the old one: it learns of them one block later, never too early. That is
why the writer takes once more after each block, and resolves a commit that came without cells too.

What gathers beyond a block's size is set aside as a block of its own with its own commit, so that the first of a burst
need not wait for the last. This, and every change of the limits, is under a lock: once for each block.
"""

from collections import deque
from collections.abc import Callable, Sequence
from threading import Lock
from typing import Any, Final

from wirelake.commit import Commit
from wirelake.errors import BusyError, EncodeError, LogWriteError, StateError
from wirelake.limits import LOG_BLOCK_BYTES, LOG_CALL_BYTES_MAX, LOG_RECORD_OVERHEAD_BYTES
from wirelake.log.alike import Alike
from wirelake.log.interface import Texts

CLOSED: Final = "the log is closed"


class Gathering:
    """`append` and `append_many` belong to one thread, the event loop's; the rest to the writer."""

    def __init__(
        self, next_seq: int, bytes_max: int, wake: Callable[[], None], wanted: Callable[[], None] | None = None
    ) -> None:
        self.next_seq = next_seq  # that the next record will have
        self.resting = False  # the writer waits to be woken
        self._wake = wake
        self._wanted = wanted  # called when somebody begins to wait for what has gathered
        self._bytes_max = bytes_max
        self._lock = Lock()
        self._cells: list[Any] = []
        self._commit = Commit(wanted)
        self._full: deque[tuple[Commit, list[Any]]] = deque()  # set aside, older than `_cells`
        self._bytes_in = 0  # handed over by callers, ever
        self._bytes_out = 0  # of these, taken by the writer
        self._block_end = LOG_BLOCK_BYTES  # when `_bytes_in` passes this, `_cells` are set aside
        self._look_at = 0  # when it passes this, there is something to decide
        self._refusal = ""
        self._set_limits()

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
        """One record. The commit is that of the block it will be in; it is shared with the others there."""
        size = self._bytes_in + len(frame) + LOG_RECORD_OVERHEAD_BYTES
        if size > self._look_at:
            self._decide(size)
        self._bytes_in = size
        self.next_seq += 1
        self._cells.extend((1, at_us, protocol, event, direction, session, identity, peer, note, frame, size))
        if self.resting:
            self._wake()
        return self._commit

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
        """A record for each frame, all else being the same: what one read from a socket brought. All in one block."""
        count = len(frames)
        if count < 2:
            if not count:
                raise EncodeError("no frames to append")
            return self.append(at_us, protocol, event, direction, session, identity, peer, frames[0], note)
        size = self._bytes_in + sum(map(len, frames)) + count * LOG_RECORD_OVERHEAD_BYTES
        if size > self._look_at:
            self._decide(size)
        self._bytes_in = size
        self.next_seq += count
        frames = tuple(frames)  # the caller may go on with its list
        self._cells.extend((count, at_us, protocol, event, direction, session, identity, peer, note, frames, size))
        if self.resting:
            self._wake()
        return self._commit

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
        """A record for each frame, of several sessions. All in one block."""
        count = len(frames)
        texts = (sessions, identities, peers, notes)
        if not count or any(type(each) is tuple and len(each) != count for each in texts):
            raise EncodeError("rows need a frame, and for each a session, an identity, a peer and a note")
        frame_bytes = len(frames.joined) if isinstance(frames, Alike) else sum(map(len, frames))
        size = self._bytes_in + frame_bytes + count * LOG_RECORD_OVERHEAD_BYTES
        if size > self._look_at:
            self._decide(size)
        self._bytes_in = size
        self.next_seq += count
        # A negative count says that these four may have a value for each record.
        self._cells.extend(
            (-count, at_us, protocol, event, direction, sessions, identities, peers, notes, frames, size)
        )
        if self.resting:
            self._wake()
        return self._commit

    @property
    def bytes(self) -> int:
        """How much waits, as the limit counts."""
        return self._bytes_in - self._bytes_out

    @property
    def waiting(self) -> bool:
        return bool(self._cells or self._full)

    @property
    def awaited(self) -> bool:
        """Whether somebody waits for what has gathered, or a whole block of it has."""
        return bool(self._full) or self._commit.awaited

    @property
    def refusal(self) -> str:
        """Why nothing is accepted at the moment, or nothing."""
        return self._refusal

    def take(self) -> tuple[Commit, list[Any]]:
        """The next block's cells, and the commit of those who wait for them. Both may be of nobody."""
        with self._lock:
            if self._full:
                commit, cells = self._full.popleft()
            else:
                commit, self._commit = self._commit, Commit(self._wanted)  # before the cells are taken: see above
                count = len(self._cells)
                cells = self._cells[:count]
                del self._cells[:count]
                self._block_end = (cells[-1] if cells else self._bytes_in) + LOG_BLOCK_BYTES
            if cells:
                self._bytes_out = cells[-1]
            self._set_limits()
        return commit, cells

    def refuse(self, reason: str) -> None:
        """Accept nothing until `accept`; once closed, never."""
        with self._lock:
            if self._refusal != CLOSED:
                self._refusal = reason
            self._set_limits()

    def accept(self) -> None:
        self.refuse("")

    def _set_limits(self) -> None:
        self._look_at = 0 if self._refusal else min(self._block_end, self._bytes_out + self._bytes_max)

    def _decide(self, size: int) -> None:
        """A limit is passed: accept with a new block begun, or raise the reason not to."""
        added = size - self._bytes_in
        with self._lock:
            if self._refusal:
                raise StateError(CLOSED) if self._refusal == CLOSED else LogWriteError(self._refusal)
            if added > LOG_CALL_BYTES_MAX:
                raise EncodeError(f"{added} bytes in one call, over the limit of {LOG_CALL_BYTES_MAX}")
            # A record larger than the limit is accepted when nothing else waits.
            if size > self._bytes_out + self._bytes_max and self.waiting:
                raise BusyError(f"the log is behind: {self.bytes} bytes wait for the disk")
            if size > self._block_end:
                if self._cells:
                    self._full.append((self._commit, self._cells))
                    self._cells = []
                    self._commit = Commit(self._wanted)
                self._block_end = self._bytes_in + max(LOG_BLOCK_BYTES, added)
            self._set_limits()
