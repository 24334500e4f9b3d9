"""Store who may log in: names, and hashes of their tokens. The token itself is never stored.

A generated token has 192 random bits that nobody can guess, so a keyed BLAKE2b protects it (`TokenKey`): checking one
takes microseconds, also after a restart. A token that a person chose might be guessed with a stolen database, so it is
hashed with scrypt. `hash_token` and `verify_token` use scrypt: they take tens of milliseconds by design and touch no
state, so run them in a thread. A login is

    identity = identities.find(name)
    if not (token_key.verify(identity.token_hash, token) or identities.is_verified(name, token)):
        if not await asyncio.to_thread(verify_token, identity.token_hash, token): refuse
        identities.remember_verified(identity, token)
"""

import hashlib
import hmac
import re
import secrets
from collections import OrderedDict
from collections.abc import Sequence
from itertools import islice
from typing import Final

from msgspec import Struct, json
from msgspec.structs import replace

from wirelake.commit import Commit
from wirelake.errors import ConflictError, FullError, InputError
from wirelake.limits import STATE_IDENTITIES_MAX, STATE_TOKEN_BYTES_MAX, STATE_TOKENS_KNOWN_MAX
from wirelake.state.batch import SingleRowStatement, Statement
from wirelake.state.database import StateReader
from wirelake.state.schema import check_name
from wirelake.state.writer import StateWriter

_ADD: Final = Statement(
    "identities",
    "INSERT INTO identities (name, salt, digest, cost, block, lanes, added_at_ms, kind, roles) VALUES ",
    "(?,?,?,?,?,?,?,?,?)",
)
_REHASH: Final = SingleRowStatement(
    "identities", "UPDATE identities SET salt = ?, digest = ?, cost = ?, block = ?, lanes = ?, kind = ? WHERE name = ?"
)
_SET_ROLES: Final = SingleRowStatement("identities", "UPDATE identities SET roles = ? WHERE name = ?")
_REMOVE: Final = Statement("identities", "DELETE FROM identities WHERE name IN (", "?", ")")

_SALT_BYTES: Final = 16
_DIGEST_BYTES: Final = 32
_TOKEN_BYTES: Final = 24
_COST: Final = 2**14
_BLOCK: Final = 8
_LANES: Final = 1
_KEY_ID_BYTES: Final = 8
_GENERATED: Final = re.compile(r"t[A-Za-z0-9_-]{32}")
_GENERATED_CHARS_MIN: Final = 12  # distinct ones; 32 random ones have fewer once in 10**15

_roles: Final = json.Decoder(tuple[str, ...])

SCRYPT: Final = "scrypt"
KEYED: Final = "blake2b"  # the salt is then the key's id


class TokenHash(Struct, frozen=True):
    """Hold the hash of a token and its parameters, which may be raised later for new tokens."""

    salt: bytes
    digest: bytes
    cost: int
    block: int
    lanes: int
    kind: str = SCRYPT

    def __repr__(self) -> str:
        return "TokenHash(…)"


class Identity(Struct, frozen=True):
    name: str
    token_hash: TokenHash
    added_at_ms: int
    roles: tuple[str, ...] = ()  # none: it is a member


def new_token() -> str:
    """Return a random token that is printable, and safe in a URL and on a command line."""
    return "t" + secrets.token_urlsafe(_TOKEN_BYTES)  # never a leading dash


def looks_generated(token: str) -> bool:
    """Tell whether the token looks like one from `new_token`, and not like one that a person chose."""
    return _GENERATED.fullmatch(token) is not None and len(set(token)) >= _GENERATED_CHARS_MIN


class TokenKey:
    """Hash and verify generated tokens with a key that is stored beside the database, in a file of its own."""

    def __init__(self, key: bytes) -> None:
        self._key = key
        self.id = hashlib.blake2b(b"id", key=key, digest_size=_KEY_ID_BYTES).digest()

    def digest(self, token: str) -> bytes:
        return hashlib.blake2b(_token_bytes(token), key=self._key, digest_size=_DIGEST_BYTES).digest()

    def hash(self, token: str) -> TokenHash:
        """Hash a token: fast if it is generated, else with scrypt. Raise InputError if it is empty or too long."""
        return TokenHash(self.id, self.digest(token), 0, 0, 0, KEYED) if looks_generated(token) else hash_token(token)

    def uses_other_key(self, token_hash: TokenHash) -> bool:
        """Tell whether the hash was made with another key, so that its token cannot be verified."""
        return token_hash.kind == KEYED and token_hash.salt != self.id

    def verify(self, token_hash: TokenHash, token: str) -> bool:
        """Compare in constant time. A hash made by scrypt, or with another key, never matches."""
        if token_hash.kind != KEYED or token_hash.salt != self.id:
            return False
        return hmac.compare_digest(self.digest(token), token_hash.digest)


def hash_token(token: str) -> TokenHash:
    """Hash with scrypt, which is slow by design. Raise InputError for a token that is empty or too long."""
    size = len(_token_bytes(token))
    if not 0 < size <= STATE_TOKEN_BYTES_MAX:
        raise InputError(f"a token must have 1 to {STATE_TOKEN_BYTES_MAX} bytes, not {size}")
    salt = secrets.token_bytes(_SALT_BYTES)
    return TokenHash(salt, _scrypt(token, salt, _COST, _BLOCK, _LANES, _DIGEST_BYTES), _COST, _BLOCK, _LANES)


def dummy_hash() -> TokenHash:
    """Return a hash that no token matches: refusing an unknown name must take as long as refusing a wrong token."""
    return TokenHash(secrets.token_bytes(_SALT_BYTES), secrets.token_bytes(_DIGEST_BYTES), _COST, _BLOCK, _LANES)


def verify_token(token_hash: TokenHash, token: str) -> bool:
    """Verify a token with scrypt, slow by design, in constant time. A hash of another kind never matches."""
    if token_hash.kind != SCRYPT:
        return False
    if len(_token_bytes(token)) > STATE_TOKEN_BYTES_MAX:
        return False
    digest = _scrypt(
        token, token_hash.salt, token_hash.cost, token_hash.block, token_hash.lanes, len(token_hash.digest)
    )
    return hmac.compare_digest(digest, token_hash.digest)


def _scrypt(token: str, salt: bytes, cost: int, block: int, lanes: int, size: int) -> bytes:
    memory = 256 * cost * block * lanes  # twice what it needs
    return hashlib.scrypt(_token_bytes(token), salt=salt, n=cost, r=block, p=lanes, maxmem=memory, dklen=size)


def _token_bytes(token: str) -> bytes:
    return token.encode("utf-8", "surrogatepass")  # so that anything a peer sends can be hashed


class Identities:
    """Keep all identities in memory, and which tokens were verified recently, so that a reconnect storm is cheap."""

    def __init__(self, writer: StateWriter, reader: StateReader) -> None:
        self._writer = writer
        self._reader = reader
        self._by_name: dict[str, Identity] = {}
        self._by_digest: dict[bytes, str] = {}  # of generated tokens
        self._scrypt_names: dict[str, None] = {}  # whose tokens are hashed with scrypt, the newest last
        self._fast_key = secrets.token_bytes(32)  # of this process: the fast hashes are useless elsewhere
        self._verified: OrderedDict[str, tuple[TokenHash, bytes]] = OrderedDict()

    def load(self) -> None:
        rows = self._reader.rows(
            "SELECT name, salt, digest, cost, block, lanes, kind, added_at_ms, roles FROM identities"
            " ORDER BY added_at_ms"
        )
        self._by_name, self._by_digest, self._scrypt_names = {}, {}, {}
        for row in rows:
            self._index(Identity(row[0], TokenHash(*row[1:7]), row[7], _roles.decode(row[8])))

    def find(self, name: str) -> Identity | None:
        self._writer.reload_if_stale()
        return self._by_name.get(name)

    def find_by_token(self, token_key: TokenKey, token: str) -> Identity | None:
        """Return the identity with this generated token."""
        self._writer.reload_if_stale()
        identity = self._by_name.get(self._by_digest.get(token_key.digest(token), ""))
        return identity if identity is not None and token_key.verify(identity.token_hash, token) else None

    def newest_scrypt(self, count: int) -> list[Identity]:
        """Return the newest identities whose tokens are hashed with scrypt."""
        self._writer.reload_if_stale()
        return [self._by_name[name] for name in islice(reversed(self._scrypt_names), count)]

    def list_keyed(self) -> list[Identity]:
        """Return the identities whose tokens are hashed with a key."""
        self._writer.reload_if_stale()
        return [self._by_name[name] for name in self._by_digest.values()]

    def list(self) -> list[Identity]:
        """Return all identities, ordered by name."""
        self._writer.reload_if_stale()
        return sorted(self._by_name.values(), key=lambda identity: identity.name)

    def add(self, name: str, token_hash: TokenHash, now_ms: int, roles: Sequence[str] = ()) -> Commit:
        """Add an identity."""
        self._writer.check_writable()
        check_name(name, "an identity's name")
        if name in self._by_name:
            raise ConflictError(f"identity {name!r} exists already: to change its token, remove it first")
        if len(self._by_name) >= STATE_IDENTITIES_MAX:
            raise FullError(f"cannot add identity {name!r}: the limit is {STATE_IDENTITIES_MAX} identities")
        self._index(Identity(name, token_hash, now_ms, tuple(roles)))
        row = (
            name,
            token_hash.salt,
            token_hash.digest,
            token_hash.cost,
            token_hash.block,
            token_hash.lanes,
            now_ms,
            token_hash.kind,
            json.encode(roles).decode(),
        )
        return self._writer.submit(_ADD, row)

    def rehash(self, identity: Identity, token_hash: TokenHash) -> Commit | None:
        """Replace the hash of the same token by one of another kind. Return None if the identity changed meanwhile."""
        self._writer.check_writable()
        name = identity.name
        if self._by_name.get(name) is not identity:
            return None
        self._unindex(identity)
        self._index(replace(identity, token_hash=token_hash))
        row = (
            token_hash.salt,
            token_hash.digest,
            token_hash.cost,
            token_hash.block,
            token_hash.lanes,
            token_hash.kind,
            name,
        )
        return self._writer.submit(_REHASH, row)

    def set_roles(self, name: str, roles: Sequence[str]) -> Commit | None:
        """Give an identity these roles instead of those it had. Return None if there is no such identity."""
        self._writer.check_writable()
        identity = self._by_name.get(name)
        if identity is None:
            return None
        self._by_name[name] = replace(identity, roles=tuple(roles))
        return self._writer.submit(_SET_ROLES, (json.encode(roles).decode(), name))

    def roles_of(self, name: str) -> tuple[str, ...]:
        """Return the roles of an identity; none if there is no such identity."""
        identity = self.find(name)
        return () if identity is None else identity.roles

    def remove(self, name: str) -> Commit | None:
        """Remove an identity.

        Return None if there is none. `StateStore.remove_identity` also removes what belongs to it.
        """
        self._writer.check_writable()
        identity = self._by_name.get(name)
        if identity is None:
            return None
        self._unindex(identity)
        return self._writer.submit(_REMOVE, (name,))

    def _index(self, identity: Identity) -> None:
        self._by_name[identity.name] = identity
        if identity.token_hash.kind == KEYED:
            self._by_digest[identity.token_hash.digest] = identity.name
        else:
            self._scrypt_names[identity.name] = None

    def _unindex(self, identity: Identity) -> None:
        name = identity.name
        del self._by_name[name]
        self._verified.pop(name, None)
        self._scrypt_names.pop(name, None)
        if self._by_digest.get(identity.token_hash.digest) == name:
            del self._by_digest[identity.token_hash.digest]

    def is_verified(self, name: str, token: str) -> bool:
        """Tell whether this token was verified recently. If not, it may still be right: check with `verify_token`."""
        identity = self.find(name)
        verified = self._verified.get(name)
        if identity is None or verified is None or verified[0] is not identity.token_hash:
            return False
        if not hmac.compare_digest(self._fast_hash(token), verified[1]):
            return False
        self._verified.move_to_end(name)
        return True

    def remember_verified(self, identity: Identity, token: str) -> None:
        """Remember that this token has just been verified."""
        self._verified[identity.name] = (identity.token_hash, self._fast_hash(token))
        self._verified.move_to_end(identity.name)
        if len(self._verified) > STATE_TOKENS_KNOWN_MAX:
            self._verified.popitem(last=False)

    def _fast_hash(self, token: str) -> bytes:
        return hashlib.blake2b(_token_bytes(token), key=self._fast_key, digest_size=32).digest()
