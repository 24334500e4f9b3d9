"""Names and places that both exports need."""

import re
from collections.abc import Iterator, Sequence
from typing import Any

from msgspec.structs import replace

from wirelake.layout.fields import FieldSpec, SizedBy


class UniqueNames:
    """Give every object a name of its own, made of lower-case letters, digits and underscores."""

    def __init__(self, *taken: str) -> None:
        self._taken = set(taken)

    def add(self, wanted: str) -> str:
        """Return the name, or a similar one if another object has it."""
        base = identifier(wanted)
        name, count = base, 1
        while name in self._taken:
            count += 1
            name = f"{base}_{count}"
        self._taken.add(name)
        return name


def identifier(text: str) -> str:
    """Return a text as an identifier, as in `to_the_device`."""
    name = re.sub(r"[^a-z0-9]+", "_", text.lower()).strip("_")
    return name if name[:1].isalpha() else f"x{'_' if name else ''}{name}"


def bit_names(field: FieldSpec) -> Iterator[tuple[int, str, str]]:
    """Yield each named bit of a number: its mask, its name and an identifier."""
    if field.flags is None:
        return
    names = UniqueNames()
    for bit, name in enumerate(field.flags.names):
        if name:
            yield 1 << bit, name, names.add(name)


def value_names(field: FieldSpec) -> dict[int, str]:
    """Return the names of a number's values."""
    if field.enum is not None:
        return {int(member): member.name.lower() for member in field.enum}
    return dict(field.names.names) if field.names is not None else {}


def size_after(fields: Sequence[FieldSpec]) -> int | None:
    """Return how many bytes these fields have, None if that differs from frame to frame."""
    sizes = [field.size for field in fields]
    return None if None in sizes else sum(size for size in sizes if size is not None)


def within(outer: FieldSpec, inner: FieldSpec) -> FieldSpec:
    """Return a field inside another one: it is secret if that is."""
    return replace(inner, is_secret=True) if outer.is_secret else inner


def described_in(kinds: Sequence[Any]) -> str:
    """Return the names of the modules with the descriptions."""
    return ", ".join(dict.fromkeys(kind.__module__ for kind in kinds))


def needed_values(fields: Sequence[FieldSpec]) -> set[str]:
    """Return the names of the numbers that other fields depend on."""
    found = {field.present_if.field for field in fields if field.present_if is not None}
    return found | {field.kind.field for field in fields if isinstance(field.kind, SizedBy)}
