"""Requests and their answers, on one session: by correlation where the protocol has one, else in order."""

from base64 import b64encode
from collections import deque
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct, msgpack

from wirelake.lake.tables import CALLS
from wirelake.limits import PIPELINE_CALL_AGE_S, PIPELINE_CALLS_OPEN_MAX
from wirelake.message import GATEWAY_SERVICE, Kind, Op
from wirelake.pipeline.memory.carry import kept, split, states_of
from wirelake.pipeline.memory.item import CALL, EVERY, from_json, items_table, rows_of
from wirelake.pipeline.memory.outcome import Outcome, table_rows
from wirelake.pipeline.memory.sessions import Starts
from wirelake.protocols.esnp.contents import read_contents
from wirelake.protocols.esnp.frames import decode as decode_esnp
from wirelake.protocols.esnp.translation import is_one_way
from wirelake.protocols.frame import Sender

ASK: Final = "ask"
ANSWER: Final = "answer"
END: Final = "end"
OK: Final = "ok"
OPEN: Final = "open"
UNANSWERED: Final = "unanswered"

_AGE_US: Final = int(PIPELINE_CALL_AGE_S * 1_000_000)
_ASKS: Final = pa.array([Kind.REQUEST, Kind.CONTROL, Kind.NOTIFICATION, Kind.EVENT], pa.string())
_MAGLINE_ASKS: Final = pa.array(["SYN", "PIN", "REQ"])
_EMPTY_COMMANDS: Final = pa.array(["command", "inline"])  # resp: a line with nothing on it
_STREAM: Final = '"/api/subscribe"'  # an HTTP request that is answered by a stream, not by a frame
_NUMBERED: Final = pa.array(["magline", "esnp", "sisnet"])  # protocols with a correlation
# resp: these are answered once for each name, out of the order of the other answers.
_SUBSCRIPTIONS: Final = ("subscribe", "unsubscribe", "psubscribe", "punsubscribe")
_AS_BASE64: Final = {b64encode(verb.encode()).decode(): verb for verb in _SUBSCRIPTIONS}


def call_items(batch: pa.RecordBatch, messages: pa.RecordBatch) -> pa.Table:
    found = messages.filter(
        pc.and_(pc.not_equal(messages["protocol"], "apostol"), pc.not_equal(messages["session"], ""))
    )
    came = pc.equal(found["direction"], "in")
    asks = found.filter(pc.and_(came, pc.is_in(found["kind"], value_set=_ASKS)))
    asks = asks.filter(_is_ask(batch, asks))
    answers = found.filter(pc.and_(pc.invert(came), _is_answer(found)))
    closed = batch.filter(pc.and_(pc.equal(batch["event"], "close"), pc.not_equal(batch["session"], "")))
    ends = {name: closed[name] for name in ("seq", "at", "node", "protocol", "session", "identity")}
    ends = items_table(CALL, {**ends, "key": closed["session"], "name": [END] * len(closed)})
    return pa.concat_tables([_ask_items(asks), _answer_items(answers), ends])


def _is_ask(batch: pa.RecordBatch, asks: pa.RecordBatch) -> Any:
    protocol, name, kind = asks["protocol"], asks["name"], asks["kind"]
    notification = pc.equal(kind, Kind.NOTIFICATION.value)
    nothing = pc.and_(
        pc.is_in(name, value_set=_EMPTY_COMMANDS),
        pc.and_(pc.is_null(asks["service"], nan_is_null=False), pc.invert(notification)),
    )
    checks = {
        "magline": pc.is_in(name, value_set=_MAGLINE_ASKS),
        "redis": pc.invert(nothing),
        "esnp": pc.not_equal(kind, Kind.EVENT.value),
        "sisnet": pc.not_equal(kind, Kind.EVENT.value),
    }
    wanted = pc.fill_null(pc.is_valid(asks["seq"]), fill_value=True)
    for which, check in checks.items():
        wanted = pc.and_(wanted, pc.or_(pc.not_equal(protocol, which), pc.fill_null(check, fill_value=False)))
    unwanted = [*_one_way(batch, asks), *_streams(batch)]
    return pc.and_(wanted, pc.invert(pc.is_in(asks["seq"], value_set=pa.array(unwanted, pa.int64()))))


def _one_way(batch: pa.RecordBatch, asks: pa.RecordBatch) -> list[int]:
    """esnp: what is asked of the gateway itself without wanting an answer. Only the flags in the frame say so."""
    own = pc.and_(pc.equal(asks["protocol"], "esnp"), pc.not_equal(asks["kind"], Kind.REQUEST.value))
    seqs = asks["seq"].filter(own)
    if not len(seqs):
        return []
    found = batch.filter(pc.is_in(batch["seq"], value_set=seqs))
    return [
        seq
        for seq, frame in zip(found["seq"].to_pylist(), found["frame"].to_pylist(), strict=True)
        if is_one_way(read_contents(decode_esnp(frame, Sender.CLIENT)))
    ]


def _streams(batch: pa.RecordBatch) -> list[int]:
    http = pc.and_(pc.equal(batch["protocol"], "http"), pc.match_substring(batch["note"], _STREAM))
    return list(batch["seq"].filter(http).to_pylist())


def _is_answer(found: pa.RecordBatch) -> Any:
    """Also what resp 3 pushes: the answer to a subscription is such a one."""
    pushed = pc.and_(pc.equal(found["protocol"], "redis"), pc.equal(found["kind"], Kind.EVENT.value))
    return pc.or_(pc.equal(found["kind"], Kind.RESPONSE.value), pushed)


def _correlation(rows: pa.RecordBatch) -> Any:
    numbered = pc.is_in(rows["protocol"], value_set=_NUMBERED)
    return pc.if_else(numbered, pc.fill_null(rows["correlation"], ""), "")


def _ask_items(asks: pa.RecordBatch) -> pa.Table:
    correlation, expected = _correlation(asks), None
    if pc.any(pc.equal(asks["protocol"], "redis")).as_py():
        correlation, expected = _subscribing(asks, correlation.to_pylist())
    is_publication = pc.equal(asks["kind"], Kind.NOTIFICATION.value)
    op = pc.if_else(is_publication, Op.PUBLISH.value, pc.coalesce(asks["op"], asks["name"]))
    columns = {name: asks[name] for name in ("seq", "at", "node", "protocol", "session", "identity")}
    columns |= {"key": asks["session"], "name": [ASK] * len(asks), "number": expected, "correlation": correlation}
    columns |= {"service": pc.fill_null(asks["service"], GATEWAY_SERVICE), "op": op}
    return items_table(CALL, columns)


def _subscribing(asks: pa.RecordBatch, correlation: list[str]) -> tuple[list[str], list[int]]:
    expected = [1] * len(asks)
    named = zip(asks["protocol"].to_pylist(), asks["name"].to_pylist(), strict=True)
    for place, (protocol, name) in enumerate(named):
        if protocol == "redis" and name in _SUBSCRIPTIONS:
            fields = from_json(asks["fields"][place].as_py() or "{}")
            correlation[place] = name
            expected[place] = max(1, len(fields.get("topics", fields.get("patterns", ()))))
    return correlation, expected


def _answer_items(answers: pa.RecordBatch) -> pa.Table:
    correlation = _correlation(answers)
    if pc.any(pc.equal(answers["protocol"], "redis")).as_py():
        correlation = _subscribed(answers, correlation.to_pylist())
    columns = {name: answers[name] for name in ("seq", "at", "node", "protocol", "session", "identity")}
    columns |= {"key": answers["session"], "name": [ANSWER] * len(answers), "correlation": correlation}
    columns |= {"status": pc.fill_null(answers["status"], OK), "until": pc.fill_null(answers["more"], 0)}
    return items_table(CALL, columns)


def _subscribed(answers: pa.RecordBatch, correlation: list[str]) -> list[str]:
    named = zip(answers["protocol"].to_pylist(), answers["name"].to_pylist(), strict=True)
    for place, (protocol, name) in enumerate(named):
        if protocol == "redis" and name in ("array", "push"):
            value = from_json(answers["fields"][place].as_py() or "{}").get("value")
            verb = value[0] if isinstance(value, list) and value else None
            if isinstance(verb, str):
                verb = _AS_BASE64.get(verb, verb)
            if verb in _SUBSCRIPTIONS:
                correlation[place] = verb
            elif name == "push":
                correlation[place] = "push"  # nobody asked for it
    return correlation


_Row = tuple[Any, ...]


class Ask(Struct, array_like=True):
    """A request without its answer, or without all of it."""

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


_unpack: Final = msgpack.Decoder(list[Ask]).decode
_pack: Final = msgpack.Encoder().encode


def settle_calls(items: pa.Table, carried: pa.Table, sure_us: int) -> Outcome:
    starts = Starts(items)
    spoken_of = pc.unique(items["key"])
    touched, rest = split(carried, spoken_of, sure_us) if not starts else (carried, carried.slice(0, 0))
    sessions = {key: _Session(asks) for key, asks in states_of(touched, _unpack).items()}
    out = Outcome([])
    final = _Final(out)
    _listen(items, sessions, final)
    opened: list[_Row] = []
    carry = kept()
    for key, session in sessions.items():
        asks = []
        for ask in session.open():
            start = starts.after(ask.node, ask.seq)
            if start is not None or ask.at + _AGE_US <= sure_us:
                final.unanswered(key, ask, sure_us if start is None else start[1])
            else:
                asks.append(ask)
                opened.append(_row(key, ask, OPEN))
        if asks:
            carry.put(key, min(ask.at for ask in asks) + _AGE_US, len(asks), _pack(asks))
    still = [_row(key, ask, OPEN) for key, asks in states_of(rest, _unpack).items() for ask in asks]
    out.carry = [carry.table(CALL), rest]
    over = len(opened) + len(still) - PIPELINE_CALLS_OPEN_MAX
    if over > 0:
        opened, still = _made_room(out, final, over), []
    out.final = {CALLS.name: table_rows(CALLS, final.rows)}
    out.open = {CALLS.name: table_rows(CALLS, opened, settled=False)}
    out.still = {CALLS.name: table_rows(CALLS, still, settled=False)}
    return out


def _listen(items: pa.Table, sessions: dict[str, "_Session"], final: "_Final") -> None:
    """The items, session after session."""
    columns = ("key", "seq", "at", "node", "protocol", "identity", "name", "service", "op", "correlation", "status")
    rows = zip(*rows_of(items, (*columns, "number", "until")), strict=True)
    for key, seq, at, node, protocol, identity, name, service, op, correlation, status, number, until in rows:
        if key == EVERY:
            continue
        session = sessions.get(key)
        if name == ASK:
            if session is None:
                session = sessions[key] = _Session([])
            session.ask(Ask(seq, at, node, protocol, identity, service, op, correlation, number or 1))
        elif name == END:
            for ask in sessions.pop(key, _NOBODY).open():
                final.unanswered(key, ask, at)
        else:
            answered = None if session is None else session.answer(correlation, at, until, key, final)
            if answered is None:
                final.counts["answers_without_question"] += 1
            elif answered is not _MORE:
                final.rows.append(_row(key, answered, status, at, identity))


class _Final:
    def __init__(self, out: Outcome) -> None:
        self.rows: list[_Row] = []
        self.counts = out.counts

    def unanswered(self, session: str, ask: Ask, at: int) -> None:
        self.rows.append(_row(session, ask, UNANSWERED))
        if ask.at + _AGE_US <= at:
            self.counts["calls_given_up"] += 1


def _made_room(out: Outcome, final: _Final, over: int) -> list[_Row]:
    """Too many are open: the oldest count as unanswered. Answers the rows of those that stay."""
    states = states_of(pa.concat_tables(out.carry), _unpack)
    asks = sorted(((ask.seq, key, ask) for key, of_key in states.items() for ask in of_key), key=lambda each: each[:2])
    final.rows += [_row(key, ask, UNANSWERED) for _seq, key, ask in asks[:over]]
    out.counts["calls_given_up"] += over
    left: dict[str, list[Ask]] = {}
    for _seq, key, ask in asks[over:]:
        left.setdefault(key, []).append(ask)
    carry = kept()
    for key, of_key in left.items():
        carry.put(key, min(ask.at for ask in of_key) + _AGE_US, len(of_key), _pack(of_key))
    out.carry = [carry.table(CALL)]
    return [_row(key, ask, OPEN) for _seq, key, ask in asks[over:]]


class _Session:
    """The open requests of one session, in order, by correlation."""

    def __init__(self, asks: list[Ask]) -> None:
        self._asks: dict[str, deque[Ask]] = {}
        for ask in asks:
            self.ask(ask)

    def ask(self, ask: Ask) -> None:
        self._asks.setdefault(ask.correlation, deque()).append(ask)

    def answer(self, correlation: str, at: int, more: int, key: str, final: _Final) -> Ask | None:
        """The request that is now answered; `_MORE`, if there is more of the answer to come."""
        asks = self._asks.get(correlation)
        while asks and asks[0].at + _AGE_US <= at:
            final.unanswered(key, asks.popleft(), at)
        if not asks:
            self._asks.pop(correlation, None)
            return None
        ask = asks[0]
        ask.answers += 1
        ask.expected -= 1
        if more or ask.expected > 0:
            return _MORE
        asks.popleft()
        if not asks:
            del self._asks[correlation]
        return ask

    def open(self) -> list[Ask]:
        return sorted((ask for asks in self._asks.values() for ask in asks), key=lambda ask: ask.seq)


_NOBODY: Final = _Session([])
_MORE: Final = Ask(0, 0, "", "", "", "", "", "", 0)


def _row(session: str, ask: Ask, status: str, at: int | None = None, identity: str = "") -> _Row:
    return (
        ask.seq,
        ask.at,
        ask.node,
        ask.protocol,
        session,
        ask.identity or identity,  # a login is asked by whom it makes known
        ask.service,
        ask.op,
        ask.correlation or None,
        ask.at,
        at,
        None if at is None else max(0, at - ask.at) / 1000,
        ask.answers,
        status,
    )
