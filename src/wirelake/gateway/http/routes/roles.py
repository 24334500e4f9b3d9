"""List the roles, and explain whether an identity may do something."""

from typing import Final

from msgspec import Struct

from wirelake.broker.access import AccessPolicy
from wirelake.gateway.auth.logins import Logins
from wirelake.gateway.auth.role_enforcement import RoleEnforcement
from wirelake.gateway.http.errors import ApiError
from wirelake.gateway.http.request_context import RequestContext
from wirelake.gateway.http.route import Access, BoundRoute, Parameter, Route
from wirelake.roles import BUILT_IN, Action
from wirelake.state.identities import Identities


class RoleRow(Struct):
    name: str
    built_in: bool
    rules: dict[str, list[str]]  # action → patterns


class RoleList(Struct):
    roles: list[RoleRow]


class AccessAnswer(Struct):
    """`rule` is what allows it, or "" if nothing does."""

    allowed: bool
    roles: list[str]
    rule: str
    text: str


class RoleRoutes:
    def __init__(self, roles: RoleEnforcement, access: AccessPolicy, identities: Identities, logins: Logins) -> None:
        self._roles = roles
        self._access = access
        self._identities = identities
        self._logins = logins

    def routes(self) -> tuple[BoundRoute, ...]:
        return (LIST.bind(self.list_roles), EXPLAIN.bind(self.explain))

    async def list_roles(self, _context: RequestContext, _: None) -> RoleList:
        return RoleList([RoleRow(name, name in BUILT_IN, role.rules()) for name, role in self._roles.roles.items()])

    async def explain(self, context: RequestContext, _: None) -> AccessAnswer:
        name = context.query("identity")
        action = Action(context.query("action"))
        if self._identities.find(name) is None and not self._logins.open_to_all:
            raise ApiError(404, f"no identity {name[:64]!r}")
        decision = self._access.decide(name, action, context.query("target"))
        rule = "" if decision.rule is None else str(decision.rule)
        return AccessAnswer(decision.is_allowed, list(decision.roles), rule, str(decision))


LIST: Final = Route(
    method="GET",
    path="/api/roles",
    operation_id="roles.list_roles",
    summary="List the roles with their rules, built-in ones first.",
    access=Access.ADMIN,
    gives=RoleList,
    example_answer={"roles": [{"name": "phone", "built_in": False, "rules": {"subscribe": ["@news/**"]}}]},
)

EXPLAIN: Final = Route(
    method="GET",
    path="/api/access",
    operation_id="roles.explain",
    summary="Say whether an identity may do something, and which rule allows it.",
    access=Access.ADMIN,
    gives=AccessAnswer,
    parameters=(
        Parameter("identity", "Name of the identity.", is_required=True),
        Parameter("action", "What it would do.", is_required=True, choices=tuple(map(str, Action))),
        Parameter("target", "For example a topic.", is_required=True),
    ),
    refusals=(404,),
    example_answer={
        "allowed": True,
        "roles": ["phone"],
        "rule": "role phone: subscribe @news/**",
        "text": "allowed by role phone: subscribe @news/**",
    },
)

ROUTES: Final = (LIST, EXPLAIN)
