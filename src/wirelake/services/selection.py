"""What a request to a data set names: which series, which of their records, which fields, in which form."""

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
    """How records are answered."""

    ARRAY = "array"  # a row of values for each
    JSON = "json"  # an object for each
    BYTES = "bytes"  # packed, as the table's layout has them


class Names(Struct, frozen=True):
    """Keys and tables, as they were asked for."""

    keys: str
    sdbs: str

    @property
    def single(self) -> bool:
        """One key and one table: answered by the bare records."""
        return not any("," in names or names == ALL for names in (self.keys, self.sdbs))

    def each(self) -> list[tuple[str, str]]:
        """(key, sdb) of all that are named, each once, where neither is `*`."""
        sdbs, keys = dict.fromkeys(self.sdbs.split(",")), dict.fromkeys(self.keys.split(","))
        return [(key, sdb) for sdb in sdbs for key in keys]


class Selection(Struct, frozen=True):
    names: Names
    fields: tuple[str, ...] = ()  # empty: all
    describe: bool = False  # the field lists too
    since: int | None = None
    until: int | None = None
    count: int | None = None
    newest: bool = False
    format: Format = Format.ARRAY

    def chosen(self, names: tuple[str, ...], rows: list[Any]) -> list[Any]:
        """The rows of a table with these fields, with those that were asked for, in the form that was."""
        if self.fields:
            places = [_place(names, field) for field in self.fields]
            rows = [[row[place] for place in places] for row in rows]
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
    """Tables, if some are named."""
    sdbs = _text(fields, "sdb")
    if sdbs:
        _check_names(sdbs, "sdb")
    return sdbs


def read_selection(fields: dict[str, Any], op: str) -> Selection:
    """Older clients give their options inside a list."""
    for each in fields["msg"] if isinstance(fields.get("msg"), list) else ():
        if isinstance(each, dict):
            fields = each | fields
    since, until, count = (_number(fields.get(name), name) for name in ("min", "max", "count"))
    newest = since is None if count is None or count >= 0 else True
    if count is not None:
        count = abs(count)
        if count > STATE_READ_ROWS_MAX:
            raise InputError(f"count is at most {STATE_READ_ROWS_MAX}")
    asked = fields.get("format") or Format.ARRAY
    if asked not in list(Format):
        raise InputError(f"format is one of {', '.join(Format)}")
    return Selection(
        names=read_names(fields, op),
        fields=_fields(fields.get("fields")),
        describe=fields.get("fields") is True,
        since=since,
        until=until,
        count=count,
        newest=newest,
        format=Format(asked),
    )


def _fields(given: Any) -> tuple[str, ...]:
    """A list of names, names with commas between them, or an object that has them as keys."""
    if given is None or isinstance(given, bool) or given == ALL:
        return ()
    names = given.split(",") if isinstance(given, str) else list(given) if isinstance(given, list | dict) else None
    if names is None or not all(isinstance(name, str) for name in names):
        raise InputError("fields are a list of names")
    return tuple(names)


def _text(fields: dict[str, Any], name: str) -> str:
    given = fields.get(name, "")
    if isinstance(given, int) and not isinstance(given, bool):
        return str(given)
    if not isinstance(given, str):
        raise InputError(f"{name} is a text")
    return given


def _check_names(names: str, what: str) -> int:
    """How many there are."""
    if names == ALL:
        return 1
    listed = names.split(",")
    for name in listed:
        if _NAME.fullmatch(name) is None or (what == "sdb" and "." in name):
            raise InputError(f"not a name for a {what}: {name[:64]!r}")
    return len(listed)


def _number(given: Any, what: str) -> int | None:
    if given is None:
        return None
    if isinstance(given, str) and _NUMBER.fullmatch(given):
        return int(given)
    if isinstance(given, int) and not isinstance(given, bool):
        return given
    if isinstance(given, float) and given == given // 1:
        return int(given)
    raise InputError(f"{what} is a whole number")


def _place(names: tuple[str, ...], field: str) -> int:
    try:
        return names.index(field)
    except ValueError:
        raise InputError(f"there is no field '{field[:64]}'") from None


def _object(names: tuple[str, ...], row: Row) -> dict[str, Any]:
    return dict(zip(names, row, strict=False))
