"""Packed records, by the layouts of their tables: {table: {"fields": [[name, type, bytes, count], …]}}.

The fields of a record follow each other without gaps, in little-endian order.
I, U: integers of 1, 2, 4 or 8 bytes.   F: a float of 4 or 8.   C: text of that many bytes, padded with zeros.
A count above one (the default is one) makes the field a list.

A LimitError has the name of the limit as its code, after the prefix of the protocol that the records came in.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from struct import Struct as Layout
from struct import error as struct_error
from typing import Any, Final

from msgspec import Struct

from wirelake.errors import EncodeError, LimitError, ProtocolError
from wirelake.limits import KIB, RECORDS_FIELDS_MAX
from wirelake.protocols.text import text_of

TABLES_MAX: Final = 256  # read at once
TABLE_VALUES_MAX: Final = RECORDS_FIELDS_MAX  # in one record; a field with a count has that many
RECORD_BYTES_MAX: Final = 64 * KIB
LINE_VALUES_MAX: Final = 1024 * 1024  # in the records that are unpacked at once

_LETTERS = {
    ("I", 1): "b",
    ("I", 2): "h",
    ("I", 4): "i",
    ("I", 8): "q",
    ("U", 1): "B",
    ("U", 2): "H",
    ("U", 4): "I",
    ("U", 8): "Q",
    ("F", 4): "f",
    ("F", 8): "d",
}
_TEXT = "C"
_COLUMN_SIZES = (3, 4)  # count may be left out


class Column(Struct, frozen=True):
    """One field of a layout."""

    name: str
    type: str
    bytes: int
    count: int = 1


class RecordTable:
    """Pack and unpack the records of one table."""

    __slots__ = ("_code_prefix", "_layout", "_plain", "columns", "name")

    def __init__(self, name: str, columns: tuple[Column, ...], code_prefix: str = "") -> None:
        self.name = name
        self.columns = columns
        self._code_prefix = code_prefix
        self._layout = Layout("<" + "".join(_letters(column) for column in columns))
        self._plain = all(column.count == 1 and column.type != _TEXT for column in columns)

    @property
    def record_bytes(self) -> int:
        return self._layout.size

    def unpack(self, data: bytes) -> list[dict[str, Any]]:
        """Return every record by the names of its fields. Text that is not UTF-8 is read as GBK."""
        self._check(data)
        names = [column.name for column in self.columns]
        return [dict(zip(names, row, strict=True)) for row in self.rows(data)]

    def rows(self, data: bytes) -> list[Sequence[Any]]:
        """Return the values of every record in the order of the fields."""
        rows: Iterable[Sequence[Any]] = self._layout.iter_unpack(data)
        return list(rows) if self._plain else [list(self._gathered(row)) for row in rows]

    def _check(self, data: bytes) -> None:
        count, over = divmod(len(data), self._layout.size)
        if over:
            text = f"{len(data)} bytes are no whole records of {self._layout.size} bytes, as '{self.name}' has them"
            raise ProtocolError("record_bytes", text, len(data) - over)
        values = count * sum(column.count for column in self.columns)
        if values > LINE_VALUES_MAX:
            text = f"{values} values in one line: at most {LINE_VALUES_MAX}"
            raise LimitError(f"{self._code_prefix}line_values_max", text, 0)

    def pack(self, records: Iterable[Mapping[str, Any]]) -> bytes:
        """Pack records given by the names of their fields. Raise EncodeError if a value does not fit its field."""
        pack, names = self._layout.pack, [column.name for column in self.columns]
        try:
            if self._plain:
                return b"".join([pack(*[record[name] for name in names]) for record in records])
            return b"".join([pack(*self._spread(record)) for record in records])
        except KeyError as error:
            raise EncodeError(f"a record of '{self.name}' has no field {error}") from error
        except (struct_error, OverflowError) as error:
            raise EncodeError(f"a record of '{self.name}': {error}") from error

    def _gathered(self, row: Sequence[Any]) -> Iterable[Any]:
        values = iter(row)
        for column in self.columns:
            found = list(islice(values, column.count))
            if column.type == _TEXT:
                found = [text_of(value.rstrip(b"\0")) for value in found]
            yield found[0] if column.count == 1 else found

    def _spread(self, record: Mapping[str, Any]) -> Iterable[Any]:
        for column in self.columns:
            value = record[column.name]
            values = [value] if column.count == 1 else value
            if not isinstance(values, list | tuple) or len(values) != column.count:
                raise EncodeError(f"{self.name}.{column.name} takes a list of {column.count}")
            yield from (_text(self.name, column, each) for each in values) if column.type == _TEXT else values


def read_tables(dictionary: Any, code_prefix: str = "") -> dict[str, RecordTable]:
    """Return the tables of a dict of layouts. Raise ProtocolError, which says which table is wrong and how."""
    if not isinstance(dictionary, dict):
        raise _bad("a dict is an object of tables")
    if len(dictionary) > TABLES_MAX:
        raise LimitError(f"{code_prefix}tables_max", f"{len(dictionary)} tables: at most {TABLES_MAX}", 0)
    return {name: _table(name, table, code_prefix) for name, table in dictionary.items()}


def write_tables(tables: Iterable[RecordTable]) -> dict[str, Any]:
    """Return the layouts of these tables as a dict."""
    return {
        table.name: {"fields": [[each.name, each.type, each.bytes, each.count] for each in table.columns]}
        for table in tables
    }


def _table(name: str, table: Any, code_prefix: str) -> RecordTable:
    fields = table.get("fields") if isinstance(table, dict) else None
    if not isinstance(fields, list) or not fields:
        raise _bad(f"table '{name}' has no list of fields")
    columns = tuple(_column(name, each) for each in fields)
    values = sum(column.count for column in columns)
    if values > TABLE_VALUES_MAX:
        text = f"a record of '{name}' has {values} values: at most {TABLE_VALUES_MAX}"
        raise LimitError(f"{code_prefix}table_values_max", text, 0)
    if len({column.name for column in columns}) != len(columns):
        raise _bad(f"table '{name}' has two fields of one name")
    size = sum(column.bytes * column.count for column in columns)
    if size > RECORD_BYTES_MAX:
        text = f"a record of '{name}' has {size} bytes: at most {RECORD_BYTES_MAX}"
        raise LimitError(f"{code_prefix}record_bytes_max", text, 0)
    return RecordTable(name, columns, code_prefix)


def _column(table: str, given: Any) -> Column:
    if not isinstance(given, list) or len(given) not in _COLUMN_SIZES:
        raise _bad(f"a field of table '{table}' is not [name, type, bytes, count]")
    name, kind, size, count = given if len(given) == 4 else (*given, 1)
    if not isinstance(name, str) or not isinstance(kind, str):
        raise _bad(f"a field of table '{table}' has no name or no type")
    if type(size) is not int or type(count) is not int or size < 1 or count < 1:
        raise _bad(f"{table}.{name}: bytes and count are whole numbers from 1")
    if kind != _TEXT and (kind, size) not in _LETTERS:
        raise _bad(f"{table}.{name}: there is no type {kind[:8]} of {size} bytes")
    return Column(name, kind, size, count)


def _letters(column: Column) -> str:
    if column.type == _TEXT:
        return f"{column.bytes}s" * column.count
    return f"{column.count}{_LETTERS[column.type, column.bytes]}"


def _text(table: str, column: Column, value: Any) -> bytes:
    if not isinstance(value, str):
        raise EncodeError(f"{table}.{column.name} takes text")
    data = value.encode()
    if len(data) > column.bytes:
        raise EncodeError(f"{table}.{column.name} has room for {column.bytes} bytes, not {len(data)}")
    return data


def _bad(text: str) -> ProtocolError:
    return ProtocolError("bad_dict", text, 0)
