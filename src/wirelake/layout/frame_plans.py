"""What a kernel makes of the frames of one class, and what it has to know about their fields."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from msgspec import Struct, json

from wirelake.layout.fields import Bool8, Counted, FieldSpec, Fixed, Nested, Prefixed
from wirelake.layout.forms import Bits
from wirelake.layout.messages import Condition, Value, attribute_of
from wirelake.layout.sized import SizedNumber

_VALUE: Final = re.compile(r"\w+_value\b")
# Marks that kernels follow, or that do not change which frames are valid and what their values are.
_KNOWN_MARKS: Final = frozenset(
    {
        *("name", "kind", "order", "has_own_order", "length", "opcode", "checksum", "per_frame", "direction"),
        *("const", "between", "flags", "enum", "scale", "names", "shown", "at_most", "limited", "label", "item_name"),
        *("present_if", "is_optional", "missing", "is_secret", "contains", "sizes"),
    }
)


class CannotGenerate(Exception):  # noqa: N818 (not an error: the codec decodes such a frame)
    """A frame has a part that a kernel cannot read or write."""


class Constant(Struct, frozen=True):
    """JSON that is always the same."""

    text: str


class Objects(Struct, frozen=True):
    """A list of objects, made from the frames in a list."""

    attribute: str
    members: tuple[tuple[str, "str | Constant"], ...]


class Forms(Struct, frozen=True):
    """A field with several forms: each has a key of its own. Bytes have an empty one: they are left for a column."""

    attribute: str
    keys: tuple[str, ...]  # in the order of the description


JsonValue = Value | Constant | Objects | Forms


class JsonMember(Struct, frozen=True):
    """A member of the JSON object. With `is_sparse`, it is left out if it is zero or empty."""

    key: str
    value: JsonValue
    is_sparse: bool = False
    condition: str = ""  # an expression of variables: it is left out unless that holds

    @property
    def attribute(self) -> str:
        """Return the attribute that it is made of, if any."""
        match self.value:
            case Constant():
                return ""
            case Objects(attribute=attribute) | Forms(attribute=attribute):
                return attribute
            case _:
                return attribute_of(self.value)


class NumberColumn(Struct, frozen=True):
    """A column of numbers of so many bytes. The expression uses the variables of the kernel: see `kernel_reading`."""

    expression: str
    size: int


class FramePlan(Struct, frozen=True):
    """What a kernel makes of the frames of one class: JSON, and columns with the value of an attribute."""

    kind: Any
    members: tuple[JsonMember, ...]
    spans: Mapping[str, str]  # column → attribute; in the plan of a content, `.attribute` is one of the outer frame
    numbers: Mapping[str, NumberColumn] = {}
    contents: "tuple[ContentPlan, ...]" = ()
    has_json: bool = True
    conditions: tuple[Condition, ...] = ()  # frames that do not meet them are left to the codec

    def used(self) -> set[str]:
        """Return the attributes that are needed."""
        names = {member.attribute for member in self.members} | set(self.spans.values())
        names |= {condition.attribute for condition in self.conditions}
        for content in self.contents:
            names |= {content.attribute, *(condition.field for condition in content.conditions)}
            names |= {name[1:] for name in content.plan.spans.values() if name.startswith(".")}
        expressions = [each.expression for each in self.numbers.values()]
        expressions += [member.condition for member in self.members]
        return names | {match.removesuffix("_value") for each in expressions for match in _VALUE.findall(each)}


class ContentPlan(Struct, frozen=True):
    """Another frame that bytes hold if these conditions are met: its plan applies instead.

    The names of its variables begin with that of its class, in lower case, and two underscores.
    """

    attribute: str
    conditions: tuple[Bits, ...]
    plan: FramePlan


def quoted(text: str | bytes) -> str:
    """Return a text as JSON; bytes are base64."""
    return json.encode(text).decode()


def as_64_bits(number: Any) -> int:
    """Return the number of 64 bits that the kernel has for it: negative from 2**63 on."""
    if not isinstance(number, int):
        raise CannotGenerate(f"{number!r} is not a number")
    return number - (1 << 64) if number >= 1 << 63 else number


def check_marks(field: FieldSpec) -> None:
    """Raise CannotGenerate if a field has a mark that kernels do not know."""
    plain = FieldSpec(field.name, field.kind)
    for mark in field.__struct_fields__:
        if mark not in _KNOWN_MARKS and getattr(field, mark) != getattr(plain, mark):
            raise CannotGenerate(f"{field.name} is marked with {mark}")


def least_size(field: FieldSpec) -> int:
    """Return how many bytes a field has at least."""
    if field.is_optional:
        return 0
    match field.kind:
        case Prefixed(prefix=prefix) | Counted(prefix=prefix):
            return prefix
        case Nested(fields=fields):
            return sum(map(least_size, fields))
        case SizedNumber(prefix=prefix):
            return prefix
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
