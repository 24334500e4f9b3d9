"""Data sets: each is a service that keeps records in tables (sdb) by key, ordered by time. `sisdb` is the default one.

What is written is answered once it is on disk, and pushed to those who follow it then. A question behind a write waits
for that write. A series `key.sdb` is also a live name (of a data set other than sisdb: `dataset:key.sdb`): whoever
subscribes to it, in any protocol, is told of new records as JSON.
"""

from collections.abc import Callable, Generator, Iterable
from typing import Any, Final, TypeVar

from msgspec import Struct
from msgspec.structs import astuple, replace

from wirelake.broker.broker import Broker, answered
from wirelake.broker.jobs import Job
from wirelake.broker.peer import Peer
from wirelake.broker.services import failed, not_found
from wirelake.commit import Commit
from wirelake.errors import EncodeError, InputError, StateError, StorageError, TranslationError
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
from wirelake.protocols.jsontext import write_json
from wirelake.services.followers import Follower, Followers, Series
from wirelake.services.packets import PacketQueue, Sending
from wirelake.services.selection import Format, Names, Selection, read_names, read_sdbs, read_selection
from wirelake.services.tables import LooseTable, PackedTable, read_layout, table_of
from wirelake.state.records import ALL, SeriesRecord, SeriesStore, position_before

DEFAULT: Final = "sisdb"

T = TypeVar("T")
Slices = Generator[None, None, T]  # yields when others may have their turn


class Pushed(Struct, frozen=True):
    """New records, on their way to the disk."""

    series: Series
    table: PackedTable | LooseTable
    records: list[SeriesRecord]


class RecordService:
    def __init__(self, broker: Broker, records: SeriesStore, sending: Sending, flush: Callable[[], object]) -> None:
        self._broker = broker  # its jobs do what takes long
        self._records = records
        self._sending = sending
        self._flush = flush  # what is published here goes out at the end of the turn
        self.followers = Followers(broker)
        broker.observers += [self.followers, sending]
        self._served: set[str] = set()
        self._tables: dict[tuple[str, str], PackedTable | LooseTable] = {}
        self._written = Commit.resolved()  # the last write: when it is decided, so are those before it
        self._pushes: dict[Commit, list[Pushed]] = {}
        self._operations: dict[str, Callable[[Peer, Message, str], None]] = {
            "create": self._create,
            "del": self._delete,
            "get": self._get,
            "keys": self._keys,
            "set": self._set,
            "sub": self._follow,
            "tables": self._describe,
            "unsub": self._unfollow,
        }

    def serve(self, datasets: Iterable[str]) -> None:
        """Under these names, from now on."""
        builtin = self._broker.builtin
        for name in self._served:
            del builtin[name]
        self._served = set(datasets) - builtin.keys()
        builtin.update(dict.fromkeys(self._served, self))

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
        layouts = {sdb: read_layout(sdb, message.fields.get("fields")).layout for sdb in sdbs.split(",")}
        for sdb, layout in layouts.items():
            if self._records.layout(dataset, sdb) not in (None, layout) and self._records.has_series(dataset, sdb):
                raise InputError(f"table '{sdb}' has records of another layout")
        for sdb, layout in layouts.items():
            self._written = self._records.create(dataset, sdb, layout)
        self._broker.after(self._written, peer, answered(message))

    def _set(self, peer: Peer, message: Message, dataset: str) -> None:
        self._broker.jobs.start(peer, message, self._set_slices(peer, message, dataset))

    def _set_slices(self, peer: Peer, message: Message, dataset: str) -> Job:
        fields, payload = message.fields, message.payload
        names = read_names(fields, "set")
        if ALL in (names.keys, names.sdbs):
            raise InputError("set takes names, not *")
        values = _values(fields, payload)
        series = names.each()
        tables = {sdb: self._table_for(dataset, sdb, fields.get("fields"), values) for _, sdb in series}
        if len(values or ()) * len(series) > SISDB_RECORDS_PER_SET_MAX:
            raise _too_many_records()
        packed = _packed_alike(message, tables.values())
        if packed:
            values, payload = None, packed
        records = {}
        for sdb, table in tables.items():
            records[sdb] = yield from _records(sdb, table, values, payload)
        if sum(len(records[sdb]) for _, sdb in series) > SISDB_RECORDS_PER_SET_MAX:
            raise _too_many_records()
        layouts = {sdb: table.layout for sdb, table in tables.items()}
        self._written = self._records.set_many(dataset, layouts, {each: records[each[1]] for each in series})
        for key, sdb in series:
            self._push_later((dataset, key, sdb), tables[sdb], records[sdb])
        self._broker.after(self._written, peer, answered(message))

    def _table_for(self, dataset: str, sdb: str, fields: Any, values: list[Any] | None) -> PackedTable | LooseTable:
        """The table to write to: as it is, as the request describes it, or with the fields that the records bring."""
        table = self._table(dataset, sdb)
        if isinstance(table, PackedTable):
            return table
        if not table.names and fields:
            return read_layout(sdb, fields)
        return table.grown(values or [])

    def _delete(self, peer: Peer, message: Message, dataset: str) -> None:
        names = read_names(message.fields, "del")
        self._broker.jobs.start(peer, message, self._delete_slices(peer, message, dataset, names))

    def _delete_slices(self, peer: Peer, message: Message, dataset: str, names: Names) -> Job:
        found = yield from self._records.find_in_steps(dataset, names.keys, names.sdbs, STATE_SERIES_MAX)
        dropped = 0
        for place in range(0, len(found), SISDB_RECORDS_AT_ONCE):
            count, self._written = self._records.delete_series(dataset, found[place : place + SISDB_RECORDS_AT_ONCE])
            dropped += count
            yield None
        self._broker.after(self._written, peer, answered(message, fields={"msg": dropped}))

    def _table(self, dataset: str, sdb: str) -> PackedTable | LooseTable:
        """Ready to read and write; made anew when the layout is another one."""
        layout = self._records.layout(dataset, sdb)
        table = self._tables.get((dataset, sdb))
        if table is None or table.layout != (layout or ()):
            table = table_of(sdb, layout)
            if layout is not None:  # others are any names that somebody thought of
                self._tables[dataset, sdb] = table
        return table

    # Reading

    def _get(self, peer: Peer, message: Message, dataset: str) -> None:
        selection = read_selection(message.fields, "get")
        self._behind_writes(peer, message, self._answer(peer, message, dataset, selection))

    def _answer(self, peer: Peer, message: Message, dataset: str, selection: Selection) -> Job:
        table = self._table(dataset, selection.names.sdbs) if selection.names.single else None
        if isinstance(table, PackedTable) and selection.format is Format.BYTES:
            _teach(peer, selection.names.sdbs, table)
        if not isinstance(table, PackedTable) or selection.count is not None or selection.describe:
            self._broker.after(None, peer, (yield from self._read(message, dataset, selection)))
            return
        names, since, until = selection.names, selection.since, selection.until
        in_bytes = STATE_READ_BYTES_MAX // table.record_bytes
        in_values = STATE_READ_ROWS_MAX if selection.format is Format.BYTES else SISDB_PACKET_VALUES_MAX // table.values
        a_packet = max(1, min(STATE_READ_ROWS_MAX, in_bytes, in_values))
        one_more = a_packet + 1
        kept = self._records.read(dataset, names.keys, names.sdbs, since=since, until=until, count=one_more)
        if len(kept) <= a_packet:
            self._broker.after(None, peer, _told(message, selection, table, kept))
            return
        most = SISDB_RECORDS_PER_GET_MAX + 1
        count = self._records.count(dataset, names.keys, names.sdbs, since=since, until=until, most=most)
        if count == most:
            raise InputError(f"more than {SISDB_RECORDS_PER_GET_MAX} records: name a narrower min and max, or a count")
        place = position_before(since)

        def send(following: int) -> None:
            nonlocal place
            rows, place = self._records.page(dataset, names.keys, names.sdbs, after=place, until=until, count=a_packet)
            peer.send(replace(_told(message, selection, table, rows), more=following))

        packets = -(-count // a_packet)
        self._sending.start(
            PacketQueue(peer, packets, lambda following: _or_refuse(peer, message, lambda: send(following)))
        )

    def _read(self, message: Message, dataset: str, selection: Selection) -> Slices[Message]:
        names = selection.names
        most = SISDB_SERIES_PER_REQUEST_MAX
        found = yield from self._records.find_in_steps(dataset, names.keys, names.sdbs, most)
        if len(found) > SISDB_SERIES_PER_REQUEST_MAX:
            raise InputError(f"{len(found)} series or more: at most {most} in one answer")
        if selection.format is Format.BYTES:
            return self._packed(message, dataset, selection)
        answer: dict[str, Any] = {}
        room = STATE_READ_ROWS_MAX
        size = 0
        for key, sdb in found:
            table = self._table(dataset, sdb)
            kept = self._kept(dataset, key, sdb, selection, room, STATE_READ_BYTES_MAX - size)
            room -= len(kept)
            size += sum(map(len, kept))
            answer[f"{key}.{sdb}"] = yield from _rows(selection, table, kept)
        if selection.describe:
            return answered(message, fields=answer | (yield from self._fields(dataset, names.sdbs)))
        if names.single:
            return _rows_told(message, next(iter(answer.values()), []))
        return answered(message, fields=answer) if answer else _rows_told(message, [])

    def _packed(self, message: Message, dataset: str, selection: Selection) -> Message:
        """One series as bytes."""
        names = selection.names
        table = self._table(dataset, names.sdbs)
        if not names.single:
            raise InputError("format bytes takes one key and one sdb")
        kept = self._kept(dataset, names.keys, names.sdbs, selection, STATE_READ_ROWS_MAX, STATE_READ_BYTES_MAX)
        return _told(message, selection, table, kept)

    def _kept(
        self, dataset: str, key: str, sdb: str, selection: Selection, rows_max: int, bytes_max: int
    ) -> list[bytes]:
        """The records as they are kept. More than fit one answer is refused, never left out in silence."""
        count = selection.count
        wanted = rows_max + 1 if count is None else min(count, rows_max + 1)
        kept = self._records.read(
            dataset,
            key,
            sdb,
            since=selection.since,
            until=selection.until,
            count=wanted,
            newest=selection.newest and count is not None,
            bytes_max=bytes_max,
        )
        alone = wanted == 1 and bytes_max == STATE_READ_BYTES_MAX  # one record is given, however long it is
        if len(kept) > rows_max or (sum(map(len, kept)) > bytes_max and not alone):
            limits = f"{STATE_READ_ROWS_MAX} records and {STATE_READ_BYTES_MAX} bytes"
            raise InputError(f"more than fits one answer ({limits}): name a narrower min and max, or a count")
        return kept

    def _keys(self, peer: Peer, message: Message, dataset: str) -> None:
        sdbs = read_sdbs(message.fields) or ALL

        def answer() -> Job:
            keys = yield from self._records.keys_in_steps(dataset, sdbs, SISDB_NAMES_PER_ANSWER_MAX)
            if len(keys) > SISDB_NAMES_PER_ANSWER_MAX:
                raise InputError(f"more than {SISDB_NAMES_PER_ANSWER_MAX} keys: name a table")
            self._broker.after(None, peer, answered(message, fields={"msg": keys}))

        self._behind_writes(peer, message, answer())

    def _describe(self, peer: Peer, message: Message, dataset: str) -> None:
        """The tables' names; where some are named, their fields."""
        sdbs = read_sdbs(message.fields)

        def answer() -> Job:
            if sdbs:
                fields = yield from self._fields(dataset, sdbs)
            else:
                fields = {"msg": (yield from self._tables_of(dataset))}
            self._broker.after(None, peer, answered(message, fields=fields))

        self._behind_writes(peer, message, answer())

    def _tables_of(self, dataset: str) -> Slices[list[str]]:
        known = yield from self._records.tables_in_steps(dataset)
        if len(known) > SISDB_NAMES_PER_ANSWER_MAX:
            raise InputError(f"more than {SISDB_NAMES_PER_ANSWER_MAX} tables")
        return known

    def _fields(self, dataset: str, sdbs: str) -> Slices[dict[str, Any]]:
        if sdbs == ALL:
            wanted = yield from self._tables_of(dataset)
        else:
            wanted = [sdb for sdb in dict.fromkeys(sdbs.split(",")) if self._records.has_table(dataset, sdb)]
        found: dict[str, Any] = {}
        for sdb in wanted:
            layout = self._records.layout(dataset, sdb) or ()
            found[f"{sdb}.fields"] = [[field.name, field.type, field.bytes, field.count] for field in layout]
            yield None
        return found

    def _behind_writes(self, peer: Peer, message: Message, answer: Job) -> None:
        """Now, or when the last write is decided: what is read is what is on disk."""
        if self._written.is_done:
            self._broker.jobs.start(peer, message, answer)
        else:
            self._written.add_done_callback(lambda _: self._broker.jobs.start(peer, message, answer))

    # Following

    def _follow(self, peer: Peer, message: Message, dataset: str) -> None:
        selection = read_selection(message.fields, "sub")
        if selection.format is Format.BYTES:
            self._check_packed(peer, dataset, selection)
        self.followers.add(Follower(peer, message.correlation, dataset, selection))
        self._broker.after(None, peer, answered(message))

    def _check_packed(self, peer: Peer, dataset: str, selection: Selection) -> None:
        """One table, whose layout the peer then knows."""
        if not selection.names.single or selection.fields:
            raise InputError("format bytes takes one key and one sdb, with all fields")
        table = self._table(dataset, selection.names.sdbs)
        if not isinstance(table, PackedTable):
            raise InputError(f"table '{selection.names.sdbs}' has no layout to pack records by")
        _teach(peer, selection.names.sdbs, table)

    def _unfollow(self, peer: Peer, message: Message, dataset: str) -> None:
        self.followers.remove(peer, dataset, read_selection(message.fields, "unsub"))
        self._broker.after(None, peer, answered(message))

    def _push_later(self, series: Series, table: PackedTable | LooseTable, records: list[SeriesRecord]) -> None:
        if not self.followers.of(series) and not self._broker.live.has_subscribers(_live_name(series)):
            return
        pushes = self._pushes.get(self._written)
        if pushes is None:
            pushes = self._pushes[self._written] = []
            self._written.add_done_callback(self._decided)
        pushes.append(Pushed(series, table, records))

    def _decided(self, commit: Commit) -> None:
        pushes = self._pushes.pop(commit)
        if commit.error is None:
            for pushed in pushes:
                self._push(pushed)
            self._flush()

    def _push(self, pushed: Pushed) -> None:
        packed = [record.data for record in pushed.records]
        rows = pushed.table.rows(packed)
        names = pushed.table.names
        followers = self.followers.of(pushed.series)

        def chosen(selection: Selection) -> list[Any]:
            return packed if selection.format is Format.BYTES else selection.chosen(names, rows)

        self.followers.push(pushed.series, followers, chosen)
        name = _live_name(pushed.series)
        if self._broker.live.has_subscribers(name):
            notification = Message(kind=Kind.NOTIFICATION, target=Topic(name), payload=write_json(rows))
            self._broker.live.publish(name, notification)


def _teach(peer: Peer, sdb: str, table: PackedTable) -> None:
    """Tell a peer that takes packed records how they are packed, before the first of them; its session does it once."""
    if registry.streams_answers(peer.protocol):
        fields = [list(astuple(field)) for field in table.layout]
        peer.send(Message(kind=Kind.CONTROL, name=LAYOUT, fields={sdb: {"fields": fields}}))


def _told(message: Message, selection: Selection, table: PackedTable | LooseTable, kept: list[bytes]) -> Message:
    """Records of one series, in the form that was asked for."""
    if selection.format is not Format.BYTES:
        return _rows_told(message, selection.chosen(table.names, table.rows(kept)))
    if selection.fields:
        raise InputError("format bytes takes all fields")
    if not isinstance(table, PackedTable):
        raise InputError(f"table '{selection.names.sdbs}' has no layout to pack records by")
    return answered(message, payload=b"".join(kept))


def _rows_told(message: Message, rows: list[Any]) -> Message:
    """Also without a row, these are rows."""
    return answered(message, fields={"msg": rows}, headers={} if rows else {ROWS: True})


def _or_refuse(peer: Peer, message: Message, answer: Callable[[], None]) -> None:
    """As the broker does for what is answered at once."""
    try:
        answer()
    except (InputError, EncodeError, TranslationError, StateError) as error:
        peer.send(failed(message.correlation, str(error), FailureCode.BAD_REQUEST))
    except StorageError as error:
        peer.send(failed(message.correlation, str(error), FailureCode.STORAGE))


def _live_name(series: Series) -> str:
    dataset, key, sdb = series
    return f"{key}.{sdb}" if dataset == DEFAULT else f"{dataset}:{key}.{sdb}"


def _records(
    sdb: str, table: PackedTable | LooseTable, values: list[Any] | None, payload: bytes
) -> Slices[list[SeriesRecord]]:
    if values is not None:
        found: list[SeriesRecord] = []
        for place in range(0, len(values), SISDB_RECORDS_AT_ONCE):
            found += table.records(values[place : place + SISDB_RECORDS_AT_ONCE])
            yield None
        return found
    if isinstance(table, PackedTable):
        if len(payload) // table.record_bytes > SISDB_RECORDS_PER_SET_MAX:
            raise _too_many_records()
        return table.packed(payload)
    raise InputError(f"table '{sdb}' has no layout: create it, or tell of it in a dict")


def _too_many_records() -> InputError:
    return InputError(f"more than {SISDB_RECORDS_PER_SET_MAX} records at once")


def _rows(selection: Selection, table: PackedTable | LooseTable, kept: list[bytes]) -> Slices[list[Any]]:
    """Records in the form that was asked for."""
    rows: list[Any] = []
    for place in range(0, len(kept), SISDB_RECORDS_AT_ONCE):
        rows += selection.chosen(table.names, table.rows(kept[place : place + SISDB_RECORDS_AT_ONCE]))
        yield None
    return rows


def _packed_alike(message: Message, tables: Iterable[PackedTable | LooseTable]) -> bytes:
    """The records as they came, where all these tables pack theirs in the same way."""
    packed = message.headers.get(PACKED)
    if not isinstance(packed, bytes):
        return b""
    came_as = read_layout("", message.fields.get("fields")).layout
    return packed if all(isinstance(table, PackedTable) and table.layout == came_as for table in tables) else b""


def _values(fields: dict[str, Any], payload: bytes) -> list[Any] | None:
    """The records that a set brings, one by one; None where they are packed."""
    data = fields.get("data")
    if data is None and payload:
        return None
    if data is None or data == []:
        raise InputError("set needs data")
    return data if isinstance(data, list) and isinstance(data[0], list | dict) else [data]
