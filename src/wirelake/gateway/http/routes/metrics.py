"""Report the gateway's counters: `GET /metrics` for Prometheus, and `GET /api/ledger`.

Nothing is stored for either: the counters are read on request. The tables must agree with the ledger.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from msgspec import Struct
from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector
from starlette.responses import Response

from wirelake import roles
from wirelake.broker.broker import Broker
from wirelake.clock import SteadyClock
from wirelake.gateway.auth.admission import Admission
from wirelake.gateway.http.bodies import EXAMPLE_NAME
from wirelake.gateway.http.limiter import RequestLimiter
from wirelake.gateway.http.request_context import RequestContext
from wirelake.gateway.http.route import Access, BoundRoute, Route
from wirelake.gateway.http.subscriber import EventStreams
from wirelake.gateway.http.traffic import HttpStats, ProtocolCounts, TrafficMeter
from wirelake.gateway.metrics import Counters, Histogram
from wirelake.gateway.recorder import Recorder
from wirelake.gateway.upstream.upstreams import Upstreams
from wirelake.lake.progress import read_progress
from wirelake.limits import PIPELINE_FRESH_S
from wirelake.log.segments.log import SegmentLog
from wirelake.state.store import StateStore
from wirelake.state.topics import TopicStore

_TEXT: Final = "text/plain; version=0.0.4; charset=utf-8"


class FanOut(Struct):
    live: int  # notifications times subscribers
    durable: int
    resent: int
    cut: int  # slow subscribers disconnected
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


class LedgerRoutes:
    def __init__(
        self,
        traffic: TrafficMeter,
        broker: Broker,
        log: SegmentLog,
        started_ms: int,
        now_ms: Callable[[], int],
    ) -> None:
        self._traffic = traffic
        self._broker = broker
        self._log = log
        self._started_ms = started_ms
        self._now_ms = now_ms

    def routes(self) -> tuple[BoundRoute, ...]:
        return (LEDGER.bind(self.ledger),)

    async def ledger(self, _context: RequestContext, _body: None) -> Ledger:
        broker, log = self._broker, self._log
        return Ledger(
            since_ms=self._started_ms,
            at_ms=self._now_ms(),
            protocols=self._traffic.by_protocol(self._traffic.read()),
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


class MetricsRoutes:
    def __init__(self, collectors: Sequence[Collector]) -> None:
        self._collectors = collectors

    def routes(self) -> tuple[BoundRoute, ...]:
        return (METRICS.bind(self.metrics),)

    async def metrics(self, _context: RequestContext, _body: None) -> Response:
        registry = CollectorRegistry(auto_describe=False)
        for collector in self._collectors:
            registry.register(collector)
        ProcessCollector(registry=registry)  # memory, processor time, open files
        return Response(generate_latest(registry), media_type=_TEXT)


class ConnectionCollector(Collector):
    """Collect metrics of connections and logins."""

    def __init__(self, counters: Counters, admission: Admission) -> None:
        self._counters = counters
        self._admission = admission

    def collect(self) -> Iterator[Metric]:
        counters, admission = self._counters, self._admission
        gauge = GaugeMetricFamily(
            "wirelake_connections", "Open connections; or devices, if frames name them.", labels=["protocol"]
        )
        for protocol, count in counters.connections.items():
            gauge.add_metric([protocol], count)
        yield gauge
        yield _value("wirelake_admitted", "Open connections, as counted by the limit.", admission.open)
        yield _value("wirelake_unauthenticated", "Open connections without a login.", admission.unauthenticated)
        yield _value(
            "wirelake_unauthenticated_bytes",
            "Memory held by connections without a login.",
            admission.unauthenticated_bytes,
        )
        yield _by_protocol("wirelake_connections_accepted", "Admitted connections.", counters.accepted)
        yield _by_reason("wirelake_connections_refused", "Refused connections.", counters.refused)
        yield _by_reason("wirelake_connections_closed", "Closed connections.", counters.closed)
        yield _by_reason("wirelake_logins", "Logins by outcome.", counters.logins, "outcome")
        denied = CounterMetricFamily("wirelake_denied", "Refused by roles.", labels=("identity", "action"))
        for (identity, action), count in counters.denied.items():
            denied.add_metric((identity, action), count)
        yield denied


class TrafficCollector(Collector):
    """Collect metrics of frames and errors."""

    def __init__(self, counters: Counters, traffic: TrafficMeter) -> None:
        self._counters = counters
        self._traffic = traffic

    def collect(self) -> Iterator[Metric]:
        traffic, counters = self._traffic.read(), self._counters
        for name, text, received, sent in (
            ("wirelake_frames", "Frames, received and sent.", traffic.frames_in, traffic.frames_out),
            ("wirelake_bytes", "Bytes; for http, of JSON.", traffic.bytes_in, traffic.bytes_out),
        ):
            family = CounterMetricFamily(name, text, labels=["protocol", "direction"])
            for direction, counts in (("in", received), ("out", sent)):
                for protocol, count in counts.items():
                    family.add_metric([protocol, direction], count)
            yield family
        yield _value("wirelake_commands_assembling", "Device commands being reassembled.", traffic.assembling)
        failed = CounterMetricFamily(
            "wirelake_device_commands_failed",
            "Device commands that expired before they were complete, or were refused.",
            labels=["state", "reason"],
        )
        for (state, reason), count in counters.device_commands.items():
            failed.add_metric([state, reason], count)
        yield failed
        yield _by_reason("wirelake_errors", "Errors of peers and of the gateway.", counters.errors)
        yield _by_protocol("wirelake_quarantined", "Frames that could not be decoded.", counters.quarantined)


class BrokerCollector(Collector):
    """Collect metrics of topics, deliveries, services and upstreams."""

    def __init__(self, broker: Broker, topics: TopicStore, upstreams: Upstreams) -> None:
        self._broker = broker
        self._topics = topics
        self._upstreams = upstreams

    def collect(self) -> Iterator[Metric]:
        broker, topics = self._broker, self._topics
        family = CounterMetricFamily("wirelake_deliveries", "Notifications times subscribers.", labels=["kind"])
        for kind, count in (
            ("live", broker.live.delivered),
            ("durable", broker.durable.delivered),
            ("resent", broker.durable.resent),
        ):
            family.add_metric([kind], count)
        yield family
        yield _count("wirelake_subscribers_cut", "Slow subscribers of live topics disconnected.", broker.live.cut)
        yield _by_protocol(
            "wirelake_unsayable", "Notifications not encodable in a subscriber's protocol.", broker.notifier.unencodable
        )
        yield _count("wirelake_conflated", "Notifications dropped for slow subscribers.", broker.live.conflated)
        gauge = GaugeMetricFamily("wirelake_topics", "Topics.", labels=["kind"])
        gauge.add_metric(["durable"], len(topics.names()))
        gauge.add_metric(["live"], len(broker.live.names()))
        yield gauge
        yield _value("wirelake_services", "Services with a provider.", len(broker.services.names()))
        yield _value("wirelake_calls_open", "Requests without a response yet.", broker.services.open)
        yield _count("wirelake_calls_timed_out", "Requests that timed out.", broker.services.timeouts)
        up = GaugeMetricFamily("wirelake_upstream_up", "1 while the upstream is available.", labels=["upstream"])
        joined = CounterMetricFamily(
            "wirelake_upstream_joined", "Requests that shared another request's response.", labels=["upstream"]
        )
        for name, upstream in self._upstreams.all.items():
            up.add_metric([name], int(upstream.ready))
            joined.add_metric([name], upstream.coalescer.joined)
        yield from (up, joined)


class StorageCollector(Collector):
    """Collect metrics of the event log and the state."""

    def __init__(self, log: SegmentLog, state: StateStore, recorder: Recorder, commit_s: Histogram) -> None:
        self._log = log
        self._state = state
        self._recorder = recorder
        self._commit_s = commit_s

    def collect(self) -> Iterator[Metric]:
        log, writer, recorder = self._log, self._state.writer, self._recorder
        yield _count("wirelake_log_records", "Records of the event log, also from before the start.", log.next_seq)
        yield _count("wirelake_log_blocks", "Blocks written to disk.", log.blocks)
        yield _count("wirelake_log_failures", "Failed attempts to write a block.", log.failures)
        yield _value("wirelake_log_gathered_bytes", "Bytes not on disk yet.", log.buffered_bytes)
        usage = log.usage
        yield _value("wirelake_log_bytes", "Size of the event log's segments on disk.", usage.bytes)
        limit = log.retention_limits.disk_bytes_max or 0
        yield _value("wirelake_log_bytes_limit", "The setting log.disk_bytes_max; 0: no limit.", limit)
        oldest_seq = log.next_seq if usage.oldest_seq is None else usage.oldest_seq
        yield _value("wirelake_log_oldest_seq", "Number of the oldest record in the log.", oldest_seq)
        yield _value("wirelake_log_refusing", "1 while the log accepts no records.", 1 if log.refusal else 0)
        yield _by_reason("wirelake_unrecorded", "Records that the log refused.", recorder.unrecorded, "event")
        text = "Records not written because peers without a login exceeded their quota."
        yield _by_reason("wirelake_dropped_records", text, recorder.dropped, "event")
        yield _by_reason("wirelake_dropped_bytes", "Frames in these records.", recorder.dropped_bytes, "event")
        yield _histogram(
            "wirelake_log_commit_seconds",
            "Time from the first pending confirmation of a block until it is on disk.",
            self._commit_s,
        )
        yield _count("wirelake_state_commits", "Transactions of the state.", writer.batches_written)
        yield _count("wirelake_state_failures", "Transactions of the state that failed.", writer.batches_failed)
        yield _value(
            "wirelake_state_waiting", "Operations waiting for the next transaction.", writer.pending_operations
        )


class HttpCollector(Collector):
    """Collect metrics of HTTP, the event loop and the clock."""

    def __init__(
        self, limiter: RequestLimiter, streams: EventStreams, stats: HttpStats, clock: SteadyClock, started_ms: int
    ) -> None:
        self._limiter = limiter
        self._streams = streams
        self._stats = stats
        self._clock = clock
        self._started_ms = started_ms

    def collect(self) -> Iterator[Metric]:
        family = CounterMetricFamily(
            "wirelake_http_requests", "Requests with a response.", labels=["method", "route", "status"]
        )
        for (method, route, status), count in self._stats.responses.items():
            family.add_metric([method, route, str(status)], count)
        yield family
        yield _value("wirelake_http_requests_open", "Complete requests being handled.", self._limiter.open.running)
        yield _value(
            "wirelake_http_requests_receiving", "Requests incomplete or not authenticated yet.", self._limiter.receiving
        )
        yield _value("wirelake_http_streams", "Subscriptions over HTTP.", len(self._streams))
        yield _histogram("wirelake_loop_lag_seconds", "Delay of the event loop.", self._stats.loop_lag_s)
        clock = self._clock
        yield _count("wirelake_clock_steps", "Detected steps of the system clock.", clock.steps)
        yield _value(
            "wirelake_clock_offset_seconds",
            "How far the system clock is ahead of the time used for expiry.",
            clock.offset_s,
        )
        yield _value("wirelake_started_seconds", "Start time, in seconds since 1970.", self._started_ms / 1000)


class PipelineCollector(Collector):
    """Collect metrics of the pipeline, which writes them to a file, if it runs on this data folder."""

    def __init__(self, folder: Path, log: SegmentLog) -> None:
        self._folder = folder
        self._log = log

    def collect(self) -> Iterator[Metric]:
        progress = read_progress(self._folder)
        wall_ms = time.time_ns() // 1_000_000
        if progress is None or not progress.running or wall_ms - progress.written_at_ms > PIPELINE_FRESH_S * 1000:
            return
        behind = GaugeMetricFamily("wirelake_pipeline_behind_rows", "Records not processed yet.", labels=["stage"])
        ages = GaugeMetricFamily(
            "wirelake_pipeline_behind_seconds", "Age of the latest processed record.", labels=["stage"]
        )
        for stage, seq, at_us in (
            ("silver", progress.next_seq, progress.at_us),
            ("gold", progress.gold_seq, progress.gold_at_us),
        ):
            behind.add_metric([stage], max(0, self._log.next_seq - seq))
            if at_us:
                ages.add_metric([stage], max(0.0, wall_ms / 1000 - at_us / 1e6))
        yield behind
        yield ages
        yield _count("wirelake_pipeline_rows", "Records processed since its start.", progress.rows)
        yield _count("wirelake_pipeline_batches", "Batches since its start.", progress.batches)
        yield _count("wirelake_pipeline_restarts", "Restarts after failures.", progress.restarts)
        yield _count("wirelake_pipeline_poisoned", "Records that crashed the decoder.", progress.poisoned)
        for name, text, counts in (
            ("wirelake_pipeline_dropped", "Dropped since the tables were created.", progress.dropped),
            ("wirelake_pipeline_noted", "Other events counted since the tables were created.", progress.noted),
        ):
            family = CounterMetricFamily(name, text, labels=["what"])
            for what, count in counts.items():
                family.add_metric([what], count)
            yield family
        yield _count("wirelake_pipeline_files_joined", "Small files merged.", progress.files_joined)
        yield _value("wirelake_pipeline_batch_seconds", "Duration of the last batch.", progress.batch_s)
        yield _value("wirelake_pipeline_rows_per_second", "Average over the last batches.", progress.rows_s)
        yield _value("wirelake_pipeline_batch_files", "Files that the last batch added.", progress.files)
        yield _value("wirelake_pipeline_batch_bytes", "Size of the files that the last batch added.", progress.bytes)
        yield _value("wirelake_pipeline_state_bytes", "Size of the state across batches.", progress.state_bytes)
        for name, text, label, figures in (
            ("wirelake_pipeline_open_rows", "Rows that can still change.", "table", progress.open_rows),
            ("wirelake_pipeline_phase_seconds", "Phases of the last batch.", "phase", progress.phases_s),
        ):
            gauges = GaugeMetricFamily(name, text, labels=[label])
            for key, figure in figures.items():
                gauges.add_metric([key], figure)
            yield gauges


def _value(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(name, text, value=value)


def _count(name: str, text: str, value: int) -> Metric:
    return CounterMetricFamily(name, text, value=value)


def _by_protocol(name: str, text: str, counts: Mapping[str, int]) -> Metric:
    family = CounterMetricFamily(name, text, labels=["protocol"])
    for protocol, count in counts.items():
        family.add_metric([protocol], count)
    return family


def _by_reason(name: str, text: str, counts: Counter[tuple[str, str]], label: str = "reason") -> Metric:
    family = CounterMetricFamily(name, text, labels=["protocol", label])
    for (protocol, reason), count in counts.items():
        family.add_metric([protocol, reason], count)
    return family


def _histogram(name: str, text: str, histogram: Histogram) -> Metric:
    return HistogramMetricFamily(name, text, buckets=list(histogram.cumulated()), sum_value=histogram.sum)


METRICS: Final = Route(
    method="GET",
    path="/metrics",
    operation_id="metrics.metrics",
    summary="Get the gateway's metrics in the Prometheus format.",
    access=Access.SCRAPER,
    see=roles.METRICS,
    gives=str,
    media_type="text/plain",
    example_answer=f'wirelake_connections{{protocol="{EXAMPLE_NAME}"}} 1.0\n',
)

LEDGER: Final = Route(
    method="GET",
    path="/api/ledger",
    operation_id="ledger.ledger",
    summary="Get the gateway's counters since its start.",
    see=roles.LEDGER,
    gives=Ledger,
    example_answer={
        "since_ms": 1_700_000_000_000,
        "at_ms": 1_700_000_060_000,
        "protocols": {
            EXAMPLE_NAME: {
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
)

METRICS_ROUTES: Final = (METRICS,)
LEDGER_ROUTES: Final = (LEDGER,)
