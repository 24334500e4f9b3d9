"""Read a frame by its description, field by field: for its tree, for what is secret in it, and for errors.

The order of the checks here defines which error a bad frame has. After the length, the checksum is checked first: a
frame that was damaged on its way is reported as such, and shown as far as it can be read.
"""

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from wirelake.errors import ProtocolError
from wirelake.layout.envelope import EnvelopeSpec, constant_of
from wirelake.layout.field_walk import FieldWalk
from wirelake.layout.fields import (
    ByteOrder,
    FieldSpec,
    ShortLength,
)
from wirelake.layout.frame import LayoutFrame
from wirelake.protocols.frame import Sender
from wirelake.protocols.tree import Dissector, Tree

_PREFIX_CODES = {1: "B", 2: "H", 4: "I"}
_TEXT_BLANK = b"*"


class FrameWalk(FieldWalk):
    """One walk over the bytes of a frame. Afterwards, `secrets` has the ranges of the secret fields."""

    def __init__(self, data: bytes, sender: Sender, envelope: EnvelopeSpec, kinds: Sequence[Any], name: str) -> None:
        super().__init__(Dissector(data, name))
        self.kind: type[LayoutFrame] | None = None
        self.body_start: int | None = None
        self._checksum_note = ""
        self._sender = sender
        self.envelope = envelope
        self.kinds = kinds
        self._name = name
        self.error: ProtocolError | None = None
        try:
            self._walk()
        except ProtocolError as error:
            self.error = error

    def tree(self) -> Tree:
        return Tree(self.dissector.root, self.error)

    def _walk(self) -> None:
        d, envelope = self.dissector, self.envelope
        rest = list(envelope.head)
        if envelope.length is not None:
            while rest:
                field = rest.pop(0)
                self._head_field(field)
                if field is envelope.length:
                    break
        else:
            while rest and rest[0].const is not None:
                self._head_field(rest.pop(0))
        fault = self._checksum_fault()
        if fault is None:
            self._after_length(rest)
            return
        with suppress(ProtocolError):
            self._after_length(rest)
        d.end = len(d.data)
        raise fault

    def _after_length(self, rest: list[FieldSpec]) -> None:
        d, envelope = self.dissector, self.envelope
        tail = envelope.tail_size
        if tail:
            d.need(tail, envelope.tail[0].name)
        d.end -= tail
        if not envelope.opcode:
            self.kind = self._choose(None)
        for field in rest:
            self._head_field(field)
        if self.kind is None:
            raise ProtocolError("unknown_frame", f"no frame that a {self._sender} sends", 0)
        self.body_start = d.position
        if envelope.is_datagram:
            self._check_datagram(self.kind)
        self.fields(self.kind.__layout_fields__)
        d.finish()
        d.end += tail
        for field in envelope.tail:
            self.field(field)
            if field.checksum is not None:
                d.note(self._checksum_note)

    def _check_datagram(self, kind: type[LayoutFrame]) -> None:
        """Refuse a datagram that is too short for the fields that every frame of this kind begins with.

        It has no length that could say so.
        """
        d, needed = self.dissector, self.dissector.position
        for field in kind.__layout_fields__:
            if field.size is None:
                break
            needed += field.size
        if d.end < needed:
            text = f"a {kind.name} needs {needed} byte{'s' if needed > 1 else ''}, this has {d.end}"
            raise ProtocolError("short", text, d.end)

    def _head_field(self, field: FieldSpec) -> None:
        d, start = self.dissector, self.dissector.position
        if field.name == self.envelope.order_shown_by:
            d.need(field.size or 0, field.name)
            self.order = self._shown_order(field, d.data[start : start + (field.size or 0)])
        value = self.field(field)
        if field.per_frame is not None and value not in {constant_of(field, kind) for kind in self.kinds}:
            self._refuse_per_frame(field, value, start)
        if field.length is not None:
            self._check_length(field, int(value), start)
        if field.opcode is not None:
            number = int(value) & field.opcode.mask if field.opcode.mask else int(value)
            self.kind = self._choose(number)
            if self.kind is None:
                code = field.opcode.code or f"unknown_{field.name}"
                raise ProtocolError(code, f"{field.name} {number} is not one that a {self._sender} sends", start)
            for each in self.envelope.head:
                seen = self.values.get(each.name)
                if each.per_frame is not None and seen not in (None, constant_of(each, self.kind)):
                    self._refuse_per_frame(each, seen, self.envelope.before(each.name) or 0)
            if not field.opcode.mask:
                d.note(f"{self.kind.name}, {self.order}-endian" if self.order else self.kind.name)
        elif self.kind is not None and field.per_frame is not None and value != constant_of(field, self.kind):
            self._refuse_per_frame(field, value, start)

    def _shown_order(self, field: FieldSpec, data: bytes) -> ByteOrder:
        valid = {constant_of(field, kind) for kind in self.kinds}
        is_little = int.from_bytes(data, "little") in valid and int.from_bytes(data, "big") not in valid
        return "little" if is_little else "big"

    def _refuse_per_frame(self, field: FieldSpec, value: Any, start: int) -> None:
        of = f"that of a {self.kind.name}" if self.kind is not None else "that of any frame"
        code = field.per_frame.code if field.per_frame is not None else ""
        raise ProtocolError(code or field.name, f"{field.name} {value!r} is not {of}", start)

    def _choose(self, number: int | None) -> type[LayoutFrame] | None:
        for kind in self.kinds:
            if kind.opcode == number and (kind.sender is None or kind.sender is self._sender):
                if self._name != kind.name:
                    self.dissector.root.name = f"{self._name} {kind.name}"
                chosen: type[LayoutFrame] = kind
                return chosen
        return None

    def _check_length(self, field: FieldSpec, value: int, start: int) -> None:
        role, d = field.length, self.dissector
        if role is None:
            return
        if value < role.at_least:
            text = f"{field.name} {value}: the least is {role.at_least}"
            raise ProtocolError(f"{field.name}_min", text, start)
        if isinstance(field.kind, ShortLength):
            whole = d.position + value - role.plus
        else:
            added = sum(self.values[name] for name in self.envelope.added_sizes)
            whole = value + added + self.envelope.added_to_length()
        if whole != len(d.data):
            counted = value + len(d.data) - whole
            raise ProtocolError(role.code or field.name, f"{field.name} says {value}, the frame has {counted}", start)

    def _checksum_fault(self) -> ProtocolError | None:
        field, d = self.envelope.checksum, self.dissector
        if field is None or field.checksum is None or d.left < self.envelope.tail_size:
            return None
        start, after = self.envelope.covered(field)
        left = self.envelope.tail_size
        for each in self.envelope.tail:
            if each is field:
                break
            left -= each.size or 0
        place = len(d.data) - left
        stored = int.from_bytes(d.data[place : place + (field.size or 0)], field.order)
        computed = field.checksum.compute(d.data[start : len(d.data) - after])
        digits = 2 + 2 * (field.size or 0)
        self._checksum_note = "right" if stored == computed else f"should be {computed:#0{digits}x}"
        if stored == computed:
            return None
        text = f"{field.name} is {stored:#0{digits}x}, the bytes before it give {computed:#0{digits}x}"
        return ProtocolError(field.checksum.code or field.name, text, place)


def redact(walk: FrameWalk) -> bytes:
    """Return the bytes of a frame with its secrets blanked: of the same length, and with a right checksum.

    In a malformed frame, secrets cannot be told from the rest, and even its opcode may be wrong: then its whole body is
    blanked. Without secrets, return the same object.
    """
    if not walk.secrets and walk.error is None:
        return walk.dissector.data
    envelope, data = walk.envelope, bytearray(walk.dissector.data)
    for start, end, blank in walk.secrets:
        data[start:end] = blank
    if walk.error is not None:
        start = walk.dissector.position if walk.body_start is None else walk.body_start
        data[start:] = bytes(len(data) - start)
        return bytes(data)
    field = envelope.checksum
    if walk.secrets and field is not None and field.checksum is not None:
        start, after = envelope.covered(field)
        checksum = field.checksum.compute(bytes(data[start : len(data) - after]))
        size = field.size or 0
        data[len(data) - size :] = checksum.to_bytes(size, field.order)
    return bytes(data)
