"""How long to wait before calling again: twice as long each time, with full jitter.

Any pause between nothing and the bound, so that clients that lost a gateway together do not come back together.
"""

from collections.abc import Callable
from random import random as system_random

from wirelake.limits import CLIENT_BACKOFF_FIRST_S, CLIENT_BACKOFF_MAX_S


class Backoff:
    """`random` gives a number from 0 up to 1."""

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
        """The next pause."""
        bound_s = self._bound_s
        self._bound_s = min(bound_s * 2, self._max_s)
        return self._random() * bound_s

    def reset(self) -> None:
        """A connection held: the next pause is short again."""
        self._bound_s = self._first_s
