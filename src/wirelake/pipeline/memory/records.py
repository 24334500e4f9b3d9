"""sisdb records: what is `set`, read by the layout that a session's `dict` gave, or that the table was created with."""

from base64 import b64decode
from binascii import Error as BadBase64
from collections import Counter
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct, field, msgpack

from wirelake.errors import ProtocolError
from wirelake.lake.tables import RECORDS
from wirelake.limits import PIPELINE_LAYOUT_SESSIONS_MAX, PIPELINE_LAYOUTS_MAX
from wirelake.message import Kind
from wirelake.pipeline.memory.carry import kept, split, states_of
from wirelake.pipeline.memory.item import EVERY, RECORD, from_json, items_table, rows_of, to_json
from wirelake.pipeline.memory.outcome import Outcome, table_rows
from wirelake.pipeline.memory.sessions import Starts
from wirelake.protocols.records import RecordTable, read_tables
from wirelake.protocols.sisnet.protocol import PROTOCOL

DICT: Final = "dict"
SET: Final = "set"
CREATE: Final = "create"
END: Final = "end"
DECODER: Final = f"{PROTOCOL.name}/{PROTOCOL.decoder_version}"
_TIME: Final = "time"
_I64_MAX: Final = 2**63 - 1
_NEVER_US: Final = 2**62
_PLAUSIBLE_FROM_US: Final = 631_152_000_000_000  # 1990
_PLAUSIBLE_UNTIL_US: Final = 4_102_444_800_000_000  # 2100


def record_items(batch: pa.RecordBatch, messages: pa.RecordBatch) -> pa.Table:
    ours = pc.and_(pc.equal(messages["protocol"], PROTOCOL.name), pc.equal(messages["direction"], "in"))
    found = messages.filter(ours)
    asked = pc.equal(found["kind"], Kind.REQUEST.value)
    is_dict = pc.and_(pc.equal(found["kind"], Kind.CONTROL.value), pc.equal(found["name"], DICT))
    is_set = pc.fill_null(pc.and_(asked, pc.equal(found["op"], SET)), fill_value=False)
    is_create = pc.fill_null(pc.and_(asked, pc.equal(found["op"], CREATE)), fill_value=False)
    closed = batch.filter(pc.and_(pc.equal(batch["protocol"], PROTOCOL.name), pc.equal(batch["event"], "close")))
    ends = {name: closed[name] for name in ("seq", "at", "node", "session")}
    return pa.concat_tables(
        [
            _items(found.filter(is_dict), DICT),
            _items(found.filter(is_set), SET),
            _items(found.filter(is_create), CREATE),
            items_table(RECORD, {**ends, "key": closed["session"], "name": [END] * len(closed)}),
        ]
    )


def _items(found: pa.RecordBatch, name: str) -> pa.Table:
    columns = {column: found[column] for column in ("seq", "at", "node", "session", "identity", "service")}
    columns |= {"note": found["fields"], "data": found["payload"], "name": [name] * len(found)}
    columns["key"] = [EVERY] * len(found) if name == CREATE else found["session"]
    return items_table(RECORD, columns)


class Layouts(Struct, array_like=True):
    """Of one session: table → fields, as its dict gave them; or, under the empty key, of the tables created."""

    node: str
    seq: int
    tables: dict[str, Any] = field(default_factory=dict)


_decode: Final = msgpack.Decoder(Layouts).decode
_encode: Final = msgpack.Encoder().encode


def settle_records(items: pa.Table, carried: pa.Table, sure_us: int) -> Outcome:
    starts = Starts(items)
    out = Outcome([])
    spoken_of = pa.concat_arrays([pc.unique(items["key"]), pa.array([EVERY])])
    touched, rest = split(carried, spoken_of, sure_us) if not starts else (carried, carried.slice(0, 0))
    sessions: dict[str, Layouts] = states_of(touched, _decode)
    created = _Created(sessions.pop(EVERY, None))
    rows: list[tuple[Any, ...]] = []
    columns = ("key", "seq", "at", "node", "identity", "name", "service", "note", "data")
    for key, seq, at, node, identity, name, service, note, data in zip(*rows_of(items, columns), strict=True):
        if name == CREATE:
            created.add(seq, service, from_json(note))
        elif name == DICT:
            sessions.setdefault(key, Layouts(node, seq)).tables.update(_tables(from_json(note)))
        elif name == END:
            sessions.pop(key, None)
        elif name == SET:
            asked = from_json(note) if note else {}
            layouts = sessions.get(key)
            try:
                found = _read(asked, data, layouts, created.before(seq, service, asked.get("sdb")))
            except (ProtocolError, BadBase64):
                out.counts["records_unread"] += 1
                continue
            rows += [_row(seq, at, node, identity, service, asked, record) for record in found]
    carry = kept()
    if created.tables:
        carry.put(EVERY, _NEVER_US, 0, _encode(created.newest(out.counts)))
    kept_sessions = [
        (layouts.seq, key) for key, layouts in sessions.items() if starts.after(layouts.node, layouts.seq) is None
    ]
    over = len(kept_sessions) + len(rest) - PIPELINE_LAYOUT_SESSIONS_MAX
    if over > 0:
        out.counts["layouts_forgotten"] += over
        kept_sessions = sorted(kept_sessions)[over:]
    for _seq, key in kept_sessions:
        carry.put(key, _NEVER_US, 0, _encode(sessions[key]))
    out.carry = [carry.table(RECORD), rest]
    out.final = {RECORDS.name: table_rows(RECORDS, rows)}
    return out


class _Created:
    """Tables that were created, by anybody: (service, sdb) → (seq, fields), the newest last."""

    def __init__(self, layouts: Layouts | None) -> None:
        self.tables: dict[str, list[tuple[int, Any]]] = {}
        for name, fields in (layouts.tables if layouts is not None else {}).items():
            self.tables[name] = [(-1, fields)]

    def add(self, seq: int, service: str, asked: Any) -> None:
        if isinstance(asked, dict) and isinstance(asked.get("sdb"), str) and asked.get("fields"):
            name = to_json([service, asked["sdb"]]).decode()
            self.tables.setdefault(name, []).append((seq, asked["fields"]))

    def before(self, seq: int, service: str, sdb: Any) -> Any:
        of_table = self.tables.get(to_json([service, sdb]).decode(), ())
        return next((fields for at_seq, fields in reversed(of_table) if at_seq < seq), None)

    def newest(self, counts: Counter[str]) -> Layouts:
        names = list(self.tables)
        if len(names) > PIPELINE_LAYOUTS_MAX:
            counts["layouts_forgotten"] += len(names) - PIPELINE_LAYOUTS_MAX
            names = names[-PIPELINE_LAYOUTS_MAX:]
        return Layouts("", 0, {name: self.tables[name][-1][1] for name in names})


def _tables(asked: Any) -> dict[str, Any]:
    return {name: table["fields"] for name, table in asked.items() if isinstance(table, dict) and "fields" in table}


def _read(asked: dict[str, Any], payload: bytes | None, layouts: Layouts | None, created: Any) -> list[dict[str, Any]]:
    """The records of one `set`, by the names of their fields."""
    sdb = asked.get("sdb")
    fields = layouts.tables.get(sdb, created) if layouts is not None and isinstance(sdb, str) else created
    if payload:
        return _layout(sdb, fields).unpack(payload)
    data = asked.get("data")
    if isinstance(data, dict):
        return [data]
    if isinstance(data, str):
        return _layout(sdb, fields).unpack(b64decode(data, validate=True))
    if not isinstance(data, list):
        raise ProtocolError("no_records", "nothing that could be a record", 0)
    if data and not any(isinstance(each, list | dict) for each in data):
        data = [data]
    names = [column.name for column in _layout(sdb, fields).columns] if any(map(_is_list, data)) else []
    return [_named(each, names) for each in data]


def _is_list(value: Any) -> bool:
    return isinstance(value, list)


def _named(value: Any, names: list[str]) -> dict[str, Any]:
    if isinstance(value, dict):
        return value
    if not isinstance(value, list) or len(value) > len(names):
        raise ProtocolError("no_record", "neither an object nor a row of the table", 0)
    return dict(zip(names, value, strict=False))


def _layout(sdb: Any, fields: Any) -> RecordTable:
    if isinstance(fields, dict):
        fields = fields.get("fields") or [
            [name, *(rest if _is_list(rest) else [rest])] for name, rest in fields.items()
        ]
    if not fields:
        raise ProtocolError("no_layout", f"nobody said what a record of {sdb} looks like", 0)
    return read_tables({str(sdb): {"fields": fields}})[str(sdb)]


def _row(
    seq: int, at: int, node: str, identity: str, service: str, asked: dict[str, Any], record: dict[str, Any]
) -> tuple[Any, ...]:
    key, sdb, time = asked.get("key"), asked.get("sdb"), _time(record.get(_TIME))
    return (
        seq,
        at,
        node,
        PROTOCOL.name,
        identity,
        service,
        None if key is None else str(key),
        None if sdb is None else str(sdb),
        time,
        _recorded_at(time, at),
        to_json(record).decode(),
        DECODER,
    )


def _recorded_at(time: int | None, at: int) -> int:
    """What the record's own time says, where it can be seconds or milliseconds since 1970."""
    if time is not None:
        for unit_us in (1_000_000, 1000):
            if _PLAUSIBLE_FROM_US <= time * unit_us < _PLAUSIBLE_UNTIL_US:
                return time * unit_us
    return at


def _time(value: Any) -> int | None:
    if isinstance(value, float) and abs(value) < _I64_MAX:
        return int(value // 1)
    return value if isinstance(value, int) and not isinstance(value, bool) and abs(value) <= _I64_MAX else None
