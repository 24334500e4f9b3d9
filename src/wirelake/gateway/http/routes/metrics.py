"""`GET /metrics` for Prometheus. Nothing is kept for it: one collector reads the gateway's counters when asked."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector
from starlette.responses import Response

from wirelake.gateway.histogram import Histogram
from wirelake.gateway.http import examples
from wirelake.gateway.http.api import HttpApi
from wirelake.gateway.http.request_context import RequestContext
from wirelake.gateway.http.route import Access, Route
from wirelake.gateway.http.traffic import Traffic
from wirelake.lake.progress import read_progress
from wirelake.limits import PIPELINE_FRESH_S

_TEXT = "text/plain; version=0.0.4; charset=utf-8"


async def metrics(exchange: RequestContext, _: None) -> Response:
    registry = CollectorRegistry(auto_describe=False)
    registry.register(GatewayCollector(exchange.api))
    ProcessCollector(registry=registry)  # memory, processor time, open files
    return Response(generate_latest(registry), media_type=_TEXT)


class GatewayCollector(Collector):
    def __init__(self, api: HttpApi) -> None:
        self._api = api

    def collect(self) -> Iterable[Metric]:
        yield from self._connections()
        yield from self._traffic()
        yield from self._broker()
        yield from self._upstreams()
        yield from self._storage()
        yield from self._http()
        yield from self._pipeline()

    def _connections(self) -> Iterator[Metric]:
        counters, admission = self._api.gateway.counters, self._api.gateway.admission
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
        yield _by_reason("wirelake_connections_closed", "Ended.", counters.closed)
        yield _by_reason("wirelake_logins", "Decided.", counters.logins, "outcome")

    def _traffic(self) -> Iterator[Metric]:
        traffic, counters = Traffic(self._api), self._api.gateway.counters
        for name, text, received, sent in (
            ("wirelake_frames", "Frames.", traffic.frames_in, traffic.frames_out),
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

    def _broker(self) -> Iterator[Metric]:
        broker, topics = self._api.gateway.broker, self._api.gateway.state.topics
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
            "wirelake_unsayable", "Notifications not encodable in a subscriber's protocol.", broker.notifier.unsayable
        )
        yield _count("wirelake_conflated", "Notifications dropped for slow subscribers.", broker.live.conflated)
        gauge = GaugeMetricFamily("wirelake_topics", "Names.", labels=["kind"])
        gauge.add_metric(["durable"], len(topics.names()))
        gauge.add_metric(["live"], len(broker.live.names()))
        yield gauge
        yield _value("wirelake_services", "Services with a provider.", len(broker.services.names()))
        yield _value("wirelake_calls_open", "Requests without a response yet.", broker.services.open)
        yield _count("wirelake_calls_timed_out", "Requests that timed out.", broker.services.timeouts)

    def _upstreams(self) -> Iterator[Metric]:
        up = GaugeMetricFamily("wirelake_upstream_up", "1 while the upstream is available.", labels=["upstream"])
        joined = CounterMetricFamily(
            "wirelake_upstream_joined", "Requests that shared another request's response.", labels=["upstream"]
        )
        for name, upstream in self._api.gateway.upstreams.all.items():
            up.add_metric([name], int(upstream.ready))
            joined.add_metric([name], upstream.coalescer.joined)
        yield from (up, joined)

    def _storage(self) -> Iterator[Metric]:
        log, writer, gate = self._api.gateway.log, self._api.gateway.state.writer, self._api.gateway.commit_barrier
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
        recorder = self._api.gateway.recorder
        yield _by_reason("wirelake_unrecorded", "Records that the log refused.", recorder.unrecorded, "event")
        text = "Records not written because peers without a login exceeded their quota."
        yield _by_reason("wirelake_dropped_records", text, recorder.dropped, "event")
        yield _by_reason("wirelake_dropped_bytes", "Frames in these records.", recorder.dropped_bytes, "event")
        yield _histogram(
            "wirelake_log_commit_seconds",
            "Time from the first pending confirmation of a block until it is on disk.",
            gate.commit_s,
        )
        yield _count("wirelake_state_commits", "Transactions of the state.", writer.batches_written)
        yield _count("wirelake_state_failures", "Transactions of the state that failed.", writer.batches_failed)
        yield _value(
            "wirelake_state_waiting", "Operations waiting for the next transaction.", writer.pending_operations
        )

    def _http(self) -> Iterator[Metric]:
        api = self._api
        family = CounterMetricFamily("wirelake_http_requests", "Answered.", labels=["method", "route", "status"])
        for (method, route, status), count in api.answered.items():
            family.add_metric([method, route, str(status)], count)
        yield family
        yield _value("wirelake_http_requests_open", "Complete requests being handled.", api.open)
        yield _value("wirelake_http_requests_receiving", "Requests incomplete or not authenticated yet.", api.receiving)
        yield _value("wirelake_http_streams", "Subscriptions over HTTP.", len(api.subscribers))
        yield _histogram("wirelake_loop_lag_seconds", "Delay of the event loop.", api.loop_lag_s)
        clock = api.gateway.clock
        yield _count("wirelake_clock_steps", "Detected steps of the system clock.", clock.steps)
        yield _value(
            "wirelake_clock_offset_seconds",
            "How far the system clock is ahead of the time used for expiry.",
            clock.offset_s,
        )
        yield _value("wirelake_started_seconds", "When, since 1970.", api.gateway.started_ms / 1000)

    def _pipeline(self) -> Iterator[Metric]:
        """Of the job that fills the tables, when one runs on this data folder: it writes its figures to a file."""
        gateway = self._api.gateway
        told = read_progress(gateway.folder)
        if told is None or not told.running or gateway.wall_ms() - told.written_at_ms > PIPELINE_FRESH_S * 1000:
            return
        behind = GaugeMetricFamily("wirelake_pipeline_behind_rows", "Records not processed yet.", labels=["stage"])
        ages = GaugeMetricFamily(
            "wirelake_pipeline_behind_seconds", "Age of the latest processed record.", labels=["stage"]
        )
        for stage, seq, at_us in (("silver", told.next_seq, told.at_us), ("gold", told.gold_seq, told.gold_at_us)):
            behind.add_metric([stage], max(0, gateway.log.next_seq - seq))
            if at_us:
                ages.add_metric([stage], max(0.0, gateway.wall_ms() / 1000 - at_us / 1e6))
        yield behind
        yield ages
        yield _count("wirelake_pipeline_rows", "Records processed since its start.", told.rows)
        yield _count("wirelake_pipeline_batches", "Batches since its start.", told.batches)
        yield _count("wirelake_pipeline_restarts", "Restarts after failures.", told.restarts)
        yield _count("wirelake_pipeline_poisoned", "Records that crashed the decoder.", told.poisoned)
        for name, text, counts in (
            ("wirelake_pipeline_dropped", "Dropped since the tables were created.", told.dropped),
            ("wirelake_pipeline_noted", "Other events counted since the tables were created.", told.noted),
        ):
            family = CounterMetricFamily(name, text, labels=["what"])
            for what, count in counts.items():
                family.add_metric([what], count)
            yield family
        yield _count("wirelake_pipeline_files_joined", "Small files merged.", told.files_joined)
        yield _value("wirelake_pipeline_batch_seconds", "Duration of the last batch.", told.batch_s)
        yield _value("wirelake_pipeline_rows_per_second", "Average over the last batches.", told.rows_s)


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


def _histogram(name: str, text: str, seen: Histogram) -> Metric:
    return HistogramMetricFamily(name, text, buckets=list(seen.cumulated()), sum_value=seen.sum)


ROUTES = (
    Route(
        method="GET",
        path="/metrics",
        summary="Get the gateway's metrics in the Prometheus format.",
        handle=metrics,
        access=Access.SCRAPER,
        gives=str,
        media_type="text/plain",
        example_answer=f'wirelake_connections{{protocol="{examples.NAME}"}} 1.0\n',
    ),
)
