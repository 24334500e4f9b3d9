"""The fields of frames as `wirelake decode --json` prints them, to compare with what other tools read."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct

from wirelake.layout import FrameSet
from wirelake.layout.export.naming import is_custom, public_name
from wirelake.layout.fields import Counted, FieldSpec, Nested


class ReadField(Struct, frozen=True):
    """A field that has bytes of its own. Offsets count from the first byte of the frame."""

    name: str  # without the number of an item, as in `topics size`
    offset: int
    size: int
    value: Any


def fields_of(frame: Mapping[str, Any], layout: FrameSet) -> list[ReadField]:
    """Return the fields of one frame of `wirelake decode --json`."""
    item_names = {field.item_name: field.name for field in _all_fields(layout) if field.item_name}
    found: list[ReadField] = []
    for leaf in _leaves(frame):
        name = leaf["name"]
        item = re.fullmatch(r"(\S+)((?: \d+)+)( size| count)?", name)
        if item is not None:
            name = item_names.get(item[1], item[1]) + (item[3] or "")
        found.append(ReadField(name, leaf["offset"] - frame["offset"], leaf["size"], leaf.get("value")))
    return found


def _leaves(field: Mapping[str, Any], is_root: bool = True) -> Iterator[Mapping[str, Any]]:
    if "children" in field:
        for child in field["children"]:
            yield from _leaves(child, is_root=False)
    elif not is_root and "value" in field:
        yield field


def _all_fields(layout: FrameSet) -> Iterator[FieldSpec]:
    yield from _inner((*layout.envelope.head, *layout.envelope.tail))
    for kind in layout.frames:
        yield from _inner(kind.__layout_fields__)


def _inner(fields: Sequence[FieldSpec]) -> Iterator[FieldSpec]:
    for field in fields:
        yield field
        if isinstance(field.kind, Nested):
            yield from _inner(field.kind.fields)
        elif isinstance(field.kind, Counted) and field.kind.item is not None:
            yield from _inner((field.kind.item,))


def custom_keys(layout: FrameSet) -> set[str]:
    """Return the fields that only the decoder's own code reads, as in `marks.count`."""
    return _keys(layout, is_custom)


def secret_keys(layout: FrameSet) -> set[str]:
    """Return the fields that are secret, as in `login.token`."""
    return _keys(layout, lambda field: field.is_secret)


def _keys(layout: FrameSet, is_wanted: Callable[[FieldSpec], bool]) -> set[str]:
    parts = [(kind.name.lower(), kind.__layout_fields__) for kind in layout.frames]
    return {f"{name}.{public_name(field)}" for name, fields in parts for field in fields if is_wanted(field)}
