"""Decide when a connection is read: how much of it in one turn of the event loop, and when not at all.

A turn ends after `GATEWAY_TURN_S`, wherever it is among the frames that came. The rest waits its turn in the gateway's
`FairQueue`. Nothing more is read while the peer does not take what it was answered, while a long request of its own is
under way, while the log is behind, and while the peer exceeds its rate.
"""

import asyncio
from time import monotonic
from typing import TYPE_CHECKING, Protocol

from wirelake.gateway.transport.token_bucket import TokenBucket
from wirelake.limits import (
    GATEWAY_BUSY_PAUSE_S,
    GATEWAY_CUT_BYTES,
    GATEWAY_TURN_BYTES_MAX,
    GATEWAY_TURN_BYTES_MIN,
    GATEWAY_TURN_FRAMES,
)
from wirelake.protocols.splitter import Splitter

if TYPE_CHECKING:
    from wirelake.gateway.gateway import Gateway
    from wirelake.gateway.transport.stalls import Stall


class LimitedReader(Protocol):
    """What reads a connection's bytes."""

    @property
    def share(self) -> str:
        """Return whose share of the event loop's time this connection uses."""
        ...

    @property
    def has_more(self) -> bool:
        """Return whether the last turn ended before all that was read was handled."""
        ...

    @property
    def is_held(self) -> bool:
        """Return whether what was asked already has to be answered first."""
        ...

    @property
    def pending_bytes(self) -> int:
        """Return how much was answered and not yet taken by the peer."""
        ...

    def read(self, data: bytes) -> None:
        """Handle these bytes, as many as fit a turn."""
        ...

    def read_on(self) -> None:
        """Go on with what the last turn left."""
        ...

    def give_up(self, code: str, text: str) -> None:
        """Close the connection: its peer does not read."""
        ...


class ReadLimiter:
    """Between the transport and a `Reader`, which says with `took` what the bytes were."""

    __slots__ = (
        "_bytes_bucket",
        "_ended",
        "_frames_bucket",
        "_gateway",
        "_is_due",
        "_pause_s",
        "_reader",
        "_transport",
        "_turn_bytes",
        "_unread",
        "pending_max",
        "stall",
        "stopped",
    )

    def __init__(self, gateway: "Gateway", transport: asyncio.Transport, reader: LimitedReader) -> None:
        limits, now_s = gateway.settings.limits, gateway.now_s()
        self._gateway = gateway
        self._transport = transport
        self._reader = reader
        self._frames_bucket = TokenBucket(limits.frames_per_second, now_s)
        self._bytes_bucket = TokenBucket(limits.bytes_per_second, now_s)
        self._turn_bytes = GATEWAY_TURN_BYTES_MIN
        self._unread = b""  # read from the socket, but not yet looked at
        self._pause_s = 0.0  # wanted after this turn
        self._ended = False  # nothing more is wanted
        self._is_due = False  # a turn is queued, or a timer will queue one
        self.pending_max = limits.pending_bytes
        self.stall: Stall | None = None  # while the peer does not take what it was answered
        self.stopped = False  # the socket is not read
        transport.set_write_buffer_limits(high=self.pending_max, low=self.pending_max // 2)

    def on_data(self, data: bytes) -> None:
        if self.stopped:  # TLS may hand over a little more after reading stopped
            self._unread += data
            return
        share, queue = self._reader.share, self._gateway.queue
        self._unread = data
        started_s = monotonic()
        if queue.must_wait(share, started_s):
            self._stop()
            self._queue()
            return
        self._take_turn()
        queue.charge(share, monotonic() - started_s)

    def put_back(self, data: bytes) -> None:
        """Keep for the next turn what did not fit this one."""
        self._unread = data + self._unread

    @property
    def unread_bytes(self) -> int:
        """Return how much came and was not read yet."""
        return len(self._unread)

    def pause(self, pause_s: float) -> None:
        """Read nothing for so long after this turn."""
        self._pause_s = max(self._pause_s, pause_s)

    def count_read(self, size: int, frames: int, now_s: float) -> None:
        """So many bytes were so many frames."""
        if frames:
            like_these = GATEWAY_TURN_FRAMES * size // frames
            self._turn_bytes = max(GATEWAY_TURN_BYTES_MIN, min(like_these, GATEWAY_TURN_BYTES_MAX))
        self._pause_s = max(self._bytes_bucket.take(size, now_s), self._frames_bucket.take(frames, now_s))

    def wake(self) -> None:
        """Look again whether the connection can be read: an answer was given, or bytes were taken by the peer."""
        if self._is_due and self.stall is None:
            return  # it is looked at soon anyway
        if not self._is_stalled() and self.stopped and not self._is_due and not self._reader.is_held:
            self._queue()

    def go_on_later(self) -> None:
        """Queue a turn for what the reader has left, outside of a turn of its own."""
        if not self._is_due:
            self._stop()
            self._queue()

    def output_grew(self) -> None:
        """Notice that the peer takes less than it is sent, also when it sends nothing."""
        self._is_stalled()

    def stop(self) -> None:
        """Read nothing more."""
        self._stop()
        self._ended = True

    def discard(self) -> None:
        """The connection is gone: let go of what was not read."""
        self._ended = True
        self._unread = b""
        if self.stall is not None:
            self.stall.end()

    def _take_turn(self) -> None:
        reader = self._reader
        if (self.stopped or self.stall is not None) and (reader.is_held or self._is_stalled()):
            self._stop()
            self._look_later()
            return
        if self._gateway.log_behind:
            self._stop()
            self._later(GATEWAY_BUSY_PAUSE_S)
            return
        self._pause_s = 0.0
        self._is_due = True  # what becomes possible during this turn is looked at when it is over
        if reader.has_more:
            reader.read_on()
        elif self._unread:
            data, self._unread = self._unread, b""
            if len(data) > self._turn_bytes:  # the event loop hands over megabytes at once where they are there
                data, self._unread = data[: self._turn_bytes], data[self._turn_bytes :]
            reader.read(data)
        self._is_due = False
        if self._ended:
            return
        if reader.is_held or self._is_stalled():
            self._stop()
            self._look_later()
        elif self._pause_s:
            self._stop()
            self._later(self._pause_s)
        elif reader.has_more or self._unread:
            self._stop()
            self._queue()
        elif self.stopped and not self._transport.is_closing():
            self.stopped = False
            self._transport.resume_reading()

    def _is_stalled(self) -> bool:
        pending = self._reader.pending_bytes
        if self.stall is not None:
            if pending > self.pending_max // 2:
                return True
            self.stall.end()
        elif pending > self.pending_max:
            self._gateway.stalls.begin(self)
            return True
        return False

    def _stop(self) -> None:
        if not self.stopped:
            self.stopped = True
            if not self._transport.is_closing():
                self._transport.pause_reading()

    def _look_later(self) -> None:
        """Most of what is waited for calls `wake`; a session's own queue does not always."""
        if self.stall is None:
            self._later(GATEWAY_BUSY_PAUSE_S)

    def _later(self, pause_s: float) -> None:
        if not self._is_due:
            self._is_due = True
            self._gateway.later(pause_s, self._queue)

    def _queue(self) -> None:
        self._is_due = True
        self._gateway.queue.add_read(self._reader.share, self._turn)

    def _turn(self) -> None:
        self._is_due = False
        if self._ended or self._transport.is_closing():
            return
        try:
            self._take_turn()
        except BaseException:
            self._transport.abort()  # as the event loop does when `data_received` fails
            raise

    # The stall's view

    @property
    def pending_bytes(self) -> int:
        return self._reader.pending_bytes

    def give_up(self, code: str, text: str) -> None:
        self._reader.give_up(code, text)


def cut_frames(splitter: Splitter, data: bytes) -> tuple[list[bytes], bytes]:
    """Cut so many frames as one turn may have, and return the bytes behind them.

    In pieces, because a piece may hold thousands of tiny frames where those before were long.
    """
    if len(data) <= GATEWAY_CUT_BYTES:
        return splitter.receive(data), b""
    frames: list[bytes] = []
    place = 0
    while place < len(data) and len(frames) < GATEWAY_TURN_FRAMES and splitter.failure is None:
        frames += splitter.receive(data[place : place + GATEWAY_CUT_BYTES])
        place += GATEWAY_CUT_BYTES
    return frames, data[place:]
