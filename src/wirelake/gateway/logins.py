"""Who may log in. A token is checked against its scrypt hash in a thread, a few at a time, so that a storm of wrong
logins costs the event loop nothing; an address that fails too often is answered later and later.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from msgspec import Struct

from wirelake.limits import (
    GATEWAY_ADDRESSES_MAX,
    GATEWAY_FAILED_LOGINS_MAX,
    GATEWAY_LOGIN_DELAY_MAX_S,
    GATEWAY_LOGIN_DELAY_S,
    GATEWAY_LOGIN_FORGET_S,
    GATEWAY_LOGINS_CHECKED_MAX,
    GATEWAY_LOGINS_WAITING_MAX,
)
from wirelake.message import Credentials
from wirelake.state.identities import Identities, matches, unmatched

ANONYMOUS: Final = "anonymous"  # who gives no name where everybody is let in


class Verdict(Struct, frozen=True):
    identity: str  # empty when refused
    reason: str = ""


UNKNOWN = Verdict("", "unknown")
WRONG = Verdict("", "wrong_token")
BUSY = Verdict("", "busy")


class _Failures(Struct):
    count: int
    last_s: float


class Logins:
    def __init__(self, identities: Identities, now_s: Callable[[], float], *, open_to_all: bool) -> None:
        self.open_to_all = open_to_all
        self.failed_max = GATEWAY_FAILED_LOGINS_MAX
        self._identities = identities
        self._now_s = now_s
        self._failures: OrderedDict[str, _Failures] = OrderedDict()
        self._room = asyncio.Semaphore(GATEWAY_LOGINS_CHECKED_MAX)
        self._waiting = 0
        self._nobody = unmatched()

    def known(self, credentials: Credentials) -> Verdict | None:
        """The verdict, where it needs no slow check."""
        if self.open_to_all:
            return Verdict(credentials.user or ANONYMOUS)
        if self._identities.knows(credentials.user, credentials.token):
            return Verdict(credentials.user)
        return None

    async def check(self, credentials: Credentials, host: str) -> Verdict:
        quick = self.known(credentials)
        if quick is not None:
            return quick
        if self._waiting >= GATEWAY_LOGINS_WAITING_MAX:
            return BUSY
        self._waiting += 1
        try:
            await asyncio.sleep(self._delay_s(host))
            async with self._room:
                return await self._check(credentials, host)
        finally:
            self._waiting -= 1

    async def _check(self, credentials: Credentials, host: str) -> Verdict:
        identity = self._identities.find(credentials.user)
        secret = self._nobody if identity is None else identity.secret
        right = await asyncio.to_thread(matches, secret, credentials.token)
        if identity is not None and right and self._identities.find(credentials.user) is identity:
            self._identities.remember(identity, credentials.token)
            self._failures.pop(host, None)
            return Verdict(identity.name)
        self._failed(host)
        return UNKNOWN if identity is None else WRONG

    def _failed(self, host: str) -> None:
        failures = self._failures.setdefault(host, _Failures(0, 0.0))
        failures.count += 1
        failures.last_s = self._now_s()
        self._failures.move_to_end(host)
        if len(self._failures) > GATEWAY_ADDRESSES_MAX:
            self._failures.popitem(last=False)

    def _delay_s(self, host: str) -> float:
        failures = self._failures.get(host)
        if failures is None or failures.count < self.failed_max:
            return 0.0
        if self._now_s() - failures.last_s > GATEWAY_LOGIN_FORGET_S:
            del self._failures[host]
            return 0.0
        doublings = min(failures.count - self.failed_max, 16)
        return float(min(GATEWAY_LOGIN_DELAY_S * 2**doublings, GATEWAY_LOGIN_DELAY_MAX_S))
