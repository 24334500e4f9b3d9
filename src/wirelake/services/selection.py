"""Parse what a request to a data set selects: series, records, fields and format."""

import re
from enum import StrEnum
from typing import Any, Final

from msgspec import Struct

from wirelake.errors import InputError
from wirelake.limits import SISDB_SERIES_PER_REQUEST_MAX, STATE_READ_ROWS_MAX
from wirelake.services.tables import Row
from wirelake.state.records import ALL

_NAME: Final = re.compile(r"[^{}():,*@\x00][^{}():,*\x00]*")
_NUMBER: Final = re.compile(r"-?[0-9]{1,18}")


class Format(StrEnum):
    """Name the format of records in a response."""

    ARRAY = "array"  # a row of values for each
    JSON = "json"  # an object for each
    BYTES = "bytes"  # packed, as the table's layout has them


class Names(Struct, frozen=True):
    """Hold the keys and tables of a request, separated by commas, or `*`."""

    keys: str
    sdbs: str

    @property
    def is_single(self) -> bool:
        """Whether there is one key and one table: the response then has just the records."""
        return not any("," in names or names == ALL for names in (self.keys, self.sdbs))

    @property
    def has_wildcard(self) -> bool:
        return ALL in (self.keys, self.sdbs)

    def each(self) -> list[tuple[str, str]]:
        """Return each (key, sdb) once. Only valid if neither is `*`."""
        sdbs, keys = dict.fromkeys(self.sdbs.split(",")), dict.fromkeys(self.keys.split(","))
        return [(key, sdb) for sdb in sdbs for key in keys]


class Selection(Struct, frozen=True):
    names: Names
    fields: tuple[str, ...] = ()  # empty: all
    describe: bool = False  # whether to include the lists of fields
    since: int | None = None
    until: int | None = None
    count: int | None = None
    newest: bool = False
    format: Format = Format.ARRAY

    def apply(self, names: tuple[str, ...], rows: list[Any]) -> list[Any]:
        """Return the rows of a table that has these fields, with the selected fields, in the selected format."""
        if self.fields:
            indexes = [_index(names, field) for field in self.fields]
            rows = [[row[index] for index in indexes] for row in rows]
            names = self.fields
        if self.format is Format.JSON:
            return [_object(names, row) for row in rows]
        return rows


def read_names(fields: dict[str, Any], op: str) -> Names:
    keys, sdbs = _text(fields, "key"), _text(fields, "sdb")
    if not keys or not sdbs:
        raise InputError(f"{op} needs a key and an sdb")
    series = _check_names(keys, "key") * _check_names(sdbs, "sdb")
    if series > SISDB_SERIES_PER_REQUEST_MAX:
        raise InputError(f"{series} series at once: at most {SISDB_SERIES_PER_REQUEST_MAX}")
    return Names(keys, sdbs)


def read_sdbs(fields: dict[str, Any]) -> str:
    """Return the tables that the request names, or ""."""
    sdbs = _text(fields, "sdb")
    if sdbs:
        _check_names(sdbs, "sdb")
    return sdbs


def read_selection(fields: dict[str, Any], op: str) -> Selection:
    """Return the selection of a request. Older clients send their options inside a list."""
    for each in fields["msg"] if isinstance(fields.get("msg"), list) else ():
        if isinstance(each, dict):
            fields = each | fields
    since, until, count = (_number(fields.get(name), name) for name in ("min", "max", "count"))
    newest = since is None if count is None or count >= 0 else True
    if count is not None:
        count = abs(count)
        if count > STATE_READ_ROWS_MAX:
            raise InputError(f"count is at most {STATE_READ_ROWS_MAX}")
    format_ = fields.get("format") or Format.ARRAY
    if format_ not in list(Format):
        raise InputError(f"format is one of {', '.join(Format)}")
    return Selection(
        names=read_names(fields, op),
        fields=_fields(fields.get("fields")),
        describe=fields.get("fields") is True,
        since=since,
        until=until,
        count=count,
        newest=newest,
        format=Format(format_),
    )


def _fields(value: Any) -> tuple[str, ...]:
    """Return the names in a list, in a text with commas, or in the keys of an object."""
    if value is None or isinstance(value, bool) or value == ALL:
        return ()
    names = value.split(",") if isinstance(value, str) else list(value) if isinstance(value, list | dict) else None
    if names is None or not all(isinstance(name, str) for name in names):
        raise InputError("fields are a list of names")
    return tuple(names)


def _text(fields: dict[str, Any], name: str) -> str:
    value = fields.get(name, "")
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    if not isinstance(value, str):
        raise InputError(f"{name} is a text")
    return value


def _check_names(names: str, what: str) -> int:
    """Check that the names are valid, and return how many there are."""
    if names == ALL:
        return 1
    parts = names.split(",")
    for name in parts:
        if _NAME.fullmatch(name) is None or (what == "sdb" and "." in name):
            raise InputError(f"not a name for a {what}: {name[:64]!r}")
    return len(parts)


def _number(value: Any, what: str) -> int | None:
    if value is None:
        return None
    if isinstance(value, str) and _NUMBER.fullmatch(value):
        return int(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, float) and value == value // 1:
        return int(value)
    raise InputError(f"{what} is a whole number")


def _index(names: tuple[str, ...], field: str) -> int:
    try:
        return names.index(field)
    except ValueError:
        raise InputError(f"there is no field '{field[:64]}'") from None


def _object(names: tuple[str, ...], row: Row) -> dict[str, Any]:
    return dict(zip(names, row, strict=False))
