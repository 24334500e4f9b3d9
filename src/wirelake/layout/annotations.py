"""From an annotation to the description of a field."""

import types
from collections.abc import Iterator
from enum import IntEnum
from itertools import pairwise
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin

from msgspec.structs import replace

from wirelake.layout.fields import (
    KINDS,
    AtMost,
    Between,
    ByteOrder,
    Checksum,
    Const,
    Counted,
    Direction,
    FieldSpec,
    Fixed,
    Flags,
    ItemName,
    Kind,
    Label,
    LengthRole,
    Limited,
    Nested,
    Number,
    OpcodeRole,
    PerFrame,
    PresentIf,
    Rest,
    Scaled,
    Shown,
    SizedBy,
    SizedBytes,
    ValueNames,
    big,
    little,
    or_empty,
    secret,
)
from wirelake.layout.forms import ChoiceMark, ChosenBy, Contains
from wirelake.layout.sized import SizedNumber, SizeOf

T = TypeVar("T")


def parse_field(name: str, annotation: Any, order: ByteOrder) -> FieldSpec:  # noqa: PLR0912 (one for each rule)
    """Return the description of a field. Raise TypeError if the annotation has none."""
    base, marks = _unwrap(annotation)
    is_optional = False
    chosen = _one(marks, ChoiceMark)
    if chosen is not None:
        order = _order(marks, order)
        cases = tuple((number, parse_field(name, each, order)) for number, each in chosen.cases.items())
        other = parse_field(name, chosen.other, order) if chosen.other is not None else None
        return FieldSpec(name, ChosenBy(chosen.field, cases, other), order, is_secret=secret in marks)
    if get_origin(base) in (Union, types.UnionType) and _one(marks, SizedNumber) is None:
        inner = [each for each in get_args(base) if each is not type(None)]
        if len(inner) != 1 or len(get_args(base)) != 2:
            raise TypeError(f"{name}: {annotation} is not a field")
        is_optional = True
        base, more = _unwrap(inner[0])
        marks = more + marks
    kinds = [mark for mark in marks if isinstance(mark, KINDS)]
    kind: Kind
    described = getattr(base, "__layout_fields__", None)
    if described is not None:
        if any(field.is_optional or _takes_rest(field) for field in described):
            raise TypeError(f"{name}: a {base.__name__} inside another frame must say where it ends")
        kind = Nested(base, described)
    elif len(kinds) == 1:
        kind = kinds[0]
    else:
        raise TypeError(f"{name}: {annotation} needs exactly one field type")
    present = _one(marks, PresentIf)
    if present is not None and not is_optional:
        raise TypeError(f"{name} is not always there: make it `optional[…]`")
    if is_optional and present is None and isinstance(kind, Rest):
        raise TypeError(f"{name}: what is left may be nothing, so it needs not be optional")
    if or_empty in marks and (base is not bytes or not isinstance(kind, Fixed) or not kind.size):
        raise TypeError(f"{name}: only fixed bytes can be `or_empty`")
    order = _order(marks, order)
    if isinstance(kind, Fixed):
        kind = Fixed(kind.size, base is str)
    elif isinstance(kind, SizedBy):
        kind = SizedBy(kind.field, base is str)
    elif isinstance(kind, SizedBytes):
        kind = SizedBytes(kind.encoding, base is str)
    elif isinstance(kind, Counted):
        kind = Counted(kind.prefix, _item(name, get_args(base)[0], order))
    enum = base if isinstance(base, type) and issubclass(base, IntEnum) else None
    at_most, shown, item_name = _one(marks, AtMost), _one(marks, Shown), _one(marks, ItemName)
    label = _one(marks, Label)
    return FieldSpec(
        name,
        kind,
        order,
        const=_one(marks, Const),
        between=_one(marks, Between),
        scale=_one(marks, Scaled),
        names=_one(marks, ValueNames),
        flags=_one(marks, Flags),
        enum=enum,
        shown=shown.function if shown is not None else None,
        present_if=present,
        at_most=at_most.limit if at_most is not None else None,
        label=label.text if label is not None else "",
        item_name=item_name.name if item_name is not None else "",
        length=_one(marks, LengthRole),
        opcode=_one(marks, OpcodeRole),
        checksum=_one(marks, Checksum),
        contains=_one(marks, Contains),
        direction=_one(marks, Direction),
        per_frame=_one(marks, PerFrame),
        limited=_one(marks, Limited),
        is_secret=secret in marks,
        is_optional=is_optional or or_empty in marks,
        missing=b"" if or_empty in marks else None,
        has_own_order=big in marks or little in marks,
    )


def _item(name: str, annotation: Any, order: ByteOrder) -> FieldSpec:
    item = parse_field(name, annotation, order)
    if item.is_optional or _takes_rest(item):
        raise TypeError(f"{name}: an item of a list must say where it ends")
    return item


def _unwrap(annotation: Any) -> tuple[Any, list[Any]]:
    """Return the type inside `Annotated`, and its marks; a mark may be a field type itself."""
    if get_origin(annotation) is not Annotated:
        return annotation, []
    base, *metadata = get_args(annotation)
    marks: list[Any] = []
    for mark in metadata:
        marks += _unwrap(mark)[1] if get_origin(mark) is Annotated else [mark]
    return base, marks


def _order(marks: list[Any], default: ByteOrder) -> ByteOrder:
    if big in marks:
        return "big"
    return "little" if little in marks else default


def _one(marks: list[Any], kind: type[T]) -> T | None:
    found = [mark for mark in marks if isinstance(mark, kind)]
    return found[-1] if found else None


def check_order(fields: tuple[FieldSpec, ...], owner: str) -> None:
    """Raise TypeError if something follows a field that takes the rest, or a required field an optional one."""
    seen: list[str] = []
    unsigned: list[str] = []
    for field in fields:
        for needed in _needs(field):
            if needed not in seen:
                raise TypeError(f"{owner}.{field.name} depends on {needed}, which is not before it")
        if isinstance(field.kind, SizedBy) and field.kind.field not in unsigned:
            text = "which is not an unsigned number before it"
            raise TypeError(f"{owner}.{field.name} is sized by {field.kind.field}, {text}")
        if isinstance(field.kind, Number) and not field.is_optional:
            seen.append(field.name)
            if not field.kind.is_signed and not field.kind.is_float:
                unsigned.append(field.name)
    for before, after in pairwise(fields):
        if _takes_rest(before) and after.size != 0:
            raise TypeError(f"{owner}.{after.name} follows {before.name}, which takes all the bytes that are left")
        if before.is_optional and before.present_if is None and not (after.is_optional and after.present_if is None):
            raise TypeError(f"{owner}.{after.name} is required, but follows {before.name}, which is optional")


def _needs(field: FieldSpec) -> Iterator[str]:
    """Yield the names of the numbers on which the form of a field depends."""
    if field.present_if is not None:
        yield field.present_if.field
    if isinstance(field.kind, ChosenBy):
        yield field.kind.field
        for form in field.kind.forms:
            yield from _needs(form)


def link_sizes(fields: tuple[FieldSpec, ...], owner: str) -> tuple[FieldSpec, ...]:
    """Return the fields, in which each sized number knows the attribute that holds its size."""
    names = {field.kind.field: field.name for field in fields if isinstance(field.kind, SizeOf)}
    sized = {field.name: field.kind for field in fields if isinstance(field.kind, SizedNumber)}
    for other in names.keys() - sized.keys():
        raise TypeError(f"{owner}.{names[other]} is the size of {other}, which is no sized number")
    kinds = {name: replace(kind, size_name=names.get(name, "")) for name, kind in sized.items()}
    return tuple(replace(field, kind=kinds.get(field.name, field.kind)) for field in fields)


def _takes_rest(field: FieldSpec) -> bool:
    """Return whether a field may take all the bytes that are left."""
    if isinstance(field.kind, ChosenBy):
        return any(_takes_rest(form) for form in field.kind.forms)
    return isinstance(field.kind, Rest)
