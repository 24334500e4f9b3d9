"""Identities: who may log in. A token is shown once, when it is made, and kept as a hash."""

import asyncio
from typing import Annotated

from msgspec import Meta, Struct

from wirelake.errors import ConflictError
from wirelake.gateway.http.auth import ADMIN
from wirelake.gateway.http.errors import ApiError
from wirelake.gateway.http.names import Name
from wirelake.gateway.http.request_context import RequestContext
from wirelake.gateway.http.route import LIMIT, Access, Parameter, Route
from wirelake.gateway.http.routes.sessions import end_all_of
from wirelake.limits import HTTP_TOKEN_CHARS_MAX
from wirelake.protocols.session import Closing
from wirelake.state.identities import new_token


class NewIdentity(Struct, forbid_unknown_fields=True):
    name: Name
    token: Annotated[str, Meta(min_length=1, max_length=HTTP_TOKEN_CHARS_MAX)] | None = None  # made where none is given


class AddedIdentity(Struct):
    name: str
    token: str


class IdentityRow(Struct):
    name: str
    added_at_ms: int
    topics: int  # durable ones it is subscribed to


class IdentityList(Struct):
    identities: list[IdentityRow]
    next: str | None = None


async def add(exchange: RequestContext, new: NewIdentity) -> AddedIdentity:
    identities = exchange.gateway.state.identities
    if new.name == ADMIN:
        raise ConflictError(f"{ADMIN!r} is reserved for the admin token: choose another name")
    if identities.find(new.name) is not None:
        raise ConflictError(f"identity {new.name!r} exists already: to change its token, remove it first")
    token = new_token() if new.token is None else new.token
    async with exchange.api.hashing:
        secret = await asyncio.to_thread(exchange.gateway.logins.token_key.hash, token)
    await identities.add(new.name, secret, exchange.gateway.now_ms())
    return AddedIdentity(new.name, token)


async def list_identities(exchange: RequestContext, _: None) -> IdentityList:
    state, after, rows_max = exchange.gateway.state, exchange.query("after"), exchange.rows_max
    found = [identity for identity in state.identities.list() if identity.name > after][: rows_max + 1]
    rows = [
        IdentityRow(identity.name, identity.added_at_ms, len(state.topics.topics_of(identity.name)))
        for identity in found[:rows_max]
    ]
    return IdentityList(rows, rows[-1].name if len(found) > rows_max else None)


async def remove(exchange: RequestContext, _: None) -> None:
    name = exchange.path("name")
    commit = exchange.gateway.state.remove_identity(name)
    if commit is None:
        raise ApiError(404, f"no identity {name[:64]!r}")
    end_all_of(exchange, name, Closing("identity_removed", "this identity was removed"))
    exchange.api.authenticator.visits.end_all_of(name)
    await commit


ROUTES = (
    Route(
        method="POST",
        path="/api/identities",
        summary="Add an identity and return its token, which is not shown again.",
        handle=add,
        access=Access.ADMIN,
        takes=NewIdentity,
        gives=AddedIdentity,
        status=201,
        recorded=True,
        secrets=("token",),
        refusals=(409, 507),
        example={"name": "phone-1"},
        example_answer={"name": "phone-1", "token": "tQ3V5…"},
    ),
    Route(
        method="GET",
        path="/api/identities",
        summary="List the identities by name, without their tokens.",
        handle=list_identities,
        access=Access.ADMIN,
        gives=IdentityList,
        parameters=(
            Parameter("after", "Return names after this one."),
            LIMIT,
        ),
        example_answer={
            "identities": [{"name": "phone-1", "added_at_ms": 1_700_000_000_000, "topics": 2}],
            "next": None,
        },
    ),
    Route(
        method="DELETE",
        path="/api/identities/{name}",
        summary="Remove an identity with its subscriptions and sessions.",
        handle=remove,
        access=Access.ADMIN,
        status=204,
        recorded=True,
        parameters=(Parameter("name", "Name of the identity."),),
    ),
)
