"""Show the start page: current traffic, streamed as a snapshot once a second, and whether the ledger balances.

The page computes rates from two snapshots.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Final

from msgspec import Struct
from starlette.responses import Response, StreamingResponse

from wirelake.broker.access import AccessPolicy
from wirelake.broker.broker import Broker
from wirelake.console.page import PageServer, Values, page_route
from wirelake.gateway.http.errors import AGAIN, ApiError
from wirelake.gateway.http.request_context import RequestContext
from wirelake.gateway.http.route import BoundRoute, Route
from wirelake.gateway.http.routes.health import GatewayStatus
from wirelake.gateway.http.traffic import HttpStats, ProtocolCounts, TrafficMeter
from wirelake.lake.progress import read_progress
from wirelake.lake.tables import LEDGER
from wirelake.limits import CONSOLE_LIVE_S, CONSOLE_WATCHERS_MAX, PIPELINE_FRESH_S
from wirelake.log.segments.log import SegmentLog
from wirelake.protocols.text import write_json
from wirelake.roles import OVERVIEW as OVERVIEW_TARGET
from wirelake.roles import Action

_HEADERS: Final = {"cache-control": "no-store", "x-accel-buffering": "no"}


class PipelineNow(Struct):
    running: bool
    next_seq: int  # first record that is not in the tables
    batch: int
    rows_s: float
    batch_s: float
    phases_s: dict[str, float]
    files: int
    bytes: int
    state_bytes: int
    open_rows: int
    last_error: str


class OverviewSnapshot(Struct):
    at_ms: int
    protocols: dict[str, ProtocolCounts]
    delivered: int  # notifications times subscribers
    resent: int
    assembling: int  # device commands with packets missing
    log_next_seq: int
    log_waiting_bytes: int
    loop_lag_s: float  # sum of the measured event loop delays
    pipeline: PipelineNow | None  # None if no pipeline has run on this data folder


class SnapshotSource:
    """Take snapshots of the gateway's counters."""

    def __init__(
        self,
        traffic: TrafficMeter,
        broker: Broker,
        log: SegmentLog,
        stats: HttpStats,
        folder: Path,
        now_ms: Callable[[], int],
    ) -> None:
        self._traffic = traffic
        self._broker = broker
        self._log = log
        self._stats = stats
        self._folder = folder
        self._now_ms = now_ms

    def take(self) -> OverviewSnapshot:
        traffic, broker, now_ms = self._traffic.read(), self._broker, self._now_ms()
        return OverviewSnapshot(
            at_ms=now_ms,
            protocols=self._traffic.by_protocol(traffic),
            delivered=broker.live.delivered + broker.durable.delivered,
            resent=broker.durable.resent,
            assembling=traffic.assembling,
            log_next_seq=self._log.next_seq,
            log_waiting_bytes=self._log.buffered_bytes,
            loop_lag_s=self._stats.loop_lag_s.sum,
            pipeline=_pipeline(self._folder, now_ms),
        )


def _pipeline(data: Path, now_ms: int) -> PipelineNow | None:
    progress = read_progress(data)
    if progress is None:
        return None
    return PipelineNow(
        running=progress.running and now_ms - progress.written_at_ms < PIPELINE_FRESH_S * 1000,
        next_seq=progress.next_seq,
        batch=progress.batch,
        rows_s=progress.rows_s,
        batch_s=progress.batch_s,
        phases_s=progress.phases_s,
        files=progress.files,
        bytes=progress.bytes,
        state_bytes=progress.state_bytes,
        open_rows=sum(progress.open_rows.values()),
        last_error=progress.errors[-1].text if progress.errors else "",
    )


class LiveSnapshots:
    """Stream snapshots as server-sent events. All open pages share the same snapshot."""

    def __init__(self, snapshots: SnapshotSource, is_stopping: Callable[[], bool], now_s: Callable[[], float]) -> None:
        self.watchers = 0
        self._snapshots = snapshots
        self._is_stopping = is_stopping
        self._now_s = now_s
        self._taken_s = float("-inf")
        self._event = b""

    async def events(self, may_see: Callable[[], bool]) -> AsyncIterator[bytes]:
        """Yield events until the gateway stops, or who watches may no longer see them."""
        self.watchers += 1
        try:
            while not self._is_stopping() and may_see():
                yield self._current()
                await asyncio.sleep(CONSOLE_LIVE_S)
        finally:
            self.watchers -= 1

    def _current(self) -> bytes:
        now_s = self._now_s()
        if now_s - self._taken_s >= CONSOLE_LIVE_S / 2:
            self._taken_s = now_s
            self._event = b"data: %b\n\n" % write_json(self._snapshots.take())
        return self._event


class OverviewPages:
    def __init__(
        self,
        server: PageServer,
        access: AccessPolicy,
        snapshots: SnapshotSource,
        live: LiveSnapshots,
        status: GatewayStatus,
        folder: Path,
    ) -> None:
        self._server = server
        self._access = access
        self._snapshots = snapshots
        self._live = live
        self._status = status
        self._folder = folder

    def routes(self) -> tuple[BoundRoute, ...]:
        return (LIVE.bind(self.live), self._server.bind(OVERVIEW, "overview.html", self.overview))

    async def live(self, context: RequestContext, _: None) -> Response:
        if self._live.watchers >= CONSOLE_WATCHERS_MAX:
            raise ApiError(
                503,
                f"{CONSOLE_WATCHERS_MAX} console pages are open already (CONSOLE_WATCHERS_MAX): close some and retry",
                headers=AGAIN,
            )
        events = self._live.events(lambda: self._access.rights_of(context).sees(OVERVIEW_TARGET))
        return StreamingResponse(events, headers=_HEADERS, media_type="text/event-stream")

    async def overview(self, context: RequestContext) -> Values:
        return {
            "has_ledger": context.rights.allows(Action.QUERY, LEDGER.name),
            "data": self._snapshots.take(),
            "listeners": self._status.addresses(),
            "started_ms": self._status.started_ms,
            "folder": str(self._folder),
        }


LIVE: Final = Route(
    method="GET",
    path="/console/live",
    summary="Stream a snapshot of the gateway once a second.",
    see=OVERVIEW_TARGET,
    gives=OverviewSnapshot,
    media_type="text/event-stream",
)
OVERVIEW: Final = page_route("/")
ROUTES: Final = (LIVE, OVERVIEW)
