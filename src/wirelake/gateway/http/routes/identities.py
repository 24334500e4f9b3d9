"""Manage identities. A token is returned once, when the identity is added, and stored as a hash."""

from collections.abc import Callable
from typing import Annotated, Final

from msgspec import Meta, Struct

from wirelake.errors import ConflictError
from wirelake.gateway.auth.role_enforcement import RoleEnforcement
from wirelake.gateway.http.auth import ADMIN, CookieSessions
from wirelake.gateway.http.bodies import Name
from wirelake.gateway.http.errors import ApiError
from wirelake.gateway.http.request_context import RequestContext
from wirelake.gateway.http.route import LIMIT, Access, BoundRoute, Parameter, Route
from wirelake.gateway.http.routes.sessions import OpenSessions
from wirelake.gateway.http.routes.tokens import LifeS, TokenHasher, TokenText
from wirelake.limits import HTTP_ROLES_MAX
from wirelake.protocols.session import Closing
from wirelake.roles import check_role_names
from wirelake.state.store import StateStore
from wirelake.state.tokens import later_ms, new_token


class NewIdentity(Struct, forbid_unknown_fields=True):
    name: Name
    token: TokenText | None = None  # generated if not given
    expires_s: LifeS | None = None  # of the token, from now; None: never
    roles: Annotated[list[Name], Meta(max_length=HTTP_ROLES_MAX)] = []  # none: it is a member


class NewRoles(Struct, forbid_unknown_fields=True):
    roles: Annotated[list[Name], Meta(max_length=HTTP_ROLES_MAX)]


class AddedIdentity(Struct):
    name: str
    token: str


class IdentityRow(Struct):
    name: str
    added_at_ms: int
    topics: int  # durable ones it is subscribed to
    roles: list[str]
    tokens: int  # valid ones
    expires_at_ms: int | None  # when the last of these expires; None: never


class IdentityList(Struct):
    identities: list[IdentityRow]
    next: str | None = None


class IdentityRoutes:
    def __init__(
        self,
        state: StateStore,
        hasher: TokenHasher,
        roles: RoleEnforcement,
        sessions: OpenSessions,
        cookie_sessions: CookieSessions,
        now_ms: Callable[[], int],
    ) -> None:
        self._state = state
        self._hasher = hasher
        self._roles = roles
        self._sessions = sessions
        self._cookie_sessions = cookie_sessions
        self._now_ms = now_ms

    def routes(self) -> tuple[BoundRoute, ...]:
        return (
            ADD.bind(self.add),
            LIST.bind(self.list_identities),
            REMOVE.bind(self.remove),
            ASSIGN.bind(self.assign),
        )

    async def add(self, context: RequestContext, new: NewIdentity) -> AddedIdentity:
        identities = self._state.identities
        if new.name == ADMIN:
            raise ConflictError(f"{ADMIN!r} is reserved for the admin token: choose another name")
        if identities.find(new.name) is not None:
            raise ConflictError(f"identity {new.name!r} exists already: to change its token, rotate it")
        check_role_names(new.roles, self._roles.roles)
        token = new_token() if new.token is None else new.token
        secret = await self._hasher.hash(token)
        context.audited["roles"] = new.roles
        now_ms = self._now_ms()
        await identities.add(new.name, secret, now_ms, new.roles, later_ms(now_ms, new.expires_s))
        return AddedIdentity(new.name, token)

    async def list_identities(self, context: RequestContext, _: None) -> IdentityList:
        after, rows_max, topics = context.query("after"), context.rows_max, self._state.topics
        found = [identity for identity in self._state.identities.list() if identity.name > after][: rows_max + 1]
        now_ms = self._now_ms()
        rows = [
            IdentityRow(
                name=identity.name,
                added_at_ms=identity.added_at_ms,
                topics=len(topics.topics_of(identity.name)),
                roles=list(identity.roles),
                tokens=len(identity.valid_tokens(now_ms)),
                expires_at_ms=identity.expires_at_ms(now_ms),
            )
            for identity in found[:rows_max]
        ]
        return IdentityList(rows, rows[-1].name if len(found) > rows_max else None)

    async def remove(self, context: RequestContext, _: None) -> None:
        name = context.path("name")
        commit = self._state.remove_identity(name)
        if commit is None:
            raise ApiError(404, f"no identity {name[:64]!r}")
        self._sessions.close_all_of(name, Closing("identity_removed", "this identity was removed"))
        self._cookie_sessions.end_all_of(name)
        await commit

    async def assign(self, context: RequestContext, new: NewRoles) -> None:
        name = context.path("name")
        identity = self._state.identities.find(name)
        context.audited |= {"before": [] if identity is None else list(identity.roles), "after": new.roles}
        commit = self._roles.assign(name, new.roles)
        if commit is None:
            raise ApiError(404, f"no identity {name[:64]!r}")
        await commit


ADD: Final = Route(
    method="POST",
    path="/api/identities",
    operation_id="identities.add",
    summary="Add an identity and return its token, which is not shown again.",
    access=Access.ADMIN,
    takes=NewIdentity,
    gives=AddedIdentity,
    status=201,
    is_recorded=True,
    audit="identity.add",
    audit_target="name",
    secrets=("token",),
    refusals=(409, 507),
    example={"name": "phone-1"},
    example_answer={"name": "phone-1", "token": "tQ3V5…"},
)

LIST: Final = Route(
    method="GET",
    path="/api/identities",
    operation_id="identities.list_identities",
    summary="List the identities by name, without their tokens.",
    access=Access.ADMIN,
    gives=IdentityList,
    parameters=(
        Parameter("after", "Return names after this one."),
        LIMIT,
    ),
    example_answer={
        "identities": [
            {
                "name": "phone-1",
                "added_at_ms": 1_700_000_000_000,
                "topics": 2,
                "roles": ["phone"],
                "tokens": 1,
                "expires_at_ms": None,
            }
        ],
        "next": None,
    },
)

REMOVE: Final = Route(
    method="DELETE",
    path="/api/identities/{name}",
    operation_id="identities.remove",
    summary="Remove an identity with its subscriptions and sessions.",
    access=Access.ADMIN,
    status=204,
    is_recorded=True,
    audit="identity.remove",
    audit_target="name",
    parameters=(Parameter("name", "Name of the identity."),),
)

ASSIGN: Final = Route(
    method="PUT",
    path="/api/identities/{name}/roles",
    operation_id="identities.assign",
    summary="Give an identity these roles; its sessions that they do not allow are closed.",
    access=Access.ADMIN,
    takes=NewRoles,
    status=204,
    is_recorded=True,
    audit="identity.roles",
    audit_target="name",
    parameters=(Parameter("name", "Name of the identity."),),
    example={"roles": ["phone"]},
)

ROUTES: Final = (ADD, LIST, REMOVE, ASSIGN)
