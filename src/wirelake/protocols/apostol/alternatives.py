"""Keep the packets of a sealed command of which some may be forged, until its seal shows which are genuine.

Anyone can send a packet in the name of a device, under the number of a command that the device is sending right now.
So the last few differing packets of each number are kept, and the seal of the whole command shows which of them belong
together. The newest are tried first, then the oldest, then those with few differences from the newest; limits on the
tries for one packet, and on the bytes tried for one command, bound the work.

The gateway (`assembly.py`) and the pipeline (`reassembly.py`) use the same code.
"""

from collections.abc import Iterator
from itertools import combinations, islice, product
from typing import Final

from msgspec import Struct, field

from wirelake.protocols.apostol.constants import (
    APOSTOL_ALTERNATIVES_MAX,
    APOSTOL_SEAL_TRIES_BYTES_MAX,
    APOSTOL_SEAL_TRIES_MAX,
    LAST,
)

_TRY_BYTES_MIN: Final = 1024  # a try counts as this many bytes at least, however short the command
Piece = tuple[int, bytes]  # a packet's params and data


class Alternatives(Struct, array_like=True):
    """The packets of one sealed command."""

    pieces: dict[int, list[Piece]] = field(default_factory=dict)  # by packet_no, the oldest first
    size: int = 0  # bytes of all of them
    repeats: int = 0
    tried_bytes: int = 0
    offered: bool = False  # whether a selection with an invalid seal was handed on, to be refused

    @property
    def last(self) -> int | None:
        """Return the number of the last packet, as the packets that arrived first say."""
        return next((number for number, pieces in self.pieces.items() if pieces[0][0] & LAST), None)

    @property
    def conflicts(self) -> int:
        """Return the number of packets that contradict others."""
        return sum([len(pieces) - 1 for pieces in self.pieces.values()])

    def add(self, number: int, params: int, data: bytes) -> bool:
        """Add a packet. Return whether it is new."""
        pieces = self.pieces.setdefault(number, [])
        if (params, data) in pieces:
            self.repeats += 1
            return False
        pieces.append((params, data))
        self.size += len(data)
        if len(pieces) > APOSTOL_ALTERNATIVES_MAX:
            self.size -= len(pieces.pop(0)[1])
        return True

    def selections(self, number: int) -> Iterator[list[Piece]]:
        """Yield complete commands with the newest packet of this number, the most likely first."""
        latest = self.pieces[number][-1]
        ends = [number] if latest[0] & LAST else sorted(end for end in self.pieces if end > number)
        tries = 0
        for end in ends:
            columns = self._columns(end, number, latest)
            if columns is None:
                continue
            for selection in islice(_selected(columns), APOSTOL_SEAL_TRIES_MAX - tries):
                tries += 1
                if tries > 1 and self.tried_bytes >= APOSTOL_SEAL_TRIES_BYTES_MAX:
                    return
                self.tried_bytes += max(_TRY_BYTES_MIN, sum([len(data) for _, data in selection]))
                yield selection

    def _columns(self, end: int, number: int, latest: Piece) -> list[list[Piece]] | None:
        """Return the candidates for each packet up to `end`, the newest first; None while one has none."""
        columns = []
        for each in range(end + 1):
            pieces = reversed(self.pieces.get(each, ()))
            found = [piece for piece in pieces if bool(piece[0] & LAST) is (each == end)]
            if not found:
                return None
            columns.append([latest] if each == number else found)
        return columns


def _selected(columns: list[list[Piece]]) -> Iterator[list[Piece]]:
    newest = [column[0] for column in columns]
    yield newest
    varied = [place for place, column in enumerate(columns) if len(column) > 1]
    if len(varied) > 1:
        yield [column[-1] for column in columns]
    for count in range(1, len(varied) + 1):
        for places in combinations(varied, count):
            for others in product(*(columns[place][1:] for place in places)):
                selection = newest.copy()
                for place, other in zip(places, others, strict=True):
                    selection[place] = other
                yield selection
