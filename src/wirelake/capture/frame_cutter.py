"""Cut one direction of a captured connection into frames, also after a gap.

A splitter cannot find the next frame once it has lost its place: after a gap, after bytes that are no frame, or if the
capture began in the middle of the connection. A new frame is then searched for where segments begin, and only taken
for one if its clues make chance unlikely (`CAPTURE_RESYNC_BITS`). All other bytes are unreadable, and say where they
are.
"""

from collections import deque
from typing import Final, NamedTuple, Protocol

from wirelake.errors import ProtocolError
from wirelake.limits import CAPTURE_RESYNC_BITS, CAPTURE_TRIAL_BYTES_MAX, CAPTURE_TRIAL_PIECES_MAX, QUARANTINE_BYTES_MAX
from wirelake.protocols.frame import Sender
from wirelake.protocols.inspection import weigh
from wirelake.protocols.protocol import Carrier
from wirelake.protocols.protocol import Protocol as WireProtocol

MID_STREAM: Final = ProtocolError("mid_stream", "the capture begins inside the connection, and no frame begins here", 0)
_AFTER_GAP: Final = ProtocolError("after_gap", "bytes after a gap in the capture, and no frame begins here", 0)
_AFTER_FAILURE: Final = ProtocolError("after_failure", "bytes after unreadable ones, and no frame begins here", 0)


class CutFrames(Protocol):
    """Receive what a direction is cut into."""

    def on_frames(self, sender: Sender, at_us: int, frames: list[bytes]) -> None: ...

    def on_unreadable(self, sender: Sender, at_us: int, data: bytes, error: ProtocolError) -> None: ...

    def on_gap(self, sender: Sender, at_us: int, offset: int, missing_bytes: int) -> None: ...


class _Piece(NamedTuple):
    at_us: int
    offset: int
    data: bytes


class FrameCutter:
    """Cut the stream of one sender. Offsets count from the first byte of the stream, gaps included."""

    def __init__(
        self, protocol: WireProtocol, sender: Sender, carrier: Carrier, cut: CutFrames, lost: ProtocolError | None
    ) -> None:
        """`lost` says why it is not known where the first frame begins, if it is not."""
        self.offset = 0
        self._protocol = protocol
        self._sender = sender
        self._carrier = carrier
        self._cut = cut
        self._splitter = protocol.splitter(sender, carrier)
        self._base = 0  # the offset of the splitter's first byte
        self._lost = lost
        self._held: deque[_Piece] = deque()  # while lost: a frame may begin with the first piece
        self._held_bytes = 0

    def receive(self, at_us: int, data: bytes) -> None:
        piece = _Piece(at_us, self.offset, data)
        self.offset += len(data)
        if self._lost is None:
            self._split(piece)
        else:
            self._held.append(piece)
            self._held_bytes += len(data)
            self._search()

    def skip(self, at_us: int, missing_bytes: int) -> None:
        """Go on behind bytes that the capture lacks."""
        self._drop_held()
        text = f"the capture lacks the {missing_bytes} bytes that follow, so this frame is not whole"
        self._quarantine_rest(at_us, ProtocolError("gap", text, self.offset))
        self._cut.on_gap(self._sender, at_us, self.offset, missing_bytes)
        self.offset += missing_bytes
        self._lost = _AFTER_GAP

    def finish(self, at_us: int) -> None:
        self._drop_held()
        if self._lost is None:
            text = f"the connection ends inside a frame: {self._splitter.held_bytes} bytes of it were captured"
            self._quarantine_rest(at_us, ProtocolError("incomplete", text, self.offset))

    def _split(self, piece: _Piece) -> None:
        splitter = self._splitter
        frames = splitter.receive(piece.data)
        if frames:
            bare = frames if splitter.plain else [splitter.bare(frame) for frame in frames]
            self._cut.on_frames(self._sender, piece.at_us, bare)
        if splitter.failure is not None:
            self._quarantine_rest(piece.at_us, splitter.failure.shift(self._base))
            self._lost = _AFTER_FAILURE

    def _quarantine_rest(self, at_us: int, error: ProtocolError) -> None:
        """Quarantine the bytes of a frame that is not whole."""
        rest = self._splitter.rest if self._lost is None else b""
        start = self._base + self._splitter.position
        for place in range(0, len(rest), QUARANTINE_BYTES_MAX):
            at = error.offset if not place else start + place
            part = rest[place : place + QUARANTINE_BYTES_MAX]
            self._cut.on_unreadable(self._sender, at_us, part, ProtocolError(error.code, error.text, at))
        self._splitter.discard()

    # Searching for the next frame

    def _search(self) -> None:
        """Go on with the first piece that surely begins with a frame. Hold those that still can."""
        pieces = [piece.data for piece in self._held]
        can_begin = []
        for index in range(len(pieces)):
            found = weigh(b"".join(pieces[index:]), self._protocol, self._carrier, self._sender)
            can_begin.append(found.failure is None)
            if found.failure is None and found.bits >= CAPTURE_RESYNC_BITS:
                for _ in range(index):
                    self._drop_first()
                self._resume()
                return
        for can in can_begin:
            if can and self._held_bytes <= CAPTURE_TRIAL_BYTES_MAX and len(self._held) <= CAPTURE_TRIAL_PIECES_MAX:
                return  # wait for more
            self._drop_first()

    def _resume(self) -> None:
        self._lost = None
        self._splitter = self._protocol.splitter(self._sender, self._carrier)
        self._base = self._held[0].offset
        while self._held and self._lost is None:
            self._split(self._held.popleft())
        self._held_bytes = sum(len(piece.data) for piece in self._held)

    def _drop_held(self) -> None:
        while self._held:
            self._drop_first()

    def _drop_first(self) -> None:
        piece = self._held.popleft()
        self._held_bytes -= len(piece.data)
        error = self._lost or _AFTER_FAILURE
        for place in range(0, len(piece.data), QUARANTINE_BYTES_MAX):
            part = piece.data[place : place + QUARANTINE_BYTES_MAX]
            self._cut.on_unreadable(self._sender, piece.at_us, part, error.shift(piece.offset + place))


def cut_message(
    protocol: WireProtocol, sender: Sender, carrier: Carrier, at_us: int, message: bytes, cut: CutFrames
) -> None:
    """Cut a datagram or a WebSocket message, which begins with a frame and ends with one."""
    splitter = protocol.splitter(sender, carrier)
    frames = splitter.receive(message)
    splitter.finish()
    if frames:
        cut.on_frames(sender, at_us, frames if splitter.plain else [splitter.bare(frame) for frame in frames])
    if splitter.failure is not None:
        cut.on_unreadable(sender, at_us, splitter.rest, splitter.failure)
