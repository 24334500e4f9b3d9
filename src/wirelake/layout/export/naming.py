"""Names and places that both exports need."""

import re
from collections.abc import Iterator, Sequence
from typing import Any, Final

from msgspec.structs import replace

from wirelake.layout.fields import Custom, FieldSpec, Fixed, Rest, SizedBy, SizedBytes
from wirelake.layout.forms import ChosenBy, Content
from wirelake.layout.sized import SizeOf

VARINT_SIZES: Final = {"varint32": False, "zigzag32": True}  # encodings of sizes that exports know: is it in zigzag


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


def public_name(field: FieldSpec) -> str:
    """Return the name of a field in other tools: the one that trees show."""
    return identifier(field.label) if field.label else field.name


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
    found: set[str] = set()
    for field in fields:
        if field.present_if is not None:
            found.add(field.present_if.field)
        if field.contains is not None:
            found |= {bits.field for content in field.contains.contents for bits in content.conditions}
        if isinstance(field.kind, SizedBy | ChosenBy):
            found.add(field.kind.field)
        if isinstance(field.kind, ChosenBy):
            found |= needed_values([form for _, form in forms_of(field.kind)])
    return found


def forms_of(kind: ChosenBy) -> list[tuple[int | None, FieldSpec]]:
    """Return the forms of a choice with their numbers; None for all others."""
    other = [(None, kind.other)] if kind.other is not None else []
    return [*kind.cases, *other]


def content_classes(field: FieldSpec) -> list[tuple[Content, Any]] | None:
    """Return what bytes may contain, with the class of each; None if a content has an envelope of its own."""
    if field.contains is None or not isinstance(field.kind, Rest):
        return None
    found: list[tuple[Content, Any]] = []
    for content in field.contains.contents:
        envelope = content.frames.envelope
        kinds = [kind for kind in content.frames.frames if kind.sender in (None, content.sender)]
        if envelope.head or envelope.tail or len(kinds) != 1:
            return None
        found.append((content, kinds[0]))
    return found


def has_bytes(field: FieldSpec) -> bool:
    """Return whether a field can have bytes of its own."""
    return not isinstance(field.kind, SizeOf) and not (isinstance(field.kind, Fixed) and not field.kind.size)


def is_custom(field: FieldSpec) -> bool:
    """Return whether only the decoder's own code knows where a field ends."""
    kind = field.kind
    return isinstance(kind, Custom) or (isinstance(kind, SizedBytes) and kind.encoding.title not in VARINT_SIZES)
