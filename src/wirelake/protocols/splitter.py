"""Split a stream of bytes into whole frames, in whatever chunks it arrives.

A splitter knows only how long frames are; `decode` knows what they mean. The frames that it returns are what goes into
the log. Each protocol implements `_ends`, which finds where its frames end.
"""

from functools import lru_cache
from itertools import pairwise
from struct import Struct as Layout
from typing import ClassVar, Final

from wirelake.errors import LimitError, ProtocolError
from wirelake.limits import SPLITTER_JOIN_BYTES_MAX

CODEC_FAULT: Final = "codec_fault"  # code of the error that stands for an exception in a protocol's own code
_CUT_TOGETHER: Final = 64  # frames of one length that are cut with one call


def cut(buffer: bytes, ends: list[int]) -> list[bytes]:
    """Return the frames between the ends, of which the first is 0. Runs of one length are cut many times faster."""
    count = len(ends) - 1
    size = ends[1] if count else 0
    if count < _CUT_TOGETHER or ends[-1] != size * count or ends != list(range(0, ends[-1] + 1, size)):
        return [buffer[start:end] for start, end in pairwise(ends)]
    frames: list[bytes] = []
    many, start = _many(size), 0
    for _ in range(count // _CUT_TOGETHER):
        frames += many.unpack_from(buffer, start)
        start += many.size
    return frames + [buffer[at : at + size] for at in range(start, ends[-1], size)]


@lru_cache(maxsize=256)
def _many(size: int) -> Layout:
    return Layout(f"{size}s" * _CUT_TOGETHER)


class Splitter:
    """Takes bytes by `receive`, and returns whole frames. Check `failure` after each call.

    Frames before the bad one are still returned. After a failure, nothing more is read: `rest` holds the bytes from the
    first byte of the bad frame on, as far as they have arrived.
    """

    __slots__ = ("_held", "_need", "failure", "frame_bytes_max", "position", "retry")
    plain: ClassVar[bool] = True  # whether frames travel as they are; else see `bare` and `wrap`

    def __init__(self, frame_bytes_max: int) -> None:
        self.frame_bytes_max = frame_bytes_max  # may be raised later, for example after a login
        self.position = 0  # where the first incomplete frame begins in the stream
        self.failure: ProtocolError | None = None
        self.retry = False  # a held frame was too long and no longer is: see `receive_again`
        self._held: bytes | bytearray = b""
        self._need = 0  # with fewer bytes than this, there cannot be another whole frame

    @property
    def rest(self) -> bytes:
        """Return the bytes that arrived but are not, or cannot become, a whole frame."""
        return bytes(self._held)

    def set_limit(self, frame_bytes_max: int) -> None:
        """Change how long a frame may be. The next `receive` tries again a frame that was too long until now."""
        if frame_bytes_max > self.frame_bytes_max and isinstance(self.failure, LimitError):
            self.failure = None
            self.retry = True
            self._need = 0
            self._look_again()
        self.frame_bytes_max = frame_bytes_max

    def _look_again(self) -> None:
        """Forget how far the incomplete frame was scanned."""

    @property
    def held_bytes(self) -> int:
        """Return the size of `rest`."""
        return len(self._held)

    def discard(self, keep_bytes: int = 0) -> bytes:
        """Drop `rest`, and return its first bytes."""
        held, self._held = self._held, b""
        return bytes(held[:keep_bytes])

    def receive(self, data: bytes) -> list[bytes]:
        """Return the frames that `data` completes, in order."""
        if self.failure is not None:
            return []
        buffer: bytes | bytearray = data
        if self._held:
            buffer = self._join_held(data)
            if len(buffer) < self._need:
                return []
        ends: list[int] = [0]
        try:
            self._need = self._ends(buffer, ends)
        except ProtocolError as error:
            self.failure = error.shift(self.position)
        except Exception as error:  # noqa: BLE001 (a fault of an added protocol ends its own stream only)
            text = f"{type(self).__name__} raised {type(error).__name__}: {error}"
            self.failure = ProtocolError(CODEC_FAULT, text, self.position)
        done = ends[-1]
        self.position += done
        if isinstance(buffer, bytes):
            self._held = buffer[done:]
            return cut(buffer, ends)
        if not done:
            return []
        with memoryview(buffer) as view:
            whole = bytes(view[:done])
        del buffer[:done]
        self._held = bytes(buffer) if len(buffer) <= SPLITTER_JOIN_BYTES_MAX else buffer
        return cut(whole, ends)

    def receive_again(self) -> list[bytes]:
        """Return the frames in the held bytes, now that the limit is higher."""
        self.retry = False
        return self.receive(b"")

    def bare(self, frame: bytes) -> bytes:
        """Return the frame without what the transport put before it, as `decode` takes it."""
        return frame

    def wrap(self, frame: bytes) -> bytes:
        """Return an encoded frame as it is written to this transport: the opposite of `bare`."""
        return frame

    def finish(self) -> None:
        """Take note that the stream ended: an incomplete frame is a failure."""
        if self._held and self.failure is None:
            text = f"the bytes end inside a frame: {len(self._held)} here, at least {self._need} needed"
            self.failure = ProtocolError("incomplete", text, self.position + len(self._held))

    def _join_held(self, data: bytes) -> bytes | bytearray:
        held = self._held
        if isinstance(held, bytes):
            if len(held) + len(data) <= SPLITTER_JOIN_BYTES_MAX:
                self._held = held + data
                return self._held
            held = self._held = bytearray(held)
        held += data
        return held

    def _ends(self, buffer: bytes | bytearray, ends: list[int]) -> int:
        """Append the end of each whole frame in `buffer`. Return how many bytes the next one needs at least.

        They count from the end of the last whole frame. Raise ProtocolError with an offset into `buffer`.
        """
        raise NotImplementedError

    def _check_size(self, size: int, offset: int, limit_name: str) -> None:
        if size > self.frame_bytes_max:
            text = f"a frame of {size} bytes is over the limit of {self.frame_bytes_max}"
            raise LimitError(limit_name, text, offset)


class DatagramSplitter(Splitter):
    """For transports that preserve message boundaries: each message is one frame."""

    __slots__ = ()

    def _ends(self, buffer: bytes | bytearray, ends: list[int]) -> int:
        self._check_size(len(buffer), 0, "message_bytes_max")
        if buffer:
            ends.append(len(buffer))
        return 1
