"""Pair requests with their responses on each session: by correlation if the protocol has one, else in order."""

from collections import deque
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct, msgpack

from wirelake.errors import UnknownProtocolError
from wirelake.lake.tables import CALLS
from wirelake.limits import PIPELINE_CALL_AGE_S, PIPELINE_CALLS_OPEN_MAX
from wirelake.log.imported import aged_from_us
from wirelake.message import GATEWAY_SERVICE, Kind, Op
from wirelake.pipeline.ingest.http import NAME as HTTP
from wirelake.pipeline.stateful.bucket_state import (
    KindState,
    PackedStates,
    Reduction,
    table_rows,
    unpack_states,
)
from wirelake.pipeline.stateful.call_pairs import REQUEST, RESPONSE, split_pairs
from wirelake.pipeline.stateful.events import CALL, EVERY, event_table, from_json, rows_of
from wirelake.pipeline.stateful.sessions import GatewayStarts
from wirelake.protocols import registry
from wirelake.protocols.calls import CallRules

END: Final = "end"
OK: Final = "ok"
OPEN: Final = "open"
UNANSWERED: Final = "unanswered"

_AGE_US: Final = int(PIPELINE_CALL_AGE_S * 1_000_000)
_REQUEST_KINDS: Final = pa.array([Kind.REQUEST, Kind.CONTROL, Kind.NOTIFICATION, Kind.EVENT], pa.string())
_STREAM: Final = '"/api/subscribe"'  # an HTTP request whose response is a stream, not a frame
_COMMON: Final = ("seq", "at", "node", "protocol", "session", "identity")
# Columns of messages; the others are large, or of no use here.
_NEEDED: Final = [*_COMMON, "direction", "kind", "name", "service", "op", "correlation", "status", "more", "fields"]


@cache
def call_rules(protocol: str) -> CallRules:
    try:
        return registry.get(protocol).calls
    except UnknownProtocolError:  # requests by HTTP, which the gateway records itself
        return CallRules()


def call_events(batch: pa.RecordBatch, messages: pa.RecordBatch) -> pa.Table:
    rules = {name: call_rules(name) for name in pc.unique(messages["protocol"]).to_pylist()}
    messages = messages.select(_NEEDED)
    paired = _of_protocols(messages, rules, lambda each: each.has_calls)
    found = messages.filter(pc.and_(paired, pc.not_equal(messages["session"], "")))
    is_in = pc.equal(found["direction"], "in")
    requests = found.filter(pc.and_(is_in, pc.is_in(found["kind"], value_set=_REQUEST_KINDS)))
    requests = requests.filter(_is_request(batch, requests, rules))
    responses = found.filter(pc.and_(pc.invert(is_in), _is_response(found, rules)))
    closed = batch.filter(pc.and_(pc.equal(batch["event"], "close"), pc.not_equal(batch["session"], "")))
    ends = {name: closed[name] for name in _COMMON}
    ends = event_table(CALL, {**ends, "key": closed["session"], "name": [END] * len(closed)})
    return pa.concat_tables([_request_events(requests, rules), _response_events(responses, rules), ends])


def _of_protocols(rows: pa.RecordBatch, rules: dict[str, CallRules], wanted: Callable[[CallRules], bool]) -> Any:
    names = [name for name, each in rules.items() if wanted(each)]
    return pc.is_in(rows["protocol"], value_set=pa.array(names, pa.string()))


def _is_request(batch: pa.RecordBatch, rows: pa.RecordBatch, rules: dict[str, CallRules]) -> Any:
    """Return which of the messages from clients expect a response."""
    protocol, name, kind = rows["protocol"], rows["name"], rows["kind"]
    is_event, is_notification = (pc.equal(kind, each.value) for each in (Kind.EVENT, Kind.NOTIFICATION))
    is_unaddressed = pc.and_(pc.is_null(rows["service"], nan_is_null=False), pc.invert(is_notification))
    expected = pc.is_valid(rows["seq"])
    for protocol_name, each in rules.items():
        of_protocol = pc.equal(protocol, protocol_name)
        if each.request_names:
            is_named = pc.is_in(name, value_set=pa.array(each.request_names))
            expected = pc.and_(expected, pc.or_(pc.invert(of_protocol), is_named))
        if each.blank_names:
            is_blank = pc.and_(pc.is_in(name, value_set=pa.array(each.blank_names)), is_unaddressed)
            expected = pc.and_not(expected, pc.and_(of_protocol, is_blank))
        if not each.events_are_requests:
            expected = pc.and_not(expected, pc.and_(of_protocol, is_event))
    unanswered = [*_one_way(batch, rows, rules), *_streams(batch)]
    return pc.and_not(expected, pc.is_in(rows["seq"], value_set=pa.array(unanswered, pa.int64())))


def _one_way(batch: pa.RecordBatch, rows: pa.RecordBatch, rules: dict[str, CallRules]) -> list[int]:
    """Return the seqs of messages to the gateway itself whose frames are marked as expecting no response."""
    found: list[int] = []
    for name, each in rules.items():
        if each.is_one_way is None:
            continue
        own = pc.and_(pc.equal(rows["protocol"], name), pc.not_equal(rows["kind"], Kind.REQUEST.value))
        seqs = rows["seq"].filter(own)
        if len(seqs):
            records = batch.filter(pc.is_in(batch["seq"], value_set=seqs))
            frames = zip(records["seq"].to_pylist(), records["frame"].to_pylist(), strict=True)
            found += [seq for seq, frame in frames if each.is_one_way(frame)]
    return found


def _streams(batch: pa.RecordBatch) -> list[int]:
    is_stream = pc.and_(pc.equal(batch["protocol"], HTTP), pc.match_substring(batch["note"], _STREAM))
    return list(batch["seq"].filter(is_stream).to_pylist())


def _is_response(rows: pa.RecordBatch, rules: dict[str, CallRules]) -> Any:
    is_event = pc.equal(rows["kind"], Kind.EVENT.value)
    is_pushed = pc.and_(_of_protocols(rows, rules, lambda each: each.events_are_responses), is_event)
    return pc.or_(pc.equal(rows["kind"], Kind.RESPONSE.value), is_pushed)


def _correlation(rows: pa.RecordBatch, rules: dict[str, CallRules]) -> Any:
    has_correlation = _of_protocols(rows, rules, lambda each: each.has_correlation)
    return pc.if_else(has_correlation, pc.fill_null(rows["correlation"], ""), "")


def _request_events(requests: pa.RecordBatch, rules: dict[str, CallRules]) -> pa.Table:
    correlation, expected = _correlation(requests, rules), None
    keyed = [
        (index, each.request_key(name, fields))
        for protocol, each in rules.items()
        if each.request_key is not None
        for index, name, fields in _named(requests, protocol, each.keyed_requests)
    ]
    if keyed:
        correlation, expected = correlation.to_pylist(), [1] * len(requests)
        for index, key in keyed:
            correlation[index], expected[index] = key
    is_publish = pc.equal(requests["kind"], Kind.NOTIFICATION.value)
    op = pc.if_else(is_publish, Op.PUBLISH.value, pc.coalesce(requests["op"], requests["name"]))
    columns = {name: requests[name] for name in _COMMON}
    columns |= {"key": requests["session"], "name": [REQUEST] * len(requests)}
    columns |= {"number": expected, "correlation": correlation}
    columns |= {"service": pc.fill_null(requests["service"], GATEWAY_SERVICE), "op": op}
    return event_table(CALL, columns)


def _response_events(responses: pa.RecordBatch, rules: dict[str, CallRules]) -> pa.Table:
    correlation = _correlation(responses, rules)
    keyed = [
        (index, each.response_key(name, fields))
        for protocol, each in rules.items()
        if each.response_key is not None
        for index, name, fields in _named(responses, protocol, each.keyed_responses)
    ]
    if keyed:
        correlation = correlation.to_pylist()
        for index, key in keyed:
            correlation[index] = correlation[index] if key is None else key
    columns = {name: responses[name] for name in _COMMON}
    columns |= {"key": responses["session"], "name": [RESPONSE] * len(responses), "correlation": correlation}
    columns |= {"status": pc.fill_null(responses["status"], OK), "until": pc.fill_null(responses["more"], 0)}
    return event_table(CALL, columns)


def _named(rows: pa.RecordBatch, protocol: str, names: tuple[str, ...]) -> Iterator[tuple[int, str, dict[str, Any]]]:
    """Yield index, name and fields of the messages of a protocol that have one of these names."""
    wanted = pc.and_(pc.equal(rows["protocol"], protocol), pc.is_in(rows["name"], value_set=pa.array(names)))
    for index in pc.indices_nonzero(wanted).to_pylist():
        yield index, rows["name"][index].as_py(), from_json(rows["fields"][index].as_py() or "{}")


_Row = tuple[Any, ...]


class OpenRequest(Struct, array_like=True):
    """Hold a request without its response, or without all of it."""

    seq: int
    at: int
    node: str
    protocol: str
    identity: str
    service: str
    op: str
    correlation: str
    expected: int
    answers: int = 0


_unpack: Final = msgpack.Decoder(list[OpenRequest]).decode
_pack: Final = msgpack.Encoder().encode


def open_calls(state: pa.Table) -> pa.Table:
    """Return the open rows of a state."""
    return _open_rows(unpack_states(state, _unpack))


def _open_rows(sessions: dict[str, list[OpenRequest]]) -> pa.Table:
    rows = [_row(key, request, OPEN) for key, requests in sessions.items() for request in requests]
    return table_rows(CALLS, rows)


def reduce_calls(events: pa.Table, state: KindState, sure_us: int) -> Reduction:
    starts = GatewayStarts(events)
    touched = state.take() if starts else state.take_keys(pc.unique(events["key"]), sure_us)
    pairs, events = split_pairs(events, touched["key"], _AGE_US)
    unpacked = unpack_states(touched, _unpack)
    replaced = _open_rows(unpacked)
    sessions = {key: _SessionCalls(requests) for key, requests in unpacked.items()}
    out = Reduction()
    final = _FinalCalls(out)
    _apply(events, sessions, final)
    opened: list[_Row] = []
    states = PackedStates()
    for key, session in sessions.items():
        requests = []
        for request in session.open():
            start = starts.after(request.node, request.seq)
            if start is not None or aged_from_us(key, request.at) + _AGE_US <= sure_us:
                final.add_unanswered(key, request, sure_us if start is None else start[1])
            else:
                requests.append(request)
                opened.append(_row(key, request, OPEN))
        if requests:
            states.put(key, _due_us(key, requests), len(requests), _pack(requests))
    out.state = [states.table(CALL)]
    over = len(opened) + state.shows - PIPELINE_CALLS_OPEN_MAX
    if over > 0:
        rest = state.take()
        out.state.append(rest)
        replaced = pa.concat_tables([replaced, open_calls(rest)])
        opened = _drop_oldest(out, final, over)
    out.final = {CALLS.name: pa.concat_tables([pairs, table_rows(CALLS, final.rows)])}
    out.open = {CALLS.name: table_rows(CALLS, opened)}
    out.replaced = {CALLS.name: replaced}
    return out


def _due_us(session: str, requests: list[OpenRequest]) -> int:
    """Return when the first of these requests is given up."""
    return aged_from_us(session, min(request.at for request in requests)) + _AGE_US


def _apply(events: pa.Table, sessions: dict[str, "_SessionCalls"], final: "_FinalCalls") -> None:
    """Apply the events, session by session."""
    columns = ("key", "seq", "at", "node", "protocol", "identity", "name", "service", "op", "correlation", "status")
    rows = zip(*rows_of(events, (*columns, "number", "until")), strict=True)
    for key, seq, at, node, protocol, identity, name, service, op, correlation, status, number, until in rows:
        if key == EVERY:
            continue
        session = sessions.get(key)
        if name == REQUEST:
            if session is None:
                session = sessions[key] = _SessionCalls([])
            session.add(OpenRequest(seq, at, node, protocol, identity, service, op, correlation, number or 1))
        elif name == END:
            for request in sessions.pop(key, _NO_CALLS).open():
                final.add_unanswered(key, request, at)
        else:
            answered = None if session is None else session.answer(correlation, at, until, key, final)
            if answered is None:
                final.counts["answers_without_question"] += 1
            elif answered is not _MORE:
                final.rows.append(_row(key, answered, status, at, identity))


class _FinalCalls:
    def __init__(self, out: Reduction) -> None:
        self.rows: list[_Row] = []
        self.counts = out.counts

    def add_unanswered(self, session: str, request: OpenRequest, at: int) -> None:
        self.rows.append(_row(session, request, UNANSWERED))
        if request.at + _AGE_US <= at:
            self.counts["calls_given_up"] += 1


def _drop_oldest(out: Reduction, final: _FinalCalls, over: int) -> list[_Row]:
    """Count the oldest of too many open requests as unanswered. Return the rows of those that stay."""
    states = unpack_states(pa.concat_tables(out.state), _unpack)
    requests = sorted(
        ((request.seq, key, request) for key, of_key in states.items() for request in of_key),
        key=lambda each: each[:2],
    )
    final.rows += [_row(key, request, UNANSWERED) for _seq, key, request in requests[:over]]
    out.counts["calls_given_up"] += over
    remaining: dict[str, list[OpenRequest]] = {}
    for _seq, key, request in requests[over:]:
        remaining.setdefault(key, []).append(request)
    packed = PackedStates()
    for key, of_key in remaining.items():
        packed.put(key, _due_us(key, of_key), len(of_key), _pack(of_key))
    out.state = [packed.table(CALL)]
    return [_row(key, request, OPEN) for _seq, key, request in requests[over:]]


class _SessionCalls:
    """Hold the open requests of one session, in order, by correlation."""

    def __init__(self, requests: list[OpenRequest]) -> None:
        self._requests: dict[str, deque[OpenRequest]] = {}
        for request in requests:
            self.add(request)

    def add(self, request: OpenRequest) -> None:
        self._requests.setdefault(request.correlation, deque()).append(request)

    def answer(self, correlation: str, at: int, more: int, key: str, final: _FinalCalls) -> OpenRequest | None:
        """Return the request that is now answered; `_MORE` if more of the response is to come."""
        requests = self._requests.get(correlation)
        while requests and requests[0].at + _AGE_US <= at:
            final.add_unanswered(key, requests.popleft(), at)
        if not requests:
            self._requests.pop(correlation, None)
            return None
        request = requests[0]
        request.answers += 1
        request.expected -= 1
        if more or request.expected > 0:
            return _MORE
        requests.popleft()
        if not requests:
            del self._requests[correlation]
        return request

    def open(self) -> list[OpenRequest]:
        return sorted((each for requests in self._requests.values() for each in requests), key=lambda each: each.seq)


_NO_CALLS: Final = _SessionCalls([])
_MORE: Final = OpenRequest(0, 0, "", "", "", "", "", "", 0)


def _row(session: str, request: OpenRequest, status: str, at: int | None = None, identity: str = "") -> _Row:
    return (
        request.seq,
        request.at,
        request.node,
        request.protocol,
        session,
        request.identity or identity,  # a login comes before its identity is known
        request.service,
        request.op,
        request.correlation or None,
        request.at,
        at,
        None if at is None else max(0, at - request.at) / 1000,
        request.answers,
        status,
    )
