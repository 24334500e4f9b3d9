"""List who did what, and from where, as the event log has it."""

import asyncio
from pathlib import Path
from typing import Any, Final

from msgspec import Struct

from wirelake.gateway.http.bodies import EXAMPLE_NAME
from wirelake.gateway.http.request_context import RequestContext
from wirelake.gateway.http.route import BoundRoute, Parameter, Route
from wirelake.limits import HTTP_LOG_ROWS, HTTP_LOG_ROWS_MAX, HTTP_LOG_SEARCHED_MAX
from wirelake.log.audit import OUTCOMES
from wirelake.log.audit_search import AuditFilter, search
from wirelake.log.segments.reader import LogReader
from wirelake.protocols.text import read_json
from wirelake.roles import AUDIT

FILTERS: Final = ("identity", "action", "outcome", "target")
_MS_MAX: Final = 1 << 45


class AuditRow(Struct):
    seq: int
    at_ms: int
    protocol: str  # empty if the gateway itself did it
    action: str
    outcome: str
    identity: str
    peer: str
    session: str
    target: str
    detail: dict[str, Any]


class AuditRows(Struct):
    """`before` continues the search: the log has older records that were not searched. null: it has none."""

    events: list[AuditRow]
    before: int | None


class AuditRoutes:
    def __init__(self, log_folder: Path) -> None:
        self._log_folder = log_folder

    def routes(self) -> tuple[BoundRoute, ...]:
        return (LIST.bind(self.list_events),)

    async def list_events(self, context: RequestContext, _: None) -> AuditRows:
        wanted = filter_of(context, context.number("since", 0) or None, context.number("until", 0) or None)
        limit, before = context.number("limit", HTTP_LOG_ROWS), context.number("before", 0)
        return await asyncio.to_thread(find_events, self._log_folder, wanted, limit, before or None)


def filter_of(context: RequestContext, since_ms: int | None, until_ms: int | None = None) -> AuditFilter:
    """Return which events a request asks for."""
    return AuditFilter(
        identity=context.query("identity"),
        action=context.query("action"),
        outcome=context.query("outcome"),
        target=context.query("target"),
        since_us=None if since_ms is None else since_ms * 1000,
        until_us=None if until_ms is None else until_ms * 1000,
    )


def find_events(log_folder: Path, wanted: AuditFilter, limit: int, before: int | None) -> AuditRows:
    """Return the newest events in the log that are wanted."""
    found = search(LogReader(log_folder), wanted, limit, before, HTTP_LOG_SEARCHED_MAX)
    return AuditRows([_row(row) for row in found.rows], found.before)


def _row(row: dict[str, Any]) -> AuditRow:
    columns = {name: row[name] for name in AuditRow.__struct_fields__ if name in row}
    detail = read_json(row["detail"].encode()) if row["detail"] else {}
    return AuditRow(**columns | {"at_ms": int(row["received_at"].timestamp() * 1000), "detail": detail})


LIST: Final = Route(
    method="GET",
    path="/api/audit",
    operation_id="audit.list_events",
    summary="List who did what, newest first: logins, refusals, what administrators did, commands to devices, SQL.",
    see=AUDIT,
    gives=AuditRows,
    parameters=(
        Parameter("identity", "Only what this identity did."),
        Parameter("action", "Only this action: login, disconnect, sql, identity.add …; all but this one: !sql."),
        Parameter("outcome", "Only this outcome.", choices=OUTCOMES),
        Parameter("target", "Only with this target; of a failed login, the name that was claimed."),
        Parameter("since", "Only from this time on, in milliseconds since 1970.", "integer", most=_MS_MAX),
        Parameter("until", "Only before this time, in milliseconds since 1970.", "integer", most=_MS_MAX),
        Parameter("before", "Only before this record of the log.", "integer", most=1 << 53),
        Parameter("limit", "Maximum number of events.", "integer", most=HTTP_LOG_ROWS_MAX),
    ),
    example_answer={
        "events": [
            {
                "seq": 7,
                "at_ms": 1_700_000_000_000,
                "protocol": EXAMPLE_NAME,
                "action": "login",
                "outcome": "refused",
                "identity": "",
                "peer": "127.0.0.1:50000",
                "session": "a1b2c3-4",
                "target": "phone-1",
                "detail": {"reason": "wrong_token"},
            }
        ],
        "before": None,
    },
)

ROUTES: Final = (LIST,)
