"""Dissect values that name their type: see `values`. By hand, since a tag decides how the bytes after it are read."""

from wirelake.protocols.esnp.constants import TAG_NAMES, Tag
from wirelake.protocols.esnp.values import READ_SCALAR, VarReader, read_signed
from wirelake.protocols.tree import Dissector


def dissect_var(d: Dissector, label: str) -> None:
    """Add the parts of a value that is known to be well-formed and fills what is left."""
    values = VarReader()
    values.to_the_end(d.data[: d.end], d.position)  # to see how it writes counts
    _add_var(d, label, values)


def _add_var(d: Dissector, label: str, values: VarReader) -> None:
    tag = d.data[d.position]
    if tag in (Tag.MAP, Tag.LIST):
        with d.group(label, TAG_NAMES[tag]):
            d.u8("tag", TAG_NAMES[tag])
            _add_items(d, tag, values)
        return
    d.u8(f"{label} tag", TAG_NAMES[tag])
    if tag == Tag.STRING:
        _add_text(d, label)
    elif tag == Tag.BYTES:
        d.raw(label, _add_size(d, label))
    else:
        value, end = READ_SCALAR[tag](d.data, d.position)
        d.add(label, end - d.position, value)


def _add_items(d: Dissector, tag: int, values: VarReader) -> None:
    count, end = values.count(d.data, d.position)
    d.add("count", end - d.position, count, "a plain varint" if values.plain_counts else "")
    for index in range(count):
        if tag == Tag.MAP:
            with d.group(f"entry {index}"):
                _add_text(d, "key")
                _add_var(d, "value", values)
        else:
            _add_var(d, f"item {index}", values)


def _add_text(d: Dissector, label: str) -> None:
    d.text(label, _add_size(d, label))


def _add_size(d: Dissector, label: str) -> int:
    size, end = read_signed(d.data, d.position)
    d.add(f"{label} size", end - d.position, size)
    return size
