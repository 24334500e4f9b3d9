"""Hash and verify tokens. The token itself is never stored.

A generated token has 192 random bits that nobody can guess, so a keyed BLAKE2b protects it (`TokenKey`): checking one
takes microseconds, also after a restart. A token that a person chose might be guessed with a stolen database, so it is
hashed with scrypt, which takes tens of milliseconds by design: run `hash_token` and `find_slow` in a thread. All chosen
tokens of an identity share a salt, so that one slow check finds out which of them matches, if any.
"""

import hashlib
import hmac
import re
import secrets
from collections.abc import Sequence
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from wirelake.errors import InputError
from wirelake.limits import STATE_TOKEN_BYTES_MAX

_SALT_BYTES: Final = 16
_DIGEST_BYTES: Final = 32
_TOKEN_BYTES: Final = 24
_COST: Final = 2**14
_BLOCK: Final = 8
_LANES: Final = 1
_KEY_ID_BYTES: Final = 8
_ID_BYTES: Final = 4  # of a token, among the few of one identity
_GENERATED: Final = re.compile(r"t[A-Za-z0-9_-]{32}")
_GENERATED_CHARS_MIN: Final = 12  # distinct ones; 32 random ones have fewer once in 10**15

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


class Token(Struct, frozen=True):
    """One of the tokens of an identity. It is valid until it expires."""

    id: str
    hash: TokenHash
    added_at_ms: int
    expires_at_ms: int | None = None  # None: never

    @property
    def is_generated(self) -> bool:
        return self.hash.kind == KEYED

    @property
    def kind(self) -> str:
        return "generated" if self.is_generated else "chosen"

    def is_valid(self, now_ms: int) -> bool:
        return self.expires_at_ms is None or now_ms < self.expires_at_ms


def later_ms(now_ms: int, after_s: float | None) -> int | None:
    """Return the time that is so many seconds from now; None, which is never, stays None."""
    return None if after_s is None else now_ms + int(after_s * 1000)


def new_token_id() -> str:
    """Return an id for a token, which tells nothing about it."""
    return secrets.token_hex(_ID_BYTES)


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
        return hashlib.blake2b(token_bytes(token), key=self._key, digest_size=_DIGEST_BYTES).digest()

    def hash(self, token: str, chosen: TokenHash | None = None) -> TokenHash:
        """Hash a token: fast if it is generated, else with scrypt, as `hash_token` does."""
        if looks_generated(token):
            return TokenHash(self.id, self.digest(token), 0, 0, 0, KEYED)
        return hash_token(token, chosen)

    def uses_other_key(self, token_hash: TokenHash) -> bool:
        """Tell whether the hash was made with another key, so that its token cannot be verified."""
        return token_hash.kind == KEYED and token_hash.salt != self.id

    def find(self, tokens: Sequence[Token], token: str) -> Token | None:
        """Return the one that matches, compared in constant time. Hashes by scrypt or with another key never match."""
        digest = b""
        for each in tokens:
            stored = each.hash
            if stored.kind == KEYED and stored.salt == self.id:
                digest = digest or self.digest(token)
                if hmac.compare_digest(digest, stored.digest):
                    return each
        return None


def hash_token(token: str, chosen: TokenHash | None = None) -> TokenHash:
    """Hash with scrypt, which is slow by design. Raise InputError for a token that is empty or too long.

    `chosen` is the hash of another token that the same identity has: the new one gets the same salt and parameters.
    """
    size = len(token_bytes(token))
    if not 0 < size <= STATE_TOKEN_BYTES_MAX:
        raise InputError(f"a token must have 1 to {STATE_TOKEN_BYTES_MAX} bytes, not {size}")
    like = TokenHash(secrets.token_bytes(_SALT_BYTES), b"", _COST, _BLOCK, _LANES) if chosen is None else chosen
    return replace(like, digest=_scrypt(token, like))


def dummy_hash() -> TokenHash:
    """Return a hash that no token matches: refusing an unknown name must take as long as refusing a wrong token."""
    return TokenHash(secrets.token_bytes(_SALT_BYTES), secrets.token_bytes(_DIGEST_BYTES), _COST, _BLOCK, _LANES)


def find_slow(tokens: Sequence[Token], token: str) -> Token | None:
    """Return the one that matches, compared in constant time after one slow computation. The tokens share a salt."""
    if len(token_bytes(token)) > STATE_TOKEN_BYTES_MAX:
        return None
    digest = _scrypt(token, tokens[0].hash)
    return next((each for each in tokens if hmac.compare_digest(digest, each.hash.digest)), None)


def share_salt(first: TokenHash, second: TokenHash) -> bool:
    """Tell whether one computation of scrypt checks both."""
    return replace(first, digest=b"") == replace(second, digest=b"")


def _scrypt(token: str, like: TokenHash) -> bytes:
    memory = 256 * like.cost * like.block * like.lanes  # twice what it needs
    return hashlib.scrypt(
        token_bytes(token), salt=like.salt, n=like.cost, r=like.block, p=like.lanes, maxmem=memory, dklen=_DIGEST_BYTES
    )


def token_bytes(token: str) -> bytes:
    return token.encode("utf-8", "surrogatepass")  # so that anything a peer sends can be hashed
