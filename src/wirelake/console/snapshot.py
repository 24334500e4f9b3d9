"""Take a snapshot of the gateway's counters. The page computes rates from two snapshots."""

from pathlib import Path

from msgspec import Struct

from wirelake.gateway.http.api import HttpApi
from wirelake.gateway.http.counts import ProtocolCounts, counts_by_protocol
from wirelake.gateway.http.traffic import Traffic
from wirelake.lake.progress import read_progress
from wirelake.limits import PIPELINE_FRESH_S


class PipelineNow(Struct):
    running: bool
    next_seq: int  # first record that is not in the tables
    batch: int
    rows_s: float
    batch_s: float
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


def take(api: HttpApi) -> OverviewSnapshot:
    gateway, traffic = api.gateway, Traffic(api)
    broker = gateway.broker
    return OverviewSnapshot(
        at_ms=gateway.now_ms(),
        protocols=counts_by_protocol(api, traffic),
        delivered=broker.live.delivered + broker.durable.delivered,
        resent=broker.durable.resent,
        assembling=traffic.assembling,
        log_next_seq=gateway.log.next_seq,
        log_waiting_bytes=gateway.log.buffered_bytes,
        loop_lag_s=api.loop_lag_s.sum,
        pipeline=_pipeline(gateway.folder, gateway.now_ms()),
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
        last_error=progress.errors[-1].text if progress.errors else "",
    )
