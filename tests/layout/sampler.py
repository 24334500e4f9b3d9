"""A made-up protocol with every type of field, for the tests of descriptions."""

from enum import IntEnum
from typing import Annotated, Any, ClassVar

from hypothesis import strategies as st

from wirelake.errors import EncodeError, ProtocolError, TranslationError
from wirelake.layout import (
    AtLeast,
    Body,
    Checksum,
    Envelope,
    FrameSet,
    LayoutFrame,
    MessageRule,
    SizeEncoding,
    at_most,
    big,
    bool8,
    bytes8,
    bytes16,
    bytes32,
    bytes_varint,
    bytes_zigzag,
    const,
    crc16_modbus,
    custom,
    f32,
    f64,
    fixed,
    flags,
    i8,
    i16,
    i24,
    i32,
    i48,
    i64,
    length_of_body,
    length_of_frame,
    length_of_rest,
    limited,
    list8,
    list16,
    little,
    names,
    opcode,
    optional,
    or_empty,
    order_shown_by,
    per_frame,
    present_if,
    rest_bytes,
    rest_text,
    scaled,
    secret,
    shown,
    sized_by,
    sized_in,
    text8,
    text16,
    text32,
    text_varint,
    text_zigzag,
    u8,
    u16,
    u24,
    u32,
    u48,
    u64,
    varint32,
    varint64,
    zigzag32,
    zigzag64,
)
from wirelake.message import Kind, Message
from wirelake.protocols.frame import Sender
from wirelake.protocols.protocol import Carrier, Protocol, Transport
from wirelake.protocols.tree import Dissector


class Colour(IntEnum):
    RED = 1
    GREEN = 2
    BLUE = 7


def read_varint(frame: bytes, start: int, end: int) -> tuple[int, int]:
    """Read groups of seven bits, the lowest first, by functions of an author."""
    value = 0
    for index, byte in enumerate(frame[start : min(end, start + 5)]):
        value |= (byte & 0x7F) << 7 * index
        if byte < 0x80:
            return value, start + index + 1
    if end - start < 5:
        raise ProtocolError("short", "a number is cut off", end)
    raise ProtocolError("varint", "a number of more than five bytes", start)


def write_varint(value: int) -> bytes:
    if not 0 <= value < 1 << 35:
        raise EncodeError(f"{value} does not fit 35 bits")
    groups = bytearray()
    while value > 0x7F:
        groups.append(0x80 | value & 0x7F)
        value >>= 7
    return bytes([*groups, value])


varint = Annotated[
    int, custom(read_varint, write_varint, strategy=lambda: st.integers(0, (1 << 35) - 1), title="varint")
]


class Packet(Envelope, frame_bytes_max=10_000, limit_name="sampler_bytes_max"):
    magic: Annotated[u16, const(0xCAFE)]
    length: Annotated[u16, length_of_frame()]
    kind: Annotated[u8, opcode()]
    seq: u16
    body: Body
    crc: Annotated[u16, little, crc16_modbus(over="magic..body")]


class SamplerFrame(LayoutFrame, frozen=True, kw_only=True, envelope=Packet):
    seq: int = 0


class Point(LayoutFrame, frozen=True):
    x: i16
    y: Annotated[i16, little]
    label: text8
    tags: list8[bytes8]


class Pixel(LayoutFrame, frozen=True, byte_order="little"):
    at: u16
    colour: Annotated[Colour, u8]


class Numbers(SamplerFrame, frozen=True, opcode=1):
    """All kinds of numbers."""

    a: u8
    b: u16
    c: u24
    d: u32
    e: u48
    f: u64
    g: i8
    h: i16
    i: i24
    j: i32
    k: i48
    l: i64  # noqa: E741 (as the wire has it)
    m: f32
    n: f64
    o: bool8
    p: Annotated[u32, little]
    q: Annotated[u48, little]
    r: Annotated[u16, big]


class Login(SamplerFrame, frozen=True, opcode=2, sender=Sender.CLIENT):
    """Sent first."""

    station: text8
    token: Annotated[text8, secret]
    key: Annotated[bytes, fixed(4), secret]
    pin: Annotated[u16, secret]
    older: Annotated[list8[text8], secret]


class Texts(SamplerFrame, frozen=True, opcode=2, sender=Sender.SERVER):
    t8: text8
    t16: text16
    t32: text32
    b8: bytes8
    b16: Annotated[bytes16, at_most(20)]
    b32: Annotated[bytes32, little]
    code: Annotated[str, fixed(3)]
    key: Annotated[bytes, fixed(5)]
    tail: rest_text


class Lists(SamplerFrame, frozen=True, opcode=3):
    numbers: list8[u16]
    wide: list16[i64]
    small: list8[u24]
    switches: list8[bool8]
    colours: list8[Annotated[Colour, u8]]
    points: list8[Point]
    matrix: list8[list8[Annotated[u32, little]]]
    corner: Point
    pixels: list8[Pixel]


class Marks(SamplerFrame, frozen=True, opcode=4):
    version: Annotated[u8, const(3)]
    colour: Annotated[Colour, u8]
    level: Annotated[u8, names({0: "low", 1: "high"})]
    params: Annotated[u8, flags("first", "last", "", "answer", reserved=0xF0)]
    tenths: Annotated[i16, scaled(0.1, "°C")]
    sign: Annotated[bytes, fixed(2), const(b"OK")]
    count: varint
    size: u8
    frame: text8
    more: optional[u16] = None
    note: optional[text8] = None
    last: Annotated[bytes8 | None, secret] = None


class Parts(SamplerFrame, frozen=True, opcode=5):
    """Fields that bits announce, also in the middle."""

    params: Annotated[u8, flags("ver", "point", "words", "rest", reserved=0xF0)]
    ver: Annotated[optional[u16], present_if("params", 0x01)] = None
    point: Annotated[optional[Point], present_if("params", 0x02)] = None
    words: Annotated[optional[list8[text8]], present_if("params", 0x04)] = None
    always: Annotated[u32, shown(lambda value: f"{value} s" if value else "")] = 0
    left: Annotated[optional[rest_bytes], present_if("params", 0x08)] = None


class Nothing(SamplerFrame, frozen=True, opcode=9):
    pass


SAMPLER = FrameSet("sampler", Packet, [Numbers, Login, Texts, Lists, Marks, Parts, Nothing])


def xor(data: bytes) -> int:
    found = 0
    for byte in data:
        found ^= byte
    return found


class Small(Envelope, byte_order="little", frame_bytes_max=200):
    """The length of the body, plus two; a checksum of another kind over a part; a constant at the end."""

    kind: Annotated[u16, opcode(code="no_such_kind")]
    length: Annotated[u8, length_of_body(plus=2)]
    body: Body
    end: Annotated[u8, const(0x0A)]
    sum: Annotated[u8, Checksum("XOR", xor, over="length..body")]


class One(LayoutFrame, frozen=True, envelope=Small, opcode=1):
    value: u32


class Two(LayoutFrame, frozen=True, envelope=Small, opcode=0x102):
    password: Annotated[rest_bytes, secret]


SMALL = FrameSet("small", Small, [One, Two])


class Plain(Envelope):
    """No length: the frame itself says where it ends."""

    magic: Annotated[u8, const(0xBE)]
    body: Body
    crc: Annotated[u16, little, crc16_modbus()]


class Report(LayoutFrame, frozen=True, envelope=Plain):
    station: text8
    values: list8[u16]
    height: i32
    remark: text16


PLAIN = FrameSet("plain", Plain, [Report])


class Turned(Envelope, byte_order=order_shown_by("kind"), frame_bytes_max=2_000, limit_name="turned_bytes_max"):
    """The byte order differs from frame to frame, and there are two lengths."""

    magic: Annotated[u8, per_frame(code="bad_magic"), names({0xA0: "control", 0xA1: "data"})]
    version: Annotated[u8, const(1)]
    kind: Annotated[u16, opcode()]
    extra_size: Annotated[u16, limited(40, "turned_extra_bytes_max")]
    seq: Annotated[u16, big]
    length: Annotated[u32, length_of_body(code="length_wrong"), limited(1_000, "turned_body_bytes_max")]
    extra: Annotated[bytes, sized_by("extra_size")]
    body: Body


class TurnedFrame(LayoutFrame, frozen=True, kw_only=True, envelope=Turned):
    magic: ClassVar[int] = 0xA0
    seq: int = 0
    extra: bytes = b""
    little: bool = False


class Begin(TurnedFrame, frozen=True, opcode=1):
    key: Annotated[bytes, fixed(4)]
    ticket: Annotated[bytes, fixed(3), or_empty] = b""


class Reply(TurnedFrame, frozen=True, opcode=2):
    number: u32
    fixed_order: Annotated[u16, little]
    data: rest_bytes


class Mixed(TurnedFrame, frozen=True, opcode=3):
    magic: ClassVar[int] = 0xA1
    word_size: u8
    word: Annotated[str, sized_by("word_size")]
    at: Point
    pixels: list8[Pixel]
    numbers: list8[u16]
    sign: Annotated[u16, const(0x1234)]


TURNED = FrameSet("turned", Turned, [Begin, Reply, Mixed])


class Wide(Envelope, frame_bytes_max=1_000):
    """A length of three bytes, and a part of the head that another field sizes; per-frame values without an order."""

    name_size: u24
    length: Annotated[u24, length_of_rest(), limited(500, "wide_length_max")]
    kind: Annotated[u8, opcode()]
    level: Annotated[u8, per_frame()]
    label: Annotated[str, sized_by("name_size")]
    body: Body


class WideFrame(LayoutFrame, frozen=True, kw_only=True, envelope=Wide):
    level: ClassVar[int] = 3
    label: str = ""


class Low(WideFrame, frozen=True, opcode=1):
    value: u24


class High(WideFrame, frozen=True, opcode=2):
    level: ClassVar[int] = 9
    words: list8[text8]


WIDE = FrameSet("wide", Wide, [Low, High])


def read_quarter(frame: bytes, start: int, end: int) -> tuple[int, int]:
    """Read a size: up to 63 in one byte; above, in two, of which the first begins with 11."""
    if frame[start] < 64:
        return frame[start], start + 1
    if frame[start] < 0xC0:
        raise ProtocolError("size_form", "no size begins like this", start)
    if start + 2 > end:
        raise ProtocolError("short", "a size is cut off", end)
    return (frame[start] & 0x3F) << 8 | frame[start + 1], start + 2


def write_quarter(size: int) -> bytes:
    if size >= 1 << 14:
        raise EncodeError(f"{size} bytes: at most 16383")
    return bytes([size]) if size < 64 else bytes([0xC0 | size >> 8, size & 0xFF])


def dissect_pairs(d: Dissector, label: str) -> None:
    with d.group(label):
        for index in range(d.u8("count")):
            d.raw(f"pair {index}", 2)


quarter = SizeEncoding("quarter", read_quarter, write_quarter, one_byte_max=63)
slow_quarter = SizeEncoding("slow quarter", read_quarter, write_quarter)


class Varying(Envelope):
    length: Annotated[u16, length_of_rest()]
    kind: Annotated[u8, opcode()]
    body: Body
    crc: Annotated[u16, little, crc16_modbus()]


class Numbered(LayoutFrame, frozen=True, envelope=Varying, opcode=1):
    a: varint32
    b: varint64
    c: zigzag32
    d: zigzag64
    level: Annotated[zigzag32, names({-1: "below", 1: "above"}, "level")]
    many: list8[zigzag64]
    last: optional[varint32] = None


class Sized(LayoutFrame, frozen=True, envelope=Varying, opcode=2):
    a: bytes_varint
    b: text_varint
    c: Annotated[bytes_zigzag, at_most(20)]
    d: text_zigzag
    e: Annotated[bytes, sized_in(quarter)]
    f: Annotated[str, sized_in(slow_quarter), secret]
    words: list8[text_zigzag]
    pairs: Annotated[
        bytes,
        custom(
            lambda frame, start, _end: (frame[start + 1 : (end := start + 1 + 2 * frame[start])], end),
            lambda value: bytes([len(value) // 2]) + value,
            strategy=lambda: st.binary(max_size=6).map(lambda data: data + data),
            title="pairs",
            dissect=dissect_pairs,
        ),
    ]
    tail: rest_bytes


VARYING = FrameSet("varying", Varying, [Numbered, Sized])
SETS = (SAMPLER, SMALL, PLAIN, TURNED, WIDE, VARYING)


def _from_message(_message: Message, _sender: Sender) -> Any:
    raise TranslationError("there are no messages")


def protocol(frames: FrameSet) -> Protocol:
    """Return a protocol of these frames, whose messages are empty."""
    return Protocol(
        name=frames.name,
        title=frames.name,
        transports=(Transport(Carrier.TCP, 1, frames.name),),
        decoder_version=1,
        splitter=lambda _sender, _carrier: frames.splitter(),
        decode=frames.decode,
        dissect=frames.dissect,
        clues=frames.clues,
        to_message=lambda _frame, _sender: Message(kind=Kind.TELEMETRY),
        from_message=_from_message,
    )


def frames_of(frames: FrameSet) -> st.SearchStrategy[Any]:
    return st.one_of(*frames.strategies().values())


def follows(frame: Any, rule: MessageRule) -> bool:
    """Return whether a rule is for a frame of its class."""
    for condition in rule.when:
        value = getattr(frame, condition.attribute)
        if value < condition.least if isinstance(condition, AtLeast) else value != condition.value:
            return False
    return True


def with_checksum(frames: FrameSet, wire: bytearray) -> bytearray:
    """Return the bytes with the checksum that they need, if their frames have one."""
    field = frames.envelope.checksum
    if field is None or field.checksum is None or field.size is None:
        return wire
    start, after = frames.envelope.covered(field)
    if len(wire) > start + after:
        checksum = field.checksum.compute(bytes(wire[start : len(wire) - after]))
        wire[len(wire) - field.size :] = checksum.to_bytes(field.size, field.order)
    return wire
