"""Python source that is written by a program, compiled once, and shown in tracebacks like any other."""

import linecache
import re
import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

from wirelake.errors import EncodeError, ProtocolError
from wirelake.layout.fields import ByteOrder
from wirelake.protocols.frame import Sender

# Names that the generated functions use themselves; a field of such a name gets an underscore.
_TAKEN: Final = frozenset(
    ("frame", "sender", "size", "self", "end", "start", "at", "whole", "read", "write", "pack", "unpack_from", "error")
) | {"len", "range", "tuple", "int", "decode", "encode", "dissect"}
# Ends of names that are made from those of fields, and names of packed structs.
_DERIVED: Final = re.compile(
    r".*_(|start|end|size|count|item|piece|pieces|bytes|reader|writer|function)"
    r"|(un)?pack_\d+|(read|write)_(varint|zigzag)\d+",
    re.ASCII,
)
_WIDTH_MAX: Final = 100  # of a condition or a call in one line
SCOPE: Final[dict[str, Any]] = {  # what every generated source may use
    "Struct": struct.Struct,
    "StructError": struct.error,
    "pack": struct.pack,
    "unpack_from": struct.unpack_from,
    "EncodeError": EncodeError,
    "ProtocolError": ProtocolError,
    "CLIENT": Sender.CLIENT,
    "SERVER": Sender.SERVER,
}
RESERVED: Final = {
    *SCOPE,
    "FROM_CLIENT",
    "FROM_SERVER",
    "IndexError",
    "KeyError",
    "UnicodeDecodeError",
    "AssertionError",
}


class Source:
    """Lines of Python, and the objects that they name."""

    def __init__(self, filename: str, outer: "Source | None" = None) -> None:
        """With `outer`, these are lines for another source, which holds their constants."""
        self.filename = f"<wirelake layout {filename}>"
        self.names: dict[str, Any] = {}  # objects that the lines use
        self._constants: list[str] = [] if outer is None else outer._constants
        self._lines: list[str] = []
        self._indent = 0
        self._structs: dict[str, str] = {} if outer is None else outer._structs

    def line(self, text: str) -> None:
        """Add a line."""
        self._lines.append("    " * self._indent + text)

    @contextmanager
    def block(self, text: str) -> Iterator[None]:
        """Add a line that opens a block, and indent the lines inside the context."""
        self.line(text)
        self._indent += 1
        try:
            yield
        finally:
            self._indent -= 1

    def call(self, start: str, arguments: Sequence[str], end: str) -> None:
        """Add a call, with one argument in each line if they are many."""
        text = f"{start}{', '.join(arguments)}{end}"
        if len(text) <= _WIDTH_MAX:
            self.line(text)
            return
        self.line(start)
        for argument in arguments:
            self.line(f"    {argument},")
        self.line(end)

    @contextmanager
    def condition(self, conditions: Sequence[str]) -> Iterator[None]:
        """Add an `if` with all these conditions, one in each line if they are many."""
        text = " and ".join(conditions) or "True"
        if len(text) <= _WIDTH_MAX:
            with self.block(f"if {text}:"):
                yield
            return
        self.line("if (")
        for index, condition in enumerate(conditions):
            self.line(f"    {'and ' if index else ''}{condition}")
        with self.block("):"):
            yield

    def use(self, name: str, value: Any) -> str:
        """Make an object available under this name, or a similar one if another object has it."""
        unique, count = name, 1
        while unique in RESERVED or (unique in self.names and self.names[unique] != value):
            count += 1
            unique = f"{name}_{count}"
        self.names[unique] = value
        return unique

    def struct(self, order: ByteOrder, codes: str, method: str) -> str:
        """Return the name of a method of the `struct.Struct` with this format, which is made once."""
        text = (">" if order == "big" else "<") + codes
        key = f"{method} {text}"
        if key not in self._structs:
            name = f"{method.partition('_')[0]}_{len(self._structs) + 1}"
            self._structs[key] = name
            self._constants.append(f'{name} = Struct("{text}").{method}')
        return self._structs[key]

    def constant(self, name: str, expression: str) -> str:
        """Return the name of a constant of the module, which is made once. Names are numbered."""
        key = f"constant {expression}"
        if key not in self._structs:
            self._structs[key] = f"{name}_{len(self._structs) + 1}"
            self._constants.append(f"{self._structs[key]} = {expression}")
        return self._structs[key]

    @property
    def lines(self) -> str:
        """Return the lines without the constants, and two empty ones."""
        return "\n".join([*self._lines, "", ""])

    @property
    def text(self) -> str:
        """Return the whole source."""
        parts = [*self._constants, *(["", ""] if self._constants else []), *self._lines]
        return "\n".join(parts).strip("\n") + "\n"

    def compile(self, **names: Any) -> dict[str, Any]:
        """Run the source with these objects, and return its names. `inspect` and tracebacks show the text."""
        text, filename, count = self.text, self.filename, 1
        while filename in linecache.cache and "".join(linecache.getlines(filename)) != text:
            count += 1
            filename = f"{self.filename[:-1]} {count}>"
        scope = {"__name__": filename, **SCOPE, **names, **self.names}
        linecache.cache[filename] = (len(text), None, text.splitlines(keepends=True), filename)
        exec(compile(text, filename, "exec"), scope)  # noqa: S102 (our own text, as in dataclasses)
        return scope


def local(name: str) -> str:
    """Return the name of the local variable for a field."""
    return f"{name}_" if name in _TAKEN or _DERIVED.fullmatch(name) else name


def plus(base: str, offset: int) -> str:
    """Return the expression of a position."""
    if not base:
        return str(offset)
    return f"{base} + {offset}" if offset > 0 else f"{base} - {-offset}" if offset else base
