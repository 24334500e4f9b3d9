"""Fields whose form depends on others: a choice by an earlier number, and bytes that hold other described frames.

class Command(LayoutFrame, frozen=True):
    kind: u8
    data: Annotated[Status | bytes, choice("kind", {1: Status}, rest_bytes)]
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from wirelake.protocols.frame import Sender

if TYPE_CHECKING:
    from wirelake.layout.fields import FieldSpec
    from wirelake.layout.frame_set import FrameSet


class ChosenBy(Struct, frozen=True):
    """One of several forms, by the value of an earlier number. Without `other`, any other value is refused."""

    field: str
    cases: tuple[tuple[int, "FieldSpec"], ...]
    other: "FieldSpec | None" = None

    @property
    def forms(self) -> tuple["FieldSpec", ...]:
        """Return all of them."""
        found = tuple(form for _, form in self.cases)
        return found if self.other is None else (*found, self.other)


class ChoiceMark(Struct, frozen=True):
    """A choice as an author writes it, with annotations for the forms."""

    field: str
    cases: Mapping[int, Any]
    other: Any = None


class Bits(Struct, frozen=True):
    """A condition: these bits of an earlier number have this value."""

    field: str
    mask: int
    value: int

    def hold(self, values: Mapping[str, Any]) -> bool:
        return bool(values[self.field] & self.mask == self.value)


class Content(Struct, frozen=True):
    """Described frames inside bytes: of this sender, if all the conditions hold. Trees show them by this label."""

    label: str
    frames: "FrameSet"
    sender: Sender
    conditions: tuple[Bits, ...] = ()


class Contains(Struct, frozen=True):
    """What bytes hold. `otherwise` returns what to note beside them if nothing of it applies."""

    contents: tuple[Content, ...]
    otherwise: Callable[[Mapping[str, Any]], str]

    def find(self, values: Mapping[str, Any]) -> Content | None:
        """Return the content that the values of earlier fields announce."""
        for content in self.contents:
            if all(condition.hold(values) for condition in content.conditions):
                return content
        return None


def choice(field: str, cases: Mapping[int, Any], other: Any = None) -> ChoiceMark:
    """Mark a field that has another type for each value of an earlier number, and `other` for those not listed.

    Bytes are written as they are, whatever the type.
    """
    return ChoiceMark(field, cases, other)


def contains(*contents: Content, otherwise: Callable[[Mapping[str, Any]], str] = lambda _values: "") -> Contains:
    """Mark bytes that hold other frames. The attribute stays bytes; trees show the fields.

    If the frame inside is malformed, the one around it is valid nevertheless: trees show its bytes, and why.
    """
    return Contains(contents, otherwise)
