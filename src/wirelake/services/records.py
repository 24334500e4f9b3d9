"""Serve data sets: each is a service with records in tables (sdb), by key and ordered by time. `sisdb` is the default.

A write is confirmed, and push to subscribers, once it is on disk. A read waits for the writes before it. A series
`key.sdb` is also a live topic (for a data set other than sisdb: `dataset:key.sdb`): its subscribers, in any protocol,
receive new records as JSON.
"""

from collections.abc import Callable, Generator, Iterable
from typing import Any, Final, TypeVar

from msgspec import Struct
from msgspec.structs import astuple, replace

from wirelake.broker.broker import Broker, answered
from wirelake.broker.peer import Job, Peer
from wirelake.broker.services import REQUEST_ERRORS, failed, failed_with, not_found
from wirelake.commit import Commit
from wirelake.errors import InputError, StateError
from wirelake.limits import (
    SISDB_NAMES_PER_ANSWER_MAX,
    SISDB_PACKET_VALUES_MAX,
    SISDB_RECORDS_AT_ONCE,
    SISDB_RECORDS_PER_GET_MAX,
    SISDB_RECORDS_PER_SET_MAX,
    SISDB_SERIES_PER_REQUEST_MAX,
    STATE_READ_BYTES_MAX,
    STATE_READ_ROWS_MAX,
    STATE_SERIES_MAX,
)
from wirelake.message import LAYOUT, PACKED, ROWS, FailureCode, Kind, Message, Operation, Topic
from wirelake.protocols import registry
from wirelake.protocols.text import write_json
from wirelake.roles import Action
from wirelake.services.record_access import RecordAccess, Series
from wirelake.services.selection import Format, Names, Selection, read_names, read_sdbs, read_selection
from wirelake.services.subscriptions import PacketQueue, PacketSender, SeriesSubscription, SeriesSubscriptions
from wirelake.services.tables import LooseTable, PackedTable, read_layout, table_of
from wirelake.state.records import ALL, SeriesRecord, SeriesStore, position_before

DEFAULT: Final = "sisdb"

T = TypeVar("T")
Slices = Generator[None, None, T]  # yields to let others have a turn


class PendingPush(Struct, frozen=True):
    """Hold new records of a series until they are on disk."""

    series: Series
    table: PackedTable | LooseTable
    records: list[SeriesRecord]


class RecordService:
    def __init__(self, broker: Broker, records: SeriesStore, sender: PacketSender, flush: Callable[[], object]) -> None:
        self._broker = broker  # its jobs run long requests
        self._records = records
        self._access = RecordAccess(broker.access, records)
        self._sender = sender
        self._flush = flush  # sends what is published here at the end of the turn
        self.subscriptions = SeriesSubscriptions(broker)
        broker.add_observer(self.subscriptions)
        broker.add_observer(sender)
        self._datasets: set[str] = set()
        self._tables: dict[tuple[str, str], PackedTable | LooseTable] = {}
        self._last_write = Commit.resolved()  # when it is done, so are those before it
        self._pushes: dict[Commit, list[PendingPush]] = {}
        self._operations: dict[str, Callable[[Peer, Message, str], None]] = {
            "create": self._create,
            "del": self._delete,
            "get": self._get,
            "keys": self._keys,
            "set": self._set,
            "sub": self._subscribe,
            "tables": self._describe,
            "unsub": self._unsubscribe,
        }

    def serve(self, datasets: Iterable[str]) -> None:
        """Serve these data sets from now on, and no others."""
        for name in self._datasets:
            self._broker.unregister_builtin(name)
        self._datasets = set(datasets) - self._broker.builtin.keys()
        for name in self._datasets:
            self._broker.register_builtin(name, self)

    def __call__(self, peer: Peer, message: Message, _now_s: float) -> None:
        target = message.target
        if not isinstance(target, Operation):
            raise StateError("a request without a service")
        operation = self._operations.get(target.op)
        if operation is None:
            peer.send(failed(message.correlation, not_found(target), FailureCode.NOT_FOUND))
            return
        operation(peer, message, target.service)

    # Writing

    def _create(self, peer: Peer, message: Message, dataset: str) -> None:
        sdbs = read_sdbs(message.fields)
        if not sdbs or sdbs == ALL:
            raise InputError("create needs an sdb")
        self._access.authorize_tables(peer, Action.WRITE, dataset, sdbs)
        layouts = {sdb: read_layout(sdb, message.fields.get("fields")).layout for sdb in sdbs.split(",")}
        for sdb, layout in layouts.items():
            if self._records.layout(dataset, sdb) not in (None, layout) and self._records.has_series(dataset, sdb):
                raise InputError(f"table '{sdb}' has records of another layout")
        for sdb, layout in layouts.items():
            self._last_write = self._records.create(dataset, sdb, layout)
        self._broker.after(self._last_write, peer, answered(message))

    def _set(self, peer: Peer, message: Message, dataset: str) -> None:
        self._broker.jobs.start(peer, message, self._set_slices(peer, message, dataset))

    def _set_slices(self, peer: Peer, message: Message, dataset: str) -> Job:
        fields, payload = message.fields, message.payload
        names = read_names(fields, "set")
        if names.has_wildcard:
            raise InputError("set takes names, not *")
        self._access.authorize(peer, Action.WRITE, dataset, names)
        values = _values(fields, payload)
        series = names.each()
        tables = {sdb: self._table_for(dataset, sdb, fields.get("fields"), values) for _, sdb in series}
        if len(values or ()) * len(series) > SISDB_RECORDS_PER_SET_MAX:
            raise _too_many_records()
        packed = _payload_if_packed(message, tables.values())
        if packed:
            values, payload = None, packed
        records = {}
        for sdb, table in tables.items():
            records[sdb] = yield from _records(sdb, table, values, payload)
        if sum(len(records[sdb]) for _, sdb in series) > SISDB_RECORDS_PER_SET_MAX:
            raise _too_many_records()
        layouts = {sdb: table.layout for sdb, table in tables.items()}
        self._last_write = self._records.set_many(dataset, layouts, {each: records[each[1]] for each in series})
        for key, sdb in series:
            self._push_when_durable((dataset, key, sdb), tables[sdb], records[sdb])
        self._broker.after(self._last_write, peer, answered(message))

    def _table_for(self, dataset: str, sdb: str, fields: Any, values: list[Any] | None) -> PackedTable | LooseTable:
        """Return the table to write to: as it is, as the request describes it, or with new fields of the records."""
        table = self._table(dataset, sdb)
        if isinstance(table, PackedTable):
            return table
        if not table.names and fields:
            return read_layout(sdb, fields)
        return table.with_fields_of(values or [])

    def _delete(self, peer: Peer, message: Message, dataset: str) -> None:
        names = read_names(message.fields, "del")
        self._access.authorize(peer, Action.WRITE, dataset, names)
        self._broker.jobs.start(peer, message, self._delete_slices(peer, message, dataset, names))

    def _delete_slices(self, peer: Peer, message: Message, dataset: str, names: Names) -> Job:
        found = yield from self._access.find(peer, Action.WRITE, dataset, names, STATE_SERIES_MAX)
        deleted = 0
        for start in range(0, len(found), SISDB_RECORDS_AT_ONCE):
            count, self._last_write = self._records.delete_series(dataset, found[start : start + SISDB_RECORDS_AT_ONCE])
            deleted += count
            yield None
        self._broker.after(self._last_write, peer, answered(message, fields={"msg": deleted}))

    def _table(self, dataset: str, sdb: str) -> PackedTable | LooseTable:
        """Return the table with its current layout."""
        layout = self._records.layout(dataset, sdb)
        table = self._tables.get((dataset, sdb))
        if table is None or table.layout != (layout or ()):
            table = table_of(sdb, layout)
            if layout is not None:  # a client can name any number of tables that do not exist
                self._tables[dataset, sdb] = table
        return table

    # Reading

    def _get(self, peer: Peer, message: Message, dataset: str) -> None:
        selection = read_selection(message.fields, "get")
        self._access.authorize(peer, Action.READ, dataset, selection.names)
        self._run_after_writes(peer, message, self._respond_to_get(peer, message, dataset, selection))

    def _respond_to_get(self, peer: Peer, message: Message, dataset: str, selection: Selection) -> Job:
        table = self._table(dataset, selection.names.sdbs) if selection.names.is_single else None
        if isinstance(table, PackedTable) and selection.format is Format.BYTES:
            _send_layout(peer, selection.names.sdbs, table)
        if not isinstance(table, PackedTable) or selection.count is not None or selection.describe:
            self._broker.after(None, peer, (yield from self._read(peer, message, dataset, selection)))
            return
        names, since, until = selection.names, selection.since, selection.until
        in_bytes = STATE_READ_BYTES_MAX // table.record_bytes
        in_values = STATE_READ_ROWS_MAX if selection.format is Format.BYTES else SISDB_PACKET_VALUES_MAX // table.values
        per_packet = max(1, min(STATE_READ_ROWS_MAX, in_bytes, in_values))
        one_more = per_packet + 1
        stored = self._records.read(dataset, names.keys, names.sdbs, since=since, until=until, count=one_more)
        if len(stored) <= per_packet:
            self._broker.after(None, peer, _series_response(message, selection, table, stored))
            return
        most = SISDB_RECORDS_PER_GET_MAX + 1
        count = self._records.count(dataset, names.keys, names.sdbs, since=since, until=until, most=most)
        if count == most:
            raise InputError(f"more than {SISDB_RECORDS_PER_GET_MAX} records: name a narrower min and max, or a count")
        position = position_before(since)

        def send(following: int) -> None:
            nonlocal position
            rows, position = self._records.page(
                dataset, names.keys, names.sdbs, after=position, until=until, count=per_packet
            )
            peer.send(replace(_series_response(message, selection, table, rows), more=following))

        packets = -(-count // per_packet)
        self._sender.start(
            PacketQueue(peer, packets, lambda following: _respond_or_fail(peer, message, lambda: send(following)))
        )

    def _read(self, peer: Peer, message: Message, dataset: str, selection: Selection) -> Slices[Message]:
        names = selection.names
        most = SISDB_SERIES_PER_REQUEST_MAX
        found = yield from self._access.find(peer, Action.READ, dataset, names, most)
        if len(found) > SISDB_SERIES_PER_REQUEST_MAX:
            raise InputError(f"{len(found)} series or more: at most {most} in one answer")
        if selection.format is Format.BYTES:
            return self._packed(message, dataset, selection)
        answer: dict[str, Any] = {}
        rows_left = STATE_READ_ROWS_MAX
        size = 0
        for key, sdb in found:
            table = self._table(dataset, sdb)
            stored = self._read_stored(dataset, key, sdb, selection, rows_left, STATE_READ_BYTES_MAX - size)
            rows_left -= len(stored)
            size += sum(map(len, stored))
            answer[f"{key}.{sdb}"] = yield from _rows(selection, table, stored)
        if selection.describe:
            return answered(message, fields=answer | (yield from self._fields(peer, dataset, names.sdbs)))
        if names.is_single:
            return _rows_response(message, next(iter(answer.values()), []))
        return answered(message, fields=answer) if answer else _rows_response(message, [])

    def _packed(self, message: Message, dataset: str, selection: Selection) -> Message:
        """Return one series as bytes."""
        names = selection.names
        table = self._table(dataset, names.sdbs)
        if not names.is_single:
            raise InputError("format bytes takes one key and one sdb")
        stored = self._read_stored(
            dataset, names.keys, names.sdbs, selection, STATE_READ_ROWS_MAX, STATE_READ_BYTES_MAX
        )
        return _series_response(message, selection, table, stored)

    def _read_stored(
        self, dataset: str, key: str, sdb: str, selection: Selection, rows_max: int, bytes_max: int
    ) -> list[bytes]:
        """Return the stored records. Raise InputError if they do not fit one response, instead of leaving some out."""
        count = selection.count
        wanted = rows_max + 1 if count is None else min(count, rows_max + 1)
        stored = self._records.read(
            dataset,
            key,
            sdb,
            since=selection.since,
            until=selection.until,
            count=wanted,
            newest=selection.newest and count is not None,
            bytes_max=bytes_max,
        )
        alone = wanted == 1 and bytes_max == STATE_READ_BYTES_MAX  # a single record is returned, however long it is
        if len(stored) > rows_max or (sum(map(len, stored)) > bytes_max and not alone):
            limits = f"{STATE_READ_ROWS_MAX} records and {STATE_READ_BYTES_MAX} bytes"
            raise InputError(f"more than fits one answer ({limits}): name a narrower min and max, or a count")
        return stored

    def _keys(self, peer: Peer, message: Message, dataset: str) -> None:
        sdbs = read_sdbs(message.fields) or ALL

        def answer() -> Job:
            keys = yield from self._access.keys(peer, dataset, sdbs, SISDB_NAMES_PER_ANSWER_MAX)
            if len(keys) > SISDB_NAMES_PER_ANSWER_MAX:
                raise InputError(f"more than {SISDB_NAMES_PER_ANSWER_MAX} keys: name a table")
            self._broker.after(None, peer, answered(message, fields={"msg": keys}))

        self._run_after_writes(peer, message, answer())

    def _describe(self, peer: Peer, message: Message, dataset: str) -> None:
        """Return the names of the tables, or the fields of those that the request names."""
        sdbs = read_sdbs(message.fields)

        def answer() -> Job:
            if sdbs:
                fields = yield from self._fields(peer, dataset, sdbs)
            else:
                fields = {"msg": (yield from self._tables_of(peer, dataset, ALL))}
            self._broker.after(None, peer, answered(message, fields=fields))

        self._run_after_writes(peer, message, answer())

    def _tables_of(self, peer: Peer, dataset: str, sdbs: str) -> Slices[list[str]]:
        known = yield from self._access.tables(peer, dataset, sdbs)
        if len(known) > SISDB_NAMES_PER_ANSWER_MAX:
            raise InputError(f"more than {SISDB_NAMES_PER_ANSWER_MAX} tables")
        return known

    def _fields(self, peer: Peer, dataset: str, sdbs: str) -> Slices[dict[str, Any]]:
        found: dict[str, Any] = {}
        for sdb in (yield from self._tables_of(peer, dataset, sdbs)):
            layout = self._records.layout(dataset, sdb) or ()
            found[f"{sdb}.fields"] = [[field.name, field.type, field.bytes, field.count] for field in layout]
            yield None
        return found

    def _run_after_writes(self, peer: Peer, message: Message, answer: Job) -> None:
        """Start the job once the last write is done, so that it reads only what is on disk."""
        if self._last_write.is_done:
            self._broker.jobs.start(peer, message, answer)
        else:
            self._last_write.add_done_callback(lambda _: self._broker.jobs.start(peer, message, answer))

    # Subscriptions

    def _subscribe(self, peer: Peer, message: Message, dataset: str) -> None:
        selection = read_selection(message.fields, "sub")
        self._access.authorize(peer, Action.READ, dataset, selection.names)
        if selection.format is Format.BYTES:
            self._check_packed(peer, dataset, selection)
        self.subscriptions.add(SeriesSubscription(peer, message.correlation, dataset, selection))
        self._broker.after(None, peer, answered(message))

    def _check_packed(self, peer: Peer, dataset: str, selection: Selection) -> None:
        """Check that the selection is one table with a layout, and send the layout to the peer."""
        if not selection.names.is_single or selection.fields:
            raise InputError("format bytes takes one key and one sdb, with all fields")
        table = self._table(dataset, selection.names.sdbs)
        if not isinstance(table, PackedTable):
            raise InputError(f"table '{selection.names.sdbs}' has no layout to pack records by")
        _send_layout(peer, selection.names.sdbs, table)

    def _unsubscribe(self, peer: Peer, message: Message, dataset: str) -> None:
        self.subscriptions.remove(peer, dataset, read_selection(message.fields, "unsub"))
        self._broker.after(None, peer, answered(message))

    def _push_when_durable(self, series: Series, table: PackedTable | LooseTable, records: list[SeriesRecord]) -> None:
        if not self.subscriptions.matching(series) and not self._broker.live.has_subscribers(_live_name(series)):
            return
        pushes = self._pushes.get(self._last_write)
        if pushes is None:
            pushes = self._pushes[self._last_write] = []
            self._last_write.add_done_callback(self._on_write_done)
        pushes.append(PendingPush(series, table, records))

    def _on_write_done(self, commit: Commit) -> None:
        pushes = self._pushes.pop(commit)
        if commit.error is None:
            for push in pushes:
                self._push(push)
            self._flush()

    def _push(self, push: PendingPush) -> None:
        packed = [record.data for record in push.records]
        rows = push.table.rows(packed)
        names = push.table.names
        matching = self.subscriptions.matching(push.series)

        def select(selection: Selection) -> list[Any]:
            return packed if selection.format is Format.BYTES else selection.apply(names, rows)

        self.subscriptions.push(push.series, matching, select)
        name = _live_name(push.series)
        if self._broker.live.has_subscribers(name):
            notification = Message(kind=Kind.NOTIFICATION, target=Topic(name), payload=write_json(rows))
            self._broker.live.publish_for(
                name, notification, lambda peer: self.subscriptions.may_read(peer, push.series)
            )


def _send_layout(peer: Peer, sdb: str, table: PackedTable) -> None:
    """Send the layout to a peer that takes packed records, before the first of them. Its session sends it only once."""
    if registry.streams_answers(peer.protocol):
        fields = [list(astuple(field)) for field in table.layout]
        peer.send(Message(kind=Kind.CONTROL, name=LAYOUT, fields={sdb: {"fields": fields}}))


def _series_response(
    message: Message, selection: Selection, table: PackedTable | LooseTable, stored: list[bytes]
) -> Message:
    """Return the response with the records of one series, in the format of the selection."""
    if selection.format is not Format.BYTES:
        return _rows_response(message, selection.apply(table.names, table.rows(stored)))
    if selection.fields:
        raise InputError("format bytes takes all fields")
    if not isinstance(table, PackedTable):
        raise InputError(f"table '{selection.names.sdbs}' has no layout to pack records by")
    return answered(message, payload=b"".join(stored))


def _rows_response(message: Message, rows: list[Any]) -> Message:
    """Return the response with these rows; a header marks an empty list as rows."""
    return answered(message, fields={"msg": rows}, headers={} if rows else {ROWS: True})


def _respond_or_fail(peer: Peer, message: Message, respond: Callable[[], None]) -> None:
    """Send the failure if `respond` raises, as the broker does for requests that it handles at once."""
    try:
        respond()
    except REQUEST_ERRORS as error:
        peer.send(failed_with(error, message.correlation))


def _live_name(series: Series) -> str:
    dataset, key, sdb = series
    return f"{key}.{sdb}" if dataset == DEFAULT else f"{dataset}:{key}.{sdb}"


def _records(
    sdb: str, table: PackedTable | LooseTable, values: list[Any] | None, payload: bytes
) -> Slices[list[SeriesRecord]]:
    if values is not None:
        found: list[SeriesRecord] = []
        for start in range(0, len(values), SISDB_RECORDS_AT_ONCE):
            found += table.records(values[start : start + SISDB_RECORDS_AT_ONCE])
            yield None
        return found
    if isinstance(table, PackedTable):
        if len(payload) // table.record_bytes > SISDB_RECORDS_PER_SET_MAX:
            raise _too_many_records()
        return table.unpack(payload)
    raise InputError(f"table '{sdb}' has no layout: create it, or describe it in a dict")


def _too_many_records() -> InputError:
    return InputError(f"more than {SISDB_RECORDS_PER_SET_MAX} records at once")


def _rows(selection: Selection, table: PackedTable | LooseTable, stored: list[bytes]) -> Slices[list[Any]]:
    """Return the records in the format of the selection."""
    rows: list[Any] = []
    for start in range(0, len(stored), SISDB_RECORDS_AT_ONCE):
        rows += selection.apply(table.names, table.rows(stored[start : start + SISDB_RECORDS_AT_ONCE]))
        yield None
    return rows


def _payload_if_packed(message: Message, tables: Iterable[PackedTable | LooseTable]) -> bytes:
    """Return the packed records of the message if all these tables have the same layout, otherwise b""."""
    packed = message.headers.get(PACKED)
    if not isinstance(packed, bytes):
        return b""
    layout = read_layout("", message.fields.get("fields")).layout
    return packed if all(isinstance(table, PackedTable) and table.layout == layout for table in tables) else b""


def _values(fields: dict[str, Any], payload: bytes) -> list[Any] | None:
    """Return the records of a set request, or None if they are packed in the payload."""
    data = fields.get("data")
    if data is None and payload:
        return None
    if data is None or data == []:
        raise InputError("set needs data")
    return data if isinstance(data, list) and isinstance(data[0], list | dict) else [data]
