"""Decide who may log in.

A generated token is checked at once, with the keyed hash. Everything else takes a slow check in a thread: tokens that
people chose, and every login that is refused. So an unknown name takes as long as a wrong token, whatever kind of token
the identity has. Identical checks under way are one, and a check that nobody waits for is dropped.

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
from wirelake.state.identities import KEYED, Identities, Identity, TokenKey, dummy_hash, looks_generated, verify_token

_log = logging.getLogger(__name__)

ANONYMOUS: Final = "anonymous"  # the identity of a client without a name, where everybody is admitted


class Verdict(Struct, frozen=True):
    identity: str  # empty when refused
    reason: str = ""  # for the log and the metrics; peers cannot tell an unknown name from a wrong token by the answer


UNKNOWN = Verdict("", "unknown")
WRONG = Verdict("", "wrong_token")
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
        *,
        open_to_all: bool,
        is_device: Callable[[str], bool] = lambda _serial: False,
        failed_max: int = GATEWAY_FAILED_LOGINS_MAX,
    ) -> None:
        """`is_device` returns whether a device of this serial is registered."""
        self.open_to_all = open_to_all
        self._is_device = is_device
        self.failures = LoginFailures(now_s, failed_max)
        self.slow = SlowChecks()
        self.token_key = token_key
        self._identities = identities
        self._checks: dict[bytes, _Check] = {}  # by name and token
        self._under_way: Counter[bytes] = Counter()  # by address and name
        self._key = secrets.token_bytes(32)  # of this process: the digests are useless elsewhere
        self._bare: dict[bytes, str] = {}  # digest of a token without a name → identity, the oldest first
        self._nobody = dummy_hash()

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
        if identity is not None and self.token_key.verify(identity.token_hash, credentials.token):
            return Verdict(identity.name)
        if self._identities.is_verified(credentials.user, credentials.token):
            return Verdict(credentials.user)
        return None

    async def check(self, credentials: Credentials, host: str, login_s: float, names: Names = None) -> Verdict:
        """Decide within `login_s`, delays included, unless the checks themselves take longer. Cancel to give up."""
        quick = self.known(credentials, names)
        if quick is not None:
            return quick
        is_certified = _is_certified(credentials.user, names)
        key = bytes([is_certified]) + self._digest(credentials)
        verdict = await self._join(key, self._check(credentials, host, login_s, is_certified))
        if verdict is BUSY:
            await asyncio.sleep(login_s * GATEWAY_LOGIN_DELAY_SHARE)
        return verdict

    def known_bare(self, token: str, names: Names = None) -> Verdict | None:
        """Return the verdict on a token without a name, if it needs no slow check."""
        name = self._find_known_bare(token)
        return Verdict(name) if name is not None and _is_certified(name, names) else None

    async def check_bare(self, token: str, host: str, login_s: float, names: Names = None) -> Verdict:
        """Decide on a token without a name. One that a person chose is tried against the newest of such tokens."""
        quick = self.known_bare(token, names)
        if quick is not None:
            return quick
        credentials = Credentials("", token)
        key = b"bare" + self._digest(credentials)
        verdict = await self._join(key, self._check_bare(credentials, host, login_s))
        if verdict is BUSY:
            await asyncio.sleep(login_s * GATEWAY_LOGIN_DELAY_SHARE)
        return verdict if not verdict.identity or _is_certified(verdict.identity, names) else CERTIFICATE

    def _find_known_bare(self, token: str) -> str | None:
        """Return the name of the identity that has this token, if that needs no slow check."""
        identity = self._identities.find_by_token(self.token_key, token)
        if identity is not None:
            return identity.name
        name = self._bare.get(self._digest(Credentials("", token)))
        return name if name is not None and self._identities.is_verified(name, token) else None

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
                is_match = await self._matches(identity, token, host)
            except BusyError:
                return BUSY
        if is_certified and identity is not None and is_match and self._identities.find(name) is identity:
            self._accept(identity, token)
            self.failures.clear(failing)
            return Verdict(name)
        self.failures.add(failing)
        if identity is None:
            return UNKNOWN
        if not is_certified:
            return CERTIFICATE
        return KEY_LOST if self.token_key.uses_other_key(identity.token_hash) else WRONG

    async def _check_bare(self, credentials: Credentials, host: str, login_s: float) -> Verdict:
        token = credentials.token
        failing = self.failures.key(host, "")
        with self._counted(failing) as delay_s:
            if delay_s is None:
                return BUSY
            await asyncio.sleep(delay_s(login_s))
            try:
                identity = await self._find_bare(token, host)
            except BusyError:
                return BUSY
        known = self._find_known_bare(token)
        if known is not None:
            return Verdict(known)
        if identity is not None and self._identities.find(identity.name) is identity:
            self._accept(identity, token)
            self._remember_bare(token, identity.name)
            self.failures.clear(failing)
            return Verdict(identity.name)
        self.failures.add(failing)
        return UNKNOWN

    async def _find_bare(self, token: str, host: str) -> Identity | None:
        candidates = self._identities.newest_scrypt(HTTP_BARE_TOKENS_MAX)
        if not candidates:
            await self._matches(None, token, host)
        for identity in candidates:
            if await self._matches(identity, token, host):
                return identity
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

    async def _matches(self, identity: Identity | None, token: str, host: str) -> bool:
        """Check with scrypt, even if the answer is known to be no, so that every refusal takes the same time."""
        slow = self._nobody if identity is None or identity.token_hash.kind == KEYED else identity.token_hash
        return await self.slow.run(host, partial(verify_token, slow, token))

    def _accept(self, identity: Identity, token: str) -> None:
        """Make the next check of this token fast: for good if it is a generated one, else until a restart."""
        if not looks_generated(token):
            self._identities.remember_verified(identity, token)
            return
        try:
            self._identities.rehash(identity, self.token_key.hash(token))
        except StorageError as error:
            self._identities.remember_verified(identity, token)
            _log.warning("cannot replace the slow hash of the token of %s yet: %s", identity.name, error)

    def _remember_bare(self, token: str, name: str) -> None:
        self._bare[self._digest(Credentials("", token))] = name
        if len(self._bare) > HTTP_BARE_TOKENS_KNOWN_MAX:
            del self._bare[next(iter(self._bare))]

    def _digest(self, credentials: Credentials) -> bytes:
        both = f"{len(credentials.user)}:{credentials.user}{credentials.token}".encode("utf-8", "surrogatepass")
        return hashlib.blake2b(both, key=self._key, digest_size=32).digest()


def _is_certified(name: str, names: Names) -> bool:
    return names is None or name in names
