"""The counters as they are now: what the tables will have to agree with."""

from msgspec import Struct

from wirelake.gateway.http import examples
from wirelake.gateway.http.counts import ProtocolCounts, counts_by_protocol
from wirelake.gateway.http.request_context import RequestContext
from wirelake.gateway.http.route import Access, Route
from wirelake.gateway.http.traffic import Traffic


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


async def ledger(exchange: RequestContext, _: None) -> Ledger:
    gateway = exchange.gateway
    broker, log = gateway.broker, gateway.log
    return Ledger(
        since_ms=gateway.started_ms,
        at_ms=gateway.now_ms(),
        protocols=counts_by_protocol(exchange.api, Traffic(exchange.api)),
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
        summary="Get the gateway's counters since its start.",
        handle=ledger,
        access=Access.ADMIN,
        gives=Ledger,
        example_answer={
            "since_ms": 1_700_000_000_000,
            "at_ms": 1_700_000_060_000,
            "protocols": {
                examples.NAME: {
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
