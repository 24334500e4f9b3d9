"""Show the tables with the pipeline's progress, run SQL, and show quarantined frames by protocol and reason."""

import asyncio
from collections.abc import Iterable
from pathlib import Path
from typing import Final
from urllib.parse import urlencode

from msgspec import Struct, field

from wirelake.console.page import PageServer, Values, page_route
from wirelake.errors import DamagedTableError, InputError
from wirelake.gateway.http.request_context import RequestContext
from wirelake.gateway.http.route import BoundRoute
from wirelake.gateway.http.routes.lake import LakeQueries, list_queryable
from wirelake.lake.progress import read_progress
from wirelake.lake.query import run_queries
from wirelake.lake.store import Store
from wirelake.lake.tables import QUARANTINE
from wirelake.lake.views import is_written
from wirelake.limits import (
    CONSOLE_QUARANTINE_GROUPS_MAX,
    CONSOLE_QUARANTINE_RECORDS_MAX,
    CONSOLE_QUARANTINE_SHOWN,
    LAKE_QUERY_S,
)
from wirelake.protocols.redaction import redact_stored
from wirelake.roles import OVERVIEW
from wirelake.tracing.record import LogRecord
from wirelake.tracing.search import Search
from wirelake.tracing.timeline import parse_time_us

EXAMPLES: Final = {
    "ledger": "SELECT hour, protocol, counted, received, decoded, quarantined, waiting, balanced, why\n"
    "FROM gold.ledger ORDER BY hour DESC, protocol",
    "traffic by minute": "SELECT minute, protocol, sum(frames) AS frames\n"
    "FROM gold.traffic_minute GROUP BY minute, protocol ORDER BY minute",
    "latest of each device": "SELECT serial, received_at, status, readings FROM gold.device_latest ORDER BY serial",
    "slowest calls": "SELECT asked_at, requester, service, op, latency_ms, status\n"
    "FROM silver.calls ORDER BY latency_ms DESC NULLS LAST LIMIT 20",
    "quarantined frames": "SELECT received_at, protocol, reason, text, frame\n"
    "FROM silver.quarantine ORDER BY received_at DESC LIMIT 50",
}
_COUNTED: Final = (
    "SELECT protocol, reason, count(*), max(received_at) AS latest FROM silver.quarantine"
    " GROUP BY ALL ORDER BY latest DESC"
)
_NEWEST: Final = (
    "SELECT protocol, reason, seq, received_at, session, identity, text, byte_offset, direction, frame"
    " FROM silver.quarantine"
    " QUALIFY row_number() OVER (PARTITION BY protocol, reason ORDER BY seq DESC)"
    " <= {shown} ORDER BY seq DESC"
)
_LINKED_BYTES_MAX: Final = 2048  # as long as a URL may be


class QuarantinedFrame(Struct):
    """A frame that could not be decoded. `link` opens it in the inspector."""

    seq: int
    at_us: int
    session: str
    identity: str
    text: str
    offset: int
    bytes: int
    hex: str
    link: str


class QuarantineGroup(Struct):
    protocol: str
    reason: str
    count: int = 0
    last_us: int = 0
    newest: list[QuarantinedFrame] = field(default_factory=list)


class QuarantineGroups:
    """Quarantined frames by protocol and reason."""

    def __init__(self) -> None:
        self._groups: dict[tuple[str, str], QuarantineGroup] = {}

    def of(self, protocol: str, reason: str) -> QuarantineGroup:
        return self._groups.setdefault((protocol, reason), QuarantineGroup(protocol, reason))

    def sorted(self) -> list[QuarantineGroup]:
        """Return the groups, latest first."""
        for group in self._groups.values():
            group.newest.sort(key=lambda bad: bad.seq, reverse=True)
            del group.newest[CONSOLE_QUARANTINE_SHOWN:]
        found = sorted(self._groups.values(), key=lambda group: group.last_us, reverse=True)
        return found[:CONSOLE_QUARANTINE_GROUPS_MAX]


class QuarantinePage(Struct):
    groups: list[QuarantineGroup]
    caveats: list[str]


class TablePages:
    def __init__(self, server: PageServer, queries: LakeQueries, folder: Path, lake: Store) -> None:
        self._server = server
        self._queries = queries
        self._folder = folder
        self._lake = lake

    def routes(self) -> tuple[BoundRoute, ...]:
        bind = self._server.bind
        return (bind(TABLES, "tables.html", self.tables), bind(QUARANTINED, "quarantine.html", self.quarantine))

    async def tables(self, context: RequestContext) -> Values:
        listed = await list_queryable(context, self._lake)
        sees_pipeline = context.rights.sees(OVERVIEW)
        return {
            "data": {"sees_pipeline": sees_pipeline},
            "sees_pipeline": sees_pipeline,
            "tables": listed,
            "examples": EXAMPLES,
            "sql": context.query("sql"),
        }

    async def quarantine(self, _: RequestContext) -> Values:
        with self._queries.limit.slot():
            return {"found": await asyncio.to_thread(find_quarantined, self._folder, self._lake)}


def find_quarantined(folder: Path, lake: Store) -> QuarantinePage:
    """Return the quarantined frames: those in the tables, and newer ones from the log."""
    groups, caveats = QuarantineGroups(), list[str]()
    search = Search(folder / "log")
    known_seq = 0
    try:
        known_seq = _from_tables(lake, groups, search.oldest_seq)
    except (InputError, DamagedTableError) as error:
        caveats.append(f"Cannot query the tables: {error}")
    progress = read_progress(folder)
    known_seq = max(known_seq, progress.next_seq if progress is not None else 0)
    records = search.newest({"quarantine", "fault"}, known_seq, CONSOLE_QUARANTINE_RECORDS_MAX)
    _from_log(records, groups)
    if len(records) == CONSOLE_QUARANTINE_RECORDS_MAX or not search.is_complete:
        caveats.append("Of the frames that are not in the tables yet, only the latest are counted.")
    return QuarantinePage(groups.sorted(), caveats)


def _from_tables(lake: Store, groups: QuarantineGroups, oldest_seq: int) -> int:
    """Add the tables' frames to `groups` and return the seq after the last one."""
    if not is_written(lake, QUARANTINE):
        return 0
    counted, newest = run_queries(
        lake, (_COUNTED, _NEWEST.format(shown=CONSOLE_QUARANTINE_SHOWN)), CONSOLE_QUARANTINE_RECORDS_MAX, LAKE_QUERY_S
    )
    for protocol, reason, count, last_at in counted.rows:
        group = groups.of(protocol, reason)
        group.count, group.last_us = count, parse_time_us(last_at)
    known_seq = 0
    for protocol, reason, seq, at, session, identity, text, offset, direction, stored in newest.rows:
        frame = redact_stored(protocol, direction, bytes.fromhex(stored)).hex()
        link = _link(protocol, direction, seq if seq >= oldest_seq else None, frame)
        bad = QuarantinedFrame(
            seq, parse_time_us(at), session or "", identity or "", text, offset or 0, len(frame) // 2, frame, link
        )
        groups.of(protocol, reason).newest.append(bad)
        known_seq = max(known_seq, seq + 1)
    return known_seq


def _from_log(records: Iterable[LogRecord], groups: QuarantineGroups) -> None:
    for record in records:
        note = record.note
        group = groups.of(record.protocol, str(note.get("code", "")))
        group.count += 1
        group.last_us = max(group.last_us, record.at_us)
        frame = redact_stored(record.protocol, record.direction, record.frame).hex()
        link = _link(record.protocol, record.direction, record.seq, frame)
        text, offset = str(note.get("text", "")), int(note.get("offset") or 0)
        size = len(record.frame)
        bad = QuarantinedFrame(
            record.seq, record.at_us, record.session, record.identity, text, offset, size, frame, link
        )
        group.newest.append(bad)


def _link(protocol: str, direction: str, seq: int | None, frame: str) -> str:
    """Link by the record's seq while the log has it, else by its bytes, as many as fit into a URL."""
    if seq is not None:
        return f"/inspector?seq={seq}"
    sender = "server" if direction == "out" else "client"
    return f"/inspector?{urlencode({'protocol': protocol, 'from': sender, 'hex': frame[: 2 * _LINKED_BYTES_MAX]})}"


TABLES: Final = page_route("/tables")
QUARANTINED: Final = page_route("/quarantine")
ROUTES: Final = (TABLES, QUARANTINED)
