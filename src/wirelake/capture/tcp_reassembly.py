"""Put the segments of one direction of a TCP connection into the order in which they were sent."""

from heapq import heappop, heappush
from typing import Final, NamedTuple

from wirelake.limits import CAPTURE_WINDOW_BYTES_MAX

_SEQS: Final = 1 << 32


class StreamPiece(NamedTuple):
    """Bytes of a stream, and when they could be read."""

    at_us: int
    data: bytes


class TcpReassembly:
    """Take segments in the order of the capture, and return bytes in the order of the stream.

    Repeated bytes are dropped: what was returned once is never replaced. Bytes behind a missing segment wait for it
    until the caller decides that the capture lacks it (`skip_gap`).
    """

    def __init__(self) -> None:
        self.position = 0  # of the next byte, counted from the first one, with gaps
        self.repeated_bytes = 0
        self.waiting_bytes = 0
        self.end: int | None = None  # the position of the FIN
        self.first_seq: int | None = None  # of the first byte
        self._next_seq = 0  # at `position`
        self._waiting: dict[int, StreamPiece] = {}  # by position
        self._places: list[int] = []  # a heap of these positions

    @property
    def is_complete(self) -> bool:
        """Tell whether all bytes before the FIN were returned."""
        return self.end is not None and self.position >= self.end

    def start(self, seq: int) -> None:
        """Begin with this number, that of the byte after the SYN. Ignore it if the stream has begun."""
        if self.first_seq is None:
            self.first_seq = self._next_seq = seq % _SEQS

    def is_inside_window(self, seq: int) -> bool:
        """Tell whether a segment can belong to this connection."""
        return self.first_seq is None or abs(self._distance(seq)) <= CAPTURE_WINDOW_BYTES_MAX

    def receive(self, at_us: int, seq: int, data: bytes, *, fin: bool = False) -> list[StreamPiece]:
        """Return the bytes that can be read now. If no segment came before, the stream begins with this one."""
        self.start(seq)
        place = self.position + self._distance(seq)
        if fin and self.end is None:
            self.end = place + len(data)
        if place > self.position:
            self._wait(place, StreamPiece(at_us, data))
            return []
        fresh = data[self.position - place :]
        self.repeated_bytes += len(data) - len(fresh)
        self._advance(len(fresh))
        pieces = [StreamPiece(at_us, fresh)] if fresh else []
        return pieces + [StreamPiece(at_us, late.data) for late in self._take_waiting()]

    def skip_gap(self) -> tuple[int, list[StreamPiece]]:
        """Give up the missing bytes. Return how many they are, and the pieces behind them up to the next gap."""
        next_place = self._places[0] if self._places else max(self.position, self.end or 0)
        missing = next_place - self.position
        self._advance(missing)
        return missing, self._take_waiting()

    def _wait(self, place: int, piece: StreamPiece) -> None:
        held = self._waiting.get(place)
        if held is None:
            heappush(self._places, place)
        elif len(held.data) >= len(piece.data):
            self.repeated_bytes += len(piece.data)
            return
        else:
            self.repeated_bytes += len(held.data)
            self.waiting_bytes -= len(held.data)
            piece = StreamPiece(piece.at_us, held.data + piece.data[len(held.data) :])
        self._waiting[place] = piece
        self.waiting_bytes += len(piece.data)

    def _take_waiting(self) -> list[StreamPiece]:
        pieces = []
        while self._places and self._places[0] <= self.position:
            place = heappop(self._places)
            at_us, data = self._waiting.pop(place)
            self.waiting_bytes -= len(data)
            fresh = data[self.position - place :]
            self.repeated_bytes += len(data) - len(fresh)
            self._advance(len(fresh))
            if fresh:
                pieces.append(StreamPiece(at_us, fresh))
        return pieces

    def _advance(self, count: int) -> None:
        self.position += count
        self._next_seq = (self._next_seq + count) % _SEQS

    def _distance(self, seq: int) -> int:
        """Return how far a sequence number is ahead; they wrap around."""
        ahead = (seq - self._next_seq) % _SEQS
        return ahead - _SEQS if ahead >= _SEQS // 2 else ahead
