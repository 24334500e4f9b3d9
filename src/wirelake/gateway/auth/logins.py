"""Decide who may log in.

A generated token is checked at once, with the keyed hash. Everything else takes a slow check in a thread: tokens that
people chose, and every login that is refused. So an unknown name takes as long as a wrong token or an expired one,
whatever tokens the identity has. Identical checks under way are one, and a check that nobody waits for is dropped.

Some answers are delayed, but never beyond the time that the login has: those to a client that failed often (see
`LoginFailures`), and those to a client that finds too many checks waiting. If it could try again at once, it would
keep the event loop busy with refusals.
"""

import asyncio
import contextlib
import hashlib
import logging
import secrets
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator
from functools import partial
from typing import Final

from msgspec import Struct

from wirelake.config import Settings
from wirelake.errors import BusyError, StorageError
from wirelake.gateway.auth.login_throttling import LoginFailures, SlowChecks
from wirelake.limits import (
    GATEWAY_FAILED_LOGINS_MAX,
    GATEWAY_LOGIN_DELAY_SHARE,
    GATEWAY_LOGINS_PER_NAME_MAX,
    HTTP_BARE_TOKENS_KNOWN_MAX,
    HTTP_BARE_TOKENS_MAX,
)
from wirelake.message import Credentials
from wirelake.state.identities import Identities, Identity
from wirelake.state.tokens import Token, TokenKey, dummy_hash, find_slow, looks_generated

_log = logging.getLogger(__name__)

ANONYMOUS: Final = "anonymous"  # the identity of a client without a name, where everybody is admitted


class Verdict(Struct, frozen=True):
    identity: str  # empty when refused
    reason: str = ""  # for the log and the metrics; peers cannot tell an unknown name from a wrong token by the answer
    token: str = ""  # id of the token, if it needed one


UNKNOWN = Verdict("", "unknown")
WRONG = Verdict("", "wrong_token")
EXPIRED = Verdict("", "expired")
KEY_LOST = Verdict("", "key_lost")  # the token was hashed with another key than the one in keys/
CERTIFICATE = Verdict("", "certificate")  # the client has the certificate of another name
BUSY = Verdict("", "busy")
UNREGISTERED = Verdict("", "unknown_device")


Names = frozenset[str] | None  # as whom the certificate of a client lets it log in; None: as anybody


class _Check(Struct):
    """A check under way, and how many wait for it."""

    task: asyncio.Task[Verdict]
    waiters: int = 0


class Logins:
    """Check the credentials of clients against the identities and the registered devices."""

    def __init__(
        self,
        identities: Identities,
        token_key: TokenKey,
        now_s: Callable[[], float],
        now_ms: Callable[[], int],
        *,
        open_to_all: bool,
        is_device: Callable[[str], bool] = lambda _serial: False,
        failed_max: int = GATEWAY_FAILED_LOGINS_MAX,
    ) -> None:
        """`now_ms` is the time by which tokens expire. `is_device` returns whether a device is registered."""
        self.open_to_all = open_to_all
        self._is_device = is_device
        self.failures = LoginFailures(now_s, failed_max)
        self.slow = SlowChecks()
        self.token_key = token_key
        self._identities = identities
        self._now_ms = now_ms
        self._checks: dict[bytes, _Check] = {}  # by name and token
        self._under_way: Counter[bytes] = Counter()  # by address and name
        self._key = secrets.token_bytes(32)  # of this process: the digests are useless elsewhere
        self._bare: dict[bytes, str] = {}  # digest of a token without a name → identity, the oldest first
        self._nobody = Token("", dummy_hash(), 0)

    def apply(self, settings: Settings) -> None:
        """Use these settings for logins from now on."""
        self.open_to_all = settings.auth.open
        self.failures.failed_max = settings.limits.failed_logins

    def known(self, credentials: Credentials, names: Names = None) -> Verdict | None:
        """Return the verdict if it needs no slow check. `names` are those that the client's certificate allows."""
        is_certified = _is_certified(credentials.user, names)
        if self.open_to_all:
            return Verdict(credentials.user or ANONYMOUS) if is_certified else CERTIFICATE
        if credentials.is_device:
            is_device = self._is_device(credentials.user)
            return (Verdict(credentials.user) if is_certified else CERTIFICATE) if is_device else UNREGISTERED
        if not is_certified:
            return None  # this refusal takes as long as that of a wrong token
        identity = self._identities.find(credentials.user)
        stored = None if identity is None else self._find_quickly(identity, credentials.token)
        if identity is None or stored is None or not stored.is_valid(self._now_ms()):
            return None
        return Verdict(identity.name, token=stored.id)

    def is_token_valid(self, name: str, token_id: str) -> bool:
        """Tell whether what began with this token may go on: the token has neither expired nor been revoked.

        An empty id stands for a login that needed none.
        """
        return not token_id or self._identities.is_token_valid(name, token_id, self._now_ms())

    def _confirm(self, verdict: Verdict) -> Verdict:
        """Refuse a token that was revoked between the check and the moment that its waiter continues."""
        return verdict if self.is_token_valid(verdict.identity, verdict.token) else WRONG

    def _find_quickly(self, identity: Identity, token: str) -> Token | None:
        """Return the stored token that this one is, expired or not, if that needs no slow check."""
        return self.token_key.find(identity.tokens, token) or self._identities.find_verified(identity, token)

    async def check(self, credentials: Credentials, host: str, login_s: float, names: Names = None) -> Verdict:
        """Decide within `login_s`, delays included, unless the checks themselves take longer. Cancel to give up."""
        quick = self.known(credentials, names)
        if quick is not None:
            return quick
        is_certified = _is_certified(credentials.user, names)
        key = bytes([is_certified]) + self._digest(credentials)
        verdict = self._confirm(await self._join(key, self._check(credentials, host, login_s, is_certified)))
        if verdict is BUSY:
            await asyncio.sleep(login_s * GATEWAY_LOGIN_DELAY_SHARE)
        return verdict

    def known_bare(self, token: str, names: Names = None) -> Verdict | None:
        """Return the verdict on a token without a name, if it needs no slow check."""
        verdict = self._find_known_bare(token)
        return verdict if verdict is not None and _is_certified(verdict.identity, names) else None

    async def check_bare(self, token: str, host: str, login_s: float, names: Names = None) -> Verdict:
        """Decide on a token without a name. One that a person chose is tried against the newest of such tokens."""
        quick = self.known_bare(token, names)
        if quick is not None:
            return quick
        credentials = Credentials("", token)
        key = b"bare" + self._digest(credentials)
        verdict = self._confirm(await self._join(key, self._check_bare(credentials, host, login_s)))
        if verdict is BUSY:
            await asyncio.sleep(login_s * GATEWAY_LOGIN_DELAY_SHARE)
        return verdict if not verdict.identity or _is_certified(verdict.identity, names) else CERTIFICATE

    def _find_known_bare(self, token: str) -> Verdict | None:
        """Accept a token without a name that is known to be valid."""
        found = self._find_bare_quickly(token)
        return None if found is None or not found[1].is_valid(self._now_ms()) else Verdict(found[0], token=found[1].id)

    def _find_bare_quickly(self, token: str) -> tuple[str, Token] | None:
        """Return the name of the identity and the stored token that this one is, if that needs no slow check."""
        found = self._identities.find_by_token(self.token_key, token)
        if found is not None:
            return found[0].name, found[1]
        identity = self._identities.find(self._bare.get(self._digest(Credentials("", token)), ""))
        stored = None if identity is None else self._identities.find_verified(identity, token)
        return None if identity is None or stored is None else (identity.name, stored)

    async def _join(self, key: bytes, work: Coroutine[None, None, Verdict]) -> Verdict:
        check = self._checks.get(key)
        if check is None:
            check = self._checks[key] = _Check(asyncio.get_running_loop().create_task(work))
            check.task.add_done_callback(partial(self._done, key))
        else:
            work.close()
        check.waiters += 1
        try:
            return await asyncio.shield(check.task)
        finally:
            check.waiters -= 1
            if not check.waiters and not check.task.done():
                self._done(key, check.task)  # a new check of the same must not join a cancelled one
                check.task.cancel()

    def _done(self, key: bytes, task: asyncio.Task[Verdict]) -> None:
        check = self._checks.get(key)
        if check is not None and check.task is task:
            del self._checks[key]

    async def _check(self, credentials: Credentials, host: str, login_s: float, is_certified: bool) -> Verdict:
        name, token = credentials.user, credentials.token
        failing = self.failures.key(host, name)
        with self._counted(failing) as delay_s:
            if delay_s is None:
                return BUSY
            await asyncio.sleep(delay_s(login_s))
            identity = self._identities.find(name)
            try:
                stored = await self._find_slowly(identity, token, host)
            except BusyError:
                return BUSY
        if identity is not None and stored is None:
            stored = self._find_quickly(identity, token)  # it has expired, or the client's certificate has another name
        verdict = self._decide(name, stored)
        if verdict.identity and is_certified:
            self._accept(name, verdict.token, token)
            self.failures.clear(failing)
            return verdict
        self.failures.add(failing)
        if identity is None:
            return UNKNOWN
        return self._refusal(identity, verdict) if is_certified else CERTIFICATE

    def _refusal(self, identity: Identity, verdict: Verdict) -> Verdict:
        is_lost = any(self.token_key.uses_other_key(each.hash) for each in identity.tokens)
        return KEY_LOST if verdict is WRONG and is_lost else verdict

    def _decide(self, name: str, stored: Token | None) -> Verdict:
        """Decide on a token that was found before a slow check: meanwhile it may have been removed, or have expired."""
        identity = self._identities.find(name)
        current = None if identity is None or stored is None else identity.find_token(stored.id)
        if current is None:
            return WRONG
        return Verdict(name, token=current.id) if current.is_valid(self._now_ms()) else EXPIRED

    async def _check_bare(self, credentials: Credentials, host: str, login_s: float) -> Verdict:
        token = credentials.token
        failing = self.failures.key(host, "")
        with self._counted(failing) as delay_s:
            if delay_s is None:
                return BUSY
            await asyncio.sleep(delay_s(login_s))
            try:
                found = await self._find_bare(token, host)
            except BusyError:
                return BUSY
        found = self._find_bare_quickly(token) or found
        verdict = UNKNOWN if found is None else self._decide(*found)
        if verdict.identity:
            self._accept(verdict.identity, verdict.token, token)
            self._remember_bare(token, verdict.identity)
            self.failures.clear(failing)
            return verdict
        self.failures.add(failing)
        return EXPIRED if verdict is EXPIRED else UNKNOWN

    async def _find_bare(self, token: str, host: str) -> tuple[str, Token] | None:
        candidates = self._identities.newest_chosen(HTTP_BARE_TOKENS_MAX)
        if not candidates:
            await self._find_slowly(None, token, host)
        for identity in candidates:
            stored = await self._find_slowly(identity, token, host)
            if stored is not None:
                return identity.name, stored
        return None

    @contextlib.contextmanager
    def _counted(self, failing: bytes) -> Iterator[Callable[[float], float] | None]:
        """Count a check of an address and a name as under way. Yield None if there are too many of them already."""
        under_way = self._under_way[failing]
        if under_way >= GATEWAY_LOGINS_PER_NAME_MAX:
            yield None
            return
        self._under_way[failing] += 1
        try:
            yield lambda login_s: self.failures.delay_s(failing, under_way, login_s * GATEWAY_LOGIN_DELAY_SHARE)
        finally:
            self._under_way[failing] -= 1
            if not self._under_way[failing]:
                del self._under_way[failing]

    async def _find_slowly(self, identity: Identity | None, token: str, host: str) -> Token | None:
        """Return the chosen token that matches. Compute scrypt even if none can, so that refusals take the same time.

        The time does not depend on how many tokens the identity has: the chosen ones share a salt.
        """
        chosen = [] if identity is None else identity.chosen_tokens
        return await self.slow.run(host, partial(find_slow, chosen or [self._nobody], token))

    def _accept(self, name: str, token_id: str, token: str) -> None:
        """Make the next check of this token fast: for good if it is a generated one, else until a restart."""
        identity = self._identities.find(name)
        stored = None if identity is None else identity.find_token(token_id)
        if stored is None or stored.is_generated:
            return
        if looks_generated(token):
            try:
                self._identities.rehash(name, stored, self.token_key.hash(token))
                return
            except StorageError as error:
                _log.warning("cannot replace the slow hash of the token of %s yet: %s", name, error)
        self._identities.remember_verified(name, stored, token)

    def _remember_bare(self, token: str, name: str) -> None:
        self._bare[self._digest(Credentials("", token))] = name
        if len(self._bare) > HTTP_BARE_TOKENS_KNOWN_MAX:
            del self._bare[next(iter(self._bare))]

    def _digest(self, credentials: Credentials) -> bytes:
        both = f"{len(credentials.user)}:{credentials.user}{credentials.token}".encode("utf-8", "surrogatepass")
        return hashlib.blake2b(both, key=self._key, digest_size=32).digest()


def _is_certified(name: str, names: Names) -> bool:
    return names is None or name in names
