"""Limit how much of a connection is read in one turn of the event loop, and pause reading.

A turn ends after `GATEWAY_TURN_S`, even if frames are left; the rest waits in the gateway's `FairQueue`. Reading is
paused while the peer does not read its responses, while a long request of the peer is in progress, while the log is
behind, and while the peer exceeds its rate.
"""

import asyncio
from collections.abc import Callable
from time import monotonic
from typing import Protocol

from wirelake.config import LimitsSection
from wirelake.gateway.transport.fair_queue import FairQueue
from wirelake.gateway.transport.stalls import Later, Stall, StallMonitor
from wirelake.limits import (
    GATEWAY_BUSY_PAUSE_S,
    GATEWAY_CUT_BYTES,
    GATEWAY_TURN_BYTES_MAX,
    GATEWAY_TURN_BYTES_MIN,
    GATEWAY_TURN_FRAMES,
)
from wirelake.protocols.splitter import Splitter


class TokenBucket:
    """Allow `rate` tokens per second on average, and bursts of `burst_s` seconds' worth.

    The bucket may be overdrawn, because bytes are charged after they were read.
    """

    __slots__ = ("_at_s", "_capacity", "_tokens", "rate")

    def __init__(self, rate: float, now_s: float, burst_s: float = 1.0) -> None:
        self.rate = rate
        self._capacity = self._tokens = rate * burst_s
        self._at_s = now_s

    def take(self, amount: float, now_s: float) -> float:
        """Take tokens; a negative amount refunds them. Return for how many seconds the bucket is overdrawn."""
        tokens = min(self._capacity, self._tokens + (now_s - self._at_s) * self.rate) - amount
        self._at_s, self._tokens = now_s, tokens
        return 0.0 if tokens >= 0 else -tokens / self.rate

    def available(self, now_s: float) -> float:
        """Return how many tokens are available now."""
        return min(self._capacity, self._tokens + (now_s - self._at_s) * self.rate)


class LimitedReader(Protocol):
    """Handle the bytes of a connection when the read limiter says so."""

    @property
    def share(self) -> str:
        """Return the share of the `FairQueue` that this connection uses."""
        ...

    @property
    def has_more(self) -> bool:
        """Return whether the last turn ended before all bytes were handled."""
        ...

    @property
    def is_blocked(self) -> bool:
        """Return whether earlier requests have to be answered first."""
        ...

    @property
    def pending_bytes(self) -> int:
        """Return how many bytes were written and not yet read by the peer."""
        ...

    def read(self, data: bytes) -> None:
        """Handle bytes, as many as fit into a turn."""
        ...

    def continue_reading(self) -> None:
        """Handle what the last turn left."""
        ...

    def disconnect(self, code: str, text: str) -> None:
        """Abort the connection: its peer does not read."""
        ...


class ReadScheduler:
    """Bundle what all read limiters of a gateway share."""

    def __init__(
        self,
        queue: FairQueue,
        stalls: StallMonitor,
        later: Later,
        limits: Callable[[], LimitsSection],
        is_log_behind: Callable[[], bool],
    ) -> None:
        """`limits` returns the current settings. Reading is paused while `is_log_behind` returns True."""
        self.queue = queue
        self.stalls = stalls
        self.later = later
        self.limits = limits
        self.is_log_behind = is_log_behind


class ReadLimiter:
    """Decide when a connection is read. Its reader reports the bytes and frames of each read with `count_read`."""

    __slots__ = (
        "_bytes_bucket",
        "_frames_bucket",
        "_is_scheduled",
        "_is_stopped",
        "_pause_s",
        "_reader",
        "_scheduler",
        "_transport",
        "_turn_bytes",
        "_unread",
        "is_paused",
        "pending_max",
        "stall",
    )

    def __init__(
        self, scheduler: ReadScheduler, transport: asyncio.Transport, reader: LimitedReader, now_s: float
    ) -> None:
        limits = scheduler.limits()
        self._scheduler = scheduler
        self._transport = transport
        self._reader = reader
        self._frames_bucket = TokenBucket(limits.frames_per_second, now_s)
        self._bytes_bucket = TokenBucket(limits.bytes_per_second, now_s)
        self._turn_bytes = GATEWAY_TURN_BYTES_MIN
        self._unread = b""  # received, but not yet passed to the reader
        self._pause_s = 0.0  # pause after this turn
        self._is_stopped = False  # nothing more will be read
        self._is_scheduled = False  # a turn is queued, or a timer will queue one
        self.pending_max = limits.pending_bytes
        self.stall: Stall | None = None  # while the peer does not read its responses
        self.is_paused = False  # the socket is not read
        transport.set_write_buffer_limits(high=self.pending_max, low=self.pending_max // 2)

    def on_data(self, data: bytes) -> None:
        """Pass received bytes to the reader now, or queue a turn for them."""
        if self.is_paused:  # a TLS transport may deliver data after reading was paused
            self._unread += data
            return
        share, queue = self._reader.share, self._scheduler.queue
        self._unread = data
        started_s = monotonic()
        if queue.must_wait(share, started_s):
            self._pause_reading()
            self._queue()
            return
        self._take_turn()
        queue.charge(share, monotonic() - started_s)

    def put_back(self, data: bytes) -> None:
        """Put back bytes that did not fit into this turn; the next turn reads them first."""
        self._unread = data + self._unread

    @property
    def unread_bytes(self) -> int:
        """Return how many bytes were received and not yet passed to the reader."""
        return len(self._unread)

    def pause(self, pause_s: float) -> None:
        """Pause reading for at least `pause_s` after this turn."""
        self._pause_s = max(self._pause_s, pause_s)

    def count_read(self, size: int, frames: int, now_s: float) -> None:
        """Charge a read to the rate limits, and adapt the size of a turn to the size of its frames."""
        if frames:
            turn_bytes = GATEWAY_TURN_FRAMES * size // frames
            self._turn_bytes = max(GATEWAY_TURN_BYTES_MIN, min(turn_bytes, GATEWAY_TURN_BYTES_MAX))
        self._pause_s = max(self._bytes_bucket.take(size, now_s), self._frames_bucket.take(frames, now_s))

    def wake(self) -> None:
        """Check whether reading can resume: a response was sent, or the peer has read bytes."""
        if self._is_scheduled and self.stall is None:
            return  # the scheduled turn checks that
        if not self._is_stalled() and self.is_paused and not self._is_scheduled and not self._reader.is_blocked:
            self._queue()

    def schedule_turn(self) -> None:
        """Queue a turn for what the reader has left. Called outside of its own turns."""
        if not self._is_scheduled:
            self._pause_reading()
            self._queue()

    def check_output(self) -> None:
        """Check for a stall after a write: a peer that only receives has no turns."""
        self._is_stalled()

    def stop(self) -> None:
        """Stop reading for good."""
        self._pause_reading()
        self._is_stopped = True

    def discard(self) -> None:
        """Drop unread bytes: the connection is closed."""
        self._is_stopped = True
        self._unread = b""
        if self.stall is not None:
            self.stall.end()

    def _take_turn(self) -> None:
        reader = self._reader
        if (self.is_paused or self.stall is not None) and (reader.is_blocked or self._is_stalled()):
            self._pause_reading()
            self._recheck_later()
            return
        if self._scheduler.is_log_behind():
            self._pause_reading()
            self._later(GATEWAY_BUSY_PAUSE_S)
            return
        self._pause_s = 0.0
        self._is_scheduled = True  # `wake` need not queue a turn: the end of this one checks again
        if reader.has_more:
            reader.continue_reading()
        elif self._unread:
            data, self._unread = self._unread, b""
            if len(data) > self._turn_bytes:  # the event loop may deliver megabytes at once
                data, self._unread = data[: self._turn_bytes], data[self._turn_bytes :]
            reader.read(data)
        self._is_scheduled = False
        if self._is_stopped:
            return
        if reader.is_blocked or self._is_stalled():
            self._pause_reading()
            self._recheck_later()
        elif self._pause_s:
            self._pause_reading()
            self._later(self._pause_s)
        elif reader.has_more or self._unread:
            self._pause_reading()
            self._queue()
        elif self.is_paused and not self._transport.is_closing():
            self.is_paused = False
            self._transport.resume_reading()

    def _is_stalled(self) -> bool:
        pending = self._reader.pending_bytes
        if self.stall is not None:
            if pending > self.pending_max // 2:
                return True
            self.stall.end()
        elif pending > self.pending_max:
            self._scheduler.stalls.add(self)
            return True
        return False

    def _pause_reading(self) -> None:
        if not self.is_paused:
            self.is_paused = True
            if not self._transport.is_closing():
                self._transport.pause_reading()

    def _recheck_later(self) -> None:
        """Schedule a turn in case nothing calls `wake`: a session may become ready by itself."""
        if self.stall is None:
            self._later(GATEWAY_BUSY_PAUSE_S)

    def _later(self, pause_s: float) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            self._scheduler.later(pause_s, self._queue)

    def _queue(self) -> None:
        self._is_scheduled = True
        self._scheduler.queue.add_read(self._reader.share, self._turn)

    def _turn(self) -> None:
        self._is_scheduled = False
        if self._is_stopped or self._transport.is_closing():
            return
        try:
            self._take_turn()
        except BaseException:
            self._transport.abort()  # as the event loop does when `data_received` fails
            raise

    # Interface for the stall monitor

    @property
    def pending_bytes(self) -> int:
        return self._reader.pending_bytes

    def disconnect(self, code: str, text: str) -> None:
        self._reader.disconnect(code, text)


def cut_frames(splitter: Splitter, data: bytes) -> tuple[list[bytes], bytes]:
    """Split off as many frames as fit into a turn. Return them and the remaining bytes.

    Pass the data to the splitter in chunks, because it may hold thousands of tiny frames.
    """
    if len(data) <= GATEWAY_CUT_BYTES:
        return splitter.receive(data), b""
    frames: list[bytes] = []
    place = 0
    while place < len(data) and len(frames) < GATEWAY_TURN_FRAMES and splitter.failure is None:
        frames += splitter.receive(data[place : place + GATEWAY_CUT_BYTES])
        place += GATEWAY_CUT_BYTES
    return frames, data[place:]
