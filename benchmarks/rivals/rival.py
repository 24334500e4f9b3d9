"""What a protocol's rivals have to bring: one stream of small frames, and ways to read and write it."""

import struct
from collections.abc import Callable
from io import BytesIO
from typing import Any

import construct
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from msgspec import Struct

from wirelake.protocols.frame import Frame, Sender


class Case(Struct):
    """`frame` in a stream; each rival reads a whole stream and answers how many frames it found."""

    protocol: str
    sender: Sender
    frame: Frame
    fields: dict[str, Any]  # the same content, for msgpack and protobuf
    plain: Callable[[bytes], int]
    layout: construct.Construct | None = None  # one frame, declared with construct
    layout_value: Any = None  # what construct builds it from
    kaitai: type | None = None  # as the Kaitai Struct compiler would write it


class PlainReader:
    """What one writes first: a cursor, and one struct.unpack with a slice for each field."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.position = 0

    def take(self, size: int) -> bytes:
        piece = self.data[self.position : self.position + size]
        self.position += size
        return piece

    def unpack(self, code: str) -> Any:
        return struct.unpack(code, self.take(struct.calcsize(code)))[0]

    @property
    def more(self) -> bool:
        return self.position < len(self.data)


def construct_count(layout: construct.Construct, stream: bytes) -> int:
    """Frame by frame from a stream: faster than GreedyRange, which also keeps a position for each."""
    source = BytesIO(stream)
    count = 0
    while source.tell() < len(stream):
        layout.parse_stream(source)
        count += 1
    return count


_PROTOBUF_TYPES = {str: 9, bytes: 12, int: 3, float: 1}
_REPEATED, _OPTIONAL = 3, 1


def protobuf_message(name: str, fields: dict[str, Any]) -> Any:
    """A filled protobuf message with these fields, as protoc would have made its class."""
    file = descriptor_pb2.FileDescriptorProto(name=f"{name}.proto", package="bench", syntax="proto3")
    kind = file.message_type.add(name=name)
    for number, (field, value) in enumerate(fields.items(), start=1):
        many = isinstance(value, list)
        sample = value[0] if many else value
        kind.field.add(
            name=field, number=number, type=_PROTOBUF_TYPES[type(sample)], label=_REPEATED if many else _OPTIONAL
        )
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    made = message_factory.GetMessageClass(pool.FindMessageTypeByName(f"bench.{name}"))
    return made(**fields)
