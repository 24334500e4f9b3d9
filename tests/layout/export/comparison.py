"""Compare what other tools read with what `wirelake decode --json` prints, field by field."""

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from layout.export.decoded import ReadField, custom_keys, fields_of, secret_keys
from layout.export.tshark import ShownField, ShownFrame
from wirelake.layout import FrameSet
from wirelake.layout.export.naming import identifier

_FORMS = re.compile(r"\.(?:item|list|number|text|bytes|f32|f64)(?=\.|$)")


def compare_tshark(frame: Mapping[str, Any], data: bytes, shown: ShownFrame, layout: FrameSet) -> int:
    """Compare a frame with what tshark shows of it. Return how many fields were compared."""
    wanted, found = fields_of(frame, layout), list(shown.fields)
    secrets, customs = secret_keys(layout), custom_keys(layout)
    for count, field in enumerate(wanted):
        each = found.pop(0)
        if each.key.partition(".")[2] in customs:
            assert _is_rest(field, each, data), (field, each)
            return count
        assert _is_named(each.key, field.name), (field, each)
        raw = data[field.offset : field.offset + field.size]
        assert each.place == ((field.offset, raw.hex()) if raw else None), (field, each)
        if each.key.partition(".")[2] in secrets:
            assert set(each.text) <= set("*0:"), (field, each)
        else:
            assert _is_same(field.value, each.text), (field, each)
    assert not found
    assert frame["name"].removeprefix(f"{layout.name} ") == shown.name
    return len(wanted)


def _is_named(key: str, name: str) -> bool:
    """Return whether a key of tshark is that of a field. The forms of a choice have a word more."""
    bare = _FORMS.sub("", key)
    return any(each.replace(".", "_").endswith(identifier(name)) for each in (key, bare))


def _is_rest(field: ReadField, each: ShownField, data: bytes) -> bool:
    """Return whether these are the bytes from a field on: where it ends, only the decoder knows."""
    return each.place is not None and data.hex().startswith(each.place[1], 2 * field.offset)


def _is_same(value: Any, text: str) -> bool:
    """Return whether a text of tshark stands for a value; the bytes of the field are compared in any case."""
    if isinstance(value, int):
        return int(text, 0) == value
    if isinstance(value, float):
        return math.isclose(float(text), value, rel_tol=1e-5, abs_tol=1e-44)
    if text == value or text.replace(":", "") == value:  # a text; bytes as hex
        return True
    return not value.isprintable() or "\\" in value or '"' in value  # these are written in another way


def compare_kaitai(frame: Mapping[str, Any], data: bytes, read: Sequence[tuple[str, Any]], layout: FrameSet) -> int:
    """Compare a frame with what a Kaitai Struct reads. Return how many fields were compared."""
    wanted, found = fields_of(frame, layout), list(read)
    customs, kind = custom_keys(layout), frame["name"].split()[-1].lower()
    for count, field in enumerate(wanted):
        name, value = found.pop(0)
        if f"{kind}.{name}" in customs:
            assert data[field.offset :].startswith(value)
            return count
        form = re.sub(r"_\d+\b", "", name)  # forms of a choice are numbered
        assert any(identifier(each).endswith(identifier(field.name)) for each in (name, form)), (field, name)
        raw = data[field.offset : field.offset + field.size]
        if isinstance(value, bytes):  # bytes, or a constant
            assert value == raw, (field, value)
        elif isinstance(value, float):
            assert math.isclose(value, field.value, rel_tol=1e-12), (field, value)
        else:
            assert value == field.value, (field, value)
    assert not found
    return len(wanted)
