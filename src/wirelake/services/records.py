"""Data sets: each is a service that keeps records in tables (sdb) by key, ordered by time. `sisdb` is the default one.

What is written is answered once it is on disk, and pushed to those who follow it then. A question behind a write waits
for that write. A series `key.sdb` is also a live name (of a data set other than sisdb: `dataset:key.sdb`): whoever
subscribes to it, in any protocol, is told of new records as JSON.
"""

from collections.abc import Callable, Iterable
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import astuple, replace

from wirelake.broker.broker import Broker, answered
from wirelake.broker.peer import Peer
from wirelake.broker.services import failed, not_found
from wirelake.commit import Commit
from wirelake.errors import EncodeError, InputError, StateError, StorageError, TranslationError
from wirelake.limits import (
    SISDB_RECORDS_PER_GET_MAX,
    SISDB_RECORDS_PER_SET_MAX,
    SISDB_SERIES_PER_REQUEST_MAX,
    STATE_READ_BYTES_MAX,
    STATE_READ_ROWS_MAX,
)
from wirelake.message import Fault, Kind, Message, Operation, Topic
from wirelake.protocols.jsontext import write_json
from wirelake.protocols.sisnet.translation import DICT
from wirelake.services.followers import Follower, Followers, Series
from wirelake.services.packets import Packets, Sending
from wirelake.services.selection import Format, Selection, read_names, read_sdbs, read_selection
from wirelake.services.tables import LooseTable, PackedTable, read_layout, table_of
from wirelake.state.records import ALL, Record, Records, before

DEFAULT: Final = "sisdb"


class Pushed(Struct, frozen=True):
    """New records, on their way to the disk."""

    series: Series
    table: PackedTable | LooseTable
    records: list[Record]


class RecordService:
    def __init__(self, broker: Broker, records: Records, sending: Sending, flush: Callable[[], object]) -> None:
        self._broker = broker
        self._records = records
        self._sending = sending
        self._flush = flush  # what is published here goes out at the end of the turn
        self.followers = Followers(broker)
        broker.watchers += [self.followers, sending]
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
            peer.say(failed(message.correlation, not_found(target), Fault.NOT_FOUND))
            return
        operation(peer, message, target.service)

    # Writing

    def _create(self, peer: Peer, message: Message, dataset: str) -> None:
        sdbs = read_sdbs(message.fields)
        if not sdbs or sdbs == ALL:
            raise InputError("create needs an sdb")
        layouts = {sdb: read_layout(sdb, message.fields.get("fields")).layout for sdb in sdbs.split(",")}
        for sdb, layout in layouts.items():
            if self._records.layout(dataset, sdb) not in (None, layout) and self._records.find(dataset, ALL, sdb):
                raise InputError(f"table '{sdb}' has records of another layout")
        for sdb, layout in layouts.items():
            self._written = self._records.create(dataset, sdb, layout)
        self._broker.after(self._written, peer, answered(message))

    def _set(self, peer: Peer, message: Message, dataset: str) -> None:
        fields, payload = message.fields, message.payload
        names = read_names(fields, "set")
        if ALL in (names.keys, names.sdbs):
            raise InputError("set takes names, not *")
        values = _values(fields, payload)
        series = names.each()
        tables = {sdb: self._table_for(dataset, sdb, fields.get("fields"), values) for _, sdb in series}
        records = {sdb: _records(sdb, table, values, payload) for sdb, table in tables.items()}
        if sum(len(records[sdb]) for _, sdb in series) > SISDB_RECORDS_PER_SET_MAX:
            raise InputError(f"more than {SISDB_RECORDS_PER_SET_MAX} records at once")
        layouts = {sdb: table.layout for sdb, table in tables.items()}
        self._written = self._records.set_all(dataset, layouts, {each: records[each[1]] for each in series})
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
        dropped, self._written = self._records.delete(dataset, names.keys, names.sdbs)
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
        self._behind_writes(peer, message, lambda: self._answer(peer, message, dataset, selection))

    def _answer(self, peer: Peer, message: Message, dataset: str, selection: Selection) -> None:
        table = self._table(dataset, selection.names.sdbs) if selection.names.single else None
        if isinstance(table, PackedTable) and selection.format is Format.BYTES:
            _teach(peer, selection.names.sdbs, table)
        if not isinstance(table, PackedTable) or selection.count is not None or selection.describe:
            self._broker.after(None, peer, self._read(message, dataset, selection))
            return
        names, since, until = selection.names, selection.since, selection.until
        a_packet = max(1, min(STATE_READ_ROWS_MAX, STATE_READ_BYTES_MAX // table.record_bytes))
        one_more = a_packet + 1
        kept = self._records.read(dataset, names.keys, names.sdbs, since=since, until=until, count=one_more)
        if len(kept) <= a_packet:
            self._broker.after(None, peer, _told(message, selection, table, kept))
            return
        most = SISDB_RECORDS_PER_GET_MAX + 1
        count = self._records.count(dataset, names.keys, names.sdbs, since=since, until=until, most=most)
        if count == most:
            raise InputError(f"more than {SISDB_RECORDS_PER_GET_MAX} records: name a narrower min and max, or a count")
        place = before(since)

        def send(following: int) -> None:
            nonlocal place
            rows, place = self._records.page(dataset, names.keys, names.sdbs, after=place, until=until, count=a_packet)
            peer.say(replace(_told(message, selection, table, rows), more=following))

        packets = -(-count // a_packet)
        self._sending.start(
            Packets(peer, packets, lambda following: _or_refuse(peer, message, lambda: send(following)))
        )

    def _read(self, message: Message, dataset: str, selection: Selection) -> Message:
        names = selection.names
        found = self._records.find(dataset, names.keys, names.sdbs)
        if len(found) > SISDB_SERIES_PER_REQUEST_MAX:
            raise InputError(f"{len(found)} series: at most {SISDB_SERIES_PER_REQUEST_MAX} in one answer")
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
            answer[f"{key}.{sdb}"] = selection.chosen(table.names, table.rows(kept))
        if selection.describe:
            return answered(message, fields=answer | self._fields(dataset, names.sdbs))
        if names.single:
            return answered(message, fields={"msg": next(iter(answer.values()), [])})
        return answered(message, fields=answer or {"msg": []})

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

        def answer() -> None:
            keys = sorted({key for key, _ in self._records.find(dataset, ALL, sdbs)})
            self._broker.after(None, peer, answered(message, fields={"msg": keys}))

        self._behind_writes(peer, message, answer)

    def _describe(self, peer: Peer, message: Message, dataset: str) -> None:
        """The tables' names; where some are named, their fields."""
        sdbs = read_sdbs(message.fields)

        def answer() -> None:
            fields = self._fields(dataset, sdbs) if sdbs else {"msg": self._records.tables(dataset)}
            self._broker.after(None, peer, answered(message, fields=fields))

        self._behind_writes(peer, message, answer)

    def _fields(self, dataset: str, sdbs: str) -> dict[str, Any]:
        known = self._records.tables(dataset)
        wanted = known if sdbs == ALL else [sdb for sdb in dict.fromkeys(sdbs.split(",")) if sdb in known]
        layouts = {sdb: self._records.layout(dataset, sdb) or () for sdb in wanted}
        return {
            f"{sdb}.fields": [[field.name, field.type, field.bytes, field.count] for field in layout]
            for sdb, layout in layouts.items()
        }

    def _behind_writes(self, peer: Peer, message: Message, answer: Callable[[], None]) -> None:
        """Now, or when the last write is decided: what is read is what is on disk."""
        if self._written.done:
            answer()
        else:
            self._written.add_done_callback(lambda _: _or_refuse(peer, message, answer))

    # Following

    def _follow(self, peer: Peer, message: Message, dataset: str) -> None:
        selection = read_selection(message.fields, "sub")
        if selection.format is Format.BYTES:
            raise InputError(f"sub takes the formats {Format.ARRAY} and {Format.JSON}")
        self.followers.add(Follower(peer, message.correlation, dataset, selection))
        self._broker.after(None, peer, answered(message))

    def _unfollow(self, peer: Peer, message: Message, dataset: str) -> None:
        self.followers.remove(peer, dataset, read_selection(message.fields, "unsub"))
        self._broker.after(None, peer, answered(message))

    def _push_later(self, series: Series, table: PackedTable | LooseTable, records: list[Record]) -> None:
        if not self.followers.of(series) and not self._broker.live.heard(_live_name(series)):
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
        rows = pushed.table.rows([record.data for record in pushed.records])
        names = pushed.table.names
        followers = self.followers.of(pushed.series)
        self.followers.push(pushed.series, followers, lambda selection: selection.chosen(names, rows))
        name = _live_name(pushed.series)
        if self._broker.live.heard(name):
            notification = Message(kind=Kind.NOTIFICATION, target=Topic(name), payload=write_json(rows))
            self._broker.live.publish(name, notification)


def _teach(peer: Peer, sdb: str, table: PackedTable) -> None:
    """sisnet's own way to say how records are packed, before the first of them. Its session tells it once."""
    if peer.protocol == "sisnet":
        fields = [list(astuple(field)) for field in table.layout]
        peer.say(Message(kind=Kind.CONTROL, name=DICT, fields={sdb: {"fields": fields}}))


def _told(message: Message, selection: Selection, table: PackedTable | LooseTable, kept: list[bytes]) -> Message:
    """Records of one series, in the form that was asked for."""
    if selection.format is not Format.BYTES:
        return answered(message, fields={"msg": selection.chosen(table.names, table.rows(kept))})
    if selection.fields:
        raise InputError("format bytes takes all fields")
    if not isinstance(table, PackedTable):
        raise InputError(f"table '{selection.names.sdbs}' has no layout to pack records by")
    return answered(message, payload=b"".join(kept))


def _or_refuse(peer: Peer, message: Message, answer: Callable[[], None]) -> None:
    """As the broker does for what is answered at once."""
    try:
        answer()
    except (InputError, EncodeError, TranslationError, StateError) as error:
        peer.say(failed(message.correlation, str(error), Fault.BAD_REQUEST))
    except StorageError as error:
        peer.say(failed(message.correlation, str(error), Fault.STORAGE))


def _live_name(series: Series) -> str:
    dataset, key, sdb = series
    return f"{key}.{sdb}" if dataset == DEFAULT else f"{dataset}:{key}.{sdb}"


def _records(sdb: str, table: PackedTable | LooseTable, values: list[Any] | None, payload: bytes) -> list[Record]:
    if values is not None:
        return table.records(values)
    if isinstance(table, PackedTable):
        return table.packed(payload)
    raise InputError(f"table '{sdb}' has no layout: create it, or tell of it in a dict")


def _values(fields: dict[str, Any], payload: bytes) -> list[Any] | None:
    """The records that a set brings, one by one; None where they are packed."""
    data = fields.get("data")
    if data is None and payload:
        return None
    if data is None or data == []:
        raise InputError("set needs data")
    return data if isinstance(data, list) and isinstance(data[0], list | dict) else [data]
