"""What a kernel makes of the frames of one class, and what it has to know about their fields."""

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct, json

from wirelake.layout.fields import Bool8, Counted, FieldSpec, Fixed, Nested, Prefixed
from wirelake.layout.messages import Value, attribute_of


class CannotGenerate(Exception):  # noqa: N818 (not an error: the codec decodes such a frame)
    """A frame has a part that a kernel cannot read or write."""


class Constant(Struct, frozen=True):
    """JSON that is always the same."""

    text: str


class Objects(Struct, frozen=True):
    """A list of objects, made from the frames in a list."""

    attribute: str
    members: tuple[tuple[str, "str | Constant"], ...]


JsonValue = Value | Constant | Objects


class JsonMember(Struct, frozen=True):
    """A member of the JSON object. With `is_sparse`, it is left out if it is zero or empty."""

    key: str
    value: JsonValue
    is_sparse: bool = False

    @property
    def attribute(self) -> str:
        """Return the attribute that it is made of, if any."""
        match self.value:
            case Constant():
                return ""
            case Objects(attribute=attribute):
                return attribute
            case _:
                return attribute_of(self.value)


class FramePlan(Struct, frozen=True):
    """What a kernel makes of the frames of one class: JSON, and columns with the value of an attribute."""

    kind: Any
    members: tuple[JsonMember, ...]
    spans: Mapping[str, str]  # column → attribute

    def used(self) -> set[str]:
        """Return the attributes that are needed."""
        return {member.attribute for member in self.members} | set(self.spans.values())


def quoted(text: str | bytes) -> str:
    """Return a text as JSON; bytes are base64."""
    return json.encode(text).decode()


def as_64_bits(number: Any) -> int:
    """Return the number of 64 bits that the kernel has for it: negative from 2**63 on."""
    if not isinstance(number, int):
        raise CannotGenerate(f"{number!r} is not a number")
    return number - (1 << 64) if number >= 1 << 63 else number


def least_size(field: FieldSpec) -> int:
    """Return how many bytes a field has at least."""
    if field.is_optional:
        return 0
    match field.kind:
        case Prefixed(prefix=prefix) | Counted(prefix=prefix):
            return prefix
        case Nested(fields=fields):
            return sum(map(least_size, fields))
    return field.size or 0


def run_size(fields: Sequence[FieldSpec]) -> int:
    """Return how many bytes the fields have up to the first whose size differs, including its prefix."""
    size = 0
    for field in fields:
        if field.is_optional:
            break
        if isinstance(field.kind, Nested):
            size += run_size(field.kind.fields)
        else:
            size += least_size(field)
        if field.size is None:
            break
    return size


def is_checked(field: FieldSpec) -> bool:
    has_reserved = field.flags is not None and field.flags.reserved != 0
    is_limited = has_reserved or field.const is not None or field.between is not None
    return is_limited or field.enum is not None or isinstance(field.kind, Bool8)


def has_conditions(item: FieldSpec) -> bool:
    """Return whether bytes of the right size may still not be an item."""
    if isinstance(item.kind, Nested):
        return any(map(has_conditions, item.kind.fields))
    return is_checked(item) or (isinstance(item.kind, Fixed) and item.kind.is_text)
