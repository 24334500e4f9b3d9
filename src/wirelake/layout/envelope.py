"""What surrounds the fields of a frame, and how frames are cut out of a stream.

    class Packet(Envelope):
        magic: Annotated[u8, const(0xBE)]
        length: Annotated[u16, length_of_rest()]
        kind: Annotated[u8, opcode()]
        body: Body
        crc: Annotated[u16, crc16_modbus()]

Fields before the body that are neither constant nor a length or an opcode are part of every frame: each frame class has
an attribute of the same name.
"""

from typing import Any, ClassVar, Final, get_type_hints

from fastcrc.crc16 import modbus
from msgspec import Struct
from msgspec.structs import replace

from wirelake.layout.annotations import check_order, parse_field
from wirelake.layout.fields import (
    Body,
    ByteOrder,
    Checksum,
    Crc,
    FieldSpec,
    LengthRole,
    Number,
    OpcodeRole,
    Prefixed,
    ShortLength,
    SizedBy,
    in_order,
)

FRAME_BYTES_MAX = 65_536  # of an envelope that does not say


class ShownBy(Struct, frozen=True):
    """The byte order differs from frame to frame, and a field shows it."""

    field: str


class EnvelopeSpec(Struct, frozen=True):
    """The description of an envelope."""

    name: str
    head: tuple[FieldSpec, ...]  # before the body
    tail: tuple[FieldSpec, ...]  # after it
    order: ByteOrder = "big"
    frame_bytes_max: int = FRAME_BYTES_MAX
    limit_name: str = "frame_bytes_max"
    is_datagram: bool = False  # each message is one frame
    order_shown_by: str = ""  # the field that shows the byte order, if that differs from frame to frame

    @property
    def length(self) -> FieldSpec | None:
        return next((field for field in self.head if field.length is not None), None)

    @property
    def opcode(self) -> FieldSpec | None:
        return next((field for field in self.head if field.opcode is not None), None)

    @property
    def checksum(self) -> FieldSpec | None:
        return next((field for field in self.tail if field.checksum is not None), None)

    @property
    def direction(self) -> FieldSpec | None:
        return next((field for field in self.carried if field.direction is not None), None)

    @property
    def carried(self) -> tuple[FieldSpec, ...]:
        """Return the fields of the head whose values belong to the frames."""
        return tuple(field for field in self.head if is_carried(field))

    @property
    def attributes(self) -> frozenset[str]:
        """Return what every frame has an attribute for."""
        names = {field.name for field in self.carried}
        return frozenset(names | {"little"} if self.order_shown_by else names)

    @property
    def sizes(self) -> tuple[FieldSpec, ...]:
        """Return the fields of the head that are the size of another one there."""
        return tuple(field for field in self.head if field.sizes)

    @property
    def added_sizes(self) -> tuple[str, ...]:
        """Return the names of the sizes to add to the value of the length, too."""
        is_body = self.length is not None and self.length.length is not None and self.length.length.counts == "body"
        return tuple(field.name for field in self.sizes) if is_body else ()

    @property
    def prefix(self) -> tuple[FieldSpec, ...]:
        """Return the fields up to the one that shows the byte order."""
        names = [field.name for field in self.head]
        return self.head[: names.index(self.order_shown_by) + 1] if self.order_shown_by else ()

    @property
    def prefix_size(self) -> int:
        return sum(field.size or 0 for field in self.prefix)

    def prefix_of(self, kind: Any) -> bytes:
        """Return the first bytes of every frame of a class."""
        parts = []
        for field in self.prefix:
            value = constant_of(field, kind)
            parts.append(value if isinstance(value, bytes) else value.to_bytes(field.size or 0, field.order))
        return b"".join(parts)

    def in_order(self, order: ByteOrder) -> "EnvelopeSpec":
        """Return the same in this byte order."""
        head = tuple(in_order(field, order) for field in self.head)
        tail = tuple(in_order(field, order) for field in self.tail)
        return replace(self, head=head, tail=tail, order=order)

    @property
    def tail_size(self) -> int:
        return sum(field.size or 0 for field in self.tail)

    @property
    def head_size(self) -> int | None:
        """Return the size of the head without what another field sizes, None if it differs from frame to frame."""
        sizes = [0 if isinstance(field.kind, SizedBy) else field.size for field in self.head]
        return None if None in sizes else sum(size for size in sizes if size is not None)

    def before(self, name: str) -> int | None:
        """Return how many bytes are before a field of the head, None if that differs from frame to frame."""
        size = 0
        for field in self.head:
            if field.name == name:
                return size
            if field.size is None:
                return None
            size += field.size
        return None

    def added_to_length(self) -> int:
        """Return what to add to the value of the length for the size of the frame; not for a `ShortLength`."""
        field = self.length
        if field is None or field.length is None:
            return 0
        match field.length.counts:
            case "rest":
                counted = (self.before(field.name) or 0) + (field.size or 0)
            case "frame":
                counted = 0
            case "body":
                counted = (self.head_size or 0) + self.tail_size
        return counted - field.length.plus

    def covered(self, checksum: FieldSpec) -> tuple[int, int]:
        """Return where the bytes of a checksum begin, and how many bytes before the end of the frame they end."""
        over = checksum.checksum.over if checksum.checksum is not None else ""
        first, _, last = over.partition("..")
        start = self.head_size if first == "body" else self.before(first) if first else 0
        if start is None:
            raise TypeError(f"{self.name}.{checksum.name}: where {first!r} begins differs from frame to frame")
        after = self.tail_size
        if last == "body":
            return start, after
        for field in self.tail:
            if not last and field.name == checksum.name:
                return start, after
            after -= field.size or 0
            if field.name == last:
                return start, after
        raise TypeError(f"{self.name}.{checksum.name}: {last!r} is neither the body nor a field after it")


NO_ENVELOPE: Final = EnvelopeSpec("nothing", (), ())


class Envelope:
    """The base of envelopes. Class arguments: `byte_order`, `frame_bytes_max`, `limit_name`.

    `byte_order` is "big", "little" or `order_shown_by(…)`.

    A frame over `frame_bytes_max` is refused as soon as its length is read, with the code `limit_name`. With
    `is_datagram`, frames need no length: each is one datagram, or one message of what is around it.
    """

    spec: ClassVar[EnvelopeSpec]

    def __init_subclass__(
        cls,
        *,
        byte_order: ByteOrder | ShownBy = "big",
        frame_bytes_max: int = FRAME_BYTES_MAX,
        limit_name: str = "frame_bytes_max",
        is_datagram: bool = False,
        **arguments: Any,
    ) -> None:
        super().__init_subclass__(**arguments)
        head: list[FieldSpec] = []
        tail: list[FieldSpec] = []
        has_body = False
        shown_by, order = "", byte_order
        if isinstance(order, ShownBy):
            shown_by, order = order.field, "big"
        hints = get_type_hints(cls, include_extras=True)
        for name in cls.__annotations__:
            if hints[name] is Body:
                has_body = True
                continue
            (tail if has_body else head).append(parse_field(name, hints[name], order))
        if not has_body:
            raise TypeError(f"{cls.__name__} has no body: add `body: Body` where the fields of the frames are")
        sized = {field.kind.field: field.name for field in head if isinstance(field.kind, SizedBy)}
        fields = tuple(replace(field, sizes=sized.get(field.name, "")) for field in head)
        cls.spec = EnvelopeSpec(
            cls.__name__, fields, tuple(tail), order, frame_bytes_max, limit_name, is_datagram, shown_by
        )
        _check(cls.spec)


def _check(spec: EnvelopeSpec) -> None:
    for field in spec.tail:
        if field.size is None or (field.checksum is None and field.const is None):
            raise TypeError(f"{spec.name}.{field.name}: after the body there are only checksums and constants")
    for field in spec.head:
        if field.size is None and not isinstance(field.kind, ShortLength | Prefixed | SizedBy):
            raise TypeError(f"{spec.name}.{field.name}: a field before the body must say where it ends")
    check_order((*spec.head, *spec.tail), spec.name)
    length = spec.length
    if length is not None and length.length is not None:
        if spec.before(length.name) is None:
            raise TypeError(f"{spec.name}.{length.name}: the length must be at a fixed place")
        is_other = length.length.counts != "rest" or length.length.plus or spec.before(length.name)
        if isinstance(length.kind, ShortLength) and is_other:
            raise TypeError(f"{spec.name}.{length.name}: a short length comes first, and counts the rest")
        if length.length.counts == "body" and spec.head_size is None:
            raise TypeError(f"{spec.name}.{length.name}: the head must have a fixed size")
        names = [field.name for field in spec.head]
        if any(names.index(size.name) > names.index(length.name) for size in spec.sizes):
            raise TypeError(f"{spec.name}.{length.name}: the sizes of other fields come before it")
    if spec.order_shown_by:
        _check_shown_order(spec)


def _check_shown_order(spec: EnvelopeSpec) -> None:
    field = next((field for field in spec.head if field.name == spec.order_shown_by), None)
    if field is None or not isinstance(field.kind, Number) or field.kind.size < 2:
        raise TypeError(f"{spec.name}: {spec.order_shown_by} is not a number that shows the byte order")
    for each in spec.prefix:
        is_fixed = each.const is not None or each.per_frame is not None
        is_fixed = is_fixed or (each.opcode is not None and not each.opcode.mask)
        if not is_fixed or (each is not field and isinstance(each.kind, Number) and each.kind.size > 1):
            text = "up to the byte order there are opcodes, constants and bytes that each frame sets"
            raise TypeError(f"{spec.name}.{each.name}: {text}")
    if spec.length is None or spec.length in spec.prefix or isinstance(spec.length.kind, ShortLength):
        raise TypeError(f"{spec.name}: a length is needed after the field that shows the byte order")


def is_carried(field: FieldSpec) -> bool:
    """Return whether each frame has an attribute for this field of an envelope."""
    if field.opcode is not None:
        return field.opcode.mask != 0
    if field.const is not None:
        return field.const.is_carried
    return field.length is None and field.per_frame is None and not field.sizes


def constant_of(field: FieldSpec, kind: Any) -> int | bytes:
    """Return the value of a field of an envelope that is the same in all frames of a class."""
    if field.opcode is not None and kind.opcode is not None:
        return int(kind.opcode)
    if field.per_frame is not None:
        value: int | bytes = getattr(kind, field.name)
        return value
    return field.const.value if field.const is not None else 0


def order_shown_by(field: str) -> ShownBy:
    """Let the byte order differ from frame to frame: it is the one in which this opcode or constant is a valid number.

    Each frame has an attribute `little: bool`. The first frame of a stream sets the order of all.
    """
    return ShownBy(field)


def length_of_rest(*, plus: int = 0, at_least: int = 0, write_max: int = 0) -> LengthRole:
    """Mark the field that counts all bytes after itself."""
    return LengthRole("rest", plus, at_least, write_max)


def length_of_frame(*, plus: int = 0, at_least: int = 0, write_max: int = 0) -> LengthRole:
    """Mark the field that counts all bytes of the frame, itself included."""
    return LengthRole("frame", plus, at_least, write_max)


def length_of_body(*, plus: int = 0, at_least: int = 0, write_max: int = 0, code: str = "") -> LengthRole:
    """Mark the field that counts the bytes of the body only."""
    return LengthRole("body", plus, at_least, write_max, code)


def opcode(*, mask: int = 0, code: str = "") -> OpcodeRole:
    """Mark the field that says which frame it is."""
    return OpcodeRole(mask, code)


def crc16_modbus(*, over: str = "", code: str = "") -> Checksum:
    """Mark a CRC-16/MODBUS. `over` names the first and the last field that it covers, as in `magic..body`."""
    parameters = Crc(16, 0x8005, 0xFFFF, is_reflected=True)
    return Checksum("CRC-16/MODBUS", modbus, over, 0, "little", code, parameters)
