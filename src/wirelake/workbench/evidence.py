"""What proposals are made of: samples, findings, and how unlikely a finding is by chance.

Evidence is counted in bits: a finding of 20 bits would come up by chance once in a million such searches. The chance
is not that of uniform bytes alone, because real frames repeat themselves: a byte that is mostly zero equals anything
else that is mostly zero. So the values that a proposal compares are also compared across frames (`cross_rate`), and
every search pays for the number of proposals that it tried.
"""

from collections import Counter
from collections.abc import Hashable, Sequence
from math import log2
from typing import Final, Literal

from msgspec import Struct

ByteOrder = Literal["big", "little"]
ORDERS: Final[tuple[ByteOrder, ...]] = ("big", "little")
SIZES: Final = (1, 2, 3, 4)


class Sample(Struct, frozen=True):
    """Some bytes that are believed to be a frame. Samples of one stream are in order."""

    frame: bytes
    stream: str = ""


class Proposal(Struct, frozen=True, kw_only=True):
    """What the bytes at a place mean, how many frames agree, and how unlikely that is by chance."""

    kind: Literal["length", "records", "checksum", "constant", "opcode", "enumeration", "counter", "timestamp", "text"]
    text: str
    agree: int
    of: int  # the frames that are long enough, and differ
    bits: float
    offset: int = 0  # below 0: from the end of the frame
    size: int = 1
    order: ByteOrder = "big"
    counts: str = ""  # of a length: rest, frame or body
    plus: int = 0  # of a length: how much more it counts
    algorithm: str = ""  # of a checksum
    covers: tuple[int, int] = (0, 0)  # by a checksum: the first byte, and how many bytes before the end it stops
    values: tuple[int, ...] = ()  # of a constant, an opcode or an enumeration

    @property
    def places(self) -> range:
        return range(self.offset, self.offset + self.size)


def number(frame: bytes, offset: int, size: int, order: ByteOrder) -> int:
    return int.from_bytes(frame[offset : offset + size], order)


def cross_rate(one: Sequence[Hashable], other: Sequence[Hashable], width_bits: int) -> float:
    """Return how often the values of two different frames are equal, at least as often as uniform ones are."""
    count = len(one)
    if count < 2:
        return 1.0
    first, second = Counter(one), Counter(other)
    pairs = sum(times * second[value] for value, times in first.items())
    own = sum(mine == theirs for mine, theirs in zip(one, other, strict=True))
    return float(max((pairs - own) / (count * (count - 1)), 2.0**-width_bits))


def chance_bits(agree: int, of: int, rate: float, tried: float) -> float:
    """Return how unlikely it is that so many agree, if each does so at this rate: Chernoff's bound, for one of many."""
    if of <= 0 or agree / of <= rate:
        return 0.0
    share = agree / of
    divergence = share * log2(share / rate)
    if share < 1:
        divergence += (1 - share) * log2((1 - share) / (1 - rate))
    return max(0.0, of * divergence - log2(max(1.0, tried)))
