"""What goes on at this moment, as numbers. Rates are the difference of two, and the page's affair."""

from pathlib import Path

from msgspec import Struct

from wirelake.gateway.http.api import Api
from wirelake.gateway.http.traffic import Traffic
from wirelake.lake.progress import read_progress
from wirelake.limits import PIPELINE_FRESH_S


class ProtocolNow(Struct):
    connections: int
    frames_in: int
    frames_out: int
    bytes_in: int
    bytes_out: int
    errors: int
    quarantined: int


class PipelineNow(Struct):
    running: bool
    next_seq: int  # of the first record that is not in the tables
    batch: int
    rows_s: float
    batch_s: float
    last_error: str


class Snapshot(Struct):
    at_ms: int
    protocols: dict[str, ProtocolNow]
    delivered: int  # notifications times subscribers
    resent: int
    calls_open: int
    assembling: int  # device commands that are not whole yet
    log_next_seq: int
    log_waiting_bytes: int
    loop_lag_s: float  # how late the event loop was, added up, and how often that was measured
    loop_lags: int
    pipeline: PipelineNow | None  # None while none has run on this data folder


def take(api: Api) -> Snapshot:
    gateway, traffic = api.gateway, Traffic(api)
    counters, broker = gateway.counters, gateway.broker
    names = sorted({*counters.accepted, *traffic.frames_in, *(name for name, _ in counters.errors)} - {""})
    errors: dict[str, int] = {}
    for (name, _), count in counters.errors.items():
        errors[name] = errors.get(name, 0) + count
    return Snapshot(
        at_ms=gateway.now_ms(),
        protocols={
            name: ProtocolNow(
                connections=counters.connections[name],
                frames_in=traffic.frames_in[name],
                frames_out=traffic.frames_out[name],
                bytes_in=traffic.bytes_in[name],
                bytes_out=traffic.bytes_out[name],
                errors=errors.get(name, 0),
                quarantined=counters.quarantined[name],
            )
            for name in names
        },
        delivered=broker.live.delivered + broker.durable.delivered,
        resent=broker.durable.resent,
        calls_open=broker.services.open,
        assembling=traffic.assembling,
        log_next_seq=gateway.log.next_seq,
        log_waiting_bytes=gateway.log.gathered_bytes,
        loop_lag_s=api.loop_lag_s.sum,
        loop_lags=api.loop_lag_s.count,
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
