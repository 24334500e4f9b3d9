"""Show who did what, and from where, newest first. The log has the newest events, the tables have them all."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Final
from urllib.parse import urlencode

from wirelake.console.page import PageServer, Values, page_route
from wirelake.gateway.http.errors import ApiError
from wirelake.gateway.http.request_context import RequestContext
from wirelake.gateway.http.route import BoundRoute
from wirelake.gateway.http.routes.audit import FILTERS, filter_of, find_events
from wirelake.lake import tables
from wirelake.lake.store import Store
from wirelake.lake.views import is_written
from wirelake.limits import HTTP_LIST_ROWS
from wirelake.log.audit import OUTCOMES
from wirelake.roles import Action

_HOUR_MS: Final = 3_600_000
_TIMES: Final = {"1h": ("last hour", _HOUR_MS), "1d": ("last day", 24 * _HOUR_MS), "7d": ("last week", 168 * _HOUR_MS)}
_ACTIONS: Final = (  # to choose from; a refusal has the action of the role that is missing
    "login",
    "logout",
    "connect",
    "disconnect",
    "sql",
    "command",
    "administer",
    "identity.add",
    "identity.remove",
    "identity.roles",
    "token.add",
    "token.revoke",
    "device.add",
    "device.remove",
    "session.end",
    "settings.reload",
    *(action for action in Action if action is not Action.COMMAND),
)
_HISTORY: Final = (
    "SELECT received_at, identity, peer, protocol, action, target, outcome, detail\n"
    "FROM silver.audit ORDER BY received_at DESC"
)


class AuditPages:
    def __init__(self, server: PageServer, folder: Path, lake: Store, now_ms: Callable[[], int]) -> None:
        self._server = server
        self._log = folder / "log"
        self._lake = lake
        self._now_ms = now_ms

    def routes(self) -> tuple[BoundRoute, ...]:
        return (self._server.bind(AUDIT, "audit.html", self.audit),)

    async def audit(self, context: RequestContext) -> Values:
        given = {name: context.query(name) for name in (*FILTERS, "within")}
        since_ms = self._now_ms() - _TIMES[given["within"]][1] if given["within"] in _TIMES else None
        wanted = filter_of(context, since_ms)
        found = await asyncio.to_thread(find_events, self._log, wanted, HTTP_LIST_ROWS, _before(context))
        older = {name: value for name, value in given.items() if value}
        may_query = context.rights.allows(Action.QUERY, tables.AUDIT.name) and is_written(self._lake, tables.AUDIT)
        return {
            "given": given,
            "events": found.events,
            "older": None if found.before is None else "/audit?" + urlencode(older | {"before": found.before}),
            "history": "/tables?" + urlencode({"sql": _HISTORY}) if may_query else "",
            "actions": _ACTIONS,
            "outcomes": OUTCOMES,
            "times": {key: text for key, (text, _) in _TIMES.items()},
        }


def _before(context: RequestContext) -> int | None:
    text = context.query("before")
    if text and not (text.isascii() and text.isdecimal() and len(text) < 19):
        raise ApiError(400, "before is the number of a record")
    return int(text) if text else None


AUDIT: Final = page_route("/audit")
ROUTES: Final = (AUDIT,)
