"""Compute how long to wait before reconnecting: exponential backoff with full jitter.

Each pause is random between zero and a bound that doubles, so that clients that lost a gateway at the same time do not
all return at the same time.
"""

from collections.abc import Callable
from random import random as system_random

from wirelake.limits import CLIENT_BACKOFF_FIRST_S, CLIENT_BACKOFF_MAX_S


class Backoff:
    """Return growing pauses. `random` returns a number from 0 up to 1."""

    def __init__(
        self,
        random: Callable[[], float] = system_random,
        first_s: float = CLIENT_BACKOFF_FIRST_S,
        max_s: float = CLIENT_BACKOFF_MAX_S,
    ) -> None:
        self._random = random
        self._first_s = first_s
        self._max_s = max_s
        self._bound_s = first_s

    def next_s(self) -> float:
        """Return the next pause."""
        bound_s = self._bound_s
        self._bound_s = min(bound_s * 2, self._max_s)
        return self._random() * bound_s

    def reset(self) -> None:
        """Start again with a short pause, after a connection that worked."""
        self._bound_s = self._first_s
