"""A token bucket: so many a second on average, a burst of one second's worth at once."""


class Bucket:
    """Overdrawing is allowed: what was read cannot be unread. The answer says how long to read no more."""

    __slots__ = ("_at_s", "_left", "rate")

    def __init__(self, rate: float, now_s: float) -> None:
        self.rate = rate
        self._left = rate
        self._at_s = now_s

    def take(self, amount: float, now_s: float) -> float:
        """Take so many; answers for how many seconds the bucket is then overdrawn, 0 if it is not."""
        left = min(self.rate, self._left + (now_s - self._at_s) * self.rate) - amount
        self._at_s, self._left = now_s, left
        return 0.0 if left >= 0 else -left / self.rate
