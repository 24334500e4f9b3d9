"""Show quarantined frames by protocol and reason: those in the tables, and newer ones from the log."""

import asyncio
from collections.abc import Iterable
from pathlib import Path
from typing import Final
from urllib.parse import urlencode

from msgspec import Struct, field

from wirelake.console.page import Context, page
from wirelake.errors import DamagedTableError, InputError
from wirelake.gateway.http.errors import AGAIN, ApiError
from wirelake.gateway.http.request_context import RequestContext
from wirelake.lake.progress import read_progress
from wirelake.lake.query import is_written, run_queries
from wirelake.lake.tables import QUARANTINE
from wirelake.limits import (
    CONSOLE_QUARANTINE_GROUPS_MAX,
    CONSOLE_QUARANTINE_RECORDS_MAX,
    CONSOLE_QUARANTINE_SHOWN,
    HTTP_QUERIES_MAX,
    LAKE_QUERY_S,
)
from wirelake.tracing.record import LogRecord
from wirelake.tracing.search import Search
from wirelake.tracing.timeline import parse_time_us

_COUNTED: Final = "SELECT protocol, reason, count(*), max(at) FROM silver.quarantine GROUP BY ALL ORDER BY max(at) DESC"
_NEWEST: Final = (
    'SELECT protocol, reason, seq, at, session, identity, text, "offset", direction, frame FROM silver.quarantine'
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


class Group(Struct):
    protocol: str
    reason: str
    count: int = 0
    last_us: int = 0
    newest: list[QuarantinedFrame] = field(default_factory=list)


class Groups:
    def __init__(self) -> None:
        self._groups: dict[tuple[str, str], Group] = {}

    def of(self, protocol: str, reason: str) -> Group:
        return self._groups.setdefault((protocol, reason), Group(protocol, reason))

    def sorted(self) -> list[Group]:
        """Return the groups, latest first."""
        for group in self._groups.values():
            group.newest.sort(key=lambda bad: bad.seq, reverse=True)
            del group.newest[CONSOLE_QUARANTINE_SHOWN:]
        found = sorted(self._groups.values(), key=lambda group: group.last_us, reverse=True)
        return found[:CONSOLE_QUARANTINE_GROUPS_MAX]


class QuarantinePage(Struct):
    groups: list[Group]
    caveats: list[str]


async def view(exchange: RequestContext) -> Context:
    api = exchange.api
    if api.queries >= HTTP_QUERIES_MAX:
        raise ApiError(429, f"{api.queries} queries are running already (HTTP_QUERIES_MAX): retry later", headers=AGAIN)
    api.queries += 1
    try:
        found = await asyncio.to_thread(look, exchange.gateway.folder)
    finally:
        api.queries -= 1
    return {"found": found}


def look(folder: Path) -> QuarantinePage:
    groups, caveats = Groups(), list[str]()
    search = Search(folder / "log")
    known_seq = 0
    try:
        known_seq = _from_tables(folder / "lake", groups, search.oldest_seq)
    except (InputError, DamagedTableError) as error:
        caveats.append(f"Cannot query the tables: {error}")
    progress = read_progress(folder)
    known_seq = max(known_seq, progress.next_seq if progress is not None else 0)
    records = search.newest({"quarantine", "fault"}, known_seq, CONSOLE_QUARANTINE_RECORDS_MAX)
    _from_log(records, groups)
    if len(records) == CONSOLE_QUARANTINE_RECORDS_MAX or not search.complete:
        caveats.append("Of the frames that are not in the tables yet, only the latest are counted.")
    return QuarantinePage(groups.sorted(), caveats)


def _from_tables(lake: Path, groups: Groups, oldest_seq: int) -> int:
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
    for protocol, reason, seq, at, session, identity, text, offset, direction, frame in newest.rows:
        link = _link(protocol, direction, seq if seq >= oldest_seq else None, frame)
        bad = QuarantinedFrame(
            seq, parse_time_us(at), session or "", identity or "", text, offset or 0, len(frame) // 2, frame, link
        )
        groups.of(protocol, reason).newest.append(bad)
        known_seq = max(known_seq, seq + 1)
    return known_seq


def _from_log(records: Iterable[LogRecord], groups: Groups) -> None:
    for record in records:
        note = record.note
        group = groups.of(record.protocol, str(note.get("code", "")))
        group.count += 1
        group.last_us = max(group.last_us, record.at_us)
        frame = record.frame.hex()
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


ROUTES = (page("/quarantine", "quarantine.html", view),)
