"""Count what happens in the gateway: plain numbers without locks, formatted only when /metrics is read."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator

from msgspec import Struct, field


class Counters(Struct):
    connections: Counter[str] = field(default_factory=Counter)  # by protocol, open now
    accepted: Counter[str] = field(default_factory=Counter)  # by protocol
    refused: Counter[tuple[str, str]] = field(default_factory=Counter)  # by protocol and reason
    closed: Counter[tuple[str, str]] = field(default_factory=Counter)  # by protocol and reason
    frames_in: Counter[str] = field(default_factory=Counter)
    frames_out: Counter[str] = field(default_factory=Counter)
    bytes_in: Counter[str] = field(default_factory=Counter)
    bytes_out: Counter[str] = field(default_factory=Counter)
    errors: Counter[tuple[str, str]] = field(default_factory=Counter)  # by protocol and code
    quarantined: Counter[str] = field(default_factory=Counter)
    device_commands: Counter[tuple[str, str]] = field(default_factory=Counter)  # that failed, by state and reason
    logins: Counter[tuple[str, str]] = field(default_factory=Counter)  # by protocol and outcome
    denied: Counter[tuple[str, str]] = field(default_factory=Counter)  # by identity and action


class Histogram:
    """Count durations by size. An observation costs two additions."""

    __slots__ = ("_bounds", "_counts", "sum")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def observe(self, value: float) -> None:
        self._counts[bisect_left(self._bounds, value)] += 1
        self.sum += value

    @property
    def count(self) -> int:
        return sum(self._counts)

    def cumulated(self) -> Iterator[tuple[str, int]]:
        """Yield each bound and how many values are not above it, as Prometheus expects them."""
        total = 0
        for bound, count in zip((*map(repr, self._bounds), "+Inf"), self._counts, strict=True):
            total += count
            yield bound, total
