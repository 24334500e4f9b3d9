"""A table's records: from what a client sends to what is kept, and back to rows.

A table that was created, or that a dict told of, keeps its records packed by its layout. One that was simply written to
keeps them as JSON: its fields are those that were seen so far, of type `J`, and a record that came before one of them
has null there.
"""

from collections.abc import Iterable, Sequence
from itertools import repeat
from typing import Any, Final

from wirelake.errors import InputError, ProtocolError
from wirelake.limits import RECORDS_FIELDS_MAX
from wirelake.protocols.jsontext import read_json, write_json
from wirelake.protocols.packed_records import RecordTable, read_tables
from wirelake.state.records import Layout, LayoutField, SeriesRecord

TIME: Final = "time"  # the field that orders the records; where there is none, they stay in the order they came in
LOOSE: Final = "J"  # the type of a field that holds any JSON value

Row = Sequence[Any]


class PackedTable:
    def __init__(self, table: RecordTable) -> None:
        self._table = table
        self.layout: Layout = tuple(LayoutField(each.name, each.type, each.bytes, each.count) for each in table.columns)
        self.names = tuple(each.name for each in table.columns)
        self._known = frozenset(self.names)

    @property
    def record_bytes(self) -> int:
        return self._table.record_bytes

    @property
    def values(self) -> int:
        """In one record."""
        return sum(field.count for field in self.layout)

    def records(self, values: Sequence[Any]) -> list[SeriesRecord]:
        objects = [self._named(value) for value in values]
        data, size = self._table.pack(objects), self._table.record_bytes
        times = [_time(each[TIME]) for each in objects] if TIME in self._known else repeat(0)
        pieces = (data[place : place + size] for place in range(0, len(data), size))
        return [SeriesRecord(time, piece) for time, piece in zip(times, pieces, strict=False)]

    def packed(self, data: bytes) -> list[SeriesRecord]:
        """Records that are packed already."""
        size = self._table.record_bytes
        if len(data) % size:
            raise InputError(f"{len(data)} bytes are no whole records of {size} bytes")
        times: Iterable[int] = repeat(0)
        if TIME in self._known:
            place = self.names.index(TIME)
            times = [_time(row[place]) for row in self._table.rows(data)]
        pieces = (data[place : place + size] for place in range(0, len(data), size))
        return [SeriesRecord(time, piece) for time, piece in zip(times, pieces, strict=False)]

    def rows(self, kept: Sequence[bytes]) -> list[Any]:
        return self._table.rows(b"".join(kept))

    def _named(self, value: Any) -> dict[str, Any]:
        if isinstance(value, dict):
            unknown = value.keys() - self._known
            if unknown:
                raise InputError(f"table '{self._table.name}' has no field '{min(unknown)[:64]}'")
            return value
        if not isinstance(value, list | tuple) or len(value) != len(self.names):
            raise InputError(f"a record of '{self._table.name}' is an object, or a row of {len(self.names)} values")
        return dict(zip(self.names, value, strict=True))


class LooseTable:
    def __init__(self, name: str, names: Iterable[str]) -> None:
        self._name = name
        self.names = tuple(names)
        if len(self.names) > RECORDS_FIELDS_MAX:
            raise InputError(f"table '{name}' has more than {RECORDS_FIELDS_MAX} fields")
        self.layout: Layout = tuple(LayoutField(each, LOOSE, 0, 1) for each in self.names)
        self._time_place = self.names.index(TIME) if TIME in self.names else None

    def grown(self, values: Sequence[Any]) -> "LooseTable":
        """With the fields that these records bring; itself, where they bring none."""
        names = dict.fromkeys(self.names)
        before = len(names)
        for value in values:
            if isinstance(value, dict):
                names.update(dict.fromkeys(value))
        return self if len(names) == before else LooseTable(self._name, names)

    def records(self, values: Sequence[Any]) -> list[SeriesRecord]:
        return [self._record(value) for value in values]

    def rows(self, kept: Sequence[bytes]) -> list[Any]:
        """All that were kept are JSON: one reading for all of them."""
        found: list[list[Any]] = read_json(b"[" + b",".join(kept) + b"]")
        width = len(self.names)
        return [row if len(row) == width else row + [None] * (width - len(row)) for row in found]

    def _record(self, value: Any) -> SeriesRecord:
        if isinstance(value, dict):
            row = [value.get(name) for name in self.names]
        elif isinstance(value, list | tuple) and self.names and len(value) <= len(self.names):
            row = list(value)
        else:
            raise InputError(f"a record of '{self._name}' is an object, or a row of {len(self.names)} values")
        place = self._time_place
        time = row[place] if place is not None and place < len(row) else None
        return SeriesRecord(0 if time is None else _time(time), write_json(row))


def table_of(name: str, layout: Layout | None) -> PackedTable | LooseTable:
    """The table as the state knows it; with no layout, one that has no fields yet."""
    if not layout or layout[0].type == LOOSE:
        return LooseTable(name, [field.name for field in layout or ()])
    return read_layout(name, [[field.name, field.type, field.bytes, field.count] for field in layout])


def read_layout(name: str, fields: Any) -> PackedTable:
    """A layout as clients write it: `[[name, type, bytes, count], …]` or `{name: [type, bytes, count], …}`."""
    if isinstance(fields, dict):
        fields = fields["fields"] if fields.keys() == {"fields"} else _listed(fields)
    try:
        return PackedTable(read_tables({name: {"fields": fields}})[name])
    except ProtocolError as error:
        raise InputError(error.text) from error


def _listed(fields: dict[str, Any]) -> list[list[Any]]:
    return [[name, *(rest if isinstance(rest, list) else [rest])] for name, rest in fields.items()]


def _time(value: Any) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, float) and abs(value) < 2**63:  # false for what is no number
        return int(value // 1)
    raise InputError("a record's time is a number")
