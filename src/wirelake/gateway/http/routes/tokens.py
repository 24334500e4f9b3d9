"""Manage the tokens of an identity. A token is returned once, when it is added, and stored as a hash."""

import asyncio
from collections.abc import Callable
from typing import Annotated, Final

from msgspec import Meta, Struct

from wirelake.errors import ConflictError, FullError
from wirelake.gateway.http.errors import ApiError
from wirelake.gateway.http.request_context import RequestContext
from wirelake.gateway.http.route import Access, BoundRoute, Parameter, Route
from wirelake.gateway.http.routes.sessions import OpenSessions
from wirelake.limits import HTTP_HASHES_MAX, HTTP_TOKEN_CHARS_MAX, STATE_TOKEN_LIFE_S_MAX
from wirelake.protocols.session import Closing
from wirelake.state.identities import Identities, Identity
from wirelake.state.tokens import TokenHash, TokenKey, later_ms, new_token

_ID_CHARS_MAX: Final = 64  # of an id that is repeated in a message or a record

TokenText = Annotated[str, Meta(min_length=1, max_length=HTTP_TOKEN_CHARS_MAX)]
LifeS = Annotated[float, Meta(gt=0, le=STATE_TOKEN_LIFE_S_MAX)]
KeepS = Annotated[float, Meta(ge=0, le=STATE_TOKEN_LIFE_S_MAX)]


class NewToken(Struct, forbid_unknown_fields=True):
    token: TokenText | None = None  # generated if not given
    expires_s: LifeS | None = None  # from now; None: never
    keep_s: KeepS | None = None  # after which the tokens that the identity has expire; None: they stay as they are


class AddedToken(Struct):
    id: str
    token: str
    expires_at_ms: int | None


class TokenRow(Struct):
    id: str
    kind: str  # generated or chosen
    added_at_ms: int
    expires_at_ms: int | None  # None: never


class TokenList(Struct):
    tokens: list[TokenRow]


class TokenHasher:
    """Hash new tokens in threads, a few at a time."""

    def __init__(self, token_key: TokenKey) -> None:
        self._token_key = token_key
        self._hashing = asyncio.Semaphore(HTTP_HASHES_MAX)

    async def hash(self, token: str, chosen: TokenHash | None = None) -> TokenHash:
        async with self._hashing:
            return await asyncio.to_thread(self._token_key.hash, token, chosen)


class TokenRoutes:
    def __init__(
        self, identities: Identities, hasher: TokenHasher, sessions: OpenSessions, now_ms: Callable[[], int]
    ) -> None:
        self._identities = identities
        self._hasher = hasher
        self._sessions = sessions
        self._now_ms = now_ms

    def routes(self) -> tuple[BoundRoute, ...]:
        return (ADD.bind(self.add), LIST.bind(self.list_tokens), REVOKE.bind(self.revoke))

    async def add(self, context: RequestContext, new: NewToken) -> AddedToken:
        identity = self._find(context)
        token = new_token() if new.token is None else new.token
        secret = await self._hasher.hash(token, identity.chosen_hash)
        now_ms = self._now_ms()
        expires_at_ms, keep_until_ms = later_ms(now_ms, new.expires_s), later_ms(now_ms, new.keep_s)
        try:
            added = self._identities.add_token(identity.name, secret, now_ms, expires_at_ms, keep_until_ms)
        except FullError as error:  # the sender can revoke one: nothing is wrong with the gateway
            raise ConflictError(str(error)) from error
        if added is None:
            raise _no_identity(identity.name)
        stored, commit = added
        context.audited |= {"token_id": stored.id, "expires_at_ms": stored.expires_at_ms, "keep_s": new.keep_s}
        await commit
        return AddedToken(stored.id, token, stored.expires_at_ms)

    async def list_tokens(self, context: RequestContext, _: None) -> TokenList:
        stored = self._find(context).tokens
        return TokenList([TokenRow(each.id, each.kind, each.added_at_ms, each.expires_at_ms) for each in stored])

    async def revoke(self, context: RequestContext, _: None) -> None:
        name, token_id = self._find(context).name, context.path("id")
        context.audited["token_id"] = token_id[:_ID_CHARS_MAX]
        commit = self._identities.remove_token(name, token_id)
        if commit is None:
            raise ApiError(404, f"identity {name[:64]!r} has no token {token_id[:_ID_CHARS_MAX]!r}")
        self._sessions.close_all_of(name, Closing("token_revoked", "the token of this session was revoked"), token_id)
        await commit

    def _find(self, context: RequestContext) -> Identity:
        name = context.path("name")
        identity = self._identities.find(name)
        if identity is None:
            raise _no_identity(name)
        return identity


def _no_identity(name: str) -> ApiError:
    return ApiError(404, f"no identity {name[:64]!r}")


_NAME: Final = Parameter("name", "Name of the identity.")

ADD: Final = Route(
    method="POST",
    path="/api/identities/{name}/tokens",
    operation_id="tokens.add",
    summary="Add a token to an identity and return it; it is not shown again. With `keep_s`, the others expire then.",
    access=Access.ADMIN,
    takes=NewToken,
    gives=AddedToken,
    status=201,
    is_recorded=True,
    audit="token.add",
    audit_target="name",
    secrets=("token",),
    parameters=(_NAME,),
    refusals=(409, 507),
    example={"keep_s": 3600},
    example_answer={"id": "9f86d081", "token": "tQ3V5…", "expires_at_ms": None},
)

LIST: Final = Route(
    method="GET",
    path="/api/identities/{name}/tokens",
    operation_id="tokens.list_tokens",
    summary="List the tokens of an identity, without the tokens themselves.",
    access=Access.ADMIN,
    gives=TokenList,
    parameters=(_NAME,),
    example_answer={
        "tokens": [{"id": "9f86d081", "kind": "generated", "added_at_ms": 1_700_000_000_000, "expires_at_ms": None}]
    },
)

REVOKE: Final = Route(
    method="DELETE",
    path="/api/identities/{name}/tokens/{id}",
    operation_id="tokens.revoke",
    summary="Remove a token, and close the sessions that logged in with it.",
    access=Access.ADMIN,
    status=204,
    is_recorded=True,
    audit="token.revoke",
    audit_target="name",
    parameters=(_NAME, Parameter("id", "Id of the token.")),
)

ROUTES: Final = (ADD, LIST, REVOKE)
