"""Hypothesis strategies for described frames. Only tests import this: Hypothesis is no dependency of the program."""

from typing import Any

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

_ITEMS_MAX = 6
_BYTES_MAX = 24


def frame_strategy(kind: Any, envelope: EnvelopeSpec) -> st.SearchStrategy[Any]:
    """Return a strategy for the frames of a class."""
    fields = {field.name: field for field in (*envelope.carried, *kind.__layout_fields__)}
    values = {name: field_strategy(field, kind.opcode) for name, field in fields.items()}
    if envelope.order_shown_by:
        values["little"] = st.booleans()
    frames = st.fixed_dictionaries(values)
    trailing = {n: each.missing for n, each in fields.items() if each.is_optional and each.present_if is None}
    announced = [field for field in fields.values() if field.present_if is not None]
    sized = {field.kind.field: field for field in kind.__layout_fields__ if isinstance(field.kind, SizedBy)}
    return frames.map(lambda found: kind(**_measured(_without_gaps(_announced(found, announced), trailing), sized)))


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
            return st.builds(kind, **{inner.name: field_strategy(inner) for inner in fields})
        case Custom(strategy=make) if make is not None:
            made: st.SearchStrategy[Any] = make()
            return made
    raise TypeError(f"{field.name}: no strategy is known for its values; give `custom` one")


def _number_strategy(field: FieldSpec, number: Number) -> st.SearchStrategy[Any]:
    if number.is_float:
        return st.floats(allow_nan=False, width=32 if number.size == 4 else 64)
    bits = 8 * number.size
    if number.is_signed:
        return st.integers(-(1 << bits - 1), (1 << bits - 1) - 1)
    numbers = st.integers(0, (1 << bits) - 1)
    reserved = field.flags.reserved if field.flags is not None else 0
    return numbers.map(lambda value: value & ~reserved)
