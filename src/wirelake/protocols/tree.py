"""Frames as trees of named fields with byte offsets, as a packet analyser shows them.

`decode` is written for speed and returns values. A walk over the description of a frame, or a protocol's own `tree.py`,
reads the same bytes with a `Dissector`, which also records offsets. Tests require that both accept and refuse the same
inputs.
"""

import struct
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from msgspec import Struct

from wirelake.errors import ProtocolError


class Field(Struct, omit_defaults=True):
    """`size` bytes at `offset`, and their meaning. A field without a value groups its children."""

    name: str
    offset: int
    size: int = 0
    value: Any = None
    note: str = ""  # the meaning of the value
    children: list["Field"] = []
    fault: ProtocolError | None = None  # why it is shown raw, in a valid frame

    def leaves(self) -> Iterator["Field"]:
        """Yield the fields that have bytes of their own, in the order of the wire."""
        if not self.children:
            yield self
        for child in self.children:
            yield from child.leaves()

    def find(self, *names: str) -> "Field":
        """Return the descendant at this path of names."""
        found = self
        for name in names:
            found = next(child for child in found.children if child.name == name)
        return found


class Tree(Struct, omit_defaults=True):
    """The fields of one frame; if there is an error, those before it."""

    root: Field
    error: ProtocolError | None = None


class Dissector:
    """Read bytes field by field. Each read adds a named field to the open group."""

    def __init__(self, data: bytes, name: str, *, big_endian: bool = True) -> None:
        self.data = data
        self.position = 0
        self.end = len(data)  # reads stop here; `window` narrows it
        self.order = ">" if big_endian else "<"
        self.root = Field(name, 0, len(data), children=[])
        self._open = self.root

    @property
    def left(self) -> int:
        return self.end - self.position

    @contextmanager
    def group(self, name: str, note: str = "") -> Iterator[Field]:
        """Group the fields that are read inside the context."""
        outer, inner = self._open, Field(name, self.position, note=note, children=[])
        outer.children.append(inner)
        self._open = inner
        try:
            yield inner
        finally:
            inner.size = self.position - inner.offset
            self._open = outer

    @contextmanager
    def window(self, size: int) -> Iterator[None]:
        """Limit the reads inside the context to the next `size` bytes."""
        self.need(size, "the part")
        outer, self.end = self.end, self.position + size
        try:
            yield
        finally:
            self.end = outer

    def need(self, size: int, name: str) -> None:
        """Raise ProtocolError if fewer bytes are left. Its offset is that of the missing bytes."""
        if self.left < size:
            raise ProtocolError("short", f"{name} needs {size} bytes, {self.left} are left", self.end)

    def add(self, name: str, size: int, value: Any, note: str = "") -> Field:
        """Add a field of `size` bytes whose value is known, and move past it."""
        self.need(size, name)
        leaf = Field(name, self.position, size, value, note)
        self._open.children.append(leaf)
        self.position += size
        return leaf

    def number(self, name: str, code: str, note: str = "") -> Any:
        """Read a number by its `struct` format."""
        layout = struct.Struct(self.order + code)
        self.need(layout.size, name)
        (value,) = layout.unpack_from(self.data, self.position)
        self.add(name, layout.size, value, note)
        return value

    def u8(self, name: str, note: str = "") -> int:
        return int(self.number(name, "B", note))

    def u16(self, name: str, note: str = "") -> int:
        return int(self.number(name, "H", note))

    def u32(self, name: str, note: str = "") -> int:
        return int(self.number(name, "I", note))

    def raw(self, name: str, size: int, note: str = "") -> bytes:
        self.need(size, name)
        value = self.data[self.position : self.position + size]
        self.add(name, size, value, note)
        return value

    def graft(self, name: str, tree: Field) -> None:
        """Add the fields of a tree whose offsets count from here, as a group of this name, and move past it."""
        self.need(tree.size, name)
        self._open.children.append(_shifted(tree, self.position, name))
        self.position += tree.size

    def malformed(self, name: str, size: int, note: str, fault: ProtocolError) -> None:
        """Add bytes that cannot be read, inside a frame that can. `fault` counts from the first of them."""
        self.raw(name, size, note)
        leaf = self._open.children[-1]
        leaf.fault = fault.shift(leaf.offset)

    def text(self, name: str, size: int, note: str = "") -> str:
        """Read UTF-8 text of that many bytes."""
        self.need(size, name)
        start = self.position
        value = utf8(self.data[start : start + size], start)
        self.add(name, size, value, note)
        return value

    def note(self, note: str) -> None:
        """Set the note of the last field."""
        self._open.children[-1].note = note

    def finish(self) -> None:
        """Raise ProtocolError if bytes are left."""
        if self.left:
            raise ProtocolError("trailing", f"{self.left} bytes too many", self.position)


def _shifted(field: Field, by: int, name: str) -> Field:
    fault = field.fault.shift(by) if field.fault is not None else None
    children = [_shifted(child, by, child.name) for child in field.children]
    return Field(name, field.offset + by, field.size, field.value, field.note, children, fault)


def utf8(data: bytes, offset: int) -> str:
    """Decode text. Raise ProtocolError with the offset of the first bad byte."""
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise ProtocolError("bad_utf8", "text is not UTF-8", offset + error.start) from error
