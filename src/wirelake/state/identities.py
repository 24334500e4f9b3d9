"""Who may log in: names, and hashes of their tokens. The token itself is never kept.

A generated token has 192 random bits that nobody can guess, so a keyed BLAKE2b protects it (`TokenKey`): checking one
takes microseconds, also after a restart. A token that a person chose may be guessed from a stolen database, so it is
hashed with scrypt. `hash_token` and `matches` are scrypt's: they take tens of milliseconds by design and touch no
state, so run them in a thread. A login is

    identity = identities.find(name)
    if not (token_key.matches(identity.secret, token) or identities.knows(name, token)):
        if not await asyncio.to_thread(matches, identity.secret, token): refuse
        identities.remember(identity, token)
"""

import hashlib
import hmac
import re
import secrets
from collections import OrderedDict
from itertools import islice
from typing import Final

from msgspec import Struct

from wirelake.commit import Commit
from wirelake.errors import ConflictError, FullError, InputError
from wirelake.limits import STATE_IDENTITIES_MAX, STATE_TOKEN_BYTES_MAX, STATE_TOKENS_KNOWN_MAX
from wirelake.state.batch import OneByOne, Statement
from wirelake.state.bounds import check_name
from wirelake.state.reader import Reader
from wirelake.state.writer import Writer

_ADD: Final = Statement(
    "identities",
    "INSERT INTO identities (name, salt, digest, cost, block, lanes, added_at_ms, kind) VALUES ",
    "(?,?,?,?,?,?,?,?)",
)
_REHASH: Final = OneByOne(
    "identities", "UPDATE identities SET salt = ?, digest = ?, cost = ?, block = ?, lanes = ?, kind = ? WHERE name = ?"
)
_REMOVE: Final = Statement("identities", "DELETE FROM identities WHERE name IN (", "?", ")")

_SALT_BYTES: Final = 16
_DIGEST_BYTES: Final = 32
_TOKEN_BYTES: Final = 24
_COST: Final = 2**14
_BLOCK: Final = 8
_LANES: Final = 1
_KEY_ID_BYTES: Final = 8
_GENERATED: Final = re.compile(r"t[A-Za-z0-9_-]{32}")
_GENERATED_CHARS_MIN: Final = 12  # different ones in it; 32 random ones have fewer once in 10**15

SCRYPT: Final = "scrypt"
KEYED: Final = "blake2b"  # the salt is then the id of the key


class Secret(Struct, frozen=True):
    """What is kept of a token, with the parameters it was made with: they may rise later."""

    salt: bytes
    digest: bytes
    cost: int
    block: int
    lanes: int
    kind: str = SCRYPT

    def __repr__(self) -> str:
        return "Secret(…)"


class Identity(Struct, frozen=True):
    name: str
    secret: Secret
    added_at_ms: int


def new_token() -> str:
    """Random, printable, safe in a URL and on a command line."""
    return "t" + secrets.token_urlsafe(_TOKEN_BYTES)  # never a leading dash


def is_generated(token: str) -> bool:
    """Return whether the token looks like one that `new_token` made, and not like one that a person typed."""
    return _GENERATED.fullmatch(token) is not None and len(set(token)) >= _GENERATED_CHARS_MIN


class TokenKey:
    """Hash and check generated tokens with a key that is kept beside the database, in a file of its own."""

    def __init__(self, key: bytes) -> None:
        self._key = key
        self.id = hashlib.blake2b(b"id", key=key, digest_size=_KEY_ID_BYTES).digest()

    def digest(self, token: str) -> bytes:
        return hashlib.blake2b(_token_bytes(token), key=self._key, digest_size=_DIGEST_BYTES).digest()

    def hash(self, token: str) -> Secret:
        """Hash a token: fast if it is a generated one, else with scrypt. InputError if it is empty or too long."""
        return Secret(self.id, self.digest(token), 0, 0, 0, KEYED) if is_generated(token) else hash_token(token)

    def is_foreign(self, secret: Secret) -> bool:
        """Return whether the secret was made with another key: then its token cannot be checked."""
        return secret.kind == KEYED and secret.salt != self.id

    def matches(self, secret: Secret, token: str) -> bool:
        """Compare in constant time. A secret of scrypt, or of another key, matches nothing here."""
        if secret.kind != KEYED or secret.salt != self.id:
            return False
        return hmac.compare_digest(self.digest(token), secret.digest)


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
    """Slow by design; compares in constant time. A secret of another kind than scrypt matches nothing here."""
    if secret.kind != SCRYPT:
        return False
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
        self._by_digest: dict[bytes, str] = {}  # of generated tokens
        self._slow: dict[str, None] = {}  # names whose tokens take scrypt, the newest last
        self._fast_key = secrets.token_bytes(32)  # of this process: the fast hashes are worth nothing elsewhere
        self._known: OrderedDict[str, tuple[Secret, bytes]] = OrderedDict()

    def load(self) -> None:
        rows = self._reader.rows(
            "SELECT name, salt, digest, cost, block, lanes, kind, added_at_ms FROM identities ORDER BY added_at_ms"
        )
        self._by_name, self._by_digest, self._slow = {}, {}, {}
        for row in rows:
            self._keep(Identity(row[0], Secret(*row[1:7]), row[7]))

    def find(self, name: str) -> Identity | None:
        self._writer.fresh()
        return self._by_name.get(name)

    def find_token(self, token_key: TokenKey, token: str) -> Identity | None:
        """Find whose generated token this is."""
        self._writer.fresh()
        identity = self._by_name.get(self._by_digest.get(token_key.digest(token), ""))
        return identity if identity is not None and token_key.matches(identity.secret, token) else None

    def newest_slow(self, count: int) -> list[Identity]:
        """Return the newest identities whose tokens take scrypt."""
        self._writer.fresh()
        return [self._by_name[name] for name in islice(reversed(self._slow), count)]

    def keyed(self) -> list[Identity]:
        """Return those whose tokens are hashed with a key."""
        self._writer.fresh()
        return [self._by_name[name] for name in self._by_digest.values()]

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
        self._keep(Identity(name, secret, now_ms))
        row = (name, secret.salt, secret.digest, secret.cost, secret.block, secret.lanes, now_ms, secret.kind)
        return self._writer.submit(_ADD, row)

    def rehash(self, identity: Identity, secret: Secret) -> Commit | None:
        """Replace the hash of the same token by one of another kind. None if the identity has changed meanwhile."""
        self._writer.ready()
        name = identity.name
        if self._by_name.get(name) is not identity:
            return None
        self._forget(identity)
        self._keep(Identity(name, secret, identity.added_at_ms))
        row = (secret.salt, secret.digest, secret.cost, secret.block, secret.lanes, secret.kind, name)
        return self._writer.submit(_REHASH, row)

    def remove(self, name: str) -> Commit | None:
        """None where there was none. What belongs to it is removed by `StateStore.remove_identity`."""
        self._writer.ready()
        identity = self._by_name.get(name)
        if identity is None:
            return None
        self._forget(identity)
        return self._writer.submit(_REMOVE, (name,))

    def _keep(self, identity: Identity) -> None:
        self._by_name[identity.name] = identity
        if identity.secret.kind == KEYED:
            self._by_digest[identity.secret.digest] = identity.name
        else:
            self._slow[identity.name] = None

    def _forget(self, identity: Identity) -> None:
        name = identity.name
        del self._by_name[name]
        self._known.pop(name, None)
        self._slow.pop(name, None)
        if self._by_digest.get(identity.secret.digest) == name:
            del self._by_digest[identity.secret.digest]

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
