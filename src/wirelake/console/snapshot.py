"""What goes on at this moment, as numbers. Rates are the difference of two, and the page's affair."""

from msgspec import Struct

from wirelake.gateway.http.api import Api
from wirelake.gateway.http.traffic import Traffic


class ProtocolNow(Struct):
    connections: int
    frames_in: int
    frames_out: int
    bytes_in: int
    bytes_out: int
    errors: int
    quarantined: int


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
    )
