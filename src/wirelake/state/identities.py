"""Who may log in: names, and scrypt hashes of their tokens. The token itself is never kept.

`hash_token` and `matches` take tens of milliseconds by design and touch no state: run them in a thread. A login is

    identity = identities.find(name)
    if not identities.knows(name, token):
        if not await asyncio.to_thread(matches, identity.secret, token): refuse
        identities.remember(identity, token)
"""

import hashlib
import hmac
import secrets
from collections import OrderedDict
from typing import Final

from msgspec import Struct

from wirelake.commit import Commit
from wirelake.errors import ConflictError, FullError, InputError
from wirelake.limits import STATE_IDENTITIES_MAX, STATE_TOKEN_BYTES_MAX, STATE_TOKENS_KNOWN_MAX
from wirelake.state.batch import Statement
from wirelake.state.bounds import check_name
from wirelake.state.reader import Reader
from wirelake.state.writer import Writer

_ADD: Final = Statement(
    "identities",
    "INSERT INTO identities (name, salt, digest, cost, block, lanes, added_at_ms) VALUES ",
    "(?,?,?,?,?,?,?)",
)
_REMOVE: Final = Statement("identities", "DELETE FROM identities WHERE name IN (", "?", ")")

_SALT_BYTES: Final = 16
_DIGEST_BYTES: Final = 32
_TOKEN_BYTES: Final = 24
_COST: Final = 2**14
_BLOCK: Final = 8
_LANES: Final = 1


class Secret(Struct, frozen=True):
    """What is kept of a token, with the parameters it was made with: they may rise later."""

    salt: bytes
    digest: bytes
    cost: int
    block: int
    lanes: int

    def __repr__(self) -> str:
        return "Secret(…)"


class Identity(Struct, frozen=True):
    name: str
    secret: Secret
    added_at_ms: int


def new_token() -> str:
    """Random, printable, safe in a URL and on a command line."""
    return "t" + secrets.token_urlsafe(_TOKEN_BYTES)  # never a leading dash


def hash_token(token: str) -> Secret:
    """Slow by design. Raises InputError for a token that is empty or too long."""
    size = len(_token_bytes(token))
    if not 0 < size <= STATE_TOKEN_BYTES_MAX:
        raise InputError(f"a token has 1 to {STATE_TOKEN_BYTES_MAX} bytes, not {size}")
    salt = secrets.token_bytes(_SALT_BYTES)
    return Secret(salt, _scrypt(token, salt, _COST, _BLOCK, _LANES, _DIGEST_BYTES), _COST, _BLOCK, _LANES)


def unmatched() -> Secret:
    """What no token matches, at the same cost: unknown names are to take as long to refuse as wrong tokens."""
    return Secret(secrets.token_bytes(_SALT_BYTES), secrets.token_bytes(_DIGEST_BYTES), _COST, _BLOCK, _LANES)


def matches(secret: Secret, token: str) -> bool:
    """Slow by design; compares in constant time."""
    if len(_token_bytes(token)) > STATE_TOKEN_BYTES_MAX:
        return False
    digest = _scrypt(token, secret.salt, secret.cost, secret.block, secret.lanes, len(secret.digest))
    return hmac.compare_digest(digest, secret.digest)


def _scrypt(token: str, salt: bytes, cost: int, block: int, lanes: int, size: int) -> bytes:
    memory = 256 * cost * block * lanes  # twice what it takes
    return hashlib.scrypt(_token_bytes(token), salt=salt, n=cost, r=block, p=lanes, maxmem=memory, dklen=size)


def _token_bytes(token: str) -> bytes:
    return token.encode("utf-8", "surrogatepass")  # whatever a peer sends can be hashed


class Identities:
    """The names, all in memory; and which tokens were found right lately, so that a storm of reconnects is cheap."""

    def __init__(self, writer: Writer, reader: Reader) -> None:
        self._writer = writer
        self._reader = reader
        self._by_name: dict[str, Identity] = {}
        self._fast_key = secrets.token_bytes(32)  # of this process: the fast hashes are worth nothing elsewhere
        self._known: OrderedDict[str, tuple[Secret, bytes]] = OrderedDict()

    def load(self) -> None:
        rows = self._reader.rows("SELECT name, salt, digest, cost, block, lanes, added_at_ms FROM identities")
        self._by_name = {row[0]: Identity(row[0], Secret(*row[1:6]), row[6]) for row in rows}

    def find(self, name: str) -> Identity | None:
        self._writer.fresh()
        return self._by_name.get(name)

    def list(self) -> list[Identity]:
        """By name."""
        self._writer.fresh()
        return sorted(self._by_name.values(), key=lambda identity: identity.name)

    def add(self, name: str, secret: Secret, now_ms: int) -> Commit:
        self._writer.ready()
        check_name(name, "an identity's name")
        if name in self._by_name:
            raise ConflictError(f"there is an identity {name!r} already; for another token, remove it first")
        if len(self._by_name) >= STATE_IDENTITIES_MAX:
            raise FullError(f"there are {STATE_IDENTITIES_MAX} identities already")
        self._by_name[name] = Identity(name, secret, now_ms)
        row = (name, secret.salt, secret.digest, secret.cost, secret.block, secret.lanes, now_ms)
        return self._writer.submit(_ADD, row)

    def remove(self, name: str) -> Commit | None:
        """None where there was none. What belongs to it is removed by `StateStore.remove_identity`."""
        self._writer.ready()
        if self._by_name.pop(name, None) is None:
            return None
        self._known.pop(name, None)
        return self._writer.submit(_REMOVE, (name,))

    def knows(self, name: str, token: str) -> bool:
        """Whether this token was found right lately. False says nothing: check with `matches`."""
        identity = self.find(name)
        known = self._known.get(name)
        if identity is None or known is None or known[0] is not identity.secret:
            return False
        if not hmac.compare_digest(self._fast_hash(token), known[1]):
            return False
        self._known.move_to_end(name)
        return True

    def remember(self, identity: Identity, token: str) -> None:
        """This token has just been found right."""
        self._known[identity.name] = (identity.secret, self._fast_hash(token))
        self._known.move_to_end(identity.name)
        if len(self._known) > STATE_TOKENS_KNOWN_MAX:
            self._known.popitem(last=False)

    def _fast_hash(self, token: str) -> bytes:
        return hashlib.blake2b(_token_bytes(token), key=self._fast_key, digest_size=32).digest()
