"""Hypothesis strategies for described frames. Only tests import this: Hypothesis is no dependency of the program."""

from typing import Any, Literal

from hypothesis import strategies as st

from wirelake.layout.envelope import EnvelopeSpec
from wirelake.layout.fields import (
    Bool8,
    Counted,
    Custom,
    FieldSpec,
    Fixed,
    Nested,
    Number,
    Prefixed,
    Rest,
    SizedBy,
    SizedBytes,
    Varint,
)
from wirelake.layout.forms import ChosenBy
from wirelake.layout.sized import SizedNumber, SizeOf

_ITEMS_MAX = 6
_BYTES_MAX = 24


def frame_strategy(kind: Any, envelope: EnvelopeSpec) -> st.SearchStrategy[Any]:
    """Return a strategy for the frames of a class."""
    values = _values((*envelope.carried, *kind.__layout_fields__), kind.opcode)
    if envelope.order_shown_by:
        return st.tuples(values, st.booleans()).map(lambda drawn: kind(**drawn[0], little=drawn[1]))
    return values.map(lambda found: kind(**found))


def _values(fields: tuple[FieldSpec, ...], opcode: int | None = None) -> st.SearchStrategy[dict[str, Any]]:
    """Return a strategy for the values of fields, by name."""
    chosen = [field for field in fields if isinstance(field.kind, ChosenBy)]
    keys = _keys(fields)
    plain = {
        field.name: st.sampled_from(keys[field.name]) | field_strategy(field, opcode)
        if field.name in keys
        else field_strategy(field, opcode)
        for field in fields
        if not isinstance(field.kind, ChosenBy | SizeOf)
    }
    trailing = {each.name: each.missing for each in fields if each.is_optional and each.present_if is None}
    announced = [field for field in fields if field.present_if is not None]
    measured = {each.kind.field: each for each in fields if isinstance(each.kind, SizedBy) and each.kind.field in plain}
    sized = {field.name: field.kind for field in fields if isinstance(field.kind, SizedNumber)}
    found = st.fixed_dictionaries(plain).map(lambda values: _without_gaps(_announced(values, announced), trailing))
    found = found.map(lambda values: _with_sizes(_measured(values, measured), sized))
    return found.flatmap(lambda values: _with_choices(values, chosen)) if chosen else found


def _keys(fields: tuple[FieldSpec, ...]) -> dict[str, list[int]]:
    """Return the numbers on which choices depend, each with the values that have a form of their own."""
    keys: dict[str, list[int]] = {}
    left = list(fields)
    while left:
        kind = left.pop().kind
        if isinstance(kind, ChosenBy):
            keys.setdefault(kind.field, []).extend(number for number, _ in kind.cases)
            left += kind.forms
    return keys


def _with_choices(values: dict[str, Any], chosen: list[FieldSpec]) -> st.SearchStrategy[dict[str, Any]]:
    """Return a strategy for the values with those of the choices that they determine."""
    more = {}
    for field in chosen:
        form: FieldSpec | None = field
        while form is not None and isinstance(form.kind, ChosenBy):
            form = dict(form.kind.cases).get(values[form.kind.field], form.kind.other)
        if form is None:
            return st.nothing()
        more[field.name] = field_strategy(form)
    return st.fixed_dictionaries(more).map(lambda found: {**values, **found})


def _with_sizes(values: dict[str, Any], sized: dict[str, SizedNumber]) -> dict[str, Any]:
    """Return the values with the sizes of sized numbers, which are drawn together with them."""
    for name, kind in sized.items():
        values[name], size = values[name]
        if kind.size_name:
            values[kind.size_name] = size
    return values


def _measured(values: dict[str, Any], sized: dict[str, FieldSpec]) -> dict[str, Any]:
    """Return the values with the sizes of those that another field sizes."""
    for name, field in sized.items():
        value = values[field.name]
        values[name] = len(value.encode() if isinstance(value, str) else value)
    return values


def _announced(values: dict[str, Any], fields: list[FieldSpec]) -> dict[str, Any]:
    """Return the values without the fields that no bit announces."""
    for field in fields:
        if field.present_if is not None and not values[field.present_if.field] & field.present_if.bits:
            values[field.name] = None
    return values


def _without_gaps(values: dict[str, Any], trailing: dict[str, Any]) -> dict[str, Any]:
    """Return the values without optional fields after a missing one."""
    missing = False
    for name, missing_value in trailing.items():
        missing = missing or values[name] == missing_value
        values[name] = missing_value if missing else values[name]
    return values


def field_strategy(field: FieldSpec, opcode: int | None = None) -> st.SearchStrategy[Any]:
    """Return a strategy for the values of a field."""
    if field.is_optional and field.present_if is None:
        return st.just(field.missing) | _value_strategy(field)
    if field.opcode is not None and field.opcode.mask:
        mask = field.opcode.mask
        return _value_strategy(field).map(lambda value: value & ~mask | (opcode or 0))
    return _value_strategy(field)


def _value_strategy(field: FieldSpec) -> st.SearchStrategy[Any]:  # noqa: PLR0911 (one for each kind)
    if field.const is not None:
        return st.just(field.const.value)
    if field.enum is not None:
        return st.sampled_from(list(field.enum))
    match field.kind:
        case Number() as number:
            return _number_strategy(field, number)
        case Bool8():
            return st.booleans()
        case Fixed(size=size, is_text=is_text):
            ascii_text = st.text(st.characters(min_codepoint=32, max_codepoint=126), min_size=size, max_size=size)
            return ascii_text if is_text else st.binary(min_size=size, max_size=size)
        case Prefixed(is_text=is_text) | SizedBy(is_text=is_text) | SizedBytes(is_text=is_text) | Rest(is_text=is_text):
            most = min(_BYTES_MAX, field.at_most or _BYTES_MAX)
            text = st.text(st.characters(codec="utf-8"), max_size=most)
            return text if is_text else st.binary(max_size=most)
        case Varint(bits=bits, is_signed=is_signed):
            return st.integers(-(1 << bits - 1), (1 << bits - 1) - 1) if is_signed else st.integers(0, (1 << bits) - 1)
        case Counted(item=FieldSpec() as item):
            most = min(_ITEMS_MAX, field.at_most or _ITEMS_MAX)
            return st.lists(field_strategy(item), max_size=most).map(tuple)
        case Nested(kind=kind, fields=fields):
            return _values(fields).map(lambda found: kind(**found))
        case SizedNumber() as number:
            return _sized_strategy(number)
        case Custom(strategy=make) if make is not None:
            made: st.SearchStrategy[Any] = make()
            return made
    raise TypeError(f"{field.name}: no strategy is known for its values; give `custom` one")


def _number_strategy(field: FieldSpec, number: Number) -> st.SearchStrategy[Any]:
    if number.is_float:
        return st.floats(allow_nan=False, width=32 if number.size == 4 else 64)
    if field.between is not None:
        return st.integers(field.between.least, field.between.most)
    bits = 8 * number.size
    if number.is_signed:
        return st.integers(-(1 << bits - 1), (1 << bits - 1) - 1)
    numbers = st.integers(0, (1 << bits) - 1)
    reserved = field.flags.reserved if field.flags is not None else 0
    return numbers.map(lambda value: value & ~reserved)


def _sized_strategy(number: SizedNumber) -> st.SearchStrategy[tuple[Any, int]]:
    """Return a strategy for values, each with the size that it has on the wire."""
    drawn: list[st.SearchStrategy[tuple[Any, int]]] = []
    for size in number.integers:
        bits = 8 * size
        least, most = (-(1 << bits - 1), (1 << bits - 1) - 1) if number.is_signed else (0, (1 << bits) - 1)
        drawn.append(st.tuples(st.integers(least, most), st.just(size)))
    widths: dict[int, Literal[32, 64]] = {4: 32, 8: 64}
    drawn += [st.tuples(st.floats(allow_nan=False, width=widths[size]), st.just(size)) for size in number.floats]
    others = st.binary(max_size=_BYTES_MAX).filter(lambda raw: len(raw) not in (*number.integers, *number.floats))
    return st.one_of(*drawn, others.map(lambda raw: (raw, len(raw))))
