"""Everything that is derived from the descriptions of a protocol's frames."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from math import log2
from typing import TYPE_CHECKING, Any

from wirelake.layout.decoding import generate_decode
from wirelake.layout.diagram import frame_markdown, part_markdown, parts_of
from wirelake.layout.envelope import Envelope
from wirelake.layout.fields import Bool8, Counted, FieldSpec, Prefixed, SizedBytes, has_secret
from wirelake.layout.frame import LayoutFrame, source
from wirelake.layout.splitting import LayoutSplitter, generate_splitter
from wirelake.layout.walk import FrameWalk, redact
from wirelake.protocols.frame import Sender
from wirelake.protocols.protocol import Clue
from wirelake.protocols.tree import Tree

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy

_NOWHERE = slice(0, 0)
_PREFIX_BITS = 8.0  # sizes inside a body that lead to its last byte


class FrameSet:
    """The frames of a protocol inside their envelope. `name` is the protocol's, and the first word of its trees.

    `decode`, `dissect` and `clues` are what a `Protocol` takes; `splitter` is a class, made with `frame_bytes_max`.
    `units` are those of the fields that are `scaled`, by name.
    """

    def __init__(self, name: str, envelope: type[Envelope], frames: Sequence[type[LayoutFrame]]) -> None:
        self.name = name
        self.envelope = envelope.spec
        self.frames = tuple(frames)
        self._check()
        self._decode_source = generate_decode(self.envelope, self.frames, f"{name}.decode")
        decode = self._decode_source.compile(dissect=self.dissect)["decode"]
        self.decode: Callable[[bytes, Sender], LayoutFrame] = decode
        self._opcode_place = self._find_opcode()
        self._harmless = {sender: self._harmless_opcodes(sender) for sender in Sender}
        made = generate_splitter(self.envelope, self.frames, f"{name}.splitter", self.dissect)
        self._splitter_source, splitter = made
        self.splitter: type[LayoutSplitter] = splitter
        fields = [field for kind in self.frames for field in (*self.envelope.carried, *kind.__layout_fields__)]
        self.units = {field.name: field.scale.unit for field in fields if field.scale is not None}

    def dissect(self, frame: bytes, sender: Sender) -> Tree:
        """Return the fields of a frame, up to the first error."""
        return self._walk(frame, sender).tree()

    def redact(self, frame: bytes, sender: Sender) -> bytes:
        """Return the bytes of a frame with its secret fields blanked; its length stays the same.

        In a malformed frame, secrets cannot be told from the rest, and even its opcode may be wrong: its whole body is
        blanked. Return the same object if there is nothing to blank.
        """
        return frame if self._harmless[sender] is None else redact(self._walk(frame, sender))

    def redact_many(self, frames: Sequence[bytes], sender: Sender) -> Sequence[bytes]:
        """Redact whole frames. Those whose opcode says that they have no secrets are not looked into."""
        opcodes = self._harmless[sender]
        if opcodes is None:
            return frames
        place, redact = self._opcode_place, self.redact
        return [frame if frame[place] in opcodes else redact(frame, sender) for frame in frames]

    def clues(self, frame: bytes, sender: Sender) -> Iterator[Clue]:
        """Yield the reasons to believe that bytes which decode are a frame of this protocol."""
        decoded = self.decode(frame, sender)
        kind = type(decoded)
        for field in (*self.envelope.head, *self.envelope.tail):
            bits, size = 8.0 * (field.size or 1), field.size or 1
            if field.const is not None:
                yield Clue(bits, f"{field.name} is {_hex(field.const.value, size)}")
            elif field.length is not None:
                yield Clue(bits - 2 if size > 1 else bits - 1, f"the {field.name} fits to the byte")
            elif field.per_frame is not None:
                yield Clue(bits, f"{field.name} is that of a {kind.name}")
            elif field.opcode is not None:
                known = sum(1 for each in self.frames if each.sender in (None, sender))
                bits = field.opcode.mask.bit_count() if field.opcode.mask else bits
                yield Clue(bits - log2(known), f"{field.name} is {kind.name} from a {sender}")
            elif field.checksum is not None:
                yield Clue(bits, f"the {field.checksum.title} is right")
        if self.envelope.direction is not None and self.sender_of(decoded) is sender:
            yield Clue(1, f"the direction is that of a {sender}")
        carried = [field for field in self.envelope.carried if field.const is None]
        yield from _body_clues((*carried, *kind.__layout_fields__))

    def sender_of(self, frame: LayoutFrame) -> Sender | None:
        """Return who sends such a frame, None if both ends may."""
        field = self.envelope.direction
        if field is None or field.direction is None:
            return frame.sender
        return Sender.SERVER if getattr(frame, field.name) & field.direction.bits else Sender.CLIENT

    def strategies(self) -> Mapping[type[LayoutFrame], "SearchStrategy[Any]"]:
        """Return a Hypothesis strategy for each class of frames. Hypothesis must be installed."""
        from wirelake.layout.strategies import frame_strategy  # noqa: PLC0415 (only tests have Hypothesis)

        return {kind: frame_strategy(kind, self.envelope) for kind in self.frames}

    def markdown(self) -> str:
        """Return a byte diagram and a table of fields for each frame, for their parts, and for the frames inside."""
        found = [frame_markdown(kind, self.envelope) for kind in self.frames]
        fields = [field for kind in self.frames for field in kind.__layout_fields__]
        parts = dict.fromkeys(part for part in parts_of(fields) if part not in self.frames)
        found += [part_markdown(part) for part in parts]
        contains = [field.contains for field in fields if field.contains is not None]
        inside = dict.fromkeys(content.frames for each in contains for content in each.contents)
        found += [frames.markdown().rstrip() for frames in inside]
        return "\n\n".join(found) + "\n"

    def source(self) -> str:
        """Return all generated source: `decode`, the splitter's `_ends`, and `encode` of each class."""
        parts = [("decode", self._decode_source.text), ("splitter", self._splitter_source.text)]
        parts += [(kind.__name__, source(kind)) for kind in self.frames]
        return "\n\n".join(f"# ── {title}\n\n{text}" for title, text in parts)

    @property
    def has_secrets(self) -> bool:
        """Return whether any frame has a field that is marked secret."""
        return any(opcodes is not None for opcodes in self._harmless.values())

    def _harmless_opcodes(self, sender: Sender) -> frozenset[bytes] | None:
        """Return the opcodes, as bytes, of frames without secrets; None if this sender's frames have none at all."""
        envelope = self.envelope
        kinds = [kind for kind in self.frames if kind.sender in (None, sender)]
        if not any(has_secret((*envelope.head, *kind.__layout_fields__)) for kind in kinds):
            return None
        field = envelope.opcode
        if self._opcode_place is _NOWHERE or field is None or has_secret(envelope.head):
            return frozenset()
        return frozenset(
            (kind.opcode or 0).to_bytes(field.size or 0, field.order)
            for kind in kinds
            if not has_secret(kind.__layout_fields__)
        )

    def _find_opcode(self) -> slice:
        """Return the bytes of the opcode, if they are at the same place in every frame and have one meaning."""
        field = self.envelope.opcode
        place = None if field is None else self.envelope.before(field.name)
        if field is None or place is None or field.opcode is None or field.opcode.mask:
            return _NOWHERE
        return slice(place, place + (field.size or 0))

    def _walk(self, frame: bytes, sender: Sender) -> FrameWalk:
        return FrameWalk(frame, sender, self.envelope, self.frames, self.name)

    def _check(self) -> None:
        taken: dict[tuple[int | None, Sender], str] = {}
        for kind in self.frames:
            if kind.envelope is not self.envelope:
                raise TypeError(f"{kind.__name__} has another envelope than {self.envelope.name}")
            if (kind.opcode is None) != (self.envelope.opcode is None):
                raise TypeError(f"{kind.__name__}: an opcode is needed if the envelope has one, and only then")
            missing = self.envelope.attributes - set(kind.__struct_fields__)
            if missing:
                raise TypeError(f"{kind.__name__} needs an attribute for {', '.join(sorted(missing))} of its envelope")
            for sender in Sender if kind.sender is None else (kind.sender,):
                other = taken.setdefault((kind.opcode, sender), kind.__name__)
                if other != kind.__name__:
                    raise TypeError(f"{kind.__name__} and {other} have the same opcode")


def _body_clues(fields: Sequence[FieldSpec]) -> Iterator[Clue]:
    sized = [
        field.name
        for field in fields
        if isinstance(field.kind, Prefixed | SizedBytes | Counted) and not field.is_optional
    ]
    if sized:
        yield Clue(_PREFIX_BITS, f"the size of {sized[0]} fits")
    for field in fields:
        if field.is_optional:
            continue
        if field.const is not None:
            yield Clue(8.0 * (field.size or 1), f"{field.name} is {_hex(field.const.value, field.size or 1)}")
        elif field.flags is not None and field.flags.reserved:
            yield Clue(field.flags.reserved.bit_count(), f"the reserved bits of {field.name} are zero")
        elif field.between is not None:
            known = field.between.most - field.between.least + 1
            yield Clue(8.0 * (field.size or 1) - log2(known), f"{field.name} is in its range")
        elif field.enum is not None:
            yield Clue(8.0 * (field.size or 1) - log2(len(field.enum)), f"{field.name} has a known value")
        elif isinstance(field.kind, Bool8):
            yield Clue(7, f"{field.name} is 0 or 1")


def _hex(value: int | bytes, size: int) -> str:
    return value.hex().upper() if isinstance(value, bytes) else f"{value:0{2 * size}X}"
