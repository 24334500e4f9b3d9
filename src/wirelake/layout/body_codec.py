"""The fields of one class of frames alone: for bodies that travel without their envelope, or inside something else."""

from collections.abc import Callable
from typing import Any, Generic, TypeVar

from wirelake.errors import ProtocolError
from wirelake.layout.decoding import generate_body_decode
from wirelake.layout.envelope import NO_ENVELOPE
from wirelake.layout.field_walk import FieldWalk
from wirelake.layout.frame import LayoutFrame
from wirelake.layout.writing import generate_encode
from wirelake.protocols.tree import Dissector, Tree

F = TypeVar("F", bound=LayoutFrame)


class BodyCodec(Generic[F]):
    """Decode, encode and dissect the fields of a class, which fill some bytes. Offsets count from the first of them."""

    def __init__(self, kind: type[F]) -> None:
        described = [field.name for field in kind.__layout_fields__]
        if sorted(described) != sorted(kind.__struct_fields__):
            raise TypeError(f"{kind.__name__} has values of its envelope, which are not in its body")
        self.kind = kind
        name = f"{kind.__module__}.{kind.__qualname__}"
        decode = generate_body_decode(kind, f"{name}.body").compile(dissect=self.dissect)["decode"]
        encode: Any = generate_encode(NO_ENVELOPE, kind, f"{name}.encode_body").compile()["encode"]
        self.decode: Callable[[bytes], F] = decode
        self.encode: Callable[[F], bytes] = encode

    def dissect(self, body: bytes) -> Tree:
        """Return the fields, up to the first error."""
        dissector = Dissector(body, self.kind.name)
        try:
            self.add_fields(dissector)
        except ProtocolError as error:
            return Tree(dissector.root, error)
        return Tree(dissector.root)

    def add_fields(self, dissector: Dissector, *, before: str = "") -> None:
        """Add the fields to a tree: they fill what is left. Raise ProtocolError at the first error.

        With `before`, stop at that field; the caller goes on.
        """
        fields = self.kind.__layout_fields__
        names = [field.name for field in fields]
        FieldWalk(dissector).fields(fields[: names.index(before)] if before else fields)
        if not before:
            dissector.finish()
