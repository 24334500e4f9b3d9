"""Whose token is this, when nobody says? Slow the first time: it is tried against one salted hash after the other."""

import asyncio
import hashlib
import secrets
from collections import OrderedDict

from wirelake.gateway.http.errors import AGAIN, ApiError
from wirelake.limits import HTTP_BARE_TOKENS_KNOWN_MAX, HTTP_BARE_TOKENS_MAX, HTTP_BARE_TOKENS_WAITING_MAX
from wirelake.state.identities import Identities, Identity, matches


class BareTokens:
    """Answers a name to be checked, no more: whether the token is right is decided where all logins are."""

    def __init__(self, identities: Identities) -> None:
        self._identities = identities
        self._key = secrets.token_bytes(32)  # of this process: the hashes are worth nothing elsewhere
        self._names: OrderedDict[bytes, str] = OrderedDict()
        self._turn = asyncio.Lock()  # one at a time, so that guessing takes a single core at most
        self._waiting = 0

    async def whose(self, token: str) -> str:
        """The name, or nothing."""
        print_ = hashlib.blake2b(token.encode("utf-8", "surrogatepass"), key=self._key, digest_size=32).digest()
        name = self._names.get(print_)
        if name is not None and self._identities.knows(name, token):
            self._names.move_to_end(print_)
            return name
        if self._waiting >= HTTP_BARE_TOKENS_WAITING_MAX:
            raise ApiError(429, "too many tokens without a name at once; NAME:TOKEN is faster", headers=AGAIN)
        self._waiting += 1
        try:
            async with self._turn:
                newest = sorted(self._identities.list(), key=lambda identity: -identity.added_at_ms)
                name = await asyncio.to_thread(_first_match, newest[:HTTP_BARE_TOKENS_MAX], token)
        finally:
            self._waiting -= 1
        if name:
            self._names[print_] = name
            if len(self._names) > HTTP_BARE_TOKENS_KNOWN_MAX:
                self._names.popitem(last=False)
        return name


def _first_match(identities: list[Identity], token: str) -> str:
    return next((identity.name for identity in identities if matches(identity.secret, token)), "")
