"""Store who may log in: names with their roles, and hashes of their tokens (see tokens.py).

A login is

    identity = identities.find(name)
    stored = token_key.find(identity.tokens, token) or identities.find_verified(identity, token)
    if stored is None:
        stored = await asyncio.to_thread(find_slow, identity.chosen_tokens, token)
        identities.remember_verified(name, stored, token)
    accept if stored.is_valid(now_ms)
"""

import hashlib
import hmac
import secrets
from collections import OrderedDict
from collections.abc import Sequence
from itertools import islice
from typing import Final

from msgspec import Struct, json
from msgspec.structs import replace

from wirelake.commit import Commit
from wirelake.errors import ConflictError, FullError
from wirelake.limits import (
    STATE_IDENTITIES_MAX,
    STATE_TOKEN_EXPIRED_KEEP_S,
    STATE_TOKENS_KNOWN_MAX,
    STATE_TOKENS_PER_IDENTITY_MAX,
)
from wirelake.state.batch import SingleRowStatement, Statement
from wirelake.state.database import StateReader
from wirelake.state.schema import check_integer, check_name
from wirelake.state.tokens import KEYED, Token, TokenHash, TokenKey, new_token_id, share_salt, token_bytes
from wirelake.state.writer import StateWriter

_ADD: Final = Statement("identities", "INSERT INTO identities (name, added_at_ms, roles) VALUES ", "(?,?,?)")
_SET_ROLES: Final = SingleRowStatement("identities", "UPDATE identities SET roles = ? WHERE name = ?")
_REMOVE: Final = Statement("identities", "DELETE FROM identities WHERE name IN (", "?", ")")
_ADD_TOKEN: Final = Statement(
    "tokens",
    "INSERT INTO tokens (identity, id, salt, digest, cost, block, lanes, kind, added_at_ms, expires_at_ms) VALUES ",
    "(?,?,?,?,?,?,?,?,?,?)",
)
_REHASH: Final = SingleRowStatement(
    "tokens",
    "UPDATE tokens SET salt = ?, digest = ?, cost = ?, block = ?, lanes = ?, kind = ? WHERE identity = ? AND id = ?",
)
_EXPIRE: Final = SingleRowStatement("tokens", "UPDATE tokens SET expires_at_ms = ? WHERE identity = ? AND id = ?")
_REMOVE_TOKEN: Final = SingleRowStatement("tokens", "DELETE FROM tokens WHERE identity = ? AND id = ?")
_REMOVE_TOKENS: Final = Statement("tokens", "DELETE FROM tokens WHERE identity IN (", "?", ")")

_roles: Final = json.Decoder(tuple[str, ...])


class Identity(Struct, frozen=True):
    name: str
    tokens: tuple[Token, ...]  # the oldest first; expired ones stay for a while
    added_at_ms: int
    roles: tuple[str, ...] = ()  # none: it is a member

    @property
    def chosen_tokens(self) -> list[Token]:
        """Return the tokens that are hashed with scrypt; they share a salt."""
        return [each for each in self.tokens if not each.is_generated]

    @property
    def chosen_hash(self) -> TokenHash | None:
        """Return the hash whose salt another chosen token of this identity gets."""
        return next((each.hash for each in self.tokens if not each.is_generated), None)

    def find_token(self, token_id: str) -> Token | None:
        return next((each for each in self.tokens if each.id == token_id), None)

    def valid_tokens(self, now_ms: int) -> list[Token]:
        return [each for each in self.tokens if each.is_valid(now_ms)]

    def expires_at_ms(self, now_ms: int) -> int | None:
        """Return when the last of its valid tokens expires; None if that is never, or if none is valid."""
        valid = self.valid_tokens(now_ms)
        ends = [each.expires_at_ms for each in valid if each.expires_at_ms is not None]
        return max(ends) if ends and len(ends) == len(valid) else None


class Identities:
    """Keep all identities in memory, and which tokens were verified recently, so that a reconnect storm is cheap."""

    def __init__(self, writer: StateWriter, reader: StateReader) -> None:
        self._writer = writer
        self._reader = reader
        self._by_name: dict[str, Identity] = {}
        self._by_digest: dict[bytes, str] = {}  # of generated tokens
        self._chosen_names: dict[str, None] = {}  # who has chosen tokens; whose is the newest last
        self._fast_key = secrets.token_bytes(32)  # of this process: the fast hashes are useless elsewhere
        self._verified: OrderedDict[tuple[str, str], tuple[TokenHash, bytes]] = OrderedDict()  # by name and token id

    def load(self) -> None:
        tokens: dict[str, list[Token]] = {}
        chosen: dict[str, None] = {}
        for name, token_id, *parts, added_at_ms, expires_at_ms in self._reader.rows(
            "SELECT identity, id, salt, digest, cost, block, lanes, kind, added_at_ms, expires_at_ms FROM tokens"
            " ORDER BY added_at_ms"
        ):
            token = Token(token_id, TokenHash(*parts), added_at_ms, expires_at_ms)
            tokens.setdefault(name, []).append(token)
            if not token.is_generated:
                chosen.pop(name, None)
                chosen[name] = None
        self._by_name, self._by_digest, self._chosen_names = {}, {}, chosen
        for name, added_at_ms, roles in self._reader.rows("SELECT name, added_at_ms, roles FROM identities"):
            self._index(Identity(name, tuple(tokens.get(name, ())), added_at_ms, _roles.decode(roles)))

    def find(self, name: str) -> Identity | None:
        self._writer.reload_if_stale()
        return self._by_name.get(name)

    def find_by_token(self, token_key: TokenKey, token: str) -> tuple[Identity, Token] | None:
        """Return the identity with this generated token, expired or not."""
        self._writer.reload_if_stale()
        identity = self._by_name.get(self._by_digest.get(token_key.digest(token), ""))
        stored = None if identity is None else token_key.find(identity.tokens, token)
        return None if identity is None or stored is None else (identity, stored)

    def is_token_valid(self, name: str, token_id: str, now_ms: int) -> bool:
        """Tell whether an identity still has a token, and it has not expired."""
        identity = self.find(name)
        stored = None if identity is None else identity.find_token(token_id)
        return stored is not None and stored.is_valid(now_ms)

    def newest_chosen(self, count: int) -> list[Identity]:
        """Return the identities with the newest chosen tokens."""
        self._writer.reload_if_stale()
        return [self._by_name[name] for name in islice(reversed(self._chosen_names), count)]

    def list_generated(self) -> list[tuple[str, Token]]:
        """Return the generated tokens with the names of their identities."""
        self._writer.reload_if_stale()
        return [(each.name, token) for each in self._by_name.values() for token in each.tokens if token.is_generated]

    def list(self) -> list[Identity]:
        """Return all identities, ordered by name."""
        self._writer.reload_if_stale()
        return sorted(self._by_name.values(), key=lambda identity: identity.name)

    def add(
        self,
        name: str,
        token_hash: TokenHash,
        now_ms: int,
        roles: Sequence[str] = (),
        expires_at_ms: int | None = None,
    ) -> Commit:
        """Add an identity with its first token."""
        self._writer.check_writable()
        check_name(name, "an identity's name")
        if name in self._by_name:
            raise ConflictError(f"identity {name!r} exists already: to change its token, rotate it")
        if len(self._by_name) >= STATE_IDENTITIES_MAX:
            raise FullError(f"cannot add identity {name!r}: the limit is {STATE_IDENTITIES_MAX} identities")
        token = _new(token_hash, now_ms, expires_at_ms)
        with self._writer.transaction():
            self._index(Identity(name, (token,), now_ms, tuple(roles)))
            self._writer.submit(_ADD, (name, now_ms, json.encode(roles).decode()))
            return self._writer.submit(_ADD_TOKEN, _row(name, token))

    def add_token(
        self,
        name: str,
        token_hash: TokenHash,
        now_ms: int,
        expires_at_ms: int | None = None,
        keep_until_ms: int | None = None,
    ) -> tuple[Token, Commit] | None:
        """Add a token. Return None if there is no such identity.

        With `keep_until_ms`, the tokens that the identity has expire at that time, unless they expire earlier. At the
        limit, the token that expired first is removed; FullError if none has expired.
        """
        self._writer.check_writable()
        identity = self._by_name.get(name)
        if identity is None:
            return None
        self._check_new(identity, token_hash)
        token = _new(token_hash, now_ms, expires_at_ms)
        given_way = _gives_way(identity, now_ms)
        with self._writer.transaction():
            if given_way is not None:
                self._writer.submit(_REMOVE_TOKEN, (name, given_way.id))
            kept = [each for each in identity.tokens if each is not given_way]
            if keep_until_ms is not None:
                kept = [self._expire(name, each, keep_until_ms) for each in kept]
            if not token.is_generated:
                self._chosen_names.pop(name, None)  # it is the newest now
            self._unindex(identity, forget=() if given_way is None else (given_way,))
            self._index(replace(identity, tokens=(*kept, token)))
            return token, self._writer.submit(_ADD_TOKEN, _row(name, token))

    def remove_token(self, name: str, token_id: str) -> Commit | None:
        """Remove a token. Return None if the identity does not have it."""
        self._writer.check_writable()
        identity = self._by_name.get(name)
        token = None if identity is None else identity.find_token(token_id)
        if identity is None or token is None:
            return None
        self._unindex(identity, forget=(token,))
        self._index(replace(identity, tokens=tuple(each for each in identity.tokens if each is not token)))
        return self._writer.submit(_REMOVE_TOKEN, (name, token_id))

    def rehash(self, name: str, token: Token, token_hash: TokenHash) -> Commit | None:
        """Replace the hash of the same token by one of another kind. Return None if it was removed meanwhile."""
        self._writer.check_writable()
        identity = self._by_name.get(name)
        if identity is None or token not in identity.tokens:
            return None
        self._unindex(identity, forget=(token,))
        tokens = [replace(each, hash=token_hash) if each == token else each for each in identity.tokens]
        self._index(replace(identity, tokens=tuple(tokens)))
        return self._writer.submit(_REHASH, (*_hash_row(token_hash), name, token.id))

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
        """Remove an identity with its tokens.

        Return None if there is none. `StateStore.remove_identity` also removes what else belongs to it.
        """
        self._writer.check_writable()
        identity = self._by_name.get(name)
        if identity is None:
            return None
        with self._writer.transaction():
            self._chosen_names.pop(name, None)
            self._unindex(identity, forget=identity.tokens)
            self._writer.submit(_REMOVE_TOKENS, (name,))
            return self._writer.submit(_REMOVE, (name,))

    def sweep(self, now_ms: int, rows_max: int) -> int:
        """Remove some tokens that expired long ago. Return how many there were."""
        self._writer.check_writable()
        before_ms = now_ms - int(STATE_TOKEN_EXPIRED_KEEP_S * 1000)
        query = "SELECT identity, id FROM tokens WHERE expires_at_ms <= ? LIMIT ?"
        expired = list(self._reader.rows(query, (before_ms, rows_max)))
        for name, token_id in expired:
            if not self.is_token_valid(name, token_id, before_ms):
                self.remove_token(name, token_id)
        return len(expired)

    def find_verified(self, identity: Identity, token: str) -> Token | None:
        """Return the chosen token that this one was recently verified as. If None, check with `find_slow`."""
        fast_hash = b""
        for each in identity.tokens:
            verified = None if each.is_generated else self._verified.get((identity.name, each.id))
            if verified is None or verified[0] is not each.hash:
                continue
            fast_hash = fast_hash or self._fast_hash(token)
            if hmac.compare_digest(fast_hash, verified[1]):
                self._verified.move_to_end((identity.name, each.id))
                return each
        return None

    def remember_verified(self, name: str, stored: Token, token: str) -> None:
        """Remember that this token has just been verified."""
        self._verified[name, stored.id] = (stored.hash, self._fast_hash(token))
        self._verified.move_to_end((name, stored.id))
        if len(self._verified) > STATE_TOKENS_KNOWN_MAX:
            self._verified.popitem(last=False)

    def _fast_hash(self, token: str) -> bytes:
        return hashlib.blake2b(token_bytes(token), key=self._fast_key, digest_size=32).digest()

    def _check_new(self, identity: Identity, token_hash: TokenHash) -> None:
        same = next((each for each in identity.tokens if each.hash == token_hash), None)
        if same is not None:
            raise ConflictError(f"identity {identity.name!r} has this token already, with the id {same.id}")
        chosen = identity.chosen_hash
        is_chosen = token_hash.kind != KEYED
        if is_chosen and chosen is not None and not share_salt(chosen, token_hash):
            raise ConflictError(f"the tokens of identity {identity.name!r} changed meanwhile: try again")

    def _expire(self, name: str, token: Token, at_ms: int) -> Token:
        if not token.is_valid(at_ms):
            return token
        self._writer.submit(_EXPIRE, (at_ms, name, token.id))
        return replace(token, expires_at_ms=at_ms)

    def _index(self, identity: Identity) -> None:
        name = identity.name
        self._by_name[name] = identity
        for token in identity.tokens:
            if token.is_generated:
                self._by_digest[token.hash.digest] = name
        if identity.chosen_hash is None:
            self._chosen_names.pop(name, None)
        else:
            self._chosen_names[name] = None  # keeps its place if it has one

    def _unindex(self, identity: Identity, forget: Sequence[Token] = ()) -> None:
        """Remove an identity from memory, and what is known of these tokens."""
        name = identity.name
        del self._by_name[name]
        for token in identity.tokens:
            if self._by_digest.get(token.hash.digest) == name:
                del self._by_digest[token.hash.digest]
        for token in forget:
            self._verified.pop((name, token.id), None)


def _new(token_hash: TokenHash, now_ms: int, expires_at_ms: int | None) -> Token:
    if expires_at_ms is not None:
        check_integer(expires_at_ms, "the expiry of a token")
    return Token(new_token_id(), token_hash, now_ms, expires_at_ms)


def _gives_way(identity: Identity, now_ms: int) -> Token | None:
    """Return the expired token that is removed for a new one, if there are too many."""
    if len(identity.tokens) < STATE_TOKENS_PER_IDENTITY_MAX:
        return None
    expired = [each for each in identity.tokens if not each.is_valid(now_ms)]
    if not expired:
        limit = STATE_TOKENS_PER_IDENTITY_MAX
        raise FullError(f"identity {identity.name!r} has {limit} tokens, which is the limit: revoke one first")
    return min(expired, key=lambda each: each.expires_at_ms or 0)


def _hash_row(token_hash: TokenHash) -> tuple[object, ...]:
    return (
        token_hash.salt,
        token_hash.digest,
        token_hash.cost,
        token_hash.block,
        token_hash.lanes,
        token_hash.kind,
    )


def _row(name: str, token: Token) -> tuple[object, ...]:
    return (name, token.id, *_hash_row(token.hash), token.added_at_ms, token.expires_at_ms)
