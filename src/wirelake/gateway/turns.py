"""How much of one connection is read in one turn of the event loop, and in one second: others have their turns too."""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from wirelake.gateway.buckets import Bucket
from wirelake.limits import (
    GATEWAY_BUSY_PAUSE_S,
    GATEWAY_TURN_BYTES_MAX,
    GATEWAY_TURN_BYTES_MIN,
    GATEWAY_TURN_FRAMES,
)

if TYPE_CHECKING:
    from wirelake.gateway.gateway import Gateway


class Turns:
    """Between the transport and `read`, which is given the bytes of one turn and says with `took` what they were."""

    __slots__ = ("_bytes_bucket", "_frames_bucket", "_gateway", "_read", "_transport", "_turn_bytes", "_unread")

    def __init__(self, gateway: "Gateway", transport: asyncio.Transport, read: Callable[[bytes], None]) -> None:
        limits, now_s = gateway.settings.limits, gateway.now_s()
        self._gateway = gateway
        self._transport = transport
        self._read = read
        self._frames_bucket = Bucket(limits.frames_per_second, now_s)
        self._bytes_bucket = Bucket(limits.bytes_per_second, now_s)
        self._turn_bytes = GATEWAY_TURN_BYTES_MIN
        self._unread = b""  # come, but not yet looked at: the log had no room for it, or the turn was over

    def received(self, data: bytes) -> None:
        if self._unread:  # TLS may hand over a little more after reading stopped
            self._unread += data
            return
        if self._gateway.log_behind:
            self._unread = data  # no more than one read: reading stops here
            self._read_later(GATEWAY_BUSY_PAUSE_S)
            return
        turn = self._turn_bytes
        if len(data) > turn:  # the event loop hands over megabytes at once where they are there
            data, self._unread = data[:turn], data[turn:]
        self._read(data)
        if self._unread:
            self._read_later(0.0)

    def discard(self) -> None:
        """The connection is gone: let go of what was not read."""
        self._unread = b""

    def took(self, size: int, frames: int, now_s: float, *, paused: bool = False) -> None:
        """So many bytes were so many frames. `paused`: whoever reads them wants a moment without more."""
        if frames:
            like_these = GATEWAY_TURN_FRAMES * size // frames
            self._turn_bytes = max(GATEWAY_TURN_BYTES_MIN, min(like_these, GATEWAY_TURN_BYTES_MAX))
        pause_s = max(self._bytes_bucket.take(size, now_s), self._frames_bucket.take(frames, now_s))
        if pause_s or paused:
            self._read_later(pause_s or GATEWAY_BUSY_PAUSE_S)

    def _read_later(self, pause_s: float) -> None:
        if self._transport.is_reading():
            self._transport.pause_reading()
            self._gateway.later(pause_s, self._read_on)

    def _read_on(self) -> None:
        if self._transport.is_closing():
            return
        self._transport.resume_reading()
        if self._unread:
            data, self._unread = self._unread, b""
            self.received(data)
