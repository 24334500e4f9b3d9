"""The base of described frames.

class Login(LayoutFrame, frozen=True, envelope=Packet, opcode=1, sender=Sender.CLIENT):
    station: text8
    token: Annotated[text8, secret]
"""

import re
from typing import Any, ClassVar, Final, get_type_hints

from msgspec import StructMeta
from msgspec.structs import replace

from wirelake.layout.annotations import check_order, link_sizes, parse_field
from wirelake.layout.envelope import Envelope, EnvelopeSpec
from wirelake.layout.fields import ByteOrder, FieldSpec
from wirelake.layout.generated import Source
from wirelake.layout.writing import generate_encode
from wirelake.protocols.frame import Frame, Sender

_ATTRIBUTES: Final = frozenset({"name", "is_reply", "envelope", "opcode", "sender", "encode"})


def _snake_case(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


class LayoutMeta(StructMeta):
    """Read the annotations of a frame class once, and add the generated `encode`, as `dataclasses` adds methods."""

    def __new__(
        mcs,
        name: str,
        bases: tuple[type, ...],
        namespace: dict[str, Any],
        *,
        envelope: type[Envelope] | None = None,
        opcode: int | None = None,
        sender: Sender | None = None,
        byte_order: ByteOrder | None = None,
        **options: Any,
    ) -> Any:
        namespace.setdefault("name", _snake_case(name))
        spec = envelope.spec if envelope is not None else getattr(bases[0], "envelope", None)
        deferred: dict[str, tuple[Any, Any]] = dict(getattr(bases[0], "__layout_deferred__", {}))
        if opcode is not None:
            _add_deferred(namespace, deferred)
        elif spec is not None and options.get("kw_only"):
            deferred |= _defer(namespace, spec)
        cls: Any = super().__new__(mcs, name, bases, namespace, **options)
        cls.__layout_deferred__ = deferred
        if envelope is not None:
            cls.envelope = envelope.spec
        if opcode is not None:
            cls.opcode = int(opcode)  # of an IntEnum, too
        if sender is not None:
            cls.sender = sender
        if byte_order is not None:
            cls.__layout_order__ = byte_order
        if bases != (Frame,):
            _describe(cls, namespace)
        return cls


def _defer(namespace: dict[str, Any], spec: EnvelopeSpec) -> dict[str, tuple[Any, Any]]:
    """Take the values of the envelope out of a base class without an opcode, and return their types and defaults.

    Each frame class gets them as its last fields, so that `decode` need not pass them by keyword: in a class with a
    metaclass of its own, that takes as long as reading the frame.
    """
    types = namespace.get("__annotations__", {})
    names = [name for name in types if name in spec.attributes and name in namespace]
    if spec.opcode is None or any(isinstance(types[name], str) for name in names):
        return {}
    return {name: (types.pop(name), namespace.pop(name)) for name in names}


def _add_deferred(namespace: dict[str, Any], deferred: dict[str, tuple[Any, Any]]) -> None:
    types = namespace.setdefault("__annotations__", {})
    for name, (annotation, default) in deferred.items():
        if name not in types:
            types[name], namespace[name] = annotation, default


def _describe(cls: Any, namespace: dict[str, Any]) -> None:
    spec: EnvelopeSpec | None = cls.envelope
    carried = spec.attributes if spec is not None else frozenset()
    others = {field.name for field in (*spec.head, *spec.tail)} - carried if spec is not None else set()
    for name in cls.__struct_fields__:
        if name in others:
            raise TypeError(f"{cls.__name__}.{name} has the name of a field of its envelope: rename one of them")
        if name in _ATTRIBUTES:
            raise TypeError(f"{cls.__name__}.{name} has the name of an attribute of every frame: choose another")
    hints = get_type_hints(cls, include_extras=True)
    order = cls.__layout_order__ or (spec.order if spec is not None else "big")
    names = [name for name in cls.__struct_fields__ if name not in carried]
    fields = tuple(parse_field(name, hints[name], order) for name in names)
    if cls.__layout_order__ is not None:
        fields = tuple(replace(field, has_own_order=True) for field in fields)
    cls.__layout_fields__ = link_sizes(fields, cls.__name__)
    check_order(cls.__layout_fields__, cls.__name__)
    missing = carried - set(cls.__struct_fields__)
    if spec is None or missing or "encode" in namespace:  # a base class of frames, or an `encode` of the author's own
        return
    if spec.opcode is not None and cls.opcode is None:
        return
    for field in spec.head:
        if field.per_frame is not None and getattr(cls, field.name, None) is None:
            raise TypeError(f"{cls.__name__} needs a class variable {field.name}, which its envelope asks for")
    source = generate_encode(spec, cls, f"{cls.__module__}.{cls.__qualname__}.encode")
    cls.__layout_encode__ = source
    cls.encode = source.compile()["encode"]


class LayoutFrame(Frame, frozen=True, metaclass=LayoutMeta):
    """A frame whose fields are described by their annotations.

    Class arguments: `envelope`, which subclasses inherit; `opcode`, if the envelope has one; `sender`, if only one end
    of a connection sends it; `byte_order`, if it is not that of the envelope. Without an envelope, it is a
    part of other frames.
    """

    envelope: ClassVar[EnvelopeSpec | None] = None
    opcode: ClassVar[int | None] = None
    sender: ClassVar[Sender | None] = None
    __layout_fields__: ClassVar[tuple[FieldSpec, ...]] = ()
    __layout_order__: ClassVar[ByteOrder | None] = None
    __layout_encode__: ClassVar[Source | None] = None
    __layout_deferred__: ClassVar[dict[str, tuple[Any, Any]]] = {}  # type and default by name


def source(cls: type[LayoutFrame]) -> str:
    """Return the generated source of a class's `encode`."""
    return cls.__layout_encode__.text if cls.__layout_encode__ is not None else ""
