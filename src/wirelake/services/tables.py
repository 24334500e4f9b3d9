"""Convert a table's records from what clients send to what is stored, and back to rows.

A table that was created, or described in a dict, stores its records packed by its layout. A table that was only written
to stores them as JSON: its fields are those of the records so far, of type `J`, and a record from before a field was
added has null there.
"""

from collections.abc import Iterable, Sequence
from itertools import repeat
from typing import Any, Final

from wirelake.errors import InputError, ProtocolError
from wirelake.limits import RECORDS_FIELDS_MAX
from wirelake.protocols.packed_records import RecordTable, read_tables
from wirelake.protocols.text import read_json, write_json
from wirelake.state.records import Layout, LayoutField, SeriesRecord

TIME: Final = "time"  # the field that orders the records; without it, they stay in the order of arrival
LOOSE: Final = "J"  # the type of a field with any JSON value

Row = Sequence[Any]


class PackedTable:
    """Pack and unpack the records of a table that has a layout."""

    def __init__(self, table: RecordTable) -> None:
        self._table = table
        self.layout: Layout = tuple(LayoutField(each.name, each.type, each.bytes, each.count) for each in table.columns)
        self.names = tuple(each.name for each in table.columns)
        self._field_names = frozenset(self.names)

    @property
    def record_bytes(self) -> int:
        return self._table.record_bytes

    @property
    def values(self) -> int:
        """Return the number of values in one record."""
        return sum(field.count for field in self.layout)

    def records(self, values: Sequence[Any]) -> list[SeriesRecord]:
        objects = [self._as_object(value) for value in values]
        data, size = self._table.pack(objects), self._table.record_bytes
        times = [_time(each[TIME]) for each in objects] if TIME in self._field_names else repeat(0)
        chunks = (data[start : start + size] for start in range(0, len(data), size))
        return [SeriesRecord(time, chunk) for time, chunk in zip(times, chunks, strict=False)]

    def unpack(self, data: bytes) -> list[SeriesRecord]:
        """Split packed records."""
        size = self._table.record_bytes
        if len(data) % size:
            raise InputError(f"the size of the data, {len(data)}, is not a multiple of the record size, {size}")
        times: Iterable[int] = repeat(0)
        if TIME in self._field_names:
            index = self.names.index(TIME)
            times = [_time(row[index]) for row in self._table.rows(data)]
        chunks = (data[start : start + size] for start in range(0, len(data), size))
        return [SeriesRecord(time, chunk) for time, chunk in zip(times, chunks, strict=False)]

    def rows(self, stored: Sequence[bytes]) -> list[Any]:
        return self._table.rows(b"".join(stored))

    def _as_object(self, value: Any) -> dict[str, Any]:
        if isinstance(value, dict):
            unknown = value.keys() - self._field_names
            if unknown:
                raise InputError(f"table '{self._table.name}' has no field '{min(unknown)[:64]}'")
            return value
        if not isinstance(value, list | tuple) or len(value) != len(self.names):
            raise InputError(f"a record of '{self._table.name}' is an object, or a row of {len(self.names)} values")
        return dict(zip(self.names, value, strict=True))


class LooseTable:
    """Encode and decode the records of a table without a layout, as JSON."""

    def __init__(self, name: str, names: Iterable[str]) -> None:
        self._name = name
        self.names = tuple(names)
        if len(self.names) > RECORDS_FIELDS_MAX:
            raise InputError(f"table '{name}' has more than {RECORDS_FIELDS_MAX} fields")
        self.layout: Layout = tuple(LayoutField(each, LOOSE, 0, 1) for each in self.names)
        self._time_index = self.names.index(TIME) if TIME in self.names else None

    def with_fields_of(self, values: Sequence[Any]) -> "LooseTable":
        """Return the table extended by the new fields of these records; itself, if there are none."""
        names = dict.fromkeys(self.names)
        before = len(names)
        for value in values:
            if isinstance(value, dict):
                names.update(dict.fromkeys(value))
        return self if len(names) == before else LooseTable(self._name, names)

    def records(self, values: Sequence[Any]) -> list[SeriesRecord]:
        return [self._record(value) for value in values]

    def rows(self, stored: Sequence[bytes]) -> list[Any]:
        """Decode all stored records at once."""
        found: list[list[Any]] = read_json(b"[" + b",".join(stored) + b"]")
        width = len(self.names)
        return [row if len(row) == width else row + [None] * (width - len(row)) for row in found]

    def _record(self, value: Any) -> SeriesRecord:
        if isinstance(value, dict):
            row = [value.get(name) for name in self.names]
        elif isinstance(value, list | tuple) and self.names and len(value) <= len(self.names):
            row = list(value)
        else:
            raise InputError(f"a record of '{self._name}' is an object, or a row of {len(self.names)} values")
        index = self._time_index
        time = row[index] if index is not None and index < len(row) else None
        return SeriesRecord(0 if time is None else _time(time), write_json(row))


def table_of(name: str, layout: Layout | None) -> PackedTable | LooseTable:
    """Return the table with the stored layout; without a layout, one that has no fields yet."""
    if not layout or layout[0].type == LOOSE:
        return LooseTable(name, [field.name for field in layout or ()])
    return read_layout(name, [[field.name, field.type, field.bytes, field.count] for field in layout])


def read_layout(name: str, fields: Any) -> PackedTable:
    """Parse a layout as clients write it: `[[name, type, bytes, count], …]` or `{name: [type, bytes, count], …}`."""
    if isinstance(fields, dict):
        fields = fields["fields"] if fields.keys() == {"fields"} else _as_list(fields)
    try:
        return PackedTable(read_tables({name: {"fields": fields}})[name])
    except ProtocolError as error:
        raise InputError(error.text) from error


def _as_list(fields: dict[str, Any]) -> list[list[Any]]:
    return [[name, *(rest if isinstance(rest, list) else [rest])] for name, rest in fields.items()]


def _time(value: Any) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, float) and abs(value) < 2**63:  # false for NaN
        return int(value // 1)
    raise InputError("a record's time is a number")
