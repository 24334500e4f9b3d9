"""Read the records that requests write, by the layout of the session or of the created table."""

from collections import Counter
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct, field, msgpack

from wirelake.errors import ProtocolError
from wirelake.lake.tables import RECORDS
from wirelake.limits import PIPELINE_LAYOUT_SESSIONS_MAX, PIPELINE_LAYOUTS_MAX
from wirelake.log.imported import import_of
from wirelake.pipeline.stateful.bucket_state import (
    NEVER_US,
    KindState,
    PackedStates,
    Reduction,
    table_rows,
    unpack_states,
)
from wirelake.pipeline.stateful.events import EVERY, event_table, from_json, rows_of, to_json
from wirelake.pipeline.stateful.sessions import GatewayStarts
from wirelake.protocols.protocol import Protocol
from wirelake.protocols.records import MessageFilter, RecordReader, WrittenRecord

LAYOUT: Final = "layout"
WRITE: Final = "write"
CREATE: Final = "create"
END: Final = "end"
_PLAUSIBLE_FROM_US: Final = 631_152_000_000_000  # 1990
_PLAUSIBLE_UNTIL_US: Final = 4_102_444_800_000_000  # 2100


def record_events(protocol: str, reader: RecordReader, batch: pa.RecordBatch, messages: pa.RecordBatch) -> pa.Table:
    found = messages.filter(pc.and_(pc.equal(messages["protocol"], protocol), pc.equal(messages["direction"], "in")))
    closed = batch.filter(pc.and_(pc.equal(batch["protocol"], protocol), pc.equal(batch["event"], "close")))
    ends = {name: closed[name] for name in ("seq", "at", "node", "session")}
    filters = {LAYOUT: reader.LAYOUT, WRITE: reader.WRITE, CREATE: reader.CREATE}
    return pa.concat_tables(
        [
            *(_events(reader.KIND, _select(found, each), name) for name, each in filters.items()),
            event_table(reader.KIND, {**ends, "key": closed["session"], "name": [END] * len(closed)}),
        ]
    )


def _select(messages: pa.RecordBatch, wanted: MessageFilter) -> pa.RecordBatch:
    mask = pc.equal(messages["kind"], wanted.kind.value)
    for column, value in (("name", wanted.name), ("op", wanted.op)):
        if value:
            mask = pc.and_(mask, pc.equal(messages[column], value))
    return messages.filter(pc.fill_null(mask, fill_value=False))


def _events(kind: str, messages: pa.RecordBatch, name: str) -> pa.Table:
    columns = {column: messages[column] for column in ("seq", "at", "node", "session", "identity", "service")}
    columns |= {"note": messages["fields"], "data": messages["payload"], "name": [name] * len(messages)}
    columns["key"] = [EVERY] * len(messages) if name == CREATE else messages["session"]
    return event_table(kind, columns)


class Layouts(Struct, array_like=True):
    """Hold the layouts that a session sent, by table; under the empty key, those of the tables that were created."""

    node: str
    seq: int
    tables: dict[str, Any] = field(default_factory=dict)


_decode: Final = msgpack.Decoder(Layouts).decode
_encode: Final = msgpack.Encoder().encode


def reduce_records(
    protocol: Protocol, reader: RecordReader, events: pa.Table, state: KindState, sure_us: int
) -> Reduction:
    starts = GatewayStarts(events)
    out = Reduction()
    keys = pa.concat_arrays([pc.unique(events["key"]), pa.array([EVERY])])
    touched = state.take() if starts else state.take_keys(keys, sure_us)
    sessions: dict[str, Layouts] = unpack_states(touched, _decode)
    created = _CreatedTables(sessions.pop(EVERY, None))
    decoder = f"{protocol.name}/{protocol.decoder_version}"
    rows: list[tuple[Any, ...]] = []
    columns = ("key", "seq", "at", "node", "session", "identity", "name", "service", "note", "data")
    for key, seq, at, node, session, identity, name, service, note, data in zip(*rows_of(events, columns), strict=True):
        of_import = import_of(session or "")  # a capture has its own tables
        if name == CREATE:
            created.add(seq, of_import + service, reader.created_layout(from_json(note)))
        elif name == LAYOUT:
            sessions.setdefault(key, Layouts(node, seq)).tables.update(reader.layouts_of(from_json(note)))
        elif name == END:
            sessions.pop(key, None)
        elif name == WRITE:
            fields = from_json(note) if note else {}
            layouts = sessions[key].tables if key in sessions else {}
            try:
                before = created.before(seq, of_import + service, reader.table_of(fields))
                found = reader.read_records(fields, data, layouts, before)
            except ProtocolError:
                out.counts["records_unread"] += 1
                continue
            common = (seq, at, node, protocol.name, identity, service)
            rows += [(*common, *_columns(record, at), decoder) for record in found]
    states = PackedStates()
    if created.tables:
        states.put(EVERY, NEVER_US, 0, _encode(created.newest(out.counts)))
    still_open = [
        (layouts.seq, key) for key, layouts in sessions.items() if starts.after(layouts.node, layouts.seq) is None
    ]
    over = len(still_open) + len(state) - PIPELINE_LAYOUT_SESSIONS_MAX
    if over > 0:
        out.counts["layouts_forgotten"] += over
        still_open = sorted(still_open)[over:]
    for _seq, key in still_open:
        states.put(key, NEVER_US, 0, _encode(sessions[key]))
    out.state = [states.table(reader.KIND)]
    out.final = {RECORDS.name: table_rows(RECORDS, rows)}
    return out


class _CreatedTables:
    """Hold the layouts of created tables: service and table → (seq, layout), the newest last."""

    def __init__(self, layouts: Layouts | None) -> None:
        self.tables: dict[str, list[tuple[int, Any]]] = {}
        for name, layout in (layouts.tables if layouts is not None else {}).items():
            self.tables[name] = [(-1, layout)]

    def add(self, seq: int, service: str, created: tuple[str, Any] | None) -> None:
        if created is not None:
            table, layout = created
            self.tables.setdefault(to_json([service, table]).decode(), []).append((seq, layout))

    def before(self, seq: int, service: str, table: Any) -> Any:
        of_table = self.tables.get(to_json([service, table]).decode(), ())
        return next((layout for at_seq, layout in reversed(of_table) if at_seq < seq), None)

    def newest(self, counts: Counter[str]) -> Layouts:
        names = list(self.tables)
        if len(names) > PIPELINE_LAYOUTS_MAX:
            counts["layouts_forgotten"] += len(names) - PIPELINE_LAYOUTS_MAX
            names = names[-PIPELINE_LAYOUTS_MAX:]
        return Layouts("", 0, {name: self.tables[name][-1][1] for name in names})


def _columns(record: WrittenRecord, at: int) -> tuple[Any, ...]:
    recorded_at = _recorded_at(record.time, at)
    return record.key, record.table, record.time, recorded_at, to_json(record.fields).decode()


def _recorded_at(time: int | None, at: int) -> int:
    """Return the record's own time, if it can be seconds or milliseconds since 1970."""
    if time is not None:
        for unit_us in (1_000_000, 1000):
            if _PLAUSIBLE_FROM_US <= time * unit_us < _PLAUSIBLE_UNTIL_US:
                return time * unit_us
    return at
