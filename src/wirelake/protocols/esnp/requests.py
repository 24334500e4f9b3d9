"""Our own requests that wait for the peer's answer."""

from msgspec import Struct

from wirelake.protocols.esnp.limits import ESNP_REQUESTS_OPEN_MAX


class Request(Struct, frozen=True):
    correlation: str  # as our own side knows it
    due_s: float


class Requests:
    """By their MESSAGE_ID, which we give, counting from 1."""

    __slots__ = ("_last", "_open")

    def __init__(self) -> None:
        self._last = 0
        self._open: dict[int, Request] = {}

    @property
    def full(self) -> bool:
        return len(self._open) >= ESNP_REQUESTS_OPEN_MAX

    @property
    def due_s(self) -> float | None:
        """When the first of them has waited too long."""
        return min((request.due_s for request in self._open.values()), default=None)

    def number(self) -> int:
        self._last += 1
        return self._last

    def add(self, number: int, correlation: str, due_s: float) -> None:
        self._open[number] = Request(correlation, due_s)

    def find(self, number: int | None) -> str | None:
        """The correlation of the request with that number, None if none is open."""
        request = None if number is None else self._open.get(number)
        return None if request is None else request.correlation

    def close(self, number: int) -> None:
        self._open.pop(number, None)

    def expire(self, now_s: float) -> list[str]:
        """The correlations of those that have waited too long; they are no longer open."""
        expired = [number for number, request in self._open.items() if request.due_s <= now_s]
        return [self._open.pop(number).correlation for number in expired]
