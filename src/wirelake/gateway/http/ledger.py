"""The counters as they are now: what the tables will have to agree with."""

from msgspec import Struct

from wirelake.gateway.http.exchange import Exchange
from wirelake.gateway.http.route import Access, Route
from wirelake.gateway.http.traffic import Traffic


class ProtocolCounts(Struct):
    """Of one protocol, since the start. `frames_in` are those in the log, whether they could be read or not."""

    connections: int  # open now
    accepted: int
    refused: int
    frames_in: int
    frames_out: int
    bytes_in: int
    bytes_out: int
    quarantined: int
    errors: int


class FanOut(Struct):
    live: int  # notifications times subscribers
    durable: int
    resent: int
    cut: int  # slow subscribers cut off
    conflated: int


class Calls(Struct):
    open: int
    timed_out: int


class LogCounts(Struct):
    next_seq: int
    blocks: int
    failures: int


class Ledger(Struct):
    since_ms: int
    at_ms: int
    protocols: dict[str, ProtocolCounts]
    deliveries: FanOut
    calls: Calls
    log: LogCounts


async def ledger(exchange: Exchange, _: None) -> Ledger:
    gateway, traffic = exchange.gateway, Traffic(exchange.api)
    counters, broker, log = gateway.counters, gateway.broker, gateway.log
    names = {*counters.accepted, *traffic.frames_in, *(name for name, _ in counters.refused)} - {""}
    protocols = {
        name: ProtocolCounts(
            connections=counters.connections[name],
            accepted=counters.accepted[name],
            refused=sum(count for (protocol, _), count in counters.refused.items() if protocol == name),
            frames_in=traffic.frames_in[name],
            frames_out=traffic.frames_out[name],
            bytes_in=traffic.bytes_in[name],
            bytes_out=traffic.bytes_out[name],
            quarantined=counters.quarantined[name],
            errors=sum(count for (protocol, _), count in counters.errors.items() if protocol == name),
        )
        for name in sorted(names)
    }
    return Ledger(
        since_ms=gateway.started_ms,
        at_ms=gateway.now_ms(),
        protocols=protocols,
        deliveries=FanOut(
            live=broker.live.delivered,
            durable=broker.durable.delivered,
            resent=broker.durable.resent,
            cut=broker.live.cut,
            conflated=broker.live.conflated,
        ),
        calls=Calls(broker.services.open, broker.services.timeouts),
        log=LogCounts(log.next_seq, log.blocks, log.failures),
    )


ROUTES = (
    Route(
        method="GET",
        path="/api/ledger",
        summary="The gateway's counters since its start.",
        handle=ledger,
        access=Access.ADMIN,
        gives=Ledger,
        example_answer={
            "since_ms": 1_700_000_000_000,
            "at_ms": 1_700_000_060_000,
            "protocols": {
                "comet": {
                    "connections": 1,
                    "accepted": 2,
                    "refused": 0,
                    "frames_in": 9,
                    "frames_out": 9,
                    "bytes_in": 120,
                    "bytes_out": 900,
                    "quarantined": 0,
                    "errors": 0,
                }
            },
            "deliveries": {"live": 0, "durable": 4, "resent": 0, "cut": 0, "conflated": 0},
            "calls": {"open": 0, "timed_out": 0},
            "log": {"next_seq": 31, "blocks": 12, "failures": 0},
        },
    ),
)
