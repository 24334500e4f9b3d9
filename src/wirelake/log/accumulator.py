"""Buffer records until they are written: filled by the thread that appends, drained by the thread that writes.

Appending takes no lock. A caller (1) adds its cells to the list, then (2) reads which commit is the current one. The
writer (1) installs a new commit, then (2) takes the cells out of the list, and (3) resolves the old commit once they
are on disk. So whoever holds the old commit had added its cells before they were taken. A caller in between may hold
the new commit for cells that went with the old one: it learns of them one block later, never too early. That is why the
writer drains once more after each block, and also resolves a commit that has no cells.

What exceeds the size of a block is set aside as a block with a commit of its own, so that the first records of a burst
do not wait for the last. This, and every change of the limits, happens under a lock: once for each block.
"""

from collections import deque
from collections.abc import Callable, Sequence
from threading import Lock
from typing import Any, Final

from wirelake.commit import Commit
from wirelake.errors import BusyError, EncodeError, LogWriteError, StateError
from wirelake.limits import LOG_BLOCK_BYTES, LOG_CALL_BYTES_MAX, LOG_RECORD_OVERHEAD_BYTES
from wirelake.log.interface import FixedSizeFrames, Texts

CLOSED: Final = "the log is closed"


class RecordAccumulator:
    """Collect records into blocks. Only the event loop's thread may append; the other methods are the writer's."""

    def __init__(
        self, next_seq: int, bytes_max: int, wake: Callable[[], None], on_wait: Callable[[], None] | None = None
    ) -> None:
        """`wake` is called when a record arrives while the writer is idle, `on_wait` when a caller starts to wait."""
        self.next_seq = next_seq  # of the next record
        self.is_writer_idle = False  # the writer waits for `wake`
        self._wake = wake
        self._on_wait = on_wait
        self._bytes_max = bytes_max
        self._lock = Lock()
        self._cells: list[Any] = []
        self._commit = Commit(on_wait)
        self._full_blocks: deque[tuple[Commit, list[Any]]] = deque()  # set aside, older than `_cells`
        self._bytes_in = 0  # total that callers appended
        self._bytes_out = 0  # total that the writer drained
        self._block_end = LOG_BLOCK_BYTES  # when `_bytes_in` passes this, `_cells` are set aside
        self._check_at = 0  # when `_bytes_in` passes this, a limit has to be checked
        self._refusal = ""
        self._update_check_at()

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
        """Append one record. Return the commit of its block, shared with the other records there."""
        size = self._bytes_in + len(frame) + LOG_RECORD_OVERHEAD_BYTES
        if size > self._check_at:
            self._check_limits(size)
        self._bytes_in = size
        self.next_seq += 1
        self._cells.extend((1, at_us, protocol, event, direction, session, identity, peer, note, frame, size))
        if self.is_writer_idle:
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
        """Append the frames of one read from a socket, all in one block."""
        count = len(frames)
        if count < 2:
            if not count:
                raise EncodeError("append_many needs at least one frame")
            return self.append(at_us, protocol, event, direction, session, identity, peer, frames[0], note)
        size = self._bytes_in + sum(map(len, frames)) + count * LOG_RECORD_OVERHEAD_BYTES
        if size > self._check_at:
            self._check_limits(size)
        self._bytes_in = size
        self.next_seq += count
        frames = tuple(frames)  # the caller may reuse its list
        self._cells.extend((count, at_us, protocol, event, direction, session, identity, peer, note, frames, size))
        if self.is_writer_idle:
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
        frames: tuple[bytes, ...] | FixedSizeFrames,
        notes: Texts = "",
    ) -> Commit:
        """Append frames of several sessions, all in one block."""
        count = len(frames)
        texts = (sessions, identities, peers, notes)
        if not count or any(type(each) is tuple and len(each) != count for each in texts):
            raise EncodeError("append_rows needs a frame, and a session, identity, peer and note for each frame")
        frame_bytes = len(frames.joined) if isinstance(frames, FixedSizeFrames) else sum(map(len, frames))
        size = self._bytes_in + frame_bytes + count * LOG_RECORD_OVERHEAD_BYTES
        if size > self._check_at:
            self._check_limits(size)
        self._bytes_in = size
        self.next_seq += count
        # A negative count says that sessions, identities, peers and notes may hold a value for each record.
        self._cells.extend(
            (-count, at_us, protocol, event, direction, sessions, identities, peers, notes, frames, size)
        )
        if self.is_writer_idle:
            self._wake()
        return self._commit

    @property
    def buffered_bytes(self) -> int:
        """Return how much waits for the writer, as the limit counts it."""
        return self._bytes_in - self._bytes_out

    @property
    def has_records(self) -> bool:
        return bool(self._cells or self._full_blocks)

    @property
    def is_urgent(self) -> bool:
        """Tell whether a caller waits for buffered records, or a whole block is buffered."""
        return bool(self._full_blocks) or self._commit.has_waiters

    @property
    def refusal(self) -> str:
        """Return why appends are refused at the moment, or an empty string."""
        return self._refusal

    def drain(self) -> tuple[Commit, list[Any]]:
        """Take the cells of the next block and their commit. There may be no cells, and nobody waiting."""
        with self._lock:
            if self._full_blocks:
                commit, cells = self._full_blocks.popleft()
            else:
                commit, self._commit = self._commit, Commit(self._on_wait)  # before the cells are taken: see above
                count = len(self._cells)
                cells = self._cells[:count]
                del self._cells[:count]
                self._block_end = (cells[-1] if cells else self._bytes_in) + LOG_BLOCK_BYTES
            if cells:
                self._bytes_out = cells[-1]
            self._update_check_at()
        return commit, cells

    def refuse(self, reason: str) -> None:
        """Refuse appends until `accept` is called; for good if the reason is `CLOSED`."""
        with self._lock:
            if self._refusal != CLOSED:
                self._refusal = reason
            self._update_check_at()

    def accept(self) -> None:
        """Accept appends again."""
        self.refuse("")

    def _update_check_at(self) -> None:
        self._check_at = 0 if self._refusal else min(self._block_end, self._bytes_out + self._bytes_max)

    def _check_limits(self, size: int) -> None:
        """Start a new block if the current one is full; raise the reason if the records cannot be accepted."""
        added = size - self._bytes_in
        with self._lock:
            if self._refusal:
                raise StateError(CLOSED) if self._refusal == CLOSED else LogWriteError(self._refusal)
            if added > LOG_CALL_BYTES_MAX:
                raise EncodeError(f"{added} bytes in one append exceed the limit of {LOG_CALL_BYTES_MAX}")
            # A record larger than the limit is accepted when nothing else waits.
            if size > self._bytes_out + self._bytes_max and self.has_records:
                raise BusyError(f"the log is behind: {self.buffered_bytes} bytes wait for the disk; try again later")
            if size > self._block_end:
                if self._cells:
                    self._full_blocks.append((self._commit, self._cells))
                    self._cells = []
                    self._commit = Commit(self._on_wait)
                self._block_end = self._bytes_in + max(LOG_BLOCK_BYTES, added)
            self._update_check_at()
