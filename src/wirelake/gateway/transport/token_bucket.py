"""A token bucket: so many a second on average, a burst of a few seconds' worth at once."""


class TokenBucket:
    """Overdrawing is allowed: what was read cannot be unread. The answer says how long to read no more."""

    __slots__ = ("_at_s", "_left", "_most", "rate")

    def __init__(self, rate: float, now_s: float, burst_s: float = 1.0) -> None:
        self.rate = rate
        self._most = self._left = rate * burst_s
        self._at_s = now_s

    def take(self, amount: float, now_s: float) -> float:
        """Take so many; answers for how many seconds the bucket is then overdrawn, 0 if it is not.

        A negative amount is given back.
        """
        left = min(self._most, self._left + (now_s - self._at_s) * self.rate) - amount
        self._at_s, self._left = now_s, left
        return 0.0 if left >= 0 else -left / self.rate

    def left(self, now_s: float) -> float:
        """How many could be taken now."""
        return min(self._most, self._left + (now_s - self._at_s) * self.rate)
