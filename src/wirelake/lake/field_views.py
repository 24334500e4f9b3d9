"""Define a view for each frame of a described protocol, with its fields as typed columns.

`silver.messages` has the fields of a message as JSON. If the layout of a protocol says how frames become messages,
their names and types are known: `fields.station_reading` has one row for each such frame, and a column for each field.
"""

import re
from collections.abc import Mapping
from typing import Any, Final

from msgspec import Struct

from wirelake.lake.statement import FIELD_VIEWS, quoted
from wirelake.lake.tables import MESSAGES

_COMMON: Final = (
    *("seq", "received_at", "node", "direction", "session", "identity"),
    *("topic", "service", "op", "correlation", "status"),
)
_NOT_IN_A_NAME: Final = re.compile(r"\W+")


class FieldView(Struct, frozen=True):
    """Describe the view of one frame of a protocol."""

    name: str  # "fields.station_reading"
    protocol: str
    frame: str
    columns: Mapping[str, str]  # name → type

    def select(self) -> str:
        """Return the SELECT over silver.messages."""
        fields = [f'{_extract(field, kind)} AS "{column_name(field)}"' for field, kind in self.columns.items()]
        columns = ", ".join([*_COMMON, *fields, "day"])
        condition = f"protocol = {quoted(self.protocol)} AND name = {quoted(self.frame)}"
        return f"SELECT {columns} FROM {MESSAGES.name} WHERE {condition}"  # noqa: S608 quoted above


def field_views() -> dict[str, FieldView]:
    """Return the views of all installed protocols whose layouts have rules for messages."""
    from wirelake.protocols import registry  # noqa: PLC0415 few queries need the protocols

    found: dict[str, FieldView] = {}
    for protocol in registry.all_protocols():
        rules = protocol.message_rules.rules if protocol.message_rules is not None else {}
        for frame, rule in rules.items():
            columns = _columns(frame, rule)
            title = rule.name or frame.name
            name = f"{FIELD_VIEWS}.{_NOT_IN_A_NAME.sub('_', f'{protocol.name}_{title}'.lower())}"
            if name in found:  # frames of the same name from client and server
                columns = {**columns, **found[name].columns}
            if columns:
                found[name] = FieldView(name, protocol.name, title, columns)
    return found


def column_name(field: str) -> str:
    """Return the column of a field: with an underscore after it, if the view has another column of this name."""
    return f"{field}_" if field in (*_COMMON, "day") else field


def _columns(frame: Any, rule: Any) -> dict[str, str]:
    from wirelake.layout.messages import attribute_of, fields_of, spec_of  # noqa: PLC0415 few queries need the protocols

    values = fields_of(frame, rule)
    return {name: _value_type(value, spec_of(frame, attribute_of(value))) for name, value in values.items()}


def _value_type(value: Any, field: Any) -> str:
    from wirelake.layout.messages import Bit, InUnits, Listed  # noqa: PLC0415 few queries need the protocols

    match value:
        case Bit():
            return "BOOLEAN"
        case InUnits():
            return "DOUBLE"
        case Listed():
            return _list_of(_type_of(field))
    return _type_of(field)


def _type_of(field: Any) -> str:
    """Return the type of a field's values; JSON if they differ, or have parts."""
    from wirelake.layout.fields import (  # noqa: PLC0415 few queries need the protocols
        Bool8,
        Counted,
        Fixed,
        Number,
        Prefixed,
        Rest,
        ShortLength,
        SizedBy,
        SizedBytes,
        Varint,
    )

    found = "JSON"
    match field.kind:
        case Number(is_float=True):
            found = "DOUBLE"
        case Number(size=8, is_signed=False) | Varint(bits=64, is_signed=False):
            found = "UBIGINT"
        case Number() | Varint() | ShortLength():
            found = "BIGINT"
        case Bool8():
            found = "BOOLEAN"
        case Fixed() | Prefixed() | SizedBy() | SizedBytes() | Rest():
            found = "VARCHAR" if field.kind.is_text else "BLOB"
        case Counted(item=item) if item is not None:
            found = _list_of(_type_of(item))
    return found


def _list_of(kind: str) -> str:
    return f"{kind}[]" if kind not in ("JSON", "BLOB") and not kind.endswith("[]") else "JSON"


def _extract(field: str, kind: str) -> str:
    path = quoted(f'$."{field}"')
    if kind == "JSON" or kind.endswith("[]"):
        value = f"json_extract(fields, {path})"
        return value if kind == "JSON" else f"TRY_CAST({value} AS {kind})"
    text = f"json_extract_string(fields, {path})"
    return f"from_base64({text})" if kind == "BLOB" else f"TRY_CAST({text} AS {kind})"
