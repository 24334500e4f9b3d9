"""Show the identities with their roles, and what one identity may do. The admin can change its roles."""

from collections.abc import Callable
from typing import Final

from msgspec import Struct

from wirelake.broker.access import AccessPolicy, Rights
from wirelake.console.page import PageServer, Values, page_route
from wirelake.gateway.http.auth import admin_only
from wirelake.gateway.http.errors import ApiError
from wirelake.gateway.http.request_context import RequestContext
from wirelake.gateway.http.route import BoundRoute
from wirelake.roles import MEMBER, Action
from wirelake.state.identities import Identities

# What the targets of an action are, for people.
TARGETS: Final = {
    Action.PUBLISH: "topics",
    Action.SUBSCRIBE: "topics",
    Action.CALL: "services and operations",
    Action.PROVIDE: "services",
    Action.COMMAND: "devices",
    Action.QUERY: "tables",
    Action.SEE: "sessions, devices, topics, traces, log, audit, ledger, overview, metrics",
    Action.READ: "redis keys, data sets",
    Action.WRITE: "redis keys, data sets",
}


class RightsRow(Struct):
    """An action, and the patterns of the targets on which it is allowed, with the role that says so."""

    action: str
    targets: str
    patterns: list[tuple[str, str]]


class IdentityPages:
    def __init__(
        self, server: PageServer, identities: Identities, access: AccessPolicy, now_ms: Callable[[], int]
    ) -> None:
        self._server = server
        self._identities = identities
        self._access = access
        self._now_ms = now_ms

    def routes(self) -> tuple[BoundRoute, ...]:
        bind = self._server.bind
        return (bind(LIST, "identities.html", self.list_identities), bind(SHOW, "identity.html", self.show))

    async def list_identities(self, context: RequestContext) -> Values:
        after, rows_max = context.query("after"), context.rows_max
        found = [identity for identity in self._identities.list() if identity.name > after]
        shown = found[:rows_max]
        return {
            "identities": shown,
            "now_ms": self._now_ms(),
            "default": MEMBER,
            "next": shown[-1].name if len(found) > rows_max else "",
        }

    async def show(self, context: RequestContext) -> Values:
        """Show an identity: any to the admin, its own to everybody else."""
        name = context.path("name")
        if not context.rights.is_admin and name != context.identity:
            raise admin_only()
        identity = self._identities.find(name)
        if identity is None and name != context.identity:
            raise ApiError(404, f"no identity {name[:64]!r}: add it with wirelake identity add")
        rights = self._access.rights(name)
        return {
            "data": {"name": name},
            "name": name,
            "roles": list(self._access.roles),
            "assigned": () if identity is None else identity.roles,
            "unknown": [role for role in rights.roles if role not in self._access.roles],
            "default": MEMBER,
            "rows": rights_rows(rights),
            "row_filters": [
                (role, condition)
                for role in rights.roles
                if role in self._access.roles
                for condition in self._access.roles[role].row_rules()
            ],
            "tokens": () if identity is None else identity.tokens,
            "now_ms": self._now_ms(),
            "may_change": context.rights.is_admin and identity is not None,
        }


def rights_rows(rights: Rights) -> list[RightsRow]:
    return [
        RightsRow(action, targets, [(rule.pattern, rule.role) for rule in rights.rules(action)])
        for action, targets in TARGETS.items()
    ]


LIST: Final = page_route("/identities")
SHOW: Final = page_route("/identities/{name}")
ROUTES: Final = (LIST, SHOW)
