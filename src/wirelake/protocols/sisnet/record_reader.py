"""Read the records of a `set`, by the layout of the session's `dict` or of the `create` of the table."""

from base64 import b64decode
from collections.abc import Mapping
from typing import Any, Final

from wirelake.errors import ProtocolError
from wirelake.message import Kind
from wirelake.protocols.packed_records import RecordTable, read_tables
from wirelake.protocols.records import MessageFilter, WrittenRecord
from wirelake.protocols.sisnet.constants import LIMIT_CODE_PREFIX

KIND: Final = "record"
LAYOUT: Final = MessageFilter(Kind.CONTROL, name="dict")
WRITE: Final = MessageFilter(Kind.REQUEST, op="set")
CREATE: Final = MessageFilter(Kind.REQUEST, op="create")
_TIME: Final = "time"
_I64_MAX: Final = 2**63 - 1


def layouts_of(fields: Any) -> dict[str, Any]:
    return {name: table["fields"] for name, table in fields.items() if isinstance(table, dict) and "fields" in table}


def created_layout(fields: Any) -> tuple[str, Any] | None:
    if isinstance(fields, dict) and isinstance(fields.get("sdb"), str) and fields.get("fields"):
        return fields["sdb"], fields["fields"]
    return None


def table_of(fields: dict[str, Any]) -> Any:
    return fields.get("sdb")


def read_records(
    fields: dict[str, Any], payload: bytes | None, layouts: Mapping[str, Any], created: Any
) -> list[WrittenRecord]:
    key, sdb = fields.get("key"), fields.get("sdb")
    layout = layouts.get(sdb, created) if isinstance(sdb, str) else created
    return [
        WrittenRecord(
            None if key is None else str(key), None if sdb is None else str(sdb), _time(record.get(_TIME)), record
        )
        for record in _read(fields, payload, sdb, layout)
    ]


def _read(fields: dict[str, Any], payload: bytes | None, sdb: Any, layout: Any) -> list[dict[str, Any]]:
    """Return the records of one `set`, by the names of their fields."""
    if payload:
        return _table(sdb, layout).unpack(payload)
    data = fields.get("data")
    if isinstance(data, dict):
        return [data]
    if isinstance(data, str):
        return _table(sdb, layout).unpack(_from_base64(data))
    if not isinstance(data, list):
        raise ProtocolError("no_records", "a set without records", 0)
    if data and not any(isinstance(each, list | dict) for each in data):
        data = [data]
    names = [column.name for column in _table(sdb, layout).columns] if any(map(_is_list, data)) else []
    return [_named(each, names) for each in data]


def _from_base64(text: str) -> bytes:
    try:
        return b64decode(text, validate=True)
    except ValueError as error:
        raise ProtocolError("bad_base64", f"the records are not base64: {error}", 0) from error


def _is_list(value: Any) -> bool:
    return isinstance(value, list)


def _named(value: Any, names: list[str]) -> dict[str, Any]:
    if isinstance(value, dict):
        return value
    if not isinstance(value, list) or len(value) > len(names):
        raise ProtocolError("no_record", "neither an object nor a row of the table", 0)
    return dict(zip(names, value, strict=False))


def _table(sdb: Any, layout: Any) -> RecordTable:
    if isinstance(layout, dict):
        layout = layout.get("fields") or [
            [name, *(rest if _is_list(rest) else [rest])] for name, rest in layout.items()
        ]
    if not layout:
        raise ProtocolError("no_layout", f"the layout of a record of {sdb} is not known", 0)
    return read_tables({str(sdb): {"fields": layout}}, LIMIT_CODE_PREFIX)[str(sdb)]


def _time(value: Any) -> int | None:
    if isinstance(value, float) and abs(value) < _I64_MAX:
        return int(value // 1)
    return value if isinstance(value, int) and not isinstance(value, bool) and abs(value) <= _I64_MAX else None
