"""Remember failed logins by address and name, and say how long the next answer is delayed.

By both, so that a client with an old token does not delay the others behind the same address, and somebody who guesses
a name's token elsewhere does not delay its owner.
"""

import hashlib
import secrets
from collections import OrderedDict
from collections.abc import Callable

from msgspec import Struct

from wirelake.limits import (
    GATEWAY_FAILED_LOGINS_KEPT_MAX,
    GATEWAY_FAILED_LOGINS_MAX,
    GATEWAY_LOGIN_DELAY_MAX_S,
    GATEWAY_LOGIN_DELAY_S,
    GATEWAY_LOGIN_FORGET_S,
)

_DIGEST_BYTES = 16  # what a name costs here, however long it is
_DOUBLINGS_MAX = 16


class _Failures(Struct):
    count: int
    last_s: float


class LoginFailures:
    def __init__(self, now_s: Callable[[], float]) -> None:
        self.failed_max = GATEWAY_FAILED_LOGINS_MAX
        self._now_s = now_s
        self._key = secrets.token_bytes(32)
        self._failures: OrderedDict[bytes, _Failures] = OrderedDict()  # the longest without a failure first

    def __len__(self) -> int:
        return len(self._failures)

    def key(self, host: str, name: str) -> bytes:
        """Return what stands for an address and a name here."""
        both = f"{host}\0{name}".encode("utf-8", "surrogatepass")
        return hashlib.blake2b(both, key=self._key, digest_size=_DIGEST_BYTES).digest()

    def add(self, key: bytes) -> None:
        failures = self._failures.setdefault(key, _Failures(0, 0.0))
        failures.count += 1
        failures.last_s = self._now_s()
        self._failures.move_to_end(key)
        if len(self._failures) > GATEWAY_FAILED_LOGINS_KEPT_MAX:
            self._failures.popitem(last=False)

    def clear(self, key: bytes) -> None:
        self._failures.pop(key, None)

    def delay_s(self, key: bytes, under_way: int = 0, delay_max_s: float = GATEWAY_LOGIN_DELAY_MAX_S) -> float:
        """Return how long to wait before the next check. Checks under way count as failures until they are done."""
        failures = self._failures.get(key)
        if failures is not None and self._now_s() - failures.last_s > GATEWAY_LOGIN_FORGET_S:
            del self._failures[key]
            failures = None
        count = under_way + (0 if failures is None else failures.count)
        if count < self.failed_max:
            return 0.0
        doublings = min(count - self.failed_max, _DOUBLINGS_MAX)
        return float(min(GATEWAY_LOGIN_DELAY_S * 2**doublings, GATEWAY_LOGIN_DELAY_MAX_S, delay_max_s))
